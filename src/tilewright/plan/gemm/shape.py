"""What a contraction is to the templates that run it in tiles: numbers, and how its operands lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tilewright.analysis.accesses import coefficient_of, flat_index
from tilewright.analysis.contractions import Contraction
from tilewright.analysis.products import Operand, maps_points
from tilewright.analysis.sizes import USUAL, Sizes, known, power_of_two_in
from tilewright.analysis.zero_terms import Edges, edges_of
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, const
from tilewright.loops.edit import blocks
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.contraction import Dot, RegisterTile, Sums, pays
from tilewright.plan.tile.next_rows import image_bytes
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Lies:
    """How an operand lies in memory: whether it is a constant; whether it is a tensor, each dimension indexed by one
    axis, or a window; bytes of an element, from one row to the next, of all that a batch reads, and of the tensor;
    elements from one column (of the elements: from one row of the result) to the next, None where they lie unevenly;
    the type of an element; whether the terms that an instruction takes together lie side by side; bytes of an image
    that windows move over row by row, 0 for none."""

    constant: bool
    plain: bool
    bytes: int
    apart: int
    whole: int
    held: int
    step: int | None
    dtype: DType
    side_by_side: bool
    image: int = 0

    def taken(self, each: int, terms: float) -> Lies:
        """The operand as a copy of it that has `each` bytes of all terms of an instruction together, and so many times
        as many terms as it had."""
        by = each / self.bytes
        whole, held = (round(n * terms * by) for n in (self.whole, self.held))
        return replace(self, bytes=each, whole=whole, held=held)


@dataclass(frozen=True, slots=True)
class Size:
    """A contraction in numbers. Dynamic extents are large ones (`known`).

    rows            of the result that read the same panel; 0 where there is no such axis
    batch, own      how many products there are, and how many of them have a constant of their own along the lanes
    any_rows        whether rows, or columns, are dynamic
    usual           rows and columns as they usually are: of dynamic ones, what `Sizes` assumes, and no more than USUAL
    parts           tensors that vectors are the difference of, at most: kernels whose constants are shared are priced
                    like those beside them that take differences, so that all read the same panels
    differing       of the second of these, how many products have one of their own: it comes once for all others
    axes, turns     reduce axes, and the extent of the first of them
    sums            the type of a sum
    summed          terms of the axis that an instruction takes several terms of; 0 where there is none
    even            the largest power of two up to 64 that their number is a multiple of for certain
    overlaps        whether rows overlap along it
    lines           extent of the last batch axis, where all along it read the same panels: rows of an image
    edges           the reduce axes with terms to leave out, which are the first ones
    panels_outside  as of the contraction
    instructions    of a vector of terms, where these are no products
    dot             how products are added up, where these numbers are of copies for an instruction: `terms` then are
                    those that it takes together, and so are the elements of operands
    """

    rows: int
    columns: int
    terms: int
    batch: int
    own: int
    any_rows: bool
    any_columns: bool
    parts: int
    differing: int
    axes: int
    turns: int
    vector: Lies
    element: Lies
    batched_elements: bool
    sums: DType
    summed: int
    even: int
    usual: tuple[int, int]
    lines: int = 1
    overlaps: bool = False
    edges: tuple[Edges, ...] = ()
    panels_outside: bool = False
    dot: Dot | None = None
    instructions: float = 0.0

    @property
    def bits(self) -> int:
        """Of a sum, as vectors hold it: products of narrow numbers, and narrow floats, are added up in 32 bits."""
        narrow = self.instructions > 0 and not self.sums.is_float
        return self.sums.bits if narrow else max(self.sums.bits, 32)

    @property
    def is_float(self) -> bool:
        """Whether vectors are multiplied as they lie."""
        return self.sums.is_float and self.sums is self.vector.dtype

    @property
    def constant_rows(self) -> bool:
        """Whether the elements of rows are a constant that can be packed before any call."""
        return self.element.plain and self.element.constant

    @property
    def adds_together(self) -> bool:
        """Whether an instruction of vectors may take several terms together: rows do not overlap along their axis."""
        return self.summed > 0 and not self.overlaps

    @property
    def brought(self) -> float:
        """How many times the vectors' bytes come from where the tensors lie that these are the difference of."""
        return 1 + (self.parts - 1) * self.differing / max(self.own, 1)

    @property
    def shares_panels(self) -> bool:
        """Whether all batches pass by a panel, in tiles of the machine."""
        return self.dot is not None and self.dot.in_tiles and self.own == 1 and self.batch > 1 and not self.any_rows

    def panels(self, tile: RegisterTile) -> int:
        """Column panels of a tile's width."""
        return -(-self.columns // tile.columns)

    def row_tiles(self, tile: RegisterTile) -> int:
        """Tiles of rows."""
        return -(-self.rows // tile.rows)

    @property
    def usually(self) -> Size:
        """The numbers with as many rows and columns as are usual, where these are dynamic."""
        return self.of_rows(*self.usual)

    def of_rows(self, rows: int, columns: int = 0) -> Size:
        """The numbers with so many rows, and columns where these are given, as if that were usual."""
        columns = columns or self.columns
        if (rows, columns) == (self.rows, self.columns) == self.usual:
            return self
        element = replace(self.element, whole=self.element.whole * max(rows, 1) // max(self.rows, 1))
        vector = replace(self.vector, whole=self.vector.whole * columns // self.columns)
        return replace(self, rows=rows, columns=columns, element=element, vector=vector, usual=(rows, columns))

    def side_by_side(self, batches: int) -> Size:
        """The numbers where the rows of so many batches are those of one."""
        if batches == 1:
            return self
        element = replace(self.element, whole=min(self.element.whole * batches, self.element.held))
        usual, lines = (self.usual[0] * batches, self.usual[1]), self.lines // batches
        return replace(
            self, rows=self.rows * batches, batch=self.batch // batches, lines=lines, element=element, usual=usual
        )

    def taken(self, dot: Dot | None) -> Size:
        """The numbers of the same contraction where products are added up so."""
        if dot is None:
            return self
        together = -(-self.summed // dot.depth)
        terms = self.terms // max(self.summed, 1) * together
        less = terms / self.terms
        vector = self.vector.taken(dot.vector_bytes, less)
        return replace(self, terms=terms, vector=vector, element=self.element.taken(dot.element_bytes, less), dot=dot)

    def is_ready(self, dot: Dot) -> bool:
        """Whether an instruction can take its terms from the elements of rows as they lie."""
        lie = dot.depth == 1 or (self.element.side_by_side and self.even % dot.depth == 0)
        return self.element.dtype.name == dot.element and lie

    def lanes(self, target: Target) -> int:
        """Sums in a vector."""
        return self.tile_sums(1, 1, target).lanes(target)

    @property
    def is_turned(self) -> bool:
        """Whether the columns of the vectors' operand lie apart, and the terms of each next to each other."""
        return self.vector.step is None and self.axes == 1

    @property
    def spread(self) -> bool:
        """Whether a vector is put together from several: it is loaded as the operand lies, whose elements lie apart."""
        return (self.vector.step or 1) > 1 and not self.vector.constant

    def tile_sums(self, rows: int, terms: int, target: Target, **more: Any) -> Sums:
        """So many rows of these sums, `terms` of which are taken together where an instruction does; `more` are further
        fields."""
        vector, element = (target.core.add_cycles * (o.dtype is not self.sums) for o in (self.vector, self.element))
        given: dict[str, Any] = {
            "columns": self.columns,
            "bits": self.bits,
            "dot": self.dot,
            "brought": self.element.bytes,
            "held": self.vector.bytes,
            "converted": (vector, element),
            "integers": not self.sums.is_float,
            "instructions": self.instructions,
        }
        return Sums(rows, terms=terms * (self.dot.depth if self.dot is not None else 1), **(given | more))


@dataclass(frozen=True, slots=True)
class Product:
    """A kernel whose work is one contraction."""

    found: Contraction
    size: Size


@lru_cache(maxsize=4)  # several templates ask of one kernel after another
def recognise(facts: Facts) -> Product | None:
    """The contraction of a kernel, where all other blocks read its result at their own points, if at all. Windows of
    each channel, of known sizes, are none: no factor of theirs serves two sums."""
    found, windows = facts.contraction, facts.windows
    if found is None:
        return None
    if found.rows is None and windows is not None and not (windows.rows.dynamic or windows.columns.dynamic):
        return None
    others = [block for block in blocks(facts.inlined.body) if block is not found.block]
    if not all(maps_points(block, found.out) for block in others):
        return None
    return with_edges(facts, Product(found, measure(found)))


def with_edges(facts: Facts, product: Product) -> Product:
    """The product with the terms to leave out, where that pays, which it adds up outermost: the loops inside have
    bounds of their own."""
    found = product.found
    plain = found.vector.is_plain(found.sizes) and found.broadcast.is_plain(found.sizes)
    if plain or not found.is_product:
        return product
    edges = tuple(e for e in edges_of(facts.inlined, found) if pays(1.0, e.share(1)))
    first = tuple(e.axis for e in edges)
    found = replace(found, reduce=(*first, *(n for n in found.reduce if n not in first)))
    return Product(found, replace(product.size, edges=edges, turns=known(found.extents[found.reduce[0]])))


def measure(found: Contraction) -> Size:
    """A contraction in numbers."""
    extents = [known(e) for e in found.extents]
    axes, minus = found.block.axes, found.vector.minus
    moving = [n for n in found.batch if found.broadcast.moves(axes[n].var) and extents[n] > 1]
    return Size(
        rows=extents[found.rows] if found.rows is not None else 0,
        columns=extents[found.columns],
        terms=found.depth,
        batch=math.prod(extents[n] for n in found.batch),
        own=math.prod(extents[n] for n in found.own_batches),
        any_rows=found.rows is not None and not isinstance(found.extents[found.rows], Const),
        any_columns=not isinstance(found.extents[found.columns], Const),
        parts=2 if minus is not None or (found.own_batches and found.vector.buffer.shared) else 1,
        differing=math.prod(
            extents[n] for n in found.own_batches if minus is None or Operand(minus).moves(axes[n].var)
        ),
        axes=len(found.reduce),
        turns=extents[found.reduce[0]],
        vector=_lies(found, found.vector, found.columns, extents),
        element=_lies(found, found.broadcast, found.rows, extents),
        batched_elements=bool(moving),
        sums=found.out.dtype,
        summed=0 if found.summed is None else extents[found.summed],
        overlaps=found.overlaps,
        even=1 if found.summed is None else power_of_two_in(found.extents[found.summed]),
        usual=(_usual(found, found.rows), _usual(found, found.columns)),
        panels_outside=found.panels_outside,
        instructions=found.instructions,
        lines=extents[found.batch[-1]] if found.batch and not found.vector.moves(axes[found.batch[-1]].var) else 1,
    )


def _usual(found: Contraction, axis: int | None) -> int:
    """The extent of an axis, as it usually is where it is dynamic; 0 where there is no such axis."""
    extent = const(0) if axis is None else found.extents[axis]
    return known(extent) if isinstance(extent, Const) else min(Sizes().extent(extent), USUAL)


def _lies(found: Contraction, operand: Operand, axis: int | None, extents: list[int]) -> Lies:
    size = operand.buffer.dtype.bytes
    own = extents[axis] if axis is not None else 1
    held = math.prod(known(e) for e in operand.buffer.shape)
    step = operand.step(found.block.axes[axis].var) if axis is not None else None
    return Lies(
        constant=operand.is_constant,
        plain=operand.is_plain(
            found.sizes, None if axis is None or operand.is_constant else found.block.axes[axis].var
        ),
        bytes=size,
        apart=_apart(found, operand, axis if step is None else None) * size,
        whole=min(own * found.depth, held) * size,
        held=held * size,
        step=step,
        dtype=operand.buffer.dtype,
        side_by_side=found.summed is not None and operand.step(found.block.axes[found.summed].var) == 1,
        image=image_bytes(found, operand),
    )


def _apart(found: Contraction, operand: Operand, axis: int | None) -> int:
    """Elements from one row of an operand to the next: along an axis that moves it evenly, or of its last dimension."""
    index = flat_index(operand.buffer.shape, operand.load.indices)
    even = None if axis is None else coefficient_of(index, found.block.axes[axis].var)
    return known(operand.buffer.shape[operand.last] if even is None else even)
