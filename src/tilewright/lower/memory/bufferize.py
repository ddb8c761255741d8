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

A loop that ends by a condition is in while_loop.py; what all nodes share is in main_steps.py.

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
from tilewright.expr.nodes import And, Eq, Expr, Le, Var, const
from tilewright.expr.simplify import simplify
from tilewright.graph.instance import instance
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.symbolic import Call, Constant, If, Require, Scan, Size, While, bodies_of, place
from tilewright.loops.edit import map_statements, statements, substitute_buffers
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Buffer,
    CallFunction,
    Function,
    Load,
    Publish,
    Stmt,
    seq,
)
from tilewright.lower.kernels.overwrite import write_over_dying
from tilewright.lower.loops.private_buffers import give_private_buffers
from tilewright.lower.memory.lay_steps import Layer
from tilewright.lower.memory.loop_lives import Opening, Step
from tilewright.lower.memory.main_steps import MainSteps, with_place
from tilewright.lower.memory.while_loop import prepare, repeat
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


class _Main(MainSteps):
    """Builds the loops function of the entry."""

    def __init__(self, module: Module, graph: GraphFunction, temporaries: dict[str, tuple[Buffer, ...]]) -> None:
        super().__init__(module)
        self.graph = graph
        self.temporaries = temporaries
        self.constants: dict[str, Buffer] = {}

    def build(self) -> Function:
        symbols = set(self.graph.symbols)
        params = [self.buffer(v, Scope.ARGUMENT) for v in self.graph.params]
        outputs = self._place_results(symbols)
        prepare(self, self.graph.nodes)
        for node in self.graph.nodes:
            self._node(node)
        self.steps += self._publish(symbols)
        spent = {buffer for buffer in params if buffer.name in self.module.spent}
        steps = write_over_dying(self.ordered(), self.root, self.home, self.module, spent)
        body = self._of_params(Layer(steps, self.root, self.home, self.room).body())
        rooms = len(self.rooms)  # which stand between the symbols and the sizes of results
        body = map_statements(body, lambda s: s.replace(symbol=s.symbol + rooms) if isinstance(s, Publish) else s)
        head = (*self.graph.symbols, *self.rooms), (*params, *outputs)
        return Function(self.graph.name, *head, body, len(outputs))

    def _of_params(self, body: Stmt) -> Stmt:
        """The body with buffers that lie over parameters in the scope of these."""
        over = {b: whole for b, whole in self.root.items() if b.scope is Scope.ARENA and whole.scope is Scope.ARGUMENT}
        return substitute_buffers(body, {b: b.replace(scope=Scope.ARGUMENT) for b in over}) if over else body

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
            self.place(value, out)
        return outputs

    def _node(self, node: Node) -> None:
        match node.attrs:
            case Constant(name, type):
                buffer = self.constants.setdefault(name, Buffer(name, type.dtype, type.shape, Scope.CONSTANT))
                self.buffers[node.outputs[0]] = self.root[buffer] = buffer
            case Size():
                self._size(node, node.attrs)
            case Require():
                self.require(node, node.attrs)
            case Call():
                self._call(node, node.attrs)
            case Scan():
                self._scan(node, node.attrs)
            case If():
                self._if(node, node.attrs)
            case While():
                repeat(self, node, node.attrs, self._node)
            case _ if node.op.name == "reshape":
                self.view(node)
            case _:
                raise InternalError(f"{node.op.name} is in no kernel")

    def _size(self, node: Node, attrs: Size) -> None:
        (symbol,) = node.binds
        source = self.buffers[node.inputs[0]]
        value: Expr = Load(source, tuple(const(0) for _ in source.shape))
        if self.guard is not None:
            value = select(self.guard, value, attrs.low)
        self.let(symbol, value, (source,), sizes=True)
        cond = self.where_it_runs(And(Le(attrs.low, symbol), Le(symbol, attrs.high)))
        message = with_place(f"{attrs.what} is {{0}}, outside {{1}} to {{2}}", node)
        self.steps.append(Step(Assert(cond, message, (symbol, attrs.low, attrs.high)), inside=self.inside))
        self.bound[symbol] = len(self.steps)

    def _call(self, node: Node, attrs: Call) -> None:
        callee = self.module.functions[attrs.callee]
        assert isinstance(callee, Function)
        values: dict[CoreNode, CoreNode] = dict(zip(callee.symbols, attrs.symbols, strict=True))
        inputs = tuple(self.buffers[v] for v in node.inputs)
        scratch = []
        for temporary in self.temporaries[attrs.callee]:
            shape = tuple(substitute(d, values) for d in temporary.shape)
            scratch.append(self.own(temporary.replace(shape=shape, scope=Scope.ARENA)))
        outputs = tuple([self.written(v) for v in node.outputs])
        arguments = (*inputs, *scratch, *outputs)
        call = CallFunction(attrs.callee, attrs.symbols, arguments)
        self.steps.append(Step(call, arguments, inside=self.inside, guard=self.guard))

    def _scan(self, node: Node, attrs: Scan) -> None:
        """The loop of a scan: its body over buffers that are there before the first step and after the last."""
        body = self.module.functions[attrs.body]
        assert isinstance(body, GraphFunction)
        step, is_counted = Var("step"), len(body.symbols) > len(attrs.symbols)
        body = instance(body, (*attrs.symbols, *([step] if is_counted else ())))
        self.maker.update((v, n) for n in body.nodes for v in n.outputs)
        states = [self.buffers[v] for v in node.inputs[: attrs.states]]
        self.buffers.update(zip(node.outputs, states, strict=False))
        for value in node.outputs[attrs.states :]:
            if value not in self.buffers:
                self.buffer(value, Scope.ARENA)
        opens = Opening(step, attrs.steps)
        self.steps.append(Step(None, tuple(states), inside=self.inside, opens=opens, guard=self.guard))
        outer, floor, self.guard = self.guard, self.floor, None
        self.inside = (*self.inside, step)
        if is_counted:
            self.floor = len(self.steps), self.inside
        last = attrs.states + len(attrs.scanned)
        self.buffers.update(zip(body.params, states, strict=False))
        self.buffers.update((p, self.buffers[v]) for p, v in zip(body.params[last:], node.inputs[last:], strict=True))
        for n, direction in enumerate(attrs.scanned, attrs.states):
            self._slice(body.params[n], node.inputs[n], place(direction, step, attrs.steps))
        for value, state in zip(body.results, states, strict=False):
            self.place(value, state)
        for n, direction in enumerate(attrs.stacked, attrs.states):
            result = body.results[n]
            slice = Value(result.name, result.type)
            self._slice(slice, node.outputs[n], place(direction, step, attrs.steps))
            self.place(result, self.buffers[slice])
        for inner in body.nodes:
            self._node(inner)
        self.inside, self.guard, self.floor = self.inside[:-1], outer, floor
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
                self.buffer(value, Scope.ARENA)
        outer = self.guard
        for body, guard in zip(graphs, guards, strict=True):
            self.guard = guard
            self.maker.update((v, n) for n in body.nodes for v in n.outputs)
            self.buffers.update((p, self.buffers[v]) for p, v in zip(body.params, node.inputs[1:], strict=True))
            for n, (result, value) in enumerate(zip(body.results, node.outputs, strict=True)):
                if n not in late:
                    self.place(result, self.buffers[value])
            prepare(self, body.nodes)
            for inner in body.nodes[: len(body.nodes) - len(late)]:
                self._node(inner)
        self.guard = outer
        self._bind_extents(node, graphs, guards[0])
        made = tuple([self.buffer(node.outputs[n], Scope.ARENA) for n in sorted(late)])
        self.steps.append(Step(None, made, inside=self.inside))  # their places, before the branches
        for body, guard in zip(graphs, guards, strict=True):
            self.guard = guard
            for n in late:
                self.place(body.results[n], self.buffers[node.outputs[n]], guard)
            for inner in body.nodes[len(body.nodes) - len(late) :]:
                self._node(inner)
        self.guard = outer

    def _guards(self, cond: Buffer) -> tuple[Expr, Expr]:
        """The conditions under which the two branches of an `if` run."""
        one, none = const(1), const(0)
        held = select(Load(cond, tuple(none for _ in cond.shape)), one, none)
        taken, other = Var("taken"), Var("other")
        self.let(taken, held if self.guard is None else select(self.guard, held, none), (cond,))
        if self.guard is None:
            return Eq(taken, one), Eq(taken, none)
        self.let(other, select(self.guard, simplify(one - taken), none))
        return Eq(taken, one), Eq(other, one)

    def _bind_extents(self, node: Node, branches: Sequence[GraphFunction], taken: Expr) -> None:
        """The symbols that an `if` binds: the extents of the results of the branch that ran."""
        for symbol in node.binds:
            n = next(n for n in node.sized_here() if symbol in node.outputs[n].type.shape)
            axis = node.outputs[n].type.shape.index(symbol)
            one, other = (branch.results[n].type.shape[axis] for branch in branches)
            self.let(symbol, select(taken, one, other), sizes=True)

    def _slice(self, part: Value, whole: Value, at: Expr) -> None:
        """Lets a value be the slice of another at a place along its leading axis."""
        self.part(part, self.buffers[whole], part.type.size * at)

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
