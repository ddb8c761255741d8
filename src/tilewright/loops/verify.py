"""Says whether a loops function is a valid program, and if not, at which line of its text and why.

The laws: everything is defined once, before its use and around it. Indices, bounds, sizes and axes are i64 scalars;
conditions are truth values; a store has its buffer's type, one index for each dimension, and as many lanes as its
indices. A block binds each axis to an expression without loads. Register buffers have constant shapes, only arena
buffers offsets. An affine index that some iteration takes outside its buffer is an error; one that cannot be proved
inside is allowed. A view has the element type and scope of its source and as many elements, as far as that can be
decided. The laws of conditions with lanes are in lanes.py, those of instructions in instructions.py, those of reduce
axes and `init` in sums.py, those of calls in passing.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewright.core.node import Node
from tilewright.core.walk import postorder, preorder
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.simplify import simplify
from tilewright.expr.verify import ill_typed
from tilewright.loops.bounds import Reach
from tilewright.loops.faults import Fault, place_of
from tilewright.loops.instructions import check_instruction, ill_supplied
from tilewright.loops.lanes import check_condition, check_statement
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Block,
    Buffer,
    CallFunction,
    Enlarge,
    Fence,
    For,
    Function,
    Guard,
    If,
    Instruct,
    Let,
    Load,
    LoopKind,
    Prefetch,
    Publish,
    Reserve,
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.loops.passing import check_call, check_finite, check_over, check_shared, size_of
from tilewright.loops.sizes import check_size
from tilewright.loops.sums import check_accumulates, check_init, check_place
from tilewright.report.errors import InternalError, TilewrightError
from tilewright.types.scopes import Scope


def verify(
    function: Function, module: Mapping[str, Function] | None = None, family: type[TilewrightError] = InternalError
) -> None:
    """Raises the first error, at its line; of the family UserError when a user wrote the program. `module` holds the
    functions that calls name; without it calls are not compared with what they call."""
    try:
        _Verifier(module).function(function)
    except Fault as fault:
        where = place_of(function, fault)
        raise family(f"invalid program: {fault.what}", where=where, why=fault.why, fix=fault.fix) from None


class _Verifier:
    """Walks a function in program order, with what is visible at each place."""

    def __init__(self, module: Mapping[str, Function] | None) -> None:
        self.module = module
        self.visible: set[Node] = set()
        self.defined: set[Node] = set()
        self.reach = Reach()
        self.checked: set[Expr] = set()
        self.viewed: dict[Buffer, Buffer] = {}
        self.whole: dict[Buffer, Buffer] = {}
        self.lanes = 1
        self.around: list[For] = []
        self.before: list[set[Node]] = []
        self.reduced: set[Var] = set()
        self.symbols: tuple[Var, ...] = ()

    def function(self, f: Function) -> None:
        self.symbols = f.symbols
        for symbol in f.symbols:
            self.define(f, symbol)
            self.expect(f, symbol, dtypes.index, "a symbol")
        for param in f.params:
            self.define(f, param)
            if param.scope is Scope.REGISTER:
                fix = "pass it in another scope"
                raise Fault(param, f"the parameter {param.name} is in registers", part=param.name, fix=fix)
            self.shape(param, param)
        if not 0 <= f.outputs <= len(f.params):
            raise Fault(f, f"{f.outputs} outputs of {len(f.params)} parameters")
        check_over(f)
        check_finite(f)
        check_shared(f)
        self.statement(f.body)

    # names

    def define(self, at: Node, found: Var | Buffer) -> None:
        if found in self.defined:
            raise Fault(at, f"{found.name} is defined twice", fix="make a new variable for each definition")
        self.defined.add(found)
        self.visible.add(found)

    def see(self, at: Node, found: Var | Buffer) -> None:
        free = isinstance(found, Buffer) and found.scope is Scope.CONSTANT
        if found not in self.visible and not free:
            again = found in self.defined
            why = "what defines it ended above this line" if again else "nothing defines it before this line"
            raise Fault(at, f"{found.name} is not defined here", part=found.name, why=why)

    def body(self, s: Stmt) -> None:
        """A statement in a region of its own."""
        before = set(self.visible)
        self.statement(s)
        self.visible = before

    # expressions

    def value(self, at: Node, root: Expr) -> None:
        """All nodes of an expression: types once, visibility at each use."""
        for e in postorder(root):
            if isinstance(e, Var):
                self.see(at, e)
            elif isinstance(e, Load):
                self.see(at, e.buffer)
                self.indices(at, e.buffer, e.indices)
            if isinstance(e, Expr) and e not in self.checked:
                wrong = ill_supplied(e) if isinstance(e, Instruct) else ill_typed(e)
                if wrong is not None:
                    raise Fault(at, wrong, part=e)
                self.checked.add(e)

    def expect(self, at: Node, e: Expr, dtype: dtypes.DType, what: str) -> None:
        """A visible scalar of a type."""
        self.value(at, e)
        if e.dtype is not dtype or e.lanes != 1:
            found = str(e.dtype) if e.lanes == 1 else f"a vector of {e.lanes} lanes"
            fix = "compare it with something" if dtype.is_bool else f"convert it: {dtype}(…)"
            raise Fault(at, f"{what} is {found}", part=e, why=f"it must be {dtype}", fix=fix)

    def indices(self, at: Node, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if len(indices) != len(buffer.shape):
            raise Fault(at, f"{len(indices)} indices for {buffer.name}", why=f"its rank is {len(buffer.shape)}")
        lanes = {i.lanes for i in indices if i.lanes != 1}
        if len(lanes) > 1:
            raise Fault(at, f"indices of {buffer.name} with {' and '.join(map(str, sorted(lanes)))} lanes")
        for index, extent in zip(indices, buffer.shape, strict=True):
            if index.dtype is not dtypes.index:
                why, fix = f"indices are {dtypes.index}", f"convert it: {dtypes.index}(…)"
                raise Fault(at, f"an index of {buffer.name} is {index.dtype}", part=index, why=why, fix=fix)
            outside = self.reach.outside(index, extent)
            if outside is not None:
                fix = "shorten the loop, or guard the access with where or if"
                why = f"it reaches {outside}, and the indices of this dimension are 0..{extent}"
                raise Fault(at, f"an index is outside {buffer.name}", part=index, why=why, fix=fix)

    def shape(self, at: Node, buffer: Buffer) -> None:
        for extent in buffer.shape:
            self.expect(at, extent, dtypes.index, f"a dimension of {buffer.name}")
            known = simplify(extent)
            if isinstance(known, Const) and known.value < 0:
                raise Fault(at, f"{buffer.name} has a negative dimension", part=extent, why=f"it is {known.value}")
            if buffer.scope is Scope.REGISTER and not isinstance(known, Const):
                what = f"{buffer.name} is in registers, but its shape is not constant"
                raise Fault(at, what, part=extent, fix="allocate it in stack or arena")
        check_size(at, buffer)

    # statements

    def statement(self, s: Stmt) -> None:
        if self.lanes > 1:
            check_statement(s, self.lanes)
        match s:
            case Seq(body):
                before = set(self.visible)
                for part in body:
                    self.statement(part)
                self.visible = before
            case For():
                self.loop(s)
            case Block():
                self.block(s)
            case Alloc():
                self.alloc(s)
            case Let(var, value):
                self.let(s, var, value)
            case Store():
                self.store(s)
            case If():
                self.branch(s)
            case While(cond, body):
                self.expect(s, cond, dtypes.bool_, "the condition")
                with self.reach.guarded():
                    self.body(body)
            case Assert():
                self.assertion(s)
            case Reserve(size):
                self.expect(s, size, dtypes.index, "the number of bytes")
            case Enlarge(room, least):
                self.enlarge(s, room, least)
            case Guard(begin, end):
                self.expect(s, begin, dtypes.index, "the first byte")
                self.expect(s, end, dtypes.index, "the end of the bytes")
            case View():
                self.view(s)
            case Publish():
                self.publish(s)
            case Prefetch():
                self.prefetch(s)
            case Fence():
                pass
            case CallFunction():
                self.call(s)
            case _:
                raise Fault(s, f"{type(s).__name__} is no statement of this level")

    def enlarge(self, s: Enlarge, room: Var, least: Expr) -> None:
        self.expect(s, room, dtypes.index, "the room")
        self.expect(s, least, dtypes.index, "what is needed")
        if room not in self.symbols:
            why = "a caller gives values to symbols of the function alone"
            raise Fault(s, f"{room.name} cannot be enlarged", part=room, why=why, fix="name a symbol in the head")

    def branch(self, s: If) -> None:
        """A branch, or a mask: a condition with lanes."""
        around = self.lanes
        if s.cond.lanes > 1:
            self.value(s, s.cond)
            check_condition(s, around)
            self.lanes = s.cond.lanes
        else:
            self.expect(s, s.cond, dtypes.bool_, "the condition")
        with self.reach.guarded():
            for side in (s.then, s.otherwise):
                if side is not None:
                    self.body(side)
        self.lanes = around

    def loop(self, s: For) -> None:
        self.expect(s, s.begin, dtypes.index, "the begin of a loop")
        self.expect(s, s.end, dtypes.index, "the end of a loop")
        extent = s.extent
        if isinstance(extent, Const) and extent.value < 0:
            why = f"it would run {extent.value} times"
            raise Fault(
                s, f"the loop {s.var.name} ends before it begins", why=why, fix="let it end at its begin or after"
            )
        if (s.kind is LoopKind.THREAD) != bool(s.thread):
            raise Fault(s, f"the loop {s.var.name} {'names a' if s.thread else 'is bound to no'} GPU axis")
        if s.grain < 1:
            raise Fault(s, f"the loop {s.var.name} has the grain {s.grain}", why="it counts iterations", fix="write 1")
        if s.grain != 1 and s.kind is not LoopKind.PARALLEL:
            what = f"the {s.kind.value} loop {s.var.name} has a grain"
            raise Fault(s, what, why="only parallel loops are dealt out", fix="leave it out, or write parallel")
        if s.backward is not None:
            self.expect(s, s.backward, dtypes.bool_, "what turns a loop round")
            if s.kind is not LoopKind.PARALLEL:
                what = f"the {s.kind.value} loop {s.var.name} runs backward"
                raise Fault(s, what, why="only the iterations of parallel loops have no order", fix="write parallel")
        check_instruction(s, self.around, self.memory_of)
        before = set(self.visible)
        self.define(s, s.var)
        if s.var.dtype is not dtypes.index:
            raise Fault(s, f"the loop variable {s.var.name} is {s.var.dtype}", why=f"it must be {dtypes.index}")
        self.around.append(s)
        self.before.append(before)
        with self.reach.loop(s):
            self.statement(s.body)
        self.around.pop()
        self.before.pop()
        self.visible = before

    def prefetch(self, s: Prefetch) -> None:
        """The place need not be inside its buffer, so nothing is read to find it."""
        if not isinstance(s.place, Load):
            raise Fault(s, "only an element of a buffer can be prefetched", part=s.place, fix="leave it out")
        self.see(s, s.place.buffer)
        for index in s.place.indices:
            self.expect(s, index, dtypes.index, f"an index of {s.place.buffer.name}")
            if any(isinstance(n, Load) for n in preorder(index)):
                fix = "name the value with let"
                raise Fault(s, f"an index of {s.place.buffer.name} reads memory", part=index, fix=fix)
        if s.place.buffer.scope is Scope.REGISTER:
            raise Fault(s, f"{s.place.buffer.name} is in registers", part=s.place.buffer.name, fix="leave it out")

    def block(self, s: Block) -> None:
        before = set(self.visible)
        for axis in s.axes:
            self.expect(axis, axis.binding, dtypes.index, f"the binding of {axis.var.name}")
            loaded = next((e for e in preorder(axis.binding) if isinstance(e, Load)), None)
            if loaded is not None:
                fix = "name the value with let, and bind the axis to the name"
                raise Fault(
                    axis, f"the binding of {axis.var.name} reads {loaded.buffer.name}", part=axis.binding, fix=fix
                )
        for axis in s.axes:
            self.define(axis, axis.var)
            if axis.var.dtype is not dtypes.index:
                raise Fault(axis, f"the axis {axis.var.name} is {axis.var.dtype}", why=f"it must be {dtypes.index}")
        if s.where is not None:
            self.expect(s, s.where, dtypes.bool_, "the predicate")
        with self.reach.block(s):
            if s.init is not None:
                self.init(s, s.init)
            if s.reduce:
                check_accumulates(s)
            around = self.reduced
            self.reduced = around | {a.var for a in s.reduce}
            self.body(s.body)
            self.reduced = around
        self.visible = before

    def init(self, s: Block, init: Stmt) -> None:
        check_init(s, init, self.reduced)
        self.body(init)
        check_place(s, self.around, self.before)

    def alloc(self, s: Alloc) -> None:
        buffer = s.buffer
        if buffer.scope in (Scope.ARGUMENT, Scope.CONSTANT):
            fix = "allocate in arena, stack, register or shared"
            raise Fault(s, f"{buffer.name} cannot be allocated in {buffer.scope.value}", fix=fix)
        self.shape(s, buffer)
        if s.offset is not None:
            self.expect(s, s.offset, dtypes.index, "the offset")
            if buffer.scope is not Scope.ARENA:
                fix = "leave out the offset, or allocate in arena"
                raise Fault(s, f"{buffer.name} has an offset, but is not in the arena", part=s.offset, fix=fix)
        self.define(s, buffer)

    def view(self, s: View) -> None:
        buffer, source = s.buffer, s.source
        self.see(s, source)
        self.shape(s, buffer)
        if buffer.dtype is not source.dtype or buffer.scope is not source.scope:
            have, want = (f"{b.dtype} in {b.scope.value}" for b in (buffer, source))
            raise Fault(s, f"{buffer.name} is {have}", why=f"{source.name}, which it is a view of, is {want}")
        self.part(s)
        self.define(s, buffer)
        self.viewed[buffer] = self.memory_of(source)
        self.whole[buffer] = self.whole.get(source, source) if s.offset is None else buffer

    def part(self, s: View) -> None:
        """A view has the elements of its source, or some of them from its offset on."""
        size, whole = (simplify(size_of(b)) for b in (s.buffer, s.source))
        what = f"{s.buffer.name} is no view of {s.source.name}"
        if s.offset is None:
            difference = simplify(size - whole)
            if isinstance(difference, Const) and difference.value:
                why = f"they have {size} and {whole} elements"
                raise Fault(s, what, why=why, fix="keep the number of elements")
            return
        self.expect(s, s.offset, dtypes.index, "the offset")
        start, room = simplify(s.offset), simplify(whole - size - s.offset)
        if any(isinstance(e, Const) and e.value < 0 for e in (start, room)):
            why = f"{size} elements from {start} on are not inside of {whole}"
            raise Fault(s, what, part=s.offset, why=why, fix="begin elsewhere, or take fewer elements")

    def memory_of(self, buffer: Buffer) -> Buffer:
        """The buffer that a view is of; any other buffer itself."""
        return self.viewed.get(buffer, buffer)

    def publish(self, s: Publish) -> None:
        self.see(s, s.buffer)
        if s.buffer.scope is not Scope.ARENA:
            why, fix = f"it is in {s.buffer.scope.value}", "publish a buffer of the arena"
            raise Fault(s, f"{s.buffer.name} cannot be published", part=s.buffer.name, why=why, fix=fix)

    def let(self, s: Let, var: Var, value: Expr) -> None:
        self.value(s, value)
        if value.lanes != 1 or value.dtype is not var.dtype:
            raise Fault(s, f"{var.name} is {var.dtype}, its value {value.dtype} with {value.lanes} lanes")
        self.define(s, var)

    def store(self, s: Store) -> None:
        self.see(s, s.buffer)
        if s.buffer.scope is Scope.CONSTANT:
            raise Fault(s, f"a store to the constant {s.buffer.name}", fix="store to another buffer")
        for index in s.indices:
            self.value(s, index)
        self.indices(s, s.buffer, s.indices)
        self.value(s, s.value)
        if s.value.dtype is not s.buffer.dtype:
            why, fix = f"{s.buffer.name} holds {s.buffer.dtype}", f"convert it: {s.buffer.dtype}(…)"
            raise Fault(s, f"a store of {s.value.dtype} to {s.buffer.name}", why=why, fix=fix)
        lanes = max((i.lanes for i in s.indices), default=1)
        if s.value.lanes != lanes:
            fix = f"repeat the value: broadcast(…, {lanes})" if s.value.lanes == 1 else "store to as many elements"
            what = f"a store of {s.value.lanes} to {lanes} elements of {s.buffer.name}"
            raise Fault(s, what, part=s.value, fix=fix)

    def assertion(self, s: Assert) -> None:
        self.value(s, s.cond)
        if not s.cond.dtype.is_bool:
            fix = "compare it with something"
            raise Fault(s, f"the condition is {s.cond.dtype}", part=s.cond, why=f"it must be {dtypes.bool_}", fix=fix)
        for value in s.values:
            self.value(s, value)
            if value.lanes not in (1, s.cond.lanes):
                why = f"the condition has {s.cond.lanes}"
                raise Fault(s, f"a value of {value.lanes} lanes", part=value, why=why, fix="give both as many lanes")
        for number in re.findall(r"\{(\d+)\}", s.message):
            if int(number) >= len(s.values):
                why = f"there are {len(s.values)} values"
                raise Fault(
                    s, f"the message shows a value {{{number}}} that is not given", part=f"{{{number}}}", why=why
                )

    def call(self, s: CallFunction) -> None:
        for value in s.symbols:
            self.expect(s, value, dtypes.index, "a symbol of the call")
        for buffer in s.arguments:
            self.see(s, buffer)
        if self.module is not None:
            check_call(s, self.module, self.memory_of, lambda b: self.whole.get(b, b))
