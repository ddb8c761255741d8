"""Sub-graphs as the bodies of loops that end by a condition, or whose steps differ.

A state may change its size from step to step. Which of its extents do is found by reading the body: at first none is
taken to change; an extent of the next state that differs from that of the state before is a symbol of the body when it
is read again, until a reading shows no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import substitute
from tilewright.expr import dtypes
from tilewright.expr.build import equal
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.loop import Changing, Extents, Repeat, Results
from tilewright.frontends.build.problems import Failed, Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.operators.repeat import names_used, place_of_loop, truth

if TYPE_CHECKING:
    from onnx import GraphProto

Inputs = Callable[[OnnxEmit, Expr, Sequence[Tensor]], list[Tensor]]
"""What the inputs of a sub-graph are, given the builder of the body, the number of the step and the states."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A body that was read: whether to go on, the next states, and what is stacked."""

    loop: Repeat[OnnxEmit]
    proceed: Tensor
    states: list[Tensor]
    stacked: list[Tensor]

    def is_told_by_step(self) -> bool:
        """Whether the number of a step alone tells whether there is another."""
        content = self.proceed.content
        return content is not None and all(e.variables <= {self.loop.step} for e in content.reshape(-1))

    def finish(self) -> Results:
        """The loop itself; the states after the last step, and the stacked outputs."""
        return self.loop.finish(self.proceed, self.states, self.stacked)

    def finish_counted(self, steps: Expr) -> Results | None:
        """The same as a scan of so many steps; None where it is none: steps may end it, or decide sizes."""
        if not truth(self.proceed) or not self.loop.has_steps_alike():
            return None
        return self.loop.finish_counted(steps, self.states, self.stacked)


class Ending:
    """A loop of a sub-graph that ends by a condition: `go` says whether it begins, `most` bounds its steps. The first
    result of the sub-graph says whether to go on where it is `conditional`."""

    def __init__(
        self,
        outside: OnnxEmit,
        graph: GraphProto,
        go: Tensor,
        initial: Sequence[Tensor],
        most: Expr | None,
        inputs: Inputs,
        *,
        conditional: bool,
    ) -> None:
        self.outside, self.graph, self.go, self.initial, self.most = outside, graph, go, list(initial), most
        self._inputs, self._conditional = inputs, conditional
        key = *place_of_loop(outside, graph), *(t.rank for t in initial)
        self.changing = outside.model.patterns.setdefault(key, Changing())
        self.known: set[str] = set()
        self.why = ""
        self._failed: Failed | None = None

    def read(self) -> Turn | None:
        """The body, read until it is known which extents change; None where it cannot be read: `why`, unless reading
        it says so."""
        graph, model, draws = self.outside.graph, self.outside.model, self.outside.model.draws
        while True:
            model.draws = draws
            self.known = set(graph.bodies)
            turn = self._turn()
            if turn is not None and self._keeps_types(turn) and not self.changing.learn(self._extents(turn)):
                turn = self._stackable(turn)
                if turn is not None:
                    return turn
            graph.forget(self.known)
            if turn is None or self.why:
                model.draws = draws
                return None

    def report(self) -> Unsupported:
        """Why the body cannot be read; raises what reading it says."""
        if self._failed is not None:
            self.outside.model.report(self._failed)
        return Unsupported(self.why)

    def _begin(self) -> tuple[Repeat[OnnxEmit], list[Tensor], Mapping[str, Tensor]]:
        outside = self.outside
        changing = self.changing.numbers([t.shape for t in self.initial])
        loop = Repeat(outside, "step", self.go, self.initial, changing, self.most)
        b = loop.b
        b.step = b.within_step(b.cast(b.of_size(loop.step), dtypes.u64))
        within = {name: loop.inside(t) for name, t in outside.model.visible(names_used(self.graph)).items()}
        return loop, self._inputs(b, loop.step, loop.states), within

    def _turn(self) -> Turn | None:
        loop, inputs, within = self._begin()
        results = self.outside.model.attempt(self.graph, inputs, loop.b, within)
        if isinstance(results, Failed):
            self._failed = results
            return None
        proceed = results.pop(0) if self._conditional else loop.b.scalar(True, dtypes.bool_)
        if proceed.dtype is not dtypes.bool_:
            raise self.outside.error(
                f"its body says by a number of type {proceed.dtype} whether to go on, not by a bool"
            )
        count = len(self.initial)
        states = [self._alike(loop.b, x, s) for x, s in zip(results, loop.states, strict=False)]
        return Turn(loop, proceed, states, results[count:])

    def _alike(self, b: OnnxEmit, result: Tensor, state: Tensor) -> Tensor:
        """A next state, under the shape of the one before where both are the same in other words."""
        if result.rank != state.rank or result.shape == state.shape:
            return result
        same = [simplify(equal(d, e)) for d, e in zip(result.shape, state.shape, strict=True)]
        return b.reshape(result, state.shape) if all(isinstance(e, Const) and e.value for e in same) else result

    def _keeps_types(self, turn: Turn) -> bool:
        """Whether states keep their element types and ranks."""
        for n, (state, result) in enumerate(zip(self.initial, turn.states, strict=True)):
            if (state.dtype, state.rank) != (result.dtype, result.rank):
                was, becomes = (f"{t.dtype} of {t.rank} dimensions" for t in (state, result))
                self.why = f"the state {n} of the loop begins as {was} and goes on as {becomes}"
        return not self.why

    def _extents(self, turn: Turn) -> Extents:
        """What each extent of a state is at first, in a step, and in the next one."""
        found: Extents = {}
        for n, (first, state, result) in enumerate(zip(self.initial, turn.loop.states, turn.states, strict=True)):
            each = enumerate(zip(first.shape, state.shape, result.shape, strict=True))
            found.update({(n, axis): extents for axis, extents in each})
        return found

    def _stackable(self, turn: Turn) -> Turn | None:
        """The same with outputs that have one size in all steps, which each step checks: that of the first one. None,
        and `why`, where that is not known before the loop."""
        extents = self._extents(turn)
        begins: dict[Expr, CoreNode] = {now: first for first, now, _ in extents.values() if isinstance(now, Var)}
        begins[turn.loop.step] = const(0)
        stacked = []
        for n, output in enumerate(turn.stacked):
            shape = [simplify(e) for d in output.shape if isinstance(e := substitute(d, begins), Expr)]
            if not turn.loop.are_known_outside(shape):
                self.why = f"the output {n} that the loop stacks has a size that each step takes from data"
                return None
            for d, e in zip(output.shape, shape, strict=True):
                turn.loop.b.require_equal(d, e, "a Loop stacks a dimension of {0}, which is {1} in its first step")
            stacked.append(turn.loop.b.reshape(output, shape))
        return replace(turn, stacked=stacked)
