"""The graph of calls becomes a loops function: buffers in an arena, calls in order, sizes computed at run time.

    y: f32[n, 10] = call(x, w, callee="dense", …)      =>      reserve n*64
                                                               alloc h: f32[n, 16] in arena at 0
                                                               call dense(x, w, h)
                                                               call softmax(h, y)

Of an `if`, the calls of both branches stand one after the other, each under the condition that its branch runs; what is
computed of sizes is computed of both, and a size that a branch which does not run binds is as small as it may be. So
sizes are known, and memory is planned, as if there were no branches; buffers of the two share memory.

    m, y: f32[m] = if(c, x, then="short", …)           =>      let taken = select(c[], 1, 0)
                                                               if taken == 1: call relu(x, t)
                                                               if taken == 0: call tanh(x, u)
                                                               let m = select(taken == 1, 4, 8)
                                                               …
                                                               if taken == 1: call copy(t, y)

A scan becomes a loop around the calls of its body. Slices are views at the place of the step, of the operand that is
scanned or of the output that is stacked; the next state overwrites the state before it (see own_states.py).

Afterwards the module is made of loops functions alone, and its entry is all that code generation sees of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import preorder, substitute
from tilewright.expr.build import select
from tilewright.expr.nodes import And, Compare, Const, Eq, Expr, Le, Not, Or, Var, const
from tilewright.expr.overflow import fits
from tilewright.expr.simplify import simplify
from tilewright.graph.instance import instance
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.symbolic import Call, Constant, If, Require, Scan, Size, bodies_of, place
from tilewright.loops.edit import map_statements, statements
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Buffer,
    CallFunction,
    Function,
    Let,
    Load,
    Publish,
    View,
    seq,
)
from tilewright.lower.kernels.overwrite import write_over_dying
from tilewright.lower.loops.private_buffers import give_private_buffers
from tilewright.lower.memory.lay_steps import with_memory
from tilewright.lower.memory.loop_lives import Step
from tilewright.report.errors import InternalError
from tilewright.types.scopes import Scope


def bufferize(module: Module) -> Module:
    """The module with a loops function for its entry."""
    graph = module.graph
    lifted = {name: lift_temporaries(f) if isinstance(f, Function) else (f, ()) for name, f in module.functions.items()}
    made = module
    for function, _ in lifted.values():
        if isinstance(function, Function):
            made = made.with_function(function)
    temporaries = {name: extra for name, (_, extra) in lifted.items()}
    main = _Main(module, graph, temporaries).build()
    loops = {name: f for name, f in made.functions.items() if isinstance(f, Function)}
    return replace(made, functions={graph.name: main, **loops})


def lift_temporaries(function: Function) -> tuple[Function, tuple[Buffer, ...]]:
    """(the function with its arena buffers as parameters, in front of the outputs' end; those buffers)."""
    function = give_private_buffers(function)
    extra = tuple(s.buffer for s in statements(function.body) if isinstance(s, Alloc) and s.buffer.scope is Scope.ARENA)
    if not extra:
        return function, ()
    from_arena = set(extra)

    body = map_statements(function.body, lambda s: seq() if isinstance(s, Alloc) and s.buffer in from_arena else s)
    inputs = len(function.params) - function.outputs
    params = (*function.params[:inputs], *extra, *function.params[inputs:])
    return function.replace(body=body, params=params), extra


class _Main:
    """Builds the loops function of the entry."""

    def __init__(self, module: Module, graph: GraphFunction, temporaries: dict[str, tuple[Buffer, ...]]) -> None:
        self.module = module
        self.graph = graph
        self.temporaries = temporaries
        self.buffers: dict[Value, Buffer] = {}
        self.root: dict[Buffer, Buffer] = {}
        self.maker: dict[Value, Node] = {}
        self.inside: tuple[Var, ...] = ()
        self.guard: Expr | None = None
        self.home: dict[Buffer, tuple[Var, ...]] = {}
        self.steps: list[Step] = []
        self.constants: dict[str, Buffer] = {}
        self.public: dict[Value, str] = {}
        self.bound: dict[Var, int] = {}
        self.checks: dict[int, list[Step]] = {}

    def build(self) -> Function:
        symbols = set(self.graph.symbols)
        params = [self._buffer(v, Scope.ARGUMENT) for v in self.graph.params]
        outputs = self._place_results(symbols)
        for node in self.graph.nodes:
            self._node(node)
        self.steps += self._publish(symbols)
        self.steps = [s for n in range(len(self.steps) + 1) for s in (*self.checks.get(n, ()), *self.steps[n : n + 1])]
        self.steps = write_over_dying(self.steps, self.root, self.home, self.module)
        return Function(
            self.graph.name,
            self.graph.symbols,
            (*params, *outputs),
            with_memory(self.steps, self.root, self.home),
            len(outputs),
        )

    def _buffer(self, value: Value, scope: Scope) -> Buffer:
        buffer = Buffer(self.public.get(value, value.name), value.type.dtype, value.type.shape, scope)
        self.buffers[value] = buffer
        self.root[buffer] = buffer
        self.home[buffer] = self.inside
        return buffer

    def _base(self, value: Value) -> Value:
        """The value whose memory this one is: a view is what it is of, the last state of a scan where it began."""
        while value in self.maker:
            node = self.maker[value]
            if node.op.name == "reshape":
                (value,) = node.inputs
            elif isinstance(node.attrs, Scan) and value in node.outputs[: node.attrs.states]:
                value = node.inputs[node.outputs.index(value)]
            else:
                break
        return value

    def _place(self, value: Value, out: Buffer, guard: Expr | None = None) -> None:
        """Lets a value be written into a buffer that is there already: it, or what it is a view of. The two have one
        size, if only where the guard holds."""
        base = self._base(value)
        if base.type.shape == out.shape:
            self.buffers[base] = out
            return
        self.buffers[base] = view = Buffer(base.name, base.type.dtype, base.type.shape, out.scope)
        self.root[view] = self.root[out]
        self.steps.append(Step(View(view, out), (out,), inside=self.inside, guard=guard))

    def _place_results(self, symbols: set[Var]) -> list[Buffer]:
        """The output parameters. A result whose size is known on entry is written where the caller wants it: its value,
        or the value it is a view of, is the output itself."""
        self.maker.update((v, node) for node in self.graph.nodes for v in node.outputs)
        outputs: list[Buffer] = []
        for value, name in zip(self.graph.results, self.graph.result_names, strict=True):
            if is_sized_late(value, symbols):
                self.public[value] = name
                continue
            out = Buffer(name, value.type.dtype, value.type.shape)
            outputs.append(out)
            self.root[out] = out
            self._place(value, out)
        return outputs

    def _node(self, node: Node) -> None:
        match node.attrs:
            case Constant(name, type):
                buffer = self.constants.setdefault(name, Buffer(name, type.dtype, type.shape, Scope.CONSTANT))
                self.buffers[node.outputs[0]] = self.root[buffer] = buffer
            case Size():
                self._size(node, node.attrs)
            case Require():
                self._require(node, node.attrs)
            case Call():
                self._call(node, node.attrs)
            case Scan():
                self._scan(node, node.attrs)
            case If():
                self._if(node, node.attrs)
            case _ if node.op.name == "reshape":
                self._view(node)
            case _:
                raise InternalError(f"{node.op.name} is in no kernel")

    def _require(self, node: Node, attrs: Require) -> None:
        """A check stands as early as its symbols are known: a value may be a view of a buffer of another shape, which
        only the check makes as large, and that buffer may be the caller's."""
        cond = attrs.cond
        sides = (cond.a, cond.b) if isinstance(cond, Compare) else ()
        exact = fits(cond)
        held = self._where_it_runs(cond if isinstance(exact, Const) else And(exact, cond))
        place = max((self.bound.get(v, 0) for v in preorder(held) if isinstance(v, Var)), default=0)
        check = Step(Assert(held, _with_place(attrs.message, node), sides))
        if self.guard is not None and self.inside:  # a branch of a step: what it checks is known in the step
            self.steps.append(replace(check, inside=self.inside))
        else:
            self.checks.setdefault(place, []).append(check)

    def _where_it_runs(self, cond: Expr) -> Expr:
        """A condition that must hold only where the branch runs that asks for it."""
        return cond if self.guard is None else Or(Not(self.guard), cond)

    def _size(self, node: Node, attrs: Size) -> None:
        (symbol,) = node.binds
        source = self.buffers[node.inputs[0]]
        value: Expr = Load(source, tuple(const(0) for _ in source.shape))
        if self.guard is not None:
            value = select(self.guard, value, attrs.low)
        self.steps.append(Step(Let(symbol, value), (source,), symbol))
        cond = self._where_it_runs(And(Le(attrs.low, symbol), Le(symbol, attrs.high)))
        message = _with_place(f"{attrs.what} is {{0}}, outside {{1}} to {{2}}", node)
        self.steps.append(Step(Assert(cond, message, (symbol, attrs.low, attrs.high))))
        self.bound[symbol] = len(self.steps)

    def _view(self, node: Node) -> None:
        source, (out,) = self.buffers[node.inputs[0]], node.outputs
        if out in self.buffers:
            return
        buffer = Buffer(self.public.get(out, out.name), out.type.dtype, out.type.shape, source.scope)
        self.buffers[out] = buffer
        self.root[buffer] = self.root[source]
        self.steps.append(Step(View(buffer, source), (source,), inside=self.inside))

    def _call(self, node: Node, attrs: Call) -> None:
        callee = self.module.functions[attrs.callee]
        assert isinstance(callee, Function)
        values: dict[CoreNode, CoreNode] = dict(zip(callee.symbols, attrs.symbols, strict=True))
        inputs = tuple(self.buffers[v] for v in node.inputs)
        scratch = []
        for temporary in self.temporaries[attrs.callee]:
            shape = tuple(substitute(d, values) for d in temporary.shape)
            buffer = temporary.replace(shape=shape, scope=Scope.ARENA)
            self.root[buffer] = buffer
            self.home[buffer] = self.inside
            scratch.append(buffer)
        outputs = tuple(self.buffers[v] if v in self.buffers else self._buffer(v, Scope.ARENA) for v in node.outputs)
        arguments = (*inputs, *scratch, *outputs)
        call = CallFunction(attrs.callee, attrs.symbols, arguments)
        self.steps.append(Step(call, arguments, inside=self.inside, guard=self.guard))

    def _scan(self, node: Node, attrs: Scan) -> None:
        """The loop of a scan: its body over buffers that are there before the first step and after the last."""
        body = self.module.functions[attrs.body]
        assert isinstance(body, GraphFunction)
        body = instance(body, attrs.symbols)
        self.maker.update((v, n) for n in body.nodes for v in n.outputs)
        states = [self.buffers[v] for v in node.inputs[: attrs.states]]
        self.buffers.update(zip(node.outputs, states, strict=False))
        for value in node.outputs[attrs.states :]:
            if value not in self.buffers:
                self._buffer(value, Scope.ARENA)
        step = Var("step")
        opens = step, attrs.steps
        self.steps.append(Step(None, tuple(states), inside=self.inside, opens=opens, guard=self.guard))
        outer, self.guard = self.guard, None
        self.inside = (*self.inside, step)
        last = attrs.states + len(attrs.scanned)
        self.buffers.update(zip(body.params, states, strict=False))
        self.buffers.update((p, self.buffers[v]) for p, v in zip(body.params[last:], node.inputs[last:], strict=True))
        for n, direction in enumerate(attrs.scanned, attrs.states):
            self._slice(body.params[n], node.inputs[n], place(direction, step, attrs.steps))
        for value, state in zip(body.results, states, strict=False):
            self._place(value, state)
        for n, direction in enumerate(attrs.stacked, attrs.states):
            result = body.results[n]
            slice = Value(result.name, result.type)
            self._slice(slice, node.outputs[n], place(direction, step, attrs.steps))
            self._place(result, self.buffers[slice])
        for inner in body.nodes:
            self._node(inner)
        self.inside, self.guard = self.inside[:-1], outer
        self.steps.append(Step(None, tuple(states), inside=self.inside))

    def _if(self, node: Node, attrs: If) -> None:
        """The calls of both branches, each where its branch runs. Results whose sizes the branches decide are made last
        of all, by copies at their end (own_states.py): these sizes are known then."""
        bodies = [self.module.functions[name] for name in bodies_of(attrs)]
        graphs = [instance(body, attrs.symbols) for body in bodies if isinstance(body, GraphFunction)]
        late = set(node.sized_here())
        guards = self._guards(self.buffers[node.inputs[0]])
        for n, value in enumerate(node.outputs):
            if value not in self.buffers and n not in late:
                self._buffer(value, Scope.ARENA)
        outer = self.guard
        for body, guard in zip(graphs, guards, strict=True):
            self.guard = guard
            self.maker.update((v, n) for n in body.nodes for v in n.outputs)
            self.buffers.update((p, self.buffers[v]) for p, v in zip(body.params, node.inputs[1:], strict=True))
            for n, (result, value) in enumerate(zip(body.results, node.outputs, strict=True)):
                if n not in late:
                    self._place(result, self.buffers[value])
            for inner in body.nodes[: len(body.nodes) - len(late)]:
                self._node(inner)
        self.guard = outer
        self._bind_extents(node, graphs, guards[0])
        made = tuple([self._buffer(node.outputs[n], Scope.ARENA) for n in sorted(late)])
        self.steps.append(Step(None, made, inside=self.inside))  # their places, before the branches
        for body, guard in zip(graphs, guards, strict=True):
            self.guard = guard
            for n in late:
                self._place(body.results[n], self.buffers[node.outputs[n]], guard)
            for inner in body.nodes[len(body.nodes) - len(late) :]:
                self._node(inner)
        self.guard = outer

    def _guards(self, cond: Buffer) -> tuple[Expr, Expr]:
        """The conditions under which the two branches of an `if` run."""
        one, none = const(1), const(0)
        held = select(Load(cond, tuple(none for _ in cond.shape)), one, none)
        taken = self._named("taken", held if self.guard is None else select(self.guard, held, none), (cond,))
        if self.guard is None:
            return Eq(taken, one), Eq(taken, none)
        other = self._named("other", select(self.guard, simplify(one - taken), none), ())
        return Eq(taken, one), Eq(other, one)

    def _named(self, name: str, value: Expr, touches: tuple[Buffer, ...]) -> Var:
        """A number with a name from here on."""
        made = Var(name)
        self.steps.append(Step(Let(made, value), touches, inside=self.inside))
        self.bound[made] = len(self.steps)
        return made

    def _bind_extents(self, node: Node, branches: Sequence[GraphFunction], taken: Expr) -> None:
        """The symbols that an `if` binds: the extents of the results of the branch that ran."""
        for symbol in node.binds:
            n = next(n for n in node.sized_here() if symbol in node.outputs[n].type.shape)
            axis = node.outputs[n].type.shape.index(symbol)
            one, other = (branch.results[n].type.shape[axis] for branch in branches)
            self.steps.append(Step(Let(symbol, select(taken, one, other)), (), symbol))
            self.bound[symbol] = len(self.steps)

    def _slice(self, part: Value, whole: Value, at: Expr) -> None:
        """Lets a value be the slice of another at a place along its leading axis."""
        source = self.buffers[whole]
        self.buffers[part] = buffer = Buffer(part.name, part.type.dtype, part.type.shape, source.scope)
        self.root[buffer] = self.root[source]
        offset = simplify(part.type.size * at)
        self.steps.append(Step(View(buffer, source, offset), (source,), inside=self.inside))

    def _publish(self, symbols: set[Var]) -> list[Step]:
        """Results sized by the call: their place among the caller's pointers and sizes."""
        place = len(self.graph.symbols)
        made = []
        for n, value in enumerate(self.graph.results):
            if is_sized_late(value, symbols):
                buffer = self.buffers[value]
                made.append(Step(Publish(buffer, len(self.graph.params) + n, place), (buffer,)))
                place += value.type.rank
        return made


def is_sized_late(value: Value, symbols: set[Var]) -> bool:
    """Whether a value's shape has symbols that the call binds, or parts that are computed in floats: those are left to
    compiled code alone, so that nobody computes them otherwise."""
    parts = [part for d in value.type.shape for part in preorder(d) if isinstance(part, Expr)]
    return any(part.dtype.is_float or (isinstance(part, Var) and part not in symbols) for part in parts)


def _with_place(message: str, node: Node) -> str:
    return f"{message} @ {node.source}" if node.source else message
