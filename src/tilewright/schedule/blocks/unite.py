"""unite, guard: one block that selects fills a buffer in place of several blocks; and a selection becomes a condition.

for i in 0..1: block before(vi = i): p[vi] = 0.0
for i in 0..8: block copy(vi = i): p[vi + 1] = x[vi]
for i in 0..1: block behind(vi = i): p[vi + 9] = 0.0

unite("p")       =>   for i in 0..10: block copy(vi = i):
                        p[vi] = select(1 <= vi and vi < 9, x[min(max(vi - 1, 0), 7)], 0.0)

guard("copy")    =>   for i in 0..10:
                        block copy.else(vi = i): p[vi] = 0.0
                        block copy(vi = i) where 1 <= vi and vi < 9: p[vi] = x[vi - 1]

One block can be moved and shrunk, several cannot. The condition of a vector is a mask, which reads no more than needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.analysis.intervals import Range
from tilewright.core.node import Node
from tilewright.core.walk import substitute, transform
from tilewright.expr import dtypes
from tilewright.expr.build import conjunction, conjuncts, maximum, minimum, select
from tilewright.expr.linear import Polynomial, plus, polynomial
from tilewright.expr.nodes import Const, Expr, Le, Lt, Max, Min, Select, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import variables_of
from tilewright.loops.build import Builder
from tilewright.loops.edit import loads, path_to, replace, statements, substitute_expressions
from tilewright.loops.nodes import Alloc, Block, Buffer, CallFunction, Function, Load, Seq, Stmt, Store, seq
from tilewright.schedule.facts.domain import domain_of, is_one, single_axis, values_of
from tilewright.schedule.facts.known import NOTHING, bound
from tilewright.schedule.facts.place import Memory
from tilewright.schedule.find import find_block, find_buffer, perfect_nest, writers_of
from tilewright.schedule.names import unique_block
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class _Piece:
    """A block that stores one value to each element of a box: `value` over the variables `axes`, one per dimension. An
    axis is the element's index minus its offset in `offsets`. A dimension without an axis has one index."""

    block: Block
    nest: Stmt
    box: tuple[Range, ...]
    axes: tuple[Var | None, ...]
    offsets: tuple[Expr, ...]
    value: Expr

    @property
    def is_fill(self) -> bool:
        """Whether all elements get the same value."""
        return not any(True for _ in loads(self.value)) and not variables_of(self.value)


def unite(function: Function, buffer: str) -> Step:
    """One block fills the local buffer that several blocks fill piece by piece: it selects by the element's indices.
    Elements that none of them stores are filled, too. Returns the block's name, that of the last piece that is no fill.

    for i in 0..1: block zero(vi = i): p[vi] = 0.0
    for i in 0..8: block copy(vi = i): p[vi + 1] = x[vi]
              =>      for i in 0..9: block copy(vi = i): p[vi] = select(1 <= vi, x[max(vi, 1) - 1], 0.0)

    Legal if the pieces are boxes in consecutive nests, all fills store the same value, and nothing reads the buffer, or
    changes what the pieces read, before the last of them has run.
    """
    found = find_buffer(function, buffer)
    what = f"cannot unite what fills {buffer}"
    writers = writers_of(function, found)
    if not writers:
        raise refusal(function, what, function.body, why="no block stores to it")
    if found.scope is Scope.ARGUMENT or not Memory(function).is_plain(found):
        raise refusal(function, what, writers[0], why=f"{buffer} is seen from outside, or under another name")
    pieces = [_piece(function, b, found, what) for b in writers]
    parent = _parent(function, pieces, found, what)
    _require_unread(function, parent, pieces, found, what)
    rest = [p for p in pieces if not p.is_fill]
    name = (rest or pieces)[-1].block.name
    nest = _united(found, name, _in_order(function, pieces, what))
    nests = {p.nest for p in pieces}
    last = pieces[-1].nest
    body = [nest if s is last else s for s in parent.body if s is last or s not in nests]
    evidence = (
        f"{', '.join(p.block.name for p in pieces)} store boxes of {buffer}, each element by itself",
        "nothing in between reads it, or changes what they read",
    )
    return Step(function.replace(body=replace(function.body, parent, seq(*body))), name, evidence)


def _piece(function: Function, block: Block, buffer: Buffer, what: str) -> _Piece:
    """A block as a piece."""
    store = block.body
    if not isinstance(store, Store) or block.reduce or block.init is not None or block.where is not None:
        raise refusal(function, what, block, why=f"{block.name} does more than store one value", part=block.name)
    path = path_to(function.body, block)
    nest = path[max((n for n, s in enumerate(path) if isinstance(s, Seq)), default=-1) + 1]
    loops, inside = perfect_nest(nest)
    domain = domain_of(block, loops) if inside is block else f"{block.name} is not alone in its nest"
    if isinstance(domain, str):
        raise refusal(function, what, block, why=domain)
    if domain.conditions or any(load.buffer is buffer for load in loads(store)):
        raise refusal(function, what, block, why=f"{block.name} stores no plain box of {buffer.name}")
    made = domain.block.body
    assert isinstance(made, Store)
    singles: dict[Expr, Expr] = {v: r.begin for v, r in domain.box.items() if is_one(r.extent)}
    box, axes, offsets = [], [], []
    for index in (simplify(substitute(i, singles)) for i in made.indices):
        axis, values = single_axis(index, domain.box), values_of(index, domain)
        if values is None:
            raise refusal(function, what, store, why=f"{index} is not one axis of {block.name}, moved", part=index)
        box.append(values)
        axes.append(axis[0] if axis else None)
        offsets.append(axis[1] if axis else const(0))
    moving = {v for v, r in domain.box.items() if not is_one(r.extent)}
    if set(axes) - {None} != moving or len(moving) != len([a for a in axes if a is not None]):
        raise refusal(function, what, store, why=f"{block.name} stores an element several times")
    empty = next((r.extent for r, e in zip(box, buffer.shape, strict=True) if _may_be_empty(r, e)), None)
    if empty is not None:
        raise refusal(function, what, block, why=f"{block.name} may have no points: {empty} may be 0")
    value = substitute(made.value, singles)
    return _Piece(block, nest, tuple(box), tuple(axes), tuple(offsets), value)


def _may_be_empty(part: Range, extent: Expr) -> bool:
    """Whether part of a dimension may have no elements where the dimension has some."""
    whole = part.begin is const(0) and simplify(part.extent - extent) is const(0)
    return not whole and not NOTHING.at_least(part.extent, const(1))


def _parent(function: Function, pieces: Sequence[_Piece], buffer: Buffer, what: str) -> Seq:
    """The sequence that holds the nests of all pieces, and allocates the buffer."""
    parents = {path_to(function.body, p.nest)[-2] if p.nest is not function.body else None for p in pieces}
    (parent,) = parents if len(parents) == 1 else (None,)
    if not isinstance(parent, Seq):
        raise refusal(function, what, pieces[0].block, why="the blocks do not stand one after the other")
    if not any(isinstance(s, Alloc) and s.buffer is buffer for s in parent.body):
        why = f"{buffer.name} is older than an iteration of the loop around {pieces[0].block.name}"
        raise refusal(function, what, pieces[0].block, why=why)
    return parent


def _require_unread(function: Function, parent: Seq, pieces: Sequence[_Piece], buffer: Buffer, what: str) -> None:
    """From the first piece to the last nobody reads the buffer or changes what a piece reads."""
    memory = Memory(function)
    nests = {p.nest for p in pieces}
    reads = memory.loaded(*nests)
    places = [parent.body.index(p.nest) for p in pieces]
    for s in parent.body[min(places) : max(places)]:
        if s in nests:
            continue
        for each in statements(s):
            if buffer in memory.loaded(each):
                raise refusal(function, what, each, why=f"{buffer.name} is read here, before all of it is stored")
            changed = reads & memory.stored(each) if isinstance(each, Store | CallFunction) else set()
            if changed:
                why = f"it stores {min(b.name for b in changed)}, which a later piece reads"
                raise refusal(function, what, each, why=why)


def _in_order(function: Function, pieces: Sequence[_Piece], what: str) -> list[_Piece]:
    """The fill that contains all other fills, and the pieces that overwrite it, in order."""
    base = next((p for p in pieces if p.is_fill), pieces[0])
    if not base.is_fill:
        raise refusal(function, what, base.block, why="no piece stores one value for all of its elements")
    chosen = [base]
    for n, piece in enumerate(pieces):
        if piece is base:
            continue
        if piece.is_fill and piece.value is not base.value:
            why = f"{piece.block.name} and {base.block.name} store different values"
            raise refusal(function, what, piece.block, why=why)
        if piece.is_fill:
            over = next((p for p in pieces[:n] if not p.is_fill and not _apart(p, piece)), None)
        else:
            over = next((p for p in pieces[n + 1 :] if not _apart(p, piece)), None)
            chosen.append(piece)
        if over is not None:
            why = f"{piece.block.name} and {over.block.name} may store the same elements"
            raise refusal(function, what, piece.block, why=why)
    return chosen


def _apart(a: _Piece, b: _Piece) -> bool:
    """Whether two boxes are known to share no element."""

    def ends(r: Range, s: Range) -> bool:
        return NOTHING.at_least(s.begin, r.begin + r.extent)

    return any(ends(r, s) or ends(s, r) for r, s in zip(a.box, b.box, strict=True))


def _united(buffer: Buffer, name: str, chosen: Sequence[_Piece]) -> Stmt:
    """The nest that fills the whole buffer."""
    build = Builder()

    def element(*at: Expr) -> Expr:
        total = chosen[0].value
        for piece in chosen[1:]:
            total = _chosen(piece, buffer, at, total)
        return total

    build.compute(name, buffer, element)
    return build.body()


def _chosen(piece: _Piece, buffer: Buffer, at: Sequence[Expr], otherwise: Expr) -> Expr:
    """The piece's value inside its box, `otherwise` elsewhere; loads of the piece's value are clamped to its box."""
    conditions: list[Expr] = []
    values: dict[Expr, Expr] = {}
    for index, axis, box, offset, extent in zip(at, piece.axes, piece.box, piece.offsets, buffer.shape, strict=True):
        end = simplify(box.begin + box.extent)
        place: Expr = index
        if not (isinstance(box.begin, Const) and box.begin.value == 0):
            conditions.append(Le(box.begin, index))
            place = maximum(place, box.begin)
        if end is not simplify(extent):
            conditions.append(Lt(index, end))
            place = minimum(place, end - 1)
        if axis is not None:
            values[axis] = simplify(place - offset)
    cond = conjunction(conditions)
    value = _simple(substitute(piece.value, values))
    return value if cond is None else select(cond, value, otherwise)


def _simple(value: Expr) -> Expr:
    """The value with its indices simplified."""
    made = {load: Load(load.buffer, tuple(simplify(i) for i in load.indices)) for load in loads(value)}
    return substitute(value, made)


def guard(function: Function, block: str) -> Step:
    """A block that stores select(CONDITION, A, B) becomes two: one stores B everywhere, then one stores A where the
    condition holds. Returns the names of the two blocks, first that of B.

    block p(vi = i): p[vi] = select(vi < 9, x[min(vi, 8)], 0.0)
              =>      block p.else(vi = i): p[vi] = 0.0
                      block p(vi = i) where vi < 9: p[vi] = x[vi]

    Legal where the block does nothing else, and reads nothing of what it stores.
    """
    found = find_block(function, block)
    what = f"cannot guard block {block}"
    store = found.body
    if not isinstance(store, Store) or not isinstance(store.value, Select) or found.reduce or found.init is not None:
        raise refusal(function, what, found, why="it does not store a selection", part=found.name)
    if any(load.buffer is store.buffer for load in loads(store)):
        raise refusal(function, what, store, why=f"it reads {store.buffer.name} itself")
    name = unique_block(function, f"{block}.else")
    conditions, value, otherwise = _chosen_where(found, store.value)
    first = found.replace(name=name, body=store.replace(value=otherwise))
    second = found.replace(body=store.replace(value=value), where=conjunction(conditions))
    made = seq(_with_own_axes(first), second)
    evidence = (f"both store the same element of {store.buffer.name}, and do not read it",)
    return Step(function.replace(body=replace(function.body, found, made)), (name, block), evidence)


def _chosen_where(block: Block, value: Select) -> tuple[list[Expr], Expr, Expr]:
    """(the conditions for A, A, B) of a selection, of those inside A with the same B, too."""
    conditions = conjuncts(block.where)
    chosen: Expr = value
    while isinstance(chosen, Select) and chosen.b is value.b:
        conditions = [*conditions, *conjuncts(chosen.cond)]
        chosen = _known(chosen.a, conditions)
    needed: list[Expr] = []
    for cond in conditions:
        p = bound(cond)
        if p is None or not any(_follows(p, q) for c in needed if (q := bound(c)) is not None):
            needed = [c for c in needed if p is None or (q := bound(c)) is None or not _follows(q, p)]
            needed.append(cond)
    return needed, chosen, value.b


def _follows(p: Polynomial, fact: Polynomial) -> bool:
    """Whether p is at least zero because `fact` is, and no less than that."""
    spare = plus(p, fact, -1)
    return not set(spare) - {()} and spare.get((), 0) >= 0


def _with_own_axes(block: Block) -> Block:
    """The block with axes of its own, called like those it has."""
    fresh = {a.var: Var(a.var.name) for a in block.axes}
    axes = tuple(a.replace(var=fresh[a.var]) for a in block.axes)
    values: dict[Expr, Expr] = {old: var for old, var in fresh.items()}  # noqa: C416  (another key type)
    body = substitute_expressions(block.body, values)
    where = None if block.where is None else substitute(block.where, values)
    return block.replace(axes=axes, body=body, where=where)


def _known(value: Expr, conditions: Sequence[Expr]) -> Expr:
    """The value with the minima and maxima of indices decided where one of the conditions does."""
    facts = [p for c in conditions if (p := bound(c)) is not None]

    def never_less(a: Expr, b: Expr) -> bool:
        gap = plus(polynomial(a), polynomial(b), -1)
        return any(_follows(gap, fact) for fact in ({}, *facts))

    def decided(node: Node) -> Node:
        match node:
            case Max(a, b) | Min(b, a) if node.dtype is dtypes.index and never_less(a, b):
                return a if isinstance(node, Max) else b
            case Max(a, b) | Min(b, a) if node.dtype is dtypes.index and never_less(b, a):
                return b if isinstance(node, Max) else a
        return node

    return _simple(transform(value, decided))
