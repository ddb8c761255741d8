"""Models of a few nodes, compiled: what the tests of bad calls and bad values share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Any] | None = None,
) -> ModelProto:
    """A model of opset 21; `inputs` gives element type and shape, outputs are declared without a type."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def one_node(node: NodeProto, feeds: Mapping[str, np.ndarray[Any, Any]], constants: Sequence[str] = ()) -> ModelProto:
    """A model of one node. Inputs named `constants` are initializers with the values in `feeds`; the others have shapes
    of symbols, except for small vectors (sizes, axes, scales …), whose length must be known."""
    inputs = {}
    for name, array in feeds.items():
        if name not in constants:
            known = array.ndim == 1 and array.size <= 4
            shape = array.shape if known else [f"{name}{d}" for d in range(array.ndim)]
            inputs[name] = (helper.np_dtype_to_tensor_dtype(array.dtype), shape)
    held = {name: feeds[name] for name in constants}
    return model([node], inputs, [name for name in node.output if name], held)
