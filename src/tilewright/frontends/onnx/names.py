"""The values of a model by the names that its file gives them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.onnx.file import ModelFile
from tilewright.frontends.onnx.importer import source_of


def value_names(file: ModelFile) -> Mapping[str, str]:
    """Each value that a node of the model's own graph makes, with that node as errors and reports name it."""
    return {name: source_of(node) for node in file.proto.graph.node for name in node.output if name}
