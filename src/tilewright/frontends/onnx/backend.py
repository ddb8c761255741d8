"""The interface that the ONNX project defines for backends: `prepare` a model, then `run` it.

    prepared = backend.prepare(onnx.load("model.onnx"))
    (y,) = prepared.run([x])

What a prepared model runs on is decided by `EXECUTOR`, a function from a Module to a callable over arrays: the
compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.compiler import compile_module
from tilewright.frontends.onnx.importer import read
from tilewright.graph.nodes import Module
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]
Executor = Callable[[Module], Run]

EXECUTOR: list[Executor] = [compile_module]
"""How a module becomes something to call with arrays; one entry, which tests may exchange."""


class Prepared:
    """A compiled model. `run` takes a list of the inputs in order, or one array when there is one input."""

    def __init__(self, module: Module) -> None:
        graph = module.graph
        self.input_names = tuple(v.name for v in graph.params)
        self._call = EXECUTOR[0](module)

    def run(self, inputs: Sequence[Array] | Mapping[str, Array] | Array, **_: Any) -> tuple[Array, ...]:
        """All outputs for these inputs, by position or by name."""
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        elif isinstance(inputs, Mapping):
            missing = [name for name in self.input_names if name not in inputs]
            if missing:
                raise UserError("inputs are missing", why=f"no array for {', '.join(missing)}")
            inputs = [inputs[name] for name in self.input_names]
        results = self._call(*(np.asarray(x) for x in inputs))
        return tuple(results) if isinstance(results, tuple | list) else (results,)


def supports_device(device: str) -> bool:
    """Whether models can be run on a device: the processor only."""
    return device.partition(":")[0] == "CPU"


def is_compatible(model: ModelProto, device: str = "CPU", **_: Any) -> bool:
    """Whether the model can be read. Nothing is compiled."""
    if not supports_device(device):
        return False
    try:
        read(model)
    except UserError:
        return False
    return True


def prepare(model: ModelProto, device: str = "CPU", **_: Any) -> Prepared:
    """The model, compiled for the processor of this machine."""
    if not supports_device(device):
        raise UserError(f"the device {device!r} is not supported", fix="take the device 'CPU'")
    return Prepared(read(model))


def run_model(model: ModelProto, inputs: Sequence[Array], device: str = "CPU", **_: Any) -> tuple[Array, ...]:
    """Prepare a model and run it once."""
    return prepare(model, device).run(inputs)


def run_node(
    node: NodeProto, inputs: Sequence[Array], device: str = "CPU", outputs_info: object = None, **options: Any
) -> tuple[Array, ...]:
    """Run one node on these inputs, whose types it takes. `opset_version` is the newest one unless given."""
    from onnx import defs, helper

    names = [name for name in node.input if name]
    if len(names) != len(inputs):
        raise UserError("a node is run with the wrong number of inputs", why=f"it has {len(names)}, got {len(inputs)}")
    arrays = [np.asarray(x) for x in inputs]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, arrays, strict=True)
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", infos, results)
    version = int(options.get("opset_version", defs.onnx_opset_version()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
    return run_model(model, arrays, device)
