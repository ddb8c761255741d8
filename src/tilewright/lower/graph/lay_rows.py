"""Rows of an image that do not fill the machine's tiles are one row, from whose places windows look down as well.

    y: f32[1, 7, 7, 512] = contract(x, w, spec="n i+a j+b c, c a b o -> n i j o")       x: bf16[1, 9, 9, 512]
    =>
    r: bf16[1, 90, 512] = reshape(pad(x))
    z: f32[1, 64, 512] = contract(r, w, spec="n i+a*9+b c, c a b o -> n i o")           4 tiles of 16 places, not 7 of 7
    y = slice(reshape(slice(z)))

A window at the end of a row reaches into the next one: what it adds up there is left out. Otherwise each tile ends
where a row of the image does, and reads all filters. It is a matter of price: there are more places, and results are
copied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.expr.nodes import Const, Expr, const
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.index_maps import Affine, IndexMaps, Spec
from tilewright.ops.pad import PadAttributes
from tilewright.plan.price.contraction import Dot, Sums, least_seconds, pays
from tilewright.plan.price.convolution import channels_fit
from tilewright.plan.price.dots import choose_tiles
from tilewright.target import Target
from tilewright.target.instructions import TILE_REGISTERS
from tilewright.target.transfer import reread_seconds, rewrite_seconds


def lay_rows(module: Module, target: Target) -> Module:
    """The module with such windows along one row where that is cheaper."""
    return over_graphs(module, lambda m, f: _lay(m, f, target))


def _lay(module: Module, function: GraphFunction, target: Target) -> Module:
    edit = Edit(module, function)
    for node in function.nodes:
        found = _find(node, target) if isinstance(node.attrs, ContractAttributes) else None
        made = _in_one_row(edit, node, found) if found is not None and found.is_better(target) else None
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


@dataclass(frozen=True, slots=True)
class _Windows:
    """A product of windows in tiles: its maps, the extents of its axes, the rows and columns of the padded image, and
    how products are added up."""

    maps: IndexMaps
    extents: dict[str, int]
    image: tuple[int, int]
    dot: Dot

    @property
    def index(self) -> Affine:
        """Of a place in the one row: of a window at it."""
        down, along = self.maps.spec.operands[0][-3:-1]
        (place, _), *below = down.terms
        return Affine(((place, 1), *((a, n * self.image[1]) for a, n in below), *along.terms[1:]))

    @property
    def places(self) -> int:
        """How many there are in the row: those of all rows of the image, in whole tiles."""
        height = self.extents[self.maps.spec.output[-3]]
        return -(-height * self.image[1] // self.dot.rows) * self.dot.rows

    @property
    def rows(self) -> int:
        """The rows of the image that all windows lie in."""
        reach = sum((self.extents[a] - 1) * n for a, n in self.index.terms[1:])
        return max(-(-(self.places + reach) // self.image[1]), self.image[0])

    def is_better(self, target: Target) -> bool:
        """Whether one row takes less time, with a copy of the results."""
        spec = self.maps.spec
        *outer, height, width, columns = (self.extents[a] for a in spec.output)
        images, terms = math.prod(outer), math.prod([self.extents[a] for a in spec.reduce])
        ways: list[Sums] = []
        for dot in self.dot.of_rows(width, copied=False):
            most = TILE_REGISTERS // 2 if dot.rows == width else 2  # rows of an image beside each other
            beside = [n for n in range(1, most) if height % n == 0]
            ways += [Sums(n * width, columns, terms, batch=images * height // n, dot=dot) for n in beside]
        lying = min((least_seconds(way, target) for way in ways), default=math.inf)
        row = Sums(self.places, columns, terms, batch=images, dot=self.dot)
        size = images * self.places * columns * row.bits // 8
        moved = rewrite_seconds(size, size, target) + reread_seconds(size, size, target)
        return pays(lying, least_seconds(row, target) + moved + target.core.kernel_seconds)


def _find(node: Node, target: Target) -> _Windows | None:
    """The product of windows that a contraction is; None where it is another one, or no tiles multiply it."""
    maps = maps_of(node)
    spec, shape = maps.spec, node.inputs[0].type.shape
    if len(spec.operands) != 2 or len(spec.output) < 3 or len(spec.operands[0]) != len(spec.output):
        return None
    extents = {a: int(e.value) for a in spec.axes if isinstance(e := maps.extent(a), Const)}
    image = [int(e.value) for e in shape[-3:-1] if isinstance(e, Const)]
    *images, down, along, channel = spec.operands[0]
    *outer, row, place, column = spec.output
    if len(extents) < len(spec.axes) or len(image) < 2 or [i.axis for i in images] != outer:
        return None
    if down.terms[0] != (row, 1) or along.terms[0] != (place, 1) or channel.axis not in spec.reduce:
        return None
    window = [a for a, _ in (*down.terms[1:], *along.terms[1:])]
    others = sorted([str(i.axis) for i in spec.operands[1]])
    if not window or {*window, channel.axis} != {*spec.reduce} or others != sorted((*spec.reduce, column)):
        return None
    first, second, sums = (v.type.dtype for v in (*node.inputs, *node.outputs))
    dot = choose_tiles(first, second, sums, target)
    if dot is None or not channels_fit(extents[channel.axis], extents[column], dot):
        return None
    return _Windows(maps, extents, (image[0], image[1]), dot)


def _in_one_row(edit: Edit, node: Node, found: _Windows) -> Value | None:
    """Adds the operators that sum windows along one row."""
    edit.source = node.source
    spec, wide = found.maps.spec, found.image[1]
    *images, channel = (i for n, i in enumerate(spec.operands[0]) if not -3 <= n - len(spec.operands[0]) < -1)
    *outer, row, place, column = spec.output
    kept = tuple([found.maps.extent(a) for a in outer])
    x, w = edit.inputs(node)
    image = _padded(edit, x, found.rows - found.image[0])

    def add(op: str, value: Value, *others: Value, **attrs: object) -> Value:
        made = edit.typed(op, (value, *others), attrs, node.outputs[0].name)
        assert made is not None, f"{op} of known sizes can always be typed"
        return edit.add(made).outputs[0]

    def cut(value: Value, axis: int, size: int) -> Value:
        shape = value.type.shape
        sizes = tuple([const(size) if n == axis else e for n, e in enumerate(shape)])
        zeros, ones = (const(0),) * len(shape), (const(1),) * len(shape)
        return value if shape == sizes else add("slice", value, starts=zeros, sizes=sizes, steps=ones)

    flat = add("reshape", image, shape=(*kept, const(found.rows * wide), x.type.shape[-1]))
    along = Spec(((*images, found.index, channel), spec.operands[1]), (*outer, row, column), spec.reduce)
    sizes = ((row, const(found.places)),)
    dtype, last = node.outputs[0].type.dtype, found.maps.extent(column)
    summed = add("contract", flat, w, spec=str(along), sizes=sizes, dtype=dtype)
    height: Expr = found.maps.extent(row)
    whole = cut(summed, len(outer), found.extents[row] * wide)
    return cut(add("reshape", whole, shape=(*kept, height, const(wide), last)), len(outer) + 1, found.extents[place])


def _padded(edit: Edit, image: Value, rows: int) -> Value:
    """An image with so many rows more below it, of any numbers: by its own padding where it has one."""
    if not rows:
        return image
    rank = len(image.type.shape)
    more = tuple([const(rows if n == rank - 3 else 0) for n in range(rank)])
    made = edit.made_by(image, "pad")
    if made is not None and isinstance(made.attrs, PadAttributes) and made.attrs.surrounds:
        high = tuple([a + b for a, b in zip(made.attrs.high, more, strict=True)])
        node = edit.typed("pad", made.inputs, {"low": made.attrs.low, "high": high}, image.name)
    else:
        zero = edit.constant(np.zeros((), image.type.dtype.numpy), "zero")
        node = edit.typed("pad", (image, zero), {"low": (const(0),) * rank, "high": more}, image.name)
    assert node is not None, "an image of known sizes can always be padded"
    return edit.add(node).outputs[0]
