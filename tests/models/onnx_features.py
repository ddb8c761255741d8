"""What a case of ONNX's backend suite is about: the ways in which it uses operators."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, helper

FEW = 8
"""Integers in an input that say what is to be done, such as axes or a shape."""


def features_of(model: ModelProto, inputs: Sequence[object]) -> list[Hashable]:
    """Versions of operator sets; of each node its operator, attributes, inputs and outputs that are there; of each
    input and output of the model its element type, rank, and which dimensions are empty, or of one element; and few
    integers themselves. Those of a model of one node come with its operator."""
    graph = model.graph
    alone = graph.node[0].op_type if len(graph.node) == 1 else f"… {graph.node[-1].op_type}"
    found: dict[Hashable, None] = dict.fromkeys((alone, o.domain, o.version) for o in model.opset_import)
    for node in graph.node:
        found |= dict.fromkeys(_features_of_node(node))
    for way, infos in (("in", graph.input), ("out", graph.output)):
        for n, info in enumerate(infos):
            type = info.type.tensor_type
            sizes = tuple(min(d.dim_value, 2) if d.HasField("dim_value") else None for d in type.shape.dim)
            found |= dict.fromkeys([(alone, way, n, "type", type.elem_type), (alone, way, n, sizes)])
    for n, given in enumerate(inputs):
        if isinstance(given, np.ndarray) and given.dtype.kind == "i" and given.size <= FEW:
            found[alone, n, given.tobytes()] = None
    return list(found)


def _features_of_node(node: NodeProto) -> Iterator[tuple[Hashable, ...]]:
    yield node.op_type, tuple(sorted(attribute.name for attribute in node.attribute))
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        is_data = hasattr(value, "SerializeToString")
        yield node.op_type, attribute.name, attribute.type if is_data else repr(value)
    yield node.op_type, "in", tuple(map(bool, node.input))
    yield node.op_type, "out", tuple(map(bool, node.output))
