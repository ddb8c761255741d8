"""The steps of the main function while it is built: which buffer each value is, whose memory that is, which loops and
which condition are around, and where checks stand.

    h: f32[n, 4] = call(x, …)                          step  call …(x, h)         touches x and h, inside no loop
    v: f32[n*4] = reshape(h, …)                        step  view v = h           whose memory is h's
    require(n == m, …)                                 step  assert n == m, …     as early as n and m are known
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.walk import preorder
from tilewright.expr.nodes import And, Compare, Const, Expr, Not, Or, Var, const
from tilewright.expr.overflow import fits
from tilewright.expr.simplify import simplify
from tilewright.graph.nodes import Module, Node, Value
from tilewright.graph.symbolic import Require, Scan, While, ahead
from tilewright.loops.nodes import Assert, Buffer, Enlarge, Let, View
from tilewright.lower.memory.loop_lives import Step
from tilewright.types.scopes import Scope


class MainSteps:
    """The steps so far. `root` is the buffer whose memory a buffer is, `home` the loops that it was made in; `inside`
    are the loops around the next step, `guard` the condition under which it runs. `rooms` are symbols of sizes that a
    call makes larger, `growing` the buffers of so many elements that values are written into, wherever they are made.
    `floor` is the place in the innermost loop that ends by a condition, or whose steps know their number, before which
    none of its checks stands."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.steps: list[Step] = []
        self.buffers: dict[Value, Buffer] = {}
        self.root: dict[Buffer, Buffer] = {}
        self.home: dict[Buffer, tuple[Var, ...]] = {}
        self.maker: dict[Value, Node] = {}
        self.public: dict[Value, str] = {}
        self.inside: tuple[Var, ...] = ()
        self.guard: Expr | None = None
        self.floor: tuple[int, tuple[Var, ...]] = (0, ())
        self.bound: dict[Var, int] = {}
        self.checks: dict[int, list[Step]] = {}
        self.rooms: list[Var] = []
        self.growing: dict[Value, tuple[Buffer, Var]] = {}

    def ordered(self) -> list[Step]:
        """The steps with the checks at their places."""
        return [s for n in range(len(self.steps) + 1) for s in (*self.checks.get(n, ()), *self.steps[n : n + 1])]

    def buffer(self, value: Value, scope: Scope) -> Buffer:
        """A buffer of its own for a value."""
        buffer = Buffer(self.public.get(value, value.name), value.type.dtype, value.type.shape, scope)
        self.buffers[value] = self.own(buffer)
        return buffer

    def own(self, buffer: Buffer) -> Buffer:
        """Notes a buffer that is no view, made here."""
        self.root[buffer] = buffer
        self.home[buffer] = self.inside
        return buffer

    def written(self, value: Value) -> Buffer:
        """The buffer that a call writes a value into: the one that it has, what grows with it, or one of its own."""
        if value in self.buffers:
            return self.buffers[value]
        if value not in self.growing:
            return self.buffer(value, Scope.ARENA)
        whole, room = self.growing[value]
        self.steps.append(Step(Enlarge(room, value.type.size), (), inside=self.inside, guard=self.guard))
        return self.part(value, whole, const(0), self.guard)

    def base(self, value: Value) -> Value:
        """The value whose memory this one is: a view is what it is of, the last state of a loop where it began, unless
        its size changes."""
        while value in self.maker:
            node = self.maker[value]
            if node.op.name == "reshape":
                (value,) = node.inputs
                continue
            if not isinstance(node.attrs, Scan | While) or value not in node.outputs[: node.attrs.states]:
                break
            n = node.outputs.index(value)
            if n in node.sized_here():
                break
            value = node.inputs[ahead(node.attrs) + n]
        return value

    def place(self, value: Value, out: Buffer, guard: Expr | None = None) -> None:
        """Lets a value be written into a buffer that is there already: it, or what it is a view of. The two have one
        size, if only where the guard holds."""
        base = self.base(value)
        if base.type.shape == out.shape:
            self.buffers[base] = out
            return
        self.buffers[base] = view = Buffer(base.name, base.type.dtype, base.type.shape, out.scope)
        self.root[view] = self.root[out]
        self.steps.append(Step(View(view, out), (out,), inside=self.inside, guard=guard))

    def part(self, value: Value, source: Buffer, offset: Expr, guard: Expr | None = None) -> Buffer:
        """Lets a value be a part of a buffer, from an element on."""
        name = self.public.get(value, value.name)
        self.buffers[value] = buffer = Buffer(name, value.type.dtype, value.type.shape, source.scope)
        self.root[buffer] = self.root[source]
        self.steps.append(Step(View(buffer, source, simplify(offset)), (source,), inside=self.inside, guard=guard))
        return buffer

    def view(self, node: Node) -> None:
        """Lets the output of a node be its input under another shape."""
        source, (out,) = self.buffers[node.inputs[0]], node.outputs
        if out in self.buffers:
            return
        buffer = Buffer(self.public.get(out, out.name), out.type.dtype, out.type.shape, source.scope)
        self.buffers[out] = buffer
        self.root[buffer] = self.root[source]
        self.steps.append(Step(View(buffer, source), (source,), inside=self.inside))

    def let(self, symbol: Var, value: Expr, touches: tuple[Buffer, ...] = (), *, sizes: bool = False) -> None:
        """Names a number from here on; one that `sizes` of buffers may depend on."""
        self.steps.append(Step(Let(symbol, value), touches, symbol if sizes else None, self.inside))
        self.bound[symbol] = len(self.steps)

    def require(self, node: Node, attrs: Require) -> None:
        """A check stands as early as its symbols are known: a value may be a view of a buffer of another shape, which
        only the check makes as large, and that buffer may be the caller's."""
        cond = attrs.cond
        sides = (cond.a, cond.b) if isinstance(cond, Compare) else ()
        exact = fits(cond)
        held = self.where_it_runs(cond if isinstance(exact, Const) else And(exact, cond))
        first, around = self.floor
        place = max((self.bound.get(v, 0) for v in preorder(held) if isinstance(v, Var)), default=0)
        check = Step(Assert(held, with_place(attrs.message, node), sides), inside=around)
        if self.guard is not None and self.inside:  # a branch of a step: what it checks is known in the step
            self.steps.append(replace(check, inside=self.inside))
        else:
            self.checks.setdefault(max(place, first), []).append(check)

    def where_it_runs(self, cond: Expr) -> Expr:
        """A condition that must hold only where the branch runs that asks for it."""
        return cond if self.guard is None else Or(Not(self.guard), cond)

    def room(self, name: str, first: int) -> Var:
        """A symbol for a size that a call makes larger when it needs it larger than this."""
        self.rooms.append(Var(f"{name}.room{len(self.rooms)}", least=first))
        return self.rooms[-1]


def with_place(message: str, node: Node) -> str:
    """The message of a check, with the front end's operator that it is of."""
    return f"{message} @ {node.source}" if node.source else message
