"""What the reader needs of an If, to read a branch in its place: its branches, the names that one defines, and the
nodes that hand on its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilewright.frontends.onnx.structure import domain_of, initializer_names

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto

_BRANCHES = ("then_branch", "else_branch")


def branches_of(node: NodeProto, given: Mapping[str, AttributeProto]) -> tuple[GraphProto, GraphProto] | None:
    """The branches of a node that is an If with these attributes and nothing else; None for another node."""
    if node.op_type != "If" or domain_of(node.domain) or len(node.input) != 1 or len(node.attribute) != len(_BRANCHES):
        return None
    graphs = [given[name].g for name in _BRANCHES if name in given and given[name].type == given[name].GRAPH]
    return (graphs[0], graphs[1]) if len(graphs) == len(_BRANCHES) else None


def fits(node: NodeProto, branch: GraphProto) -> bool:
    """Whether a branch takes nothing, as it must, gives what the node does, and names no other value as a result of
    the node."""
    if branch.input or len(branch.output) != len(node.output):
        return False
    own = set(names_defined(branch))
    return all(name not in own or name == inner.name for name, inner in zip(node.output, branch.output, strict=True))


def names_defined(branch: GraphProto) -> list[str]:
    """The names that a branch gives values, of constants and of nodes."""
    return [*initializer_names(branch), *(name for node in branch.node for name in node.output if name)]


def results_of(node: NodeProto, branch: GraphProto) -> list[NodeProto]:
    """Nodes that give the results of a branch the names that they have behind the If."""
    from onnx import NodeProto

    return [
        NodeProto(op_type="Identity", name=node.name, input=[inner.name], output=[name])
        for inner, name in zip(branch.output, node.output, strict=True)
        if name and name != inner.name
    ]
