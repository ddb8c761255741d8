"""Models of one operator of ONNX Runtime's domain, and their comparison with ONNX Runtime and the evaluator."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx_runtime import session_of

from compiled_once import compiled
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"


def node(op: str, inputs: str, outputs: str = "y", domain: str = MICROSOFT, **attributes: Any) -> NodeProto:
    """`-` stands for an input that is left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), domain=domain, **attributes)


def model(
    made: NodeProto,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array] = {},
    opset: int = 17,
    fixed: Container[int] = (1,),
) -> ModelProto:
    """A model of one node; dimensions are dynamic, but for those of a `fixed` extent."""
    infos = [
        helper.make_tensor_value_info(
            k, helper.np_dtype_to_tensor_dtype(x.dtype), [n if n in fixed else f"{k}{d}" for d, n in enumerate(x.shape)]
        )
        for k, x in feeds.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in made.output if name]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph([made], "g", infos, results, held)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def typed(proto: ModelProto, arrays: list[Array]) -> ModelProto:
    """The model with the element types of its outputs, which ONNX Runtime asks for."""
    for info, array in zip(proto.graph.output, arrays, strict=True):
        info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    return proto


def check(
    made: NodeProto,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array] = {},
    tolerance: float = 2e-6,
    ties: float = 0.001,
    fixed: Container[int] = (1,),
) -> list[Array]:
    """Evaluator, compiled code and ONNX Runtime agree: floats to the tolerance, quantized numbers to one step in a part
    of them, `ties`, where the last bit of a float decides."""
    proto = model(made, feeds, constants, fixed=fixed)
    evaluated, found = list(evaluate(read(proto), feeds).values()), list(compiled(proto)(**feeds))
    for results in (evaluated, session_of(typed(proto, found)).run(None, dict(feeds))):
        for array, want in zip(found, results, strict=True):
            assert array.dtype == want.dtype and array.shape == want.shape
            if want.dtype.kind == "f":
                np.testing.assert_allclose(array, want, rtol=tolerance, atol=tolerance * max(1.0, np.abs(want).max()))
            else:
                off = np.abs(array.astype(np.int64) - want.astype(np.int64))
                assert off.max() <= 1 and (off > 0).mean() <= ties
    return found


def normal(*shape: int) -> Array:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def integers(*shape: int, dtype: Any = np.uint8) -> Array:
    kind = np.iinfo(dtype)
    return np.random.default_rng(shape).integers(kind.min, kind.max, shape, dtype, endpoint=True)


def number(x: float) -> Array:
    return np.array(x, np.float32)
