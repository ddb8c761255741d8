"""Loops over tensors of a model, as handlers build them: scans, and loops that end by a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from tilewright.expr.nodes import Expr, Var
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Tensor
from tilewright.graph.build_scan import ScanBuilder
from tilewright.graph.build_while import WhileBuilder
from tilewright.graph.symbolic import Direction
from tilewright.graph.verify_bodies import binds_sizes, sized_by
from tilewright.types.tensor import dim

Builder = TypeVar("Builder", bound=Emit)

Results = tuple[list[Tensor], list[Tensor]]
"""The states after the last step; the stacked outputs, the steps along their leading axis."""


class Loop(Generic[Builder]):
    """A loop while its body is built with `b`, from `states` and `slices` of the scanned tensors; `step` is the number
    of the step."""

    def __init__(
        self,
        outside: Builder,
        name: str,
        steps: Size,
        initial: Sequence[Tensor],
        scanned: Sequence[Tensor],
        reverse: Sequence[bool],
    ) -> None:
        operands = [(t.value, _direction(back)) for t, back in zip(scanned, reverse, strict=True)]
        self._scan = ScanBuilder(outside.graph, name, dim(steps), [t.value for t in initial], operands)
        self._outside = outside
        self.b = outside.within(self._scan.body)
        self.step: Expr = self._scan.step
        self.states = [self.b.of_value(v) for v in self._scan.states]
        self.slices = [self.b.of_value(v) for v in self._scan.slices]

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor from outside, as every step sees it."""
        return self.b.of_value(self._scan.whole(tensor.value), tensor.name)

    def inside(self, tensor: Tensor) -> Tensor:
        """A tensor from outside with what is known of it; a parameter of the body when it is used as data."""
        return inside(self.b, tensor)

    def finish(self, states: Sequence[Tensor], stacked: Sequence[Tensor], reverse: Sequence[bool]) -> Results:
        """The scan itself, from the next states and the outputs of a step; a reversed output is stacked from the
        last step to the first."""
        slices = [(t.value, _direction(back)) for t, back in zip(stacked, reverse, strict=True)]
        last, stacks = self._scan.finish([t.value for t in states], slices)
        return [self._outside.of_value(v) for v in last], [self._outside.of_value(v) for v in stacks]


Axis = tuple[int, int]
"""An extent of a state: the state's number and the axis."""

Extents = dict[Axis, tuple[Expr, Expr, Expr]]
"""What an extent is at first, in a step, and in the next one."""


class Changing:
    """Which extents of a loop's states change from step to step, as far as readings of its body told: each with a
    number, the same where all readings had them the same."""

    def __init__(self) -> None:
        self._groups: dict[Axis, int] = {}

    def numbers(self, first: Sequence[Sequence[Expr]]) -> list[dict[int, int]]:
        """For each state, of which the extents at first are given, its axes that change, with numbers: the same where
        they are one extent."""
        known: dict[tuple[int, Expr], int] = {}
        found: list[dict[int, int]] = [{} for _ in first]
        for (n, axis), group in sorted(self._groups.items()):
            found[n][axis] = known.setdefault((group, first[n][axis]), len(known))
        return found

    def learn(self, extents: Extents) -> bool:
        """Takes in a reading: whether it tells of extents that change and were not known to, or not to be apart."""
        known: dict[tuple[int, Expr, Expr], int] = {}
        groups: dict[Axis, int] = {}
        for axis, (first, now, next) in sorted(extents.items(), key=lambda item: item[0]):
            if now is not next or axis in self._groups:
                groups[axis] = known.setdefault((self._groups.get(axis, -1), first, next), len(known))
        before = self.numbers_of(self._groups, extents)
        self._groups = groups
        return self.numbers_of(groups, extents) != before

    @staticmethod
    def numbers_of(groups: Mapping[Axis, int], extents: Extents) -> dict[Axis, int]:
        """The groups with numbers in order, those apart that are not the same at first."""
        known: dict[tuple[int, Expr], int] = {}
        return {a: known.setdefault((groups[a], extents[a][0]), len(known)) for a in sorted(groups)}


class Repeat(Generic[Builder]):
    """A loop that ends by a condition while its body is built with `b`, from `states`; `step` is the number of the
    step. `changing` says which extents of states change, as graph/build_while.py does. Sizes that are known outside are
    known in the body; those that a step takes from data are its own."""

    def __init__(
        self,
        outside: Builder,
        name: str,
        go: Tensor,
        initial: Sequence[Tensor],
        changing: Sequence[Mapping[int, int]],
        most: Expr | None,
    ) -> None:
        first = [t.value for t in initial]
        self._while = WhileBuilder(outside.graph, name, outside.reshape(go, ()).value, first, changing, most)
        self._outside = outside
        self.b = outside.within(self._while.body)
        self.states = [self.b.of_value(v) for v in self._while.states]
        self.step: Expr = self._while.step

    def inside(self, tensor: Tensor) -> Tensor:
        """A tensor from outside with what is known of it; a parameter of the body when it is used as data."""
        return inside(self.b, tensor)

    def are_known_outside(self, sizes: Sequence[Expr]) -> bool:
        """Whether no step decides these sizes."""
        own = self._while.body.late - self._outside.graph.late
        return not any(own & {v for v in d.variables if isinstance(v, Var)} for d in sizes)

    def finish(self, go: Tensor, states: Sequence[Tensor], stacked: Sequence[Tensor]) -> Results:
        """The loop itself, from whether to go on, the next states and the outputs of a step."""
        proceed = self.b.reshape(go, ()).value
        last, stacks = self._while.finish(proceed, [t.value for t in states], [t.value for t in stacked])
        return [self._outside.of_value(v) for v in last], [self._outside.of_value(v) for v in stacks]

    def has_steps_alike(self) -> bool:
        """Whether no step decides sizes: then a loop of a known number of steps is a scan."""
        inside = self.b.graph.bodies, self.b.graph.nodes
        return not self._while.changes and not binds_sizes(*inside) and not sized_by(*inside, [self._while.step])

    def finish_counted(self, steps: Expr, states: Sequence[Tensor], stacked: Sequence[Tensor]) -> Results:
        """The loop as a scan of so many steps, which are alike, from the next states and the outputs of a step."""
        last, stacks = self._while.finish_counted(steps, [t.value for t in states], [t.value for t in stacked])
        return [self._outside.of_value(v) for v in last], [self._outside.of_value(v) for v in stacks]


def inside(body: Emit, tensor: Tensor) -> Tensor:
    """A tensor from outside of a body with what is known of it; a parameter of the body when it is used as data."""
    return Tensor(
        body,
        tensor.dtype,
        tensor.shape,
        make=lambda: tensor.value,
        content=tensor.content,
        array=tensor.array,
        name=tensor.name,
    )


def _direction(reverse: bool) -> Direction:
    return Direction.REVERSE if reverse else Direction.FORWARD
