"""Contractions, recognised in a loops function: a sum of products of two operands over reduce axes.

    block dot(vi = i, vj = j, reduce vk = k):                    rows (M)     vi: indexes x, not w
      h[vi, vj] += x[vi, vk] * w[vk, vj]                         columns (N)  vj: the result's last axis of extent > 1;
                                                                              indexes w, not x

The *vector operand* is indexed by the columns, which become vector lanes. The *broadcast operand* is indexed by the
rows; each of its elements is multiplied with a whole vector. An axis that indexes both is a batch. Convolutions are the
same with windowed indices: x[vc, vi + va, vj + vb] * f[vo, vc, va, vb] has the columns vj, the rows vo, the batch vi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tilewright.analysis.sizes import known
from tilewright.core.walk import preorder
from tilewright.expr.linear import affine_in, digits_of, polynomial
from tilewright.expr.nodes import Add, Cast, Const, Expr, Mul, Sub, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loads, loops_around
from tilewright.loops.nodes import Axis, Block, Buffer, Function, Load, Store
from tilewright.target.target import SHORTEST_LANES
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor: its load, and for each axis of the block the dimensions that the axis indexes. For a difference of
    two constants, the load of the first; the second, `minus`, is indexed by no further axes."""

    load: Load
    minus: Load | None = None

    @property
    def parts(self) -> tuple[Operand, ...]:
        """An operand for each buffer that it loads."""
        if self.minus is None or self.minus.buffer is self.load.buffer:
            return (self,)
        return Operand(self.load), Operand(self.minus)

    @property
    def buffer(self) -> Buffer:
        return self.load.buffer

    @property
    def is_constant(self) -> bool:
        return self.buffer.scope is Scope.CONSTANT

    def moves(self, axis: Var) -> bool:
        return any(axis in variables_of(i) for i in self.load.indices)

    def dimension(self, axis: Var) -> int | None:
        """The dimension that is indexed by the axis alone; None if there is none, or if the axis indexes others,
        too."""
        moving = [n for n, i in enumerate(self.load.indices) if axis in variables_of(i)]
        return moving[0] if len(moving) == 1 and self.load.indices[moving[0]] is axis else None

    def is_plain(self, extents: Mapping[Var, int], alone: Var | None = None) -> bool:
        """Whether every dimension is indexed by axes of their own, forwards or backwards, or by a constant: a tensor,
        not a window. The axis `alone`, if there is one, is the only one of its dimension."""
        digits = [digits_of(i, extents) for i in self.load.indices]
        return all(d is not None and (alone not in d or len(d) == 1) for d in digits)

    @property
    def last(self) -> int:
        """The last dimension of more than one element: neighbours along it are contiguous."""
        return max((n for n, e in enumerate(self.buffer.shape) if known(e) != 1), default=len(self.buffer.shape) - 1)

    def step(self, axis: Var) -> int | None:
        """The stride of the axis in the last dimension, in elements; None if it indexes others, or not linearly."""
        if any(axis in variables_of(i) for i in self.load.indices[: self.last]):
            return None
        parts = affine_in(polynomial(self.load.indices[self.last]), axis)
        if parts is None or any(m for m in parts[0]):
            return None
        return parts[0].get((), 0)


@dataclass(frozen=True, slots=True)
class Contraction:
    """A block of a function as a contraction. Axes are places in `block.axes`."""

    block: Block
    out: Buffer
    vector: Operand
    broadcast: Operand
    columns: int
    rows: int | None
    batch: tuple[int, ...]
    reduce: tuple[int, ...]
    extents: tuple[Expr, ...]

    @property
    def own_batches(self) -> tuple[int, ...]:
        """The batch axes along which the vector operand is a constant of each batch's own. All panels are then of one
        size, so that threads share them evenly. Other kernels that read differences of these constants use tiles of the
        same width, so that all read the same panels."""
        if not self.vector.is_constant:
            return ()
        return tuple(n for n in self.batch if self.vector.moves(self.block.axes[n].var))

    @property
    def sizes(self) -> dict[Var, int]:
        """The extents of axes as numbers, dynamic ones as large."""
        return {a.var: known(e) for a, e in zip(self.block.axes, self.extents, strict=True)}

    @property
    def summed(self) -> int | None:
        """The last reduce axis that alone indexes one dimension of each operand: an instruction may take several of its
        terms at a time. Channels of a convolution are such an axis, positions of its window are not."""
        operands = (self.vector, self.broadcast)
        able = [n for n in self.reduce if all(o.dimension(self.block.axes[n].var) is not None for o in operands)]
        return able[-1] if able else None

    @property
    def depth(self) -> int:
        """K: the number of terms of one sum."""
        return prod(max(known(self.extents[n]), 1) for n in self.reduce)


def find_contraction(function: Function) -> Contraction | None:
    """The only accumulation of a function, where it is a contraction with columns to vectorize."""
    reducing = [b for b in blocks(function.body) if b.reduce]
    return contraction_of(function, reducing[0]) if len(reducing) == 1 else None


def contraction_of(function: Function, block: Block, bounded: bool = False) -> Contraction | None:
    """A block of a function, each axis of which is a loop around it, as a contraction; None where it is none, where its
    last axis indexes both operands or neither, where one operand is a single number, or where it has a condition,
    unless it may be `bounded`."""
    loops, store = loops_around(function.body, block), block.body
    if [a.binding for a in block.axes] != [loop.var for loop in loops] or not isinstance(store, Store):
        return None
    extents, spatial = tuple(loop.extent for loop in loops), tuple(a.var for a in block.spatial)
    if block.init is None or (block.where is not None and not bounded) or store.indices != spatial or not spatial:
        return None
    factors = factors_of(store)
    if factors is None or not all(f.buffer.shape for f in factors):  # one number is a factor of a sum, no operand
        return None
    place = {a.var: n for n, a in enumerate(block.axes)}
    columns = next((v for v in reversed(spatial) if known(extents[place[v]]) > 1), spatial[-1])
    moving = [f for f in factors if f.moves(columns)]
    if len(moving) != 1:
        return None
    (vector,) = moving
    broadcast = next(f for f in factors if f is not vector)
    rows = [a for a in block.spatial if broadcast.moves(a.var) and not vector.moves(a.var)]
    rows = [a for a in rows if known(extents[place[a.var]]) > 1]
    row = _rows_among({a: extents[place[a.var]] for a in rows})
    batch = tuple(place[a.var] for a in block.spatial if a is not row and a.var is not columns)
    reduce = tuple(place[a.var] for a in block.reduce)
    rows_at = None if row is None else place[row.var]
    return Contraction(block, store.buffer, vector, broadcast, place[columns], rows_at, batch, reduce, extents)


def _rows_among(extents: Mapping[Axis, Expr]) -> Axis | None:
    """The axis that is the rows of tiles: one that is known to be long enough for a tile (two of the shortest vectors),
    then the longest; the innermost of those that are about as long, whose elements lie near each other. If the extent
    is dynamic, like a batch, most rows of a tile may be beyond it."""
    lengths = {a: (isinstance(e, Const) and known(e) >= 2 * SHORTEST_LANES, known(e)) for a, e in extents.items()}
    fit, longest = max(lengths.values(), default=(False, 0))
    alike = [a for a, (able, length) in lengths.items() if able == fit and 2 * length > longest]
    return alike[-1] if alike else None


def maps_points(block: Block, buffer: Buffer) -> bool:
    """Whether a block is one store for each point, which reads a buffer at that point alone, if at all."""
    points = tuple(a.var for a in block.axes)
    is_map = not block.reduce and block.where is None and isinstance(block.body, Store)
    return is_map and all(ld.indices == points for ld in loads(block) if ld.buffer is buffer)


def factors_of(store: Store) -> tuple[Operand, Operand] | None:
    """The two factors of own + a*b, each one load, converted at most."""
    own = Load(store.buffer, store.indices)
    match store.value:
        case Add(a, Mul(p, q)) if a is own:
            pass
        case Add(Mul(p, q), a) if a is own:
            pass
        case _:
            return None
    found = [_operand(p), _operand(q)]
    if found[0] is None or found[1] is None or found[0].buffer is found[1].buffer:
        return None
    return found[0], found[1]


def _operand(e: Expr) -> Operand | None:
    """A factor that is one load, or the difference of two constants the first of which is indexed by all axes."""
    if not isinstance(e, Sub):
        load = _only_load(e)
        return None if load is None else Operand(load)
    a, b = _only_load(e.a), _only_load(e.b)
    if a is None or b is None or {a.buffer.scope, b.buffer.scope} != {Scope.CONSTANT}:
        return None
    axes = [frozenset[Var]().union(*map(variables_of, ld.indices)) for ld in (a, b)]
    return Operand(a, b) if axes[1] <= axes[0] else None


def _only_load(e: Expr) -> Load | None:
    while isinstance(e, Cast):
        e = e.a
    if not isinstance(e, Load) or any(isinstance(n, Load) for i in e.indices for n in preorder(i)):
        return None
    return e
