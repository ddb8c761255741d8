"""Contractions, recognised in a loops function: a sum of products of two operands over reduce axes, or of other terms
of an element of each, or the least or greatest of such terms.

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

from tilewright.analysis.products import Operand, factors_of, pair_of
from tilewright.analysis.sizes import known
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.loops.edit import blocks, loops_around
from tilewright.loops.nodes import Axis, Block, Buffer, Function, Store
from tilewright.target.abilities import SHORTEST_LANES


@dataclass(frozen=True, slots=True)
class Contraction:
    """A block of a function as a contraction. Axes are places in `block.axes`. Its terms are products, or others in so
    many vector `instructions`, the addition to the sum among them."""

    block: Block
    out: Buffer
    vector: Operand
    broadcast: Operand
    columns: int
    rows: int | None
    batch: tuple[int, ...]
    reduce: tuple[int, ...]
    extents: tuple[Expr, ...]
    instructions: float = 0.0

    @property
    def is_product(self) -> bool:
        """Whether its terms are products."""
        return not self.instructions

    @property
    def own_batches(self) -> tuple[int, ...]:
        """The batch axes along which the vector operand is a constant of each batch's own. All panels are then of one
        size, so that threads share them evenly. Other kernels that read differences of these constants use tiles of the
        same width, so that all read the same panels."""
        if not self.vector.is_constant:
            return ()
        return tuple(n for n in self.batch if self.vector.moves(self.block.axes[n].var))

    @property
    def panels_outside(self) -> bool:
        """Whether batches that read the same constants along the columns all pass by a panel before the next one: where
        these are more than the other operand, which is read for each panel."""
        own, batch = (prod(known(self.extents[n]) for n in axes) for axes in (self.own_batches, self.batch))
        return self.vector.is_constant and own < batch and _held(self.vector) // own > _held(self.broadcast)

    @property
    def sizes(self) -> dict[Var, int]:
        """The extents of axes as numbers, dynamic ones as large."""
        return {a.var: known(e) for a, e in zip(self.block.axes, self.extents, strict=True)}

    @property
    def summed(self) -> int | None:
        """The last reduce axis that alone indexes one dimension of each operand: an instruction may take several of its
        terms at a time. Channels of a convolution are such an axis, positions of its window are not. Where there is
        none, one along which the elements of rows are neighbours, though windows overlap there."""
        alone = [n for n in self.reduce if self._is_alone(n, self.vector)]
        able = [n for n in alone if self._is_alone(n, self.broadcast)]
        able = able or [n for n in alone if self.broadcast.step(self.block.axes[n].var) == 1]
        return able[-1] if able else None

    @property
    def overlaps(self) -> bool:
        """Whether rows overlap along the axis whose terms an instruction may take together."""
        return self.summed is not None and not self._is_alone(self.summed, self.broadcast)

    @property
    def places(self) -> list[int]:
        """The dimensions of the result that rows and columns index by themselves; fewer where one does not."""
        indices = self.block.body.indices if isinstance(self.block.body, Store) else ()
        wanted = [self.block.axes[n].var for n in (self.rows, self.columns) if n is not None]
        return [indices.index(var) for var in wanted if var in indices]

    def _is_alone(self, axis: int, operand: Operand) -> bool:
        return operand.dimension(self.block.axes[axis].var) is not None

    @property
    def depth(self) -> int:
        """K: the number of terms of one sum."""
        return prod(max(known(self.extents[n]), 1) for n in self.reduce)


def _held(operand: Operand) -> int:
    """The bytes of an operand's tensor."""
    return operand.buffer.dtype.bytes * prod(known(e) for e in operand.buffer.shape)


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
    products = factors_of(block)
    terms = pair_of(block) if products is None else (products, 0.0)
    if terms is None or not all(f.buffer.shape for f in terms[0]):  # one number is a factor of a sum, no operand
        return None
    factors, instructions = terms
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
    axes = place[columns], rows_at, batch, reduce
    return Contraction(block, store.buffer, vector, broadcast, *axes, extents, instructions)


def _rows_among(extents: Mapping[Axis, Expr]) -> Axis | None:
    """The axis that is the rows of tiles: one that is known to be long enough for a tile (two of the shortest vectors),
    then the longest; the innermost of those that are about as long, whose elements lie near each other. If the extent
    is dynamic, like a batch, most rows of a tile may be beyond it."""
    lengths = {a: (isinstance(e, Const) and known(e) >= 2 * SHORTEST_LANES, known(e)) for a, e in extents.items()}
    fit, longest = max(lengths.values(), default=(False, 0))
    alike = [a for a, (able, length) in lengths.items() if able == fit and 2 * length > longest]
    return alike[-1] if alike else None
