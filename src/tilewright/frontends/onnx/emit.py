"""What handlers of ONNX operators build with, where they ask for more than any front end has: the version of the
operator set, the data of attributes, and sub-graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

import numpy as np

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Changing, inside
from tilewright.frontends.build.problems import Failed
from tilewright.frontends.build.values import Tensor
from tilewright.graph.build import GraphBuilder

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto


class Model(Protocol):
    """The model being read, as its handlers see it."""

    draws: int
    """How many nodes drew random numbers so far."""

    copies: int
    """How often what is being read is read: the product of the steps of unrolled loops around it."""

    patterns: dict[tuple[object, ...], Changing]
    """What readings of loops told of the sizes of their states: nested ones are read again with those around them."""

    decided: set[tuple[object, ...]]
    """The loops that a reading showed to be unrolled, or no scan, where as much is known of what they take: they are
    read in that way at once when those around them are read again."""

    def tensor_data(self, tensor: TensorProto) -> np.ndarray[Any, Any]:
        """The data of a tensor in an attribute."""
        ...

    def dense_data(self, sparse: SparseTensorProto) -> np.ndarray[Any, Any]:
        """The data of a sparse tensor in an attribute, dense."""
        ...

    def body(self, graph: GraphProto, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of a sub-graph, which sees the values around it, for these inputs."""
        ...

    def is_function(self, node: NodeProto) -> bool:
        """Whether a node calls a function of the model."""
        ...

    def call(self, node: NodeProto, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """What a node gives, which sees the values around it and these inputs."""
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
    ) -> list[Tensor] | Failed:
        """The outputs of a sub-graph in another function, where `values` stand for those around it; what kept it from
        being read there."""
        ...

    def report(self, failed: Failed) -> NoReturn:
        """Raises what kept a sub-graph from being read."""
        ...


class OnnxEmit(Emit):
    """The builder of one graph function, and the node being read: `opset` is the version of its operator set. `seed` is
    that of draws that have none of their own, `step` (u64) the place of what is being read in the loops around it."""

    seed: Tensor
    step: Tensor | None

    def __init__(self, graph: GraphBuilder, model: Model) -> None:
        super().__init__(graph)
        self.model = model
        self.opset = 0
        self.seed = self.of_array(np.array(0, np.uint64), "seed")
        self.step = None

    def within(self, graph: GraphBuilder) -> Self:
        """The builder of another function, which draws by the same seed in the same step."""
        inner = super().within(graph)
        inner.seed = inside(inner, self.seed)
        inner.step = None if self.step is None else inside(inner, self.step)
        return inner

    def key_of_draw(self, seed: int | None) -> Tensor:
        """The key of a node that draws: its own seed, or one that no other node has; in each step of a loop another."""
        self.model.draws += 1
        if seed is not None:
            key = self.of_array(np.array(seed, np.uint64), "seed")
        else:
            draw = self.of_array(np.array(self.model.draws - 1, np.uint64), "draw")
            key = self.op("random_bits", draw, self.seed)
        return key if self.step is None else self.op("random_bits", self.step, key)

    def within_step(self, step: Tensor) -> Tensor:
        """The `step` of what is read in this step (u64) of a loop here."""
        return step if self.step is None else self.op("random_bits", step, self.step)

    @contextmanager
    def repeated(self, step: int, steps: int, draws: int) -> Iterator[None]:
        """Inside, what is read is this step of a loop of so many that is unrolled, before which there were so many
        `draws`."""
        before, copies = self.step, self.model.copies
        self.model.draws, self.model.copies = draws, copies * max(steps, 1)
        self.step = self.within_step(self.of_array(np.array(step, np.uint64), "step"))
        try:
            yield
        finally:
            self.step, self.model.copies = before, copies

    @contextmanager
    def node(self, source: str, opset: int, wanted: tuple[bool, ...]) -> Iterator[None]:
        """Operators added inside come from the ONNX node `source`, of this version of the operator set."""
        before, self.opset = self.opset, opset
        try:
            with self.at(source, wanted):
                yield
        finally:
            self.opset = before
