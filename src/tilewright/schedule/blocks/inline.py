"""inline, reverse_inline: a buffer between a producer and its readers disappears.

block e(vi = i): e[vi] = exp(x[vi])
block y(vi = i): y[vi] = e[vi] * 2.0

inline("e")            =>      block y(vi = i): y[vi] = exp(x[vi]) * 2.0        y's nest: each reader computes it itself
reverse_inline("y")    =>      block e(vi = i): y[vi] = exp(x[vi]) * 2.0        e's nest: computed where e was
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from tilewright.analysis.intervals import Range
from tilewright.core.walk import preorder, substitute
from tilewright.expr.nodes import Call, Div, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loaded_buffers, loads, loops_around, map_loads, path_to, statements
from tilewright.loops.nodes import (
    Alloc,
    Block,
    Buffer,
    CallFunction,
    For,
    Function,
    Let,
    Load,
    Prefetch,
    Seq,
    Stmt,
    Store,
    View,
)
from tilewright.report.errors import UserError
from tilewright.schedule.facts.domain import Domain, domain_of, is_one, is_single, single_axis, values_of
from tilewright.schedule.facts.elements import touches, unwritten
from tilewright.schedule.facts.known import NOTHING
from tilewright.schedule.facts.place import Memory, nest_of, own_loads, require_only_writer, single_store, without
from tilewright.schedule.find import find_block, nests, stored_buffers
from tilewright.schedule.step import Step, refusal


@dataclass(frozen=True, slots=True)
class Definition:
    """A buffer that one block fills, without its own help: `store` says the value of an element, over the axes of the
    block. `nest` holds nothing but the block."""

    block: Block
    nest: Stmt
    domain: Domain
    store: Store

    @property
    def buffer(self) -> Buffer:
        return self.store.buffer


def inline(function: Function, block: str) -> Step:
    """Each reader of the block's buffer computes the elements that it reads itself; block and buffer disappear.

    Legal if the block computes one expression for each element, nothing else stores to its buffer, and the values that
    the expression reads are unchanged at all readers.
    """
    found = find_block(function, block)
    readers = [s for s in statements(function.body) if any(x.buffer in stored_buffers(found) for x in own_loads(s))]
    places = f"{len(readers)} statement{'s' * (len(readers) != 1)}"
    made = inlined(function, found)
    return Step(made, None, (f"{places} compute it instead, from what {block} read",))


def inlined(function: Function, block: Block) -> Function:
    """The function without a block and its buffer: loads become the expression that defines the element."""
    what = f"cannot inline {block.name}"
    found = _definition(function, block, what)
    inverse = _inverse(function, found, what)
    readers = _readers(function, found, what)
    _require_lasting(function, found, readers, what)
    buffer, value = found.buffer, found.store.value

    def change(load: Load) -> Expr:
        if load.buffer is not buffer:
            return load
        return substitute(value, {axis: _at(place, load.indices) for axis, place in inverse.items()})

    def stays(stmt: Stmt) -> bool:
        return not isinstance(stmt, Seq) and buffer not in loaded_buffers(stmt)

    alloc = next(s for s in statements(function.body) if isinstance(s, Alloc) and s.buffer is buffer)
    kept = without(without(function.body, found.nest), alloc)
    return function.replace(body=map_loads(kept, change, stays=stays))


def _definition(function: Function, block: Block, what: str) -> Definition:
    if block.reduce or block.init is not None:
        why = f"{block.name} adds up: its readers would do so again and again"
        raise refusal(function, what, block, why=why, fix=f'move it instead: compute_at("{block.name}", …)')
    store = single_store(function, block, what)
    fix = f"only local buffers disappear; move what reads {store.buffer.name} instead: reverse_inline"
    require_only_writer(function, block, store.buffer, what, fix)
    nest = nest_of(function, block, what)
    domain = domain_of(block, [s for s in statements(nest) if isinstance(s, For)])
    if isinstance(domain, str):
        raise refusal(function, what, block, why=domain)
    made = domain.block.body
    assert isinstance(made, Store)
    return Definition(block, nest, domain, made)


Place = tuple[int, Expr] | Expr
"""The value of an axis: the index of a dimension minus an offset, or one value for all elements."""


def _inverse(function: Function, found: Definition, what: str) -> dict[Var, Place]:
    """The values of the block's axes for an element of the buffer."""
    box = found.domain.box
    result: dict[Var, Place] = {v: r.begin for v, r in box.items() if is_one(r.extent)}
    for dim, index in enumerate(found.store.indices):
        axis = single_axis(index, box)
        if axis is not None:
            result[axis[0]] = dim, axis[1]
    for axis_var in box:
        if axis_var not in result:
            why = f"no index of {found.buffer.name} says what {axis_var.name} is"
            raise refusal(function, what, found.block.body, why=why)
    return result


def _at(place: Place, indices: Sequence[Expr]) -> Expr:
    if isinstance(place, Expr):
        return place
    dim, offset = place
    return indices[dim] if offset is const(0) else simplify(indices[dim] - offset)


def _readers(function: Function, found: Definition, what: str) -> list[Stmt]:
    """The statements that read the buffer: elements that the block stored, after it did."""
    buffer = found.buffer
    order = {s: n for n, s in enumerate(statements(function.body))}
    place = order[found.block]
    reading = [s for nest in nests(function) if buffer in loaded_buffers(nest) for s in statements(nest)]
    readers = [s for s in reading if any(load.buffer is buffer for load in own_loads(s))]
    for s in readers:
        if isinstance(s, Prefetch):
            raise refusal(function, what, s, why=f"{buffer.name} is prefetched here")
        if order[s] < place:
            raise refusal(function, what, s, why=f"{buffer.name} is read before {found.block.name} stores it")
        if any(i.lanes != 1 for load in own_loads(s) if load.buffer is buffer for i in load.indices):
            raise refusal(function, what, s, why="a vector is read at once", fix="inline before it is a vector")
    missing = None if _fills(found) else unwritten(touches(function.body, buffer))
    if missing is not None:
        why = f"block {found.block.name} may not have stored all that is read of {buffer.name} here"
        raise refusal(function, what, missing.access.statement, why=why)
    return readers


def _fills(found: Definition) -> bool:
    """Whether the block stores every element of its buffer."""
    if found.domain.conditions:
        return False
    for index, extent in zip(found.store.indices, found.buffer.shape, strict=True):
        covered = values_of(index, found.domain)
        if covered is None or not NOTHING.within(Range(const(0), extent), covered):
            return False
    return True


def _require_lasting(function: Function, found: Definition, readers: Sequence[Stmt], what: str) -> None:
    """Requires that the values the expression uses are the same at each reader."""
    memory, order = Memory(function), list(statements(function.body))
    reads, place = memory.loaded(found.store), order.index(found.block)
    axes = {a.var for a in found.block.axes}
    used: set[Var | Buffer] = {load.buffer for load in loads(found.store)}
    for e in (found.store.value, *found.store.indices):
        used |= variables_of(e) - axes
    scopes = _scopes(path_to(function.body, found.block), {found.buffer, *used})
    holder = scopes.pop(found.buffer)
    inside = set(statements(holder))
    paths = [path_to(function.body, s) for s in readers]
    around = [s for s in path_to(function.body, found.nest)[:-1] if s in inside and s is not holder]
    for s in around:
        late = next((r for r, path in zip(readers, paths, strict=True) if s not in path), None)
        if late is not None:
            word = f"loop {s.var.name}" if isinstance(s, For) else f"the {type(s).__name__.lower()}"
            why = f"{found.block.name} is inside {word if not isinstance(s, Seq) else 'a statement'}, this is not"
            raise refusal(function, what, late, why=why)
    for s in order[place + 1 :]:
        changed = reads & memory.stored(s) if isinstance(s, Store | CallFunction) and s in inside else set()
        if changed:
            why = (
                f"it stores {min(b.name for b in changed)}, which {found.block.name} reads, before all readers have run"
            )
            raise refusal(function, what, s, why=why)
    for name, scope in scopes.items():
        for path, reader in zip(paths, readers, strict=True):
            if scope not in path:
                why = f"{found.block.name} uses {name.name}, which is not known here"
                raise refusal(function, what, reader, why=why)


def _scopes(path: Sequence[Stmt], names: Set[Var | Buffer]) -> dict[Var | Buffer, Stmt]:
    """For each of these variables and local buffers, the statement of a path from the body down that defines its
    scope."""
    result: dict[Var | Buffer, Stmt] = {}
    for s in path:
        if isinstance(s, For) and s.var in names:
            result[s.var] = s
        for child in s.body if isinstance(s, Seq) else (s,):
            if isinstance(child, Alloc | View | Let):
                name = child.var if isinstance(child, Let) else child.buffer
                if name in names:
                    result.setdefault(name, s)
    return result


def inline_all(function: Function, *, once: bool = False) -> Step:
    """Inlines every local buffer that is defined point by point into its readers. Buffers that cost more to compute
    than to load stay if several nests read them. With `once`, they stay also if a nest reads an element of them several
    times, such as a value per row at each point of the row.

    block e(vi = i): e[vi] = x[vi] + 1.0; block y(vi = i): y[vi] = e[vi] * 2.0
              =>      block y(vi = i): y[vi] = (x[vi] + 1.0) * 2.0

    Each is inlined as by inline, which proves what it needs; what it refuses stays.
    """
    return inlined_step(function, all_inlined(function, once=once))


def inlined_step(function: Function, made: Function) -> Step:
    """The step of inline_all, from what all_inlined made."""
    return Step(made, None, () if made is function else ("inline allows each of them",))


@lru_cache(maxsize=1 << 4)
def all_inlined(function: Function, *, once: bool = False) -> Function:
    """The function that `inline_all` makes. It is cached: several templates for a kernel begin with it."""
    for buffer in [s.buffer for s in nests(function) if isinstance(s, Alloc)]:
        block = _point_block(function, buffer)
        if block is None or not isinstance(block.body, Store):
            continue
        several = _reading_nests(function, buffer) > 1 or (once and _is_read_again(function, buffer))
        if not (several and is_expensive(block.body.value)):
            try:
                function = inlined(function, block)
            except UserError:
                continue
    return function


def _point_block(function: Function, buffer: Buffer) -> Block | None:
    """The block that alone fills a buffer, if it may compute each point by itself."""
    writers = [n for n in nests(function) if buffer in stored_buffers(n)]
    inside = blocks(writers[0]) if len(writers) == 1 else []
    if len(inside) != 1 or inside[0].init is not None or inside[0].reduce:
        return None
    return inside[0]


def is_expensive(value: Expr) -> bool:
    """Whether an expression calls a function or divides."""
    return any(isinstance(e, Div) or (isinstance(e, Call) and e.fn.name not in ("neg", "abs")) for e in preorder(value))


def _is_read_again(function: Function, buffer: Buffer) -> bool:
    """Whether a block reads an element of a buffer in several iterations of a loop around it."""
    for block in blocks(function.body):
        bound = {a.var: a.binding for a in block.axes}
        for load in loads(block):
            if load.buffer is buffer:
                used = {
                    v for i in load.indices for axis in variables_of(i) for v in variables_of(bound.get(axis, axis))
                }
                if any(loop.var not in used and not is_single(loop) for loop in loops_around(function.body, block)):
                    return True
    return False


def _reading_nests(function: Function, buffer: Buffer) -> int:
    """How many nests read a buffer."""
    return sum(1 for nest in nests(function) if buffer in loaded_buffers(nest))
