"""Convolutions of a few channels sum neighbours in a row as channels, where the machine's tiles multiply these faster.

    y: f32[1, 64, 112, 112] = contract(x, w, spec="n c i*2+a j*2+b, o c a b -> n o i j")     x: f32[1, 3, 230, 230]
    =>
    t: bf16[1, 230, 230, 3] = transpose(cast(x), perm=(0, 2, 3, 1))
    r: bf16[1, 230, 699] = reshape(pad(t))
    z: f32[1, 112, 112, 64] = contract(r, v, spec="n i*2+a j*6+t, a t o -> n i j o")         v: bf16[7, 32, 64]
    y: f32[1, 64, 112, 112] = transpose(z, perm=(0, 3, 1, 2))

The 7 x 3 neighbours of a place in a row lie side by side in memory, so that they are 21 of the 32 terms that a product
of tiles takes; the filters of the others are zeros. Factors are rounded to bf16, as reduce_precision.py does. An
infinity or NaN of x may reach the outputs to its left, too, whose windows end before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from tilewright.expr.dtypes import bf16, f32
from tilewright.expr.nodes import Const, Expr, const
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.winograd import filters_of, kernel_axes
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Spec, parse
from tilewright.ops.pad import PadAttributes
from tilewright.plan.price.contraction import Dot, pays
from tilewright.plan.price.convolution import Sizes, direct_seconds, tiles_seconds
from tilewright.plan.price.dots import choose_tiles
from tilewright.plan.price.points import copy_cycles
from tilewright.target import Target

Array = np.ndarray[Any, Any]
T = TypeVar("T")


def merge_taps(module: Module, target: Target) -> Module:
    """The module with such convolutions, for a target that has tiles of bf16; their factors are rounded."""
    tiles = choose_tiles(bf16, bf16, f32, target)
    return module if tiles is None else over_graphs(module, lambda m, f: _merge(m, f, target, tiles))


def _merge(module: Module, function: GraphFunction, target: Target, tiles: Dot) -> Module:
    edit = Edit(module, function)
    for node in function.nodes:
        found = _find(edit, node, tiles) if isinstance(node.attrs, ContractAttributes) else None
        made = _merged(edit, node, found, tiles) if found is not None and found.is_better(tiles, target) else None
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


@dataclass(frozen=True, slots=True)
class _Convolution:
    """An image of few channels, filters [o, c, a, b], and the strides along both sides of the image."""

    image: Value
    filters: Array
    strides: tuple[int, int]
    shape: tuple[int, ...]

    def is_better(self, tiles: Dot, target: Target) -> bool:
        """Whether tiles take less time than f32, with the image rounded and transposed."""
        images, outputs, height, width = self.shape
        _, channels, taps, across = self.filters.shape
        direct = Sizes(images, channels, outputs, height, width, self.strides[1], taps * across)
        merged = Sizes(images, tiles.depth, outputs, height, width, self.strides[1], taps)
        moved = copy_cycles(math.prod(map(_number, self.image.type.shape)), 1, target) / target.core.hertz
        return pays(direct_seconds(direct, target), tiles_seconds(merged, tiles, target) + moved)


def _number(extent: object) -> int:
    return int(extent.value) if isinstance(extent, Const) else 0


def _find(edit: Edit, node: Node, tiles: Dot) -> _Convolution | None:
    """The convolution that a contraction is, of images of known sizes; None where it is another one, or where channels
    fill a product of tiles, or the neighbours in a row do not fit one."""
    attrs, out = node.attrs, node.outputs[0].type
    assert isinstance(attrs, ContractAttributes)
    spec = parse(attrs.spec)
    if [*map(len, spec.operands), len(spec.output)] != [4, 4, 4] or len(node.inputs) != 2 or out.dtype is not f32:
        return None
    x, w = edit.inputs(node)
    array, strides, channel = edit.array(w), _strides(spec), spec.operands[0][1].axis
    known = all(map(_number, (*out.shape, *x.type.shape)))
    if array is None or strides is None or channel is None or not known or x.type.dtype is not f32:
        return None
    if {index.axis for index in spec.operands[1]} != {spec.output[1], channel, *(kernel_axes(spec) or ())}:
        return None
    filters = filters_of(spec, array)
    outputs, channels, _, across = filters.shape
    if channels == 1 or channels * across > tiles.depth or outputs < tiles.lanes:
        return None
    return _Convolution(x, filters, strides, tuple(map(_number, out.shape)))


def _strides(spec: Spec) -> tuple[int, int] | None:
    """The strides s and t of a specification "n c i*s+a j*t+b, … -> n o i j"; None for others."""
    n, _, i, j = spec.output
    x = spec.operands[0]
    if x[0].axis != n or kernel_axes(spec) is None:
        return None
    return dict(x[2].terms)[i], dict(x[3].terms)[j]


def _merged(edit: Edit, node: Node, found: _Convolution, tiles: Dot) -> Value:
    """Adds the operators that compute the convolution by rows of neighbours."""
    edit.source = node.source

    def add(op: str, *inputs: Value, **attrs: object) -> Value:
        made = edit.typed(op, inputs, attrs, op)
        assert made is not None, f"{op} of an image can always be typed"
        return edit.add(made).outputs[0]

    outputs, channels, taps, across = found.filters.shape
    images, _, height, width = found.shape
    _, _, rows, columns = map(_number, found.image.type.shape)
    down, along = found.strides
    lacking = max(-(-((width - 1) * along * channels + tiles.depth) // channels) - columns, 0)
    inside, fill, low, high = _inside(edit, found.image)
    filling = add("cast", fill, dtype=bf16)
    image = add("transpose", add("cast", inside, dtype=bf16), perm=_innermost(range(4)))
    high = (*high[:2], high[2] + lacking, high[3])
    image = add("pad", image, filling, low=low, high=high)
    image = add("reshape", image, shape=(images, rows, (columns + lacking) * channels))
    terms = found.filters.transpose(2, 3, 1, 0).reshape(taps, across * channels, outputs)
    filled = np.pad(terms, ((0, 0), (0, tiles.depth - across * channels), (0, 0)))
    filters = edit.constant(filled.astype(ml_dtypes.bfloat16), "filters")
    first, second = (f"{axis}*{step}" if step > 1 else axis for axis, step in (("i", down), ("j", along * channels)))
    spec, sizes = f"n {first}+a {second}+t, a t o -> n i j o", (("i", height), ("j", width))
    summed = add("contract", image, filters, spec=spec, sizes=sizes, dtype=f32)
    return add("transpose", summed, perm=(0, 3, 1, 2))


def _inside(edit: Edit, image: Value) -> tuple[Value, Value, tuple[Expr, ...], tuple[Expr, ...]]:
    """The image inside a padding, with what fills this, and how much of it is before and behind each dimension, with
    channels innermost; of an image without one, nothing."""
    padded = edit.made_by(image, "pad")
    if padded is None or not isinstance(padded.attrs, PadAttributes) or not padded.attrs.surrounds:
        none = (const(0),) * len(image.type.shape)
        return image, edit.constant(np.zeros((), np.float32), "zero"), none, none
    inside, fill = padded.inputs
    return inside, fill, _innermost(padded.attrs.low), _innermost(padded.attrs.high)


def _innermost(dimensions: Sequence[T]) -> tuple[T, ...]:
    """What belongs to the dimensions of an image, in their order with channels innermost."""
    images, channels, *sides = dimensions
    return (images, *sides, channels)
