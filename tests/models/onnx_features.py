"""What a case of ONNX's backend suite is about: the ways in which it uses operators."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from onnx import ModelProto, NodeProto, helper

ELEMENT_TYPES = ("to", "dtype")
"""Attributes whose integers are element types."""


def features_of(model: ModelProto) -> set[Hashable]:
    """Of each node its operator, its attributes, and which inputs and outputs are there; of each input and output of
    the model its element type; whether one is empty; the rank of the first input. Those of a model of one node come
    with its operator."""
    graph = model.graph
    alone = graph.node[0].op_type if len(graph.node) == 1 else f"… {graph.node[-1].op_type}"
    found: set[Hashable] = {feature for node in graph.node for feature in _features_of_node(node)}
    for way, infos in (("in", graph.input), ("out", graph.output)):
        for n, info in enumerate(infos):
            type = info.type.tensor_type
            found.add((alone, way, n, type.elem_type))
            if any(d.HasField("dim_value") and d.dim_value == 0 for d in type.shape.dim):
                found.add((alone, "empty"))
    for info in graph.input[:1]:
        found.add((alone, "rank", len(info.type.tensor_type.shape.dim)))
    return found


def _features_of_node(node: NodeProto) -> Iterator[tuple[Hashable, ...]]:
    """Of an attribute that is text or an element type its value, of another integer its sign. The attributes
    and absent inputs of a reduction are those of all: axes are read in the same way."""
    family = "Reduce" if node.op_type.startswith("Reduce") else node.op_type
    yield node.op_type, "alone"
    yield family, "in", tuple(map(bool, node.input))
    yield family, "out", tuple(map(bool, node.output))
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, int) and attribute.name not in ELEMENT_TYPES:
            value = (value > 0) - (value < 0)
        yield family, attribute.name, value if isinstance(value, int | bytes) else attribute.type
