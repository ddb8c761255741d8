"""unite, guard: one block that selects fills a buffer in place of several blocks; and a selection becomes a condition.

One block can be moved and shrunk, several cannot. The condition of a vector is a mask, which reads no more than needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from tilewright.analysis.domains import inverse, nest_of, single_axis, values_of
from tilewright.analysis.intervals import Range
from tilewright.analysis.known import NOTHING, bound
from tilewright.analysis.memory import Memory, readers_of, writers_of
from tilewright.core.node import Node
from tilewright.core.walk import substitute, transform
from tilewright.expr import dtypes
from tilewright.expr.build import conjunction, conjuncts, maximum, minimum, select
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Expr, Le, Lt, Max, Min, Select, const
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import variables_of
from tilewright.loops.build import Builder
from tilewright.loops.edit import fresh_copy, loads, loads_of, path_to, statements
from tilewright.loops.nodes import Alloc, Block, Buffer, Function, Load, Seq, Stmt, Store, seq
from tilewright.schedule.facts import domain_in, require_unchanged
from tilewright.schedule.find import primitive
from tilewright.schedule.step import Obstacle, Step, rewritten, unique_name
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class _Piece:
    """A block that stores one value to each element of a box: `value` over its axes, which `axes_at` an element."""

    block: Block
    nest: Stmt
    box: tuple[Range, ...]
    axes_at: Callable[[Sequence[Expr]], dict[Expr, Expr]]
    value: Expr

    @property
    def is_fill(self) -> bool:
        """Whether all elements get the same value."""
        return not loads_of(self.value) and not variables_of(self.value)


@primitive("cannot unite what fills {buffer}")
def unite(function: Function, buffer: Buffer) -> Step:
    """One block fills the local buffer that several blocks fill piece by piece: it selects by the element's indices.
    Elements that none of them stores are filled, too. Returns the block's name, that of the last piece that is no fill.

    for i in 0..1: block zero(vi = i): p[vi] = 0.0
    for i in 0..8: block copy(vi = i): p[vi + 1] = x[vi]
              =>      for i in 0..9: block copy(vi = i): p[vi] = select(1 <= vi, x[max(vi, 1) - 1], 0.0)

    Legal if the pieces are boxes in consecutive nests, one of them stores one value everywhere, and nothing reads the
    buffer, or changes what the pieces read, before the last of them has run.
    """
    writers = writers_of(function, buffer)
    if not writers:
        raise Obstacle(function.body, "no block stores to it")
    if buffer.scope is Scope.ARGUMENT or not Memory(function.body).is_plain(buffer):
        raise Obstacle(writers[0], f"{buffer.name} is seen from outside, or under another name")
    pieces = [_piece(function, b, buffer) for b in writers]
    parent = _parent(function, pieces, buffer)
    nests = {p.nest for p in pieces}
    places = [parent.body.index(nest) for nest in nests]
    between = [s for t in parent.body[min(places) : max(places)] if t not in nests for s in statements(t)]
    for reader in (s for s in readers_of(function.body, buffer) if s in between):
        raise Obstacle(reader, f"{buffer.name} is read here, before all of it is stored")
    for p in pieces:
        require_unchanged(function, p.block, Memory(function.body).loaded(p.nest), between)
    name = ([p for p in pieces if not p.is_fill] or pieces)[-1].block.name
    base = next((p.value for p in pieces if p.is_fill), None)
    if base is None:
        raise Obstacle(pieces[0].block, "no piece stores one value for all of its elements")
    over = [p for n, p in enumerate(pieces) if p.value is not base or not all(_apart(p, q, base) for q in pieces[:n])]
    build = Builder()
    build.compute(name, buffer, lambda *at: reduce(lambda rest, p: _chosen(p, buffer, at, rest), over, base))
    nest, last = build.body(), pieces[-1].nest
    body = seq(*(nest if s is last else s for s in parent.body if s is last or s not in nests))
    boxes = f"{', '.join(p.block.name for p in pieces)} store boxes of {buffer.name}, each element by itself"
    return rewritten(function, parent, body, name, boxes, "nothing in between reads it, or changes what they read")


def _piece(function: Function, block: Block, buffer: Buffer) -> _Piece:
    """A block as a piece."""
    if not isinstance(block.body, Store) or block.reduce or block.init is not None or block.where is not None:
        raise Obstacle(block, f"{block.name} does more than store one value")
    nest = nest_of(function, block)
    domain = domain_in(nest, block)
    if domain.conditions or any(load.buffer is buffer for load in loads(block)):
        raise Obstacle(block, f"{block.name} stores no plain box of {buffer.name}")
    single: dict[Expr, Expr] = {v: r.begin for v, r in domain.box.items() if r.extent is const(1)}
    indices = [simplify(substitute(i, single)) for i in domain.store.indices]
    box: list[Range] = []
    for index, extent in zip(indices, buffer.shape, strict=True):
        values = values_of(index, domain)
        if values is None:
            raise Obstacle(block.body, f"{index} is not one axis of {block.name}, moved", part=index)
        if not NOTHING.within(Range(const(0), extent), values) and not NOTHING.at_least(values.extent, const(1)):
            raise Obstacle(block, f"{block.name} may have no points: {values.extent} may be 0")
        box.append(values)
    told = [axis[0] for i in indices if (axis := single_axis(i, domain.box)) is not None]
    if set(told) != domain.box.keys() - single.keys() or len(set(told)) < len(told):
        raise Obstacle(block.body, f"{block.name} stores an element several times")
    return _Piece(block, nest, tuple(box), inverse(indices, domain.box), substitute(domain.store.value, single))


def _parent(function: Function, pieces: Sequence[_Piece], buffer: Buffer) -> Seq:
    """The sequence that holds the nests of all pieces, and allocates the buffer."""
    parents = {s for p in pieces for s in path_to(function.body, p.nest)[-2:-1]}
    parent = parents.pop() if len(parents) == 1 else None
    if not isinstance(parent, Seq):
        raise Obstacle(pieces[0].block, "the blocks do not stand one after the other")
    if not any(isinstance(s, Alloc) and s.buffer is buffer for s in parent.body):
        why = f"{buffer.name} is older than an iteration of the loop around {pieces[0].block.name}"
        raise Obstacle(pieces[0].block, why)
    return parent


def _apart(piece: _Piece, before: _Piece, base: Expr) -> bool:
    """Whether a piece is known to overwrite nothing of another one but `base`."""
    both = [*zip(piece.box, before.box, strict=True), *zip(before.box, piece.box, strict=True)]
    return before.value is base or any(NOTHING.at_least(s.begin, r.begin + r.extent) for r, s in both)


def _chosen(piece: _Piece, buffer: Buffer, at: Sequence[Expr], otherwise: Expr) -> Expr:
    """The piece's value inside its box, `otherwise` elsewhere; loads of the piece's value are clamped to its box."""
    conditions: list[Expr] = []
    places: list[Expr] = []
    for index, box, extent in zip(at, piece.box, buffer.shape, strict=True):
        end, place = simplify(box.begin + box.extent), index
        if not (isinstance(box.begin, Const) and box.begin.value == 0):
            conditions.append(Le(box.begin, index))
            place = maximum(place, box.begin)
        if end is not simplify(extent):
            conditions.append(Lt(index, end))
            place = minimum(place, end - 1)
        places.append(simplify(place))
    value, cond = _simple(substitute(piece.value, piece.axes_at(places))), conjunction(conditions)
    return value if cond is None else select(cond, value, otherwise)


def _simple(value: Expr) -> Expr:
    """The value with its indices simplified."""
    made = {load: Load(load.buffer, tuple(simplify(i) for i in load.indices)) for load in loads(value)}
    return substitute(value, made)


@primitive("cannot guard block {block}")
def guard(function: Function, block: Block) -> Step:
    """A block that stores select(CONDITION, A, B) becomes two: one stores B everywhere, then one stores A where the
    condition holds. Returns the names of the two blocks, first that of B.

    block p(vi = i): p[vi] = select(vi < 9, x[min(vi, 8)], 0.0)
              =>      block p.else(vi = i): p[vi] = 0.0
                      block p(vi = i) where vi < 9: p[vi] = x[vi]

    Legal where the block does nothing else, and reads nothing of what it stores.
    """
    store = block.body
    if not isinstance(store, Store) or not isinstance(store.value, Select) or block.reduce or block.init is not None:
        raise Obstacle(block, "it does not store a selection")
    if any(load.buffer is store.buffer for load in loads(store)):
        raise Obstacle(store, f"it reads {store.buffer.name} itself")
    name = unique_name(function, f"{block.name}.else")
    conditions, value = _chosen_where(block, store.value)
    first = fresh_copy(block.replace(name=name, body=store.replace(value=store.value.b)))
    second = block.replace(body=store.replace(value=value), where=conjunction(conditions))
    evidence = f"both store the same element of {store.buffer.name}, and do not read it"
    return rewritten(function, block, seq(first, second), (name, block.name), evidence)


def _chosen_where(block: Block, value: Select) -> tuple[list[Expr], Expr]:
    """(the conditions for A, A) of a selection of A or B, of those inside A with the same B, too."""
    conditions = conjuncts(block.where)
    chosen: Expr = value
    while isinstance(chosen, Select) and chosen.b is value.b:
        conditions = [*conditions, *conjuncts(chosen.cond)]
        chosen = _known(chosen.a, conditions)
    needed: list[Expr] = []
    for cond in conditions:
        if not NOTHING.follows(bound(cond), map(bound, needed)):
            needed = [*(c for c in needed if not NOTHING.follows(bound(c), [bound(cond)])), cond]
    return needed, chosen


def _known(value: Expr, conditions: Sequence[Expr]) -> Expr:
    """The value with the minima and maxima of indices decided where one of the conditions does."""
    facts = [{}, *map(bound, conditions)]

    def decided(node: Node) -> Node:
        if isinstance(node, Max | Min) and node.dtype is dtypes.index:
            for more, less in ((node.a, node.b), (node.b, node.a)):
                if NOTHING.follows(polynomial(more - less), facts):
                    return more if isinstance(node, Max) else less
        return node

    return _simple(transform(value, decided))
