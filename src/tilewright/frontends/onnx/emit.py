"""What handlers of ONNX operators build with, where they ask for more than any front end has: the version of the
operator set, the data of attributes, and sub-graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor
from tilewright.graph.build import GraphBuilder

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto


class Model(Protocol):
    """The model being read, as its handlers see it."""

    def tensor_data(self, tensor: TensorProto) -> np.ndarray[Any, Any]:
        """The data of a tensor in an attribute."""
        ...

    def body(self, graph: GraphProto, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of a sub-graph, which sees the values around it, for these inputs."""
        ...

    def visible(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Those of the names that are tensors here."""
        ...

    def within(
        self, graph: GraphProto, inputs: Sequence[Tensor], emit: OnnxEmit, values: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """The outputs of a sub-graph in another function, where `values` stand for those around it."""
        ...

    def attempt(
        self, graph: GraphProto, inputs: Sequence[Tensor], emit: OnnxEmit, values: Mapping[str, Tensor]
    ) -> list[Tensor] | None:
        """The outputs of a sub-graph in another function, where `values` stand for those around it; None where it
        cannot be read there."""
        ...


class OnnxEmit(Emit):
    """The builder of one graph function, and the node being read: `opset` is the version of its operator set."""

    def __init__(self, graph: GraphBuilder, model: Model) -> None:
        super().__init__(graph)
        self.model = model
        self.opset = 0

    @contextmanager
    def node(self, source: str, opset: int, wanted: tuple[bool, ...]) -> Iterator[None]:
        """Operators added inside come from the ONNX node `source`, of this version of the operator set."""
        before, self.opset = self.opset, opset
        try:
            with self.at(source, wanted):
                yield
        finally:
            self.opset = before
