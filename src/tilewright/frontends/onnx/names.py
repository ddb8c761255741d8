"""What errors and reports call nodes, and the values of a model by the names that its file gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilewright.frontends.build.names import clip
from tilewright.frontends.onnx.file import ModelFile

if TYPE_CHECKING:
    from onnx import NodeProto


def source_of(node: NodeProto) -> str:
    """How errors and reports name a node: its operator and name, or the first value that it gives."""
    name = node.name or next((f"→ {o}" for o in node.output if o), "")
    return f"{node.op_type} {clip(name)}" if name else node.op_type


def value_names(file: ModelFile) -> Mapping[str, str]:
    """Each value that a node of the model's own graph makes, with that node as errors and reports name it."""
    return {name: source_of(node) for node in file.proto.graph.node for name in node.output if name}
