"""Builds scans: a node that repeats, and the function that it runs.

    loop = ScanBuilder(g, "cell", steps, [h0], [(xs, Direction.FORWARD)])
    (h,), (x,), w = loop.states, loop.slices, loop.whole(weights)
    b = loop.body                                                     a builder of the body
    next = b.op("tanh", b.op("add", x, b.op("contract", h, w, spec="bh,hg->bg")))
    (last,), (ys,) = loop.finish([next], [(next, Direction.FORWARD)])

The body has symbols of its own: one for each extent of an operand that is not a number, `loop.step` for the number of
the step where it uses that, and those of the function around it that it uses otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Var, as_expr
from tilewright.graph.build import GraphBuilder
from tilewright.graph.build_if import free_symbols
from tilewright.graph.nodes import Value
from tilewright.graph.symbolic import Direction
from tilewright.types.tensor import TensorType

Directed = tuple[Value, Direction]


class ScanBuilder:
    """A scan while its body is built: `states` and `slices` are parameters of the body, and what `whole` gives;
    `symbols` are those of the body, by the extents that they replace."""

    def __init__(
        self,
        graph: GraphBuilder,
        name: str,
        steps: Expr | int,
        initial: Sequence[Value],
        scanned: Sequence[Directed] = (),
    ) -> None:
        self.graph = graph
        self.body = graph.body(name)
        self.steps = as_expr(steps)
        self.inputs = [*initial, *(v for v, _ in scanned)]
        self.scanned = tuple(d for _, d in scanned)
        self.symbols: dict[Expr, Var] = {}
        self.step = Var("step")
        self.body.late.add(self.step)
        self.states = tuple(self._param(v, v.type.shape) for v in initial)
        self.slices = tuple(self._param(v, v.type.shape[1:]) for v, _ in scanned)
        self._whole: dict[Value, Value] = {}
        self.body.outside = self.whole

    def whole(self, value: Value) -> Value:
        """The parameter of the body for a value from outside that every step takes as it is. Nodes of the body that
        take values from outside take these."""
        if value not in self._whole:
            self._whole[value] = self._param(value, value.type.shape)
            self.inputs.append(value)
        return self._whole[value]

    def _param(self, value: Value, shape: tuple[Expr, ...]) -> Value:
        type = TensorType.of(value.type.dtype, [self._inside(d) for d in shape])
        return self.body.param(f"{value.name}.{len(self.body.params)}", type)

    def _inside(self, extent: Expr) -> Expr:
        """The extent as the body knows it."""
        if isinstance(extent, Const):
            return extent
        if extent not in self.symbols:
            name = extent.name if isinstance(extent, Var) else f"n{len(self.symbols)}"
            self.symbols[extent] = self.body.symbol(name)
        return self.symbols[extent]

    def finish(
        self, states: Sequence[Value], stacked: Sequence[Directed] = ()
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Adds the node for these next states and slices of stacked outputs; the last states, and the stacks."""
        results = [self.body.known(v) for v in (*states, *(v for v, _ in stacked))]
        names = [f"{v.name}.{n}" for n, v in enumerate(results)]
        free = free_symbols(self.body)
        around = sorted(free.difference(self.symbols.values(), [self.step]), key=lambda s: s.serial)
        self.body.symbols += [*around, *([self.step] if self.step in free else ())]
        body = self.body.function(dict(zip(names, results, strict=True)))
        self.graph.bodies[body.name] = body
        outside: dict[Expr, CoreNode] = {inner: outer for outer, inner in self.symbols.items()}
        types = []
        for n, value in enumerate(results):
            shape = [substitute(d, outside) for d in value.type.shape]
            types.append(TensorType.of(value.type.dtype, shape if n < len(states) else [self.steps, *shape]))
        outputs = self.graph.ops(
            "scan",
            *self.inputs,
            body=body.name,
            symbols=(*self.symbols, *around),
            steps=self.steps,
            states=len(states),
            scanned=self.scanned,
            stacked=tuple(d for _, d in stacked),
            types=tuple(types),
        )
        return outputs[: len(states)], outputs[len(states) :]
