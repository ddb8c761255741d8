"""Builds loops that end by a condition: a node that repeats, and the function that it runs.

    loop = WhileBuilder(g, "cell", go, [h0], changing=[{0: 0}], most=n)   h0: f32[n, 4], and the number of rows changes
    (h,), b = loop.states, loop.body                                    b is a builder of the body
    next = b.op("concat", h, w, axis=0)                                 which sees the values of g
    on = b.op("lt", b.op("reduce", next, kind="max", axes=(0, 1)), limit)
    (last,), (ys,) = loop.finish(on, [next], [w])                       last has as many rows as the last state

The body has the symbols of the function around it, `step` for the number of the step, and one for each extent that
changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Expr, Var
from tilewright.graph.build import GraphBuilder
from tilewright.graph.build_if import free_symbols
from tilewright.graph.nodes import Value
from tilewright.graph.symbolic import Direction, While
from tilewright.types.tensor import TensorType


class WhileBuilder:
    """A loop while its body is built: `states` are parameters of the body, `step` is the number of the step. `changing`
    has a mapping for each state: the axes whose extents change from step to step, with a number for each extent; the
    same number is the same extent. `changes` are the symbols of these extents, by their numbers."""

    def __init__(
        self,
        graph: GraphBuilder,
        name: str,
        go: Value,
        initial: Sequence[Value],
        changing: Sequence[Mapping[int, int]] = (),
        most: Expr | None = None,
    ) -> None:
        self.graph, self.most = graph, most
        self.body = graph.branch(name)
        self.inputs = [graph.known(go), *map(graph.known, initial)]
        self.step = Var("step")
        self.changes: dict[int, Var] = {}
        axes = changing or [{} for _ in initial]
        self.states = tuple([self._param(v, of) for v, of in zip(self.inputs[1:], axes, strict=True)])
        self.body.late |= {self.step, *self.changes.values()}
        self._whole: dict[Value, Value] = {}
        self.body.outside = self.whole

    def whole(self, value: Value) -> Value:
        """The parameter of the body for a value from outside that every step takes as it is. Nodes of the body that
        take values from outside take these."""
        value = self.graph.known(value)
        if value not in self._whole:
            self._whole[value] = self._param(value, {})
            self.inputs.append(value)
        return self._whole[value]

    def _param(self, value: Value, changing: Mapping[int, int]) -> Value:
        shape = list(value.type.shape)
        for axis, number in changing.items():
            shape[axis] = self.changes.setdefault(number, Var(f"m{number}"))
        return self.body.param(f"{value.name}.{len(self.body.params)}", TensorType.of(value.type.dtype, shape))

    def finish(
        self, go: Value, states: Sequence[Value], stacked: Sequence[Value] = ()
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Adds the node, for whether to go on, these next states, and slices of stacked outputs; the last states, and
        the stacks."""
        results = [self.body.known(v) for v in (go, *states, *stacked)]
        given = self._add_body(results, (self.step, *self.changes.values()))
        number = len(self.graph.late)
        last = {s: Var(f"last{number + n}") for n, s in enumerate(self.changes.values())}
        steps = Var(f"steps{number}")
        outside: dict[Expr, CoreNode] = dict(last.items())
        shapes = [(v.type.dtype, [substitute(d, outside) for d in v.type.shape]) for v in self.states]
        shapes += [(v.type.dtype, [steps, *v.type.shape]) for v in results[1 + len(states) :]]
        types = tuple([TensorType.of(dtype, shape) for dtype, shape in shapes])
        attrs = While(self.body.name, len(states), types, given, self.most)
        binds = (*([steps] if stacked else []), *last.values())
        outputs = self.graph.bind("while", tuple(self.inputs), attrs, binds)
        return outputs[: len(states)], outputs[len(states) :]

    def finish_counted(
        self, steps: Expr, states: Sequence[Value], stacked: Sequence[Value] = ()
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Adds a scan of so many steps instead, where no extent of a state changes and the body binds no sizes."""
        results = [self.body.known(v) for v in (*states, *stacked)]
        given = self._add_body(results, (self.step,) if self.step in free_symbols(self.body) else ())
        types = [v.type for v in self.states]
        types += [TensorType.of(v.type.dtype, [steps, *v.type.shape]) for v in results[len(states) :]]
        outputs = self.graph.ops(
            "scan",
            *self.inputs[1:],
            body=self.body.name,
            symbols=given,
            steps=steps,
            states=len(states),
            stacked=(Direction.FORWARD,) * len(stacked),
            types=tuple(types),
        )
        return outputs[: len(states)], outputs[len(states) :]

    def _add_body(self, results: Sequence[Value], own: tuple[Var, ...]) -> tuple[Var, ...]:
        """Adds the function of the body, which gives its last symbols, `own`, values itself. The others."""
        given = tuple(sorted(free_symbols(self.body).difference(own), key=lambda s: s.serial))
        self.body.symbols = [*given, *own]
        names = [f"{v.name}.{n}" for n, v in enumerate(results)]
        self.graph.bodies[self.body.name] = self.body.function(dict(zip(names, results, strict=True)))
        return given
