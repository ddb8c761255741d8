"""A loop that ends by a condition, in the main function: it counts its own steps.

    k, m, h: f32[m], ys: f32[k] = while(go, h0, …)  =>  count[] = 0
                                                        rows[] = n                      an extent that changes
                                                        while go[] and count[] < most:
                                                          let step = count[]
                                                          let m = rows[]
                                                          view h: f32[m] = h.all at 0
                                                          enlarge ys.room to step + 1
                                                          …
                                                          enlarge h.room to m + 1
                                                          call copy_state[m + 1](t, h.all)
                                                          rows[] = m + 1
                                                          count[] = step + 1
                                                        let k = count[]

What is stacked, and a state whose size changes, are in buffers of as many steps and elements as a symbol of the entry
says, a room. A step that needs more lets the call begin again with one twice as large, as it would for a larger arena:
a first call runs at most twice as long for each room, and rooms may be small at first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.sizes import Sizes
from tilewright.expr.nodes import And, Expr, Lt, Var, const
from tilewright.expr.simplify import simplify
from tilewright.graph.instance import instance
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.symbolic import While, ahead, states_of
from tilewright.loops.nodes import Alloc, Buffer, Enlarge, Load, Store
from tilewright.lower.memory.loop_lives import Opening, Step
from tilewright.lower.memory.main_steps import MainSteps
from tilewright.types.scopes import Scope


def repeat(main: MainSteps, node: Node, attrs: While, run: Callable[[Node], None]) -> None:
    """Adds the steps of a loop; `run` adds those of a node of its body."""
    body = main.module.functions[attrs.body]
    assert isinstance(body, GraphFunction)
    _Repeat(main, node, attrs, instance(body, attrs.symbols)).build(run)


def prepare(main: MainSteps, nodes: Sequence[Node]) -> None:
    """Makes the buffers of states whose sizes change, of the loops among these nodes: what makes their initial values
    writes into them."""
    for node in nodes:
        for n in node.sized_here() if isinstance(node.attrs, While) else ():
            if n < states_of(node.attrs):
                value, type = node.inputs[ahead(node.attrs) + n], node.outputs[n].type
                room = main.room(value.name, Sizes().least(type.size, node.binds))
                whole = Buffer(f"{value.name}.all", type.dtype, (room,), Scope.ARENA)
                main.growing[value] = main.own(whole), room


class _Repeat:
    """A loop: its body, its states (those at the places `moving` change their size), its numbers, what it stacks."""

    def __init__(self, main: MainSteps, node: Node, attrs: While, body: GraphFunction) -> None:
        self.main, self.node, self.attrs, self.body = main, node, attrs, body
        self.step, *self.changes = body.symbols
        moving = set(node.sized_here())
        self.moving = [n for n in range(attrs.states) if n in moving]
        self.go = main.buffers[node.inputs[0]]
        self.whole = node.inputs[1 + attrs.states :]
        self.count = self._number("count")
        self.cells = [self._number("extent") for _ in self.changes]
        self.room: Var | None = None
        self.stacks: list[Buffer] = []

    def _number(self, name: str) -> Buffer:
        """A number that steps change."""
        cell = Buffer(name, self.step.dtype, (), Scope.STACK)
        self.main.steps.append(Step(Alloc(cell), inside=self.main.inside))
        return cell

    def _store(self, cell: Buffer, value: Expr) -> None:
        self.main.steps.append(Step(Store(cell, (), value), inside=self.main.inside))

    def build(self, run: Callable[[Node], None]) -> None:
        """The loop, with what is before and behind it."""
        main, attrs, body = self.main, self.attrs, self.body
        main.maker.update((v, n) for n in body.nodes for v in n.outputs)
        around = self._before()
        going: Expr = Load(self.go, ())
        if attrs.most is not None:
            going = And(Lt(Load(self.count, ()), attrs.most), going)
        opens = Opening(self.step, None, going)
        main.steps.append(Step(None, around, inside=main.inside, opens=opens, guard=main.guard))
        outer, floor, main.guard = main.guard, main.floor, None
        main.inside = (*main.inside, self.step)
        self._begin_step()
        prepare(main, body.nodes)
        for inner in body.nodes:
            run(inner)
        for symbol, cell in zip(self.changes, self.cells, strict=True):
            self._store(cell, self._next(symbol))
        self._store(self.count, self.step + 1)
        main.inside, main.guard, main.floor = main.inside[:-1], outer, floor
        main.steps.append(Step(None, around, inside=main.inside))
        self._behind()

    def _before(self) -> tuple[Buffer, ...]:
        """Makes the numbers and the buffers that stay during the loop: these."""
        main, node, attrs = self.main, self.node, self.attrs
        self._store(self.count, const(0))
        for symbol, cell in zip(self.changes, self.cells, strict=True):
            self._store(cell, self._first(symbol))
        found = [self.go]
        for n, value in enumerate(node.inputs[1 : 1 + attrs.states]):
            found.append(main.growing[value][0] if n in self.moving else main.buffers[value])
        if node.outputs[attrs.states :]:
            self.room = main.room("steps", 1)
        for value in node.outputs[attrs.states :]:
            assert self.room is not None
            shape = (self.room, *value.type.shape[1:])
            self.stacks.append(main.own(Buffer(f"{value.name}.all", value.type.dtype, shape, Scope.ARENA)))
        return (*found, *self.stacks)

    def _begin_step(self) -> None:
        """Names the numbers of a step, and gives values of the body their buffers."""
        main, attrs, body = self.main, self.attrs, self.body
        main.let(self.step, Load(self.count, ()), sizes=True)
        for symbol, cell in zip(self.changes, self.cells, strict=True):
            main.let(symbol, Load(cell, ()), sizes=True)
        main.floor = len(main.steps), main.inside
        taken = zip(body.params[attrs.states :], self.whole, strict=True)
        main.buffers.update((p, main.buffers[v]) for p, v in taken)
        main.place(body.results[0], self.go)
        for n, value in enumerate(self.node.inputs[1 : 1 + attrs.states]):
            if n in self.moving:
                main.growing[body.results[1 + n]] = main.growing[value]
                main.part(body.params[n], main.growing[value][0], const(0))
                continue
            main.buffers[body.params[n]] = main.buffers[value]
            main.place(body.results[1 + n], main.buffers[value])
        self._slices()

    def _slices(self) -> None:
        """Lets what a step stacks be written to its place, for which there is room."""
        main, states = self.main, self.attrs.states
        if self.room is None:
            return
        main.steps.append(Step(Enlarge(self.room, simplify(self.step + 1)), inside=main.inside))
        for result, whole in zip(self.body.results[1 + states :], self.stacks, strict=True):
            slice = Value(result.name, result.type)
            main.place(result, main.part(slice, whole, result.type.size * self.step))

    def _behind(self) -> None:
        """Names the numbers that the loop ends with, and gives its outputs their buffers."""
        main, node, states = self.main, self.node, self.attrs.states
        if self.room is not None:
            steps = node.outputs[states].type.shape[0]
            assert isinstance(steps, Var)
            main.let(steps, Load(self.count, ()), sizes=True)
        for symbol, cell in zip(self.changes, self.cells, strict=True):
            n, axis = self._where(symbol)
            last = node.outputs[n].type.shape[axis]
            assert isinstance(last, Var)
            main.let(last, Load(cell, ()), sizes=True)
        for n, value in enumerate(node.outputs[:states]):
            first = node.inputs[1 + n]
            if n in self.moving:
                main.part(value, main.growing[first][0], const(0))
            else:
                main.buffers[value] = main.buffers[first]
        for value, whole in zip(node.outputs[states:], self.stacks, strict=True):
            main.part(value, whole, const(0))

    def _where(self, symbol: Var) -> tuple[int, int]:
        """A state with an extent that changes, and the extent's axis."""
        shapes = [p.type.shape for p in self.body.params[: self.attrs.states]]
        return next((n, shape.index(symbol)) for n, shape in enumerate(shapes) if symbol in shape)

    def _first(self, symbol: Var) -> Expr:
        """What an extent that changes is at first."""
        n, axis = self._where(symbol)
        return self.node.inputs[1 + n].type.shape[axis]

    def _next(self, symbol: Var) -> Expr:
        """What a step makes of it."""
        n, axis = self._where(symbol)
        return self.body.results[1 + n].type.shape[axis]
