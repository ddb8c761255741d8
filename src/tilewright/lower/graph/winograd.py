"""Convolutions with 3x3 kernels become Winograd's products of tiles, if that is fast and accurate enough.

    y: f32[1, 32, 56, 56] = contract(pad(x), w, spec="n c i+a j+b, o c a b -> n o i j")        w: f32[32, 64, 3, 3]
    =>
    v: f32[1, 36, 64, 196] = winograd_input(x, size=4, shape=(56, 56), low=(1, 1))
    m: f32[1, 196, 36, 32] = contract(v, u, spec="n x c t, x c o -> n t x o")                  u = G w Gᵀ, a constant
    y: f32[1, 32, 56, 56] = winograd_output(m, size=4, shape=(56, 56))

36 products replace 16 * 9; with a stride of two, 25 replace 4 * 9 (see ops/winograd.py). The padding of x moves into
the transform of the input. An infinity or NaN of x reaches every output of its tiles, not only those whose window holds
it.

Where height or width is dynamic, images of tiles have channels last, so that any number of tiles fills whole vectors;
`lay-out` then stores the images around them so:

    t: f32[n, h, w, 64] = transpose(x, perm=(0, 2, 3, 1))
    v: f32[n, 36, …, 64] = winograd_input(t, size=4, shape=(h, w), low=(1, 1), last=true)

If factors may be rounded to bf16, those of the products of small tiles are, too, if that is the fastest choice:

    v: bf16[1, 16, 32, 784, 2] = winograd_input(x, size=2, shape=(56, 56), low=(1, 1), depth=2, dtype=bf16)
    m: f32[1, 16, 784, 32] = contract(v, u, spec="n x c t p, x c p o -> n t x o", dtype=f32)     u: bf16[16, 32, 2, 32]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.analysis.sizes import Sizes as Assumed
from tilewright.analysis.sizes import sizes_of_images
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.checks import ZERO
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Spec, parse
from tilewright.ops.pad import PadAttributes, PadMode
from tilewright.ops.symbolic import Full
from tilewright.ops.winograd import WINDOW, kept, transform_filter
from tilewright.plan.price.contraction import Dot
from tilewright.plan.price.convolution import Sizes
from tilewright.plan.price.dots import pairs_of
from tilewright.plan.rewrite.winograd import Tiles, choose_tiles
from tilewright.report import settings
from tilewright.target import Target

Array = np.ndarray[Any, Any]


def winograd(module: Module, target: Target, halves: bool = False) -> Module:
    """The module with those convolutions rewritten that become faster; none if TILEWRIGHT_WINOGRAD is 0. With `halves`,
    factors may be rounded to bf16: those of tiles, and those of the direct convolution, which tiles are then compared
    with."""
    if not settings.WINOGRAD.read():
        return module
    pairs = pairs_of(target) if halves else None
    return over_graphs(module, lambda m, f: _rewrite(m, f, target, pairs))


def _rewrite(module: Module, function: GraphFunction, target: Target, pairs: Dot | None) -> Module:
    edit, assumed = Edit(module, function), sizes_of_images(function).within(function)
    for node in function.nodes:
        made = _transformed(edit, node, target, pairs, assumed) if isinstance(node.attrs, ContractAttributes) else None
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


@dataclass(frozen=True, slots=True)
class Convolution:
    """y[n, o, i, j] = the sum of x[n, c, i*s + a, j*s + b] * w[o, c, a, b] over c and 3 x 3 positions a, b. x is the
    padded image, with `low` zeros before height and width; s is the stride in `sizes`; `shape` is that of y."""

    image: Value
    low: tuple[int, int]
    filters: Array
    sizes: Sizes
    shape: tuple[Expr, ...]


def find_convolution(edit: Edit, node: Node, assumed: Assumed) -> Convolution | None:
    """The convolution that a contraction is; None where it is another one, or one that tiles do not fit. Results of
    dynamic images have a place for each of theirs, or for every second one."""
    attrs, out = node.attrs, node.outputs[0].type
    assert isinstance(attrs, ContractAttributes)
    if len(node.inputs) != 2 or out.dtype is not dtypes.f32 or any(v.type.dtype is not dtypes.f32 for v in node.inputs):
        return None
    x, w = edit.inputs(node)
    array, spec = edit.array(w), parse(attrs.spec)
    stride = _stride(spec)
    if array is None or stride is None:
        return None
    filters = filters_of(spec, array)
    image, low = _unpadded(edit, x)
    sides = (*out.shape[2:], *image.type.shape[2:])
    dynamic = not all(isinstance(extent, Const) for extent in sides)
    fits = not dynamic or (
        low == (1, 1) and all(a is kept(b, stride) for a, b in zip(sides[:2], sides[2:], strict=True))
    )
    if filters.shape[2:] != (WINDOW, WINDOW) or not fits or not filters.size or ZERO in sides:
        return None
    images, height, width = (assumed.extent(out.shape[n]) for n in (0, 2, 3))
    sizes = Sizes(images, filters.shape[1], filters.shape[0], height, width, stride, dynamic=dynamic)
    return Convolution(image, low, filters, sizes, out.shape)


def _stride(spec: Spec) -> int | None:
    """The stride s of a specification "n c i*s+a j*s+b, o c a b -> n o i j", the second operand in any order; None for
    others, and if there are no tiles for s."""
    x, w = spec.operands
    if [len(x), len(w), len(spec.output)] != [4, 4, 4]:
        return None
    n, o, i, j = spec.output
    c = x[1].axis
    kernel = kernel_axes(spec)
    if x[0].axis != n or c is None or kernel is None:
        return None
    whole = {index.axis for index in w} == {o, c, *kernel} and len({n, o, i, j, c, *kernel}) == 7
    strides = {dict(index.terms)[place] for index, place in zip(x[2:], (i, j), strict=True)}
    return strides.pop() if whole and strides in ({1}, {2}) else None


def kernel_axes(spec: Spec) -> tuple[str, str] | None:
    """The axes a, b of the indices i*s+a and j*s+b, where the output has i and j."""
    found: list[str] = []
    for index, place in zip(spec.operands[0][2:], spec.output[2:], strict=True):
        terms = dict(index.terms)
        if terms.pop(place, None) is None or list(terms.values()) != [1]:
            return None
        found += terms
    return found[0], found[1]


def filters_of(spec: Spec, w: Array) -> Array:
    """The filters as [o, c, a, b]."""
    axes = [index.axis for index in spec.operands[1]]
    wanted = (spec.output[1], spec.operands[0][1].axis, *(kernel_axes(spec) or ()))
    return w.transpose([axes.index(axis) for axis in wanted])


def _unpadded(edit: Edit, x: Value) -> tuple[Value, tuple[int, int]]:
    """The image without its padding, and how many zeros that has before height and width."""
    pad = edit.made_by(x, "pad")
    if pad is None or not isinstance(pad.attrs, PadAttributes) or pad.attrs.mode is not PadMode.CONSTANT:
        return x, (0, 0)
    low, high = ([e.value if isinstance(e, Const) else -1 for e in side] for side in (pad.attrs.low, pad.attrs.high))
    whole = [*low[:2], *high[:2]] == [0, 0, 0, 0] and min(*low, *high) >= 0
    if not whole or not _is_zero(edit, pad.inputs[1]) or ZERO in pad.inputs[0].type.shape[2:]:
        return x, (0, 0)
    return pad.inputs[0], (int(low[2]), int(low[3]))


def _is_zero(edit: Edit, value: Value) -> bool:
    """Whether a scalar is known to be zero."""
    full = edit.producer(value)
    if full is not None and isinstance(full.attrs, Full):
        return full.attrs.value.value == 0
    array = edit.array(value)
    return array is not None and not array.any()


def _transformed(edit: Edit, node: Node, target: Target, pairs: Dot | None, assumed: Assumed) -> Value | None:
    """The convolution by tiles; None where the node is no convolution, or the direct one is better."""
    found = find_convolution(edit, node, assumed)
    tiles = None if found is None else choose_tiles(found.sizes, found.filters, target, pairs)
    return None if found is None or tiles is None else by_tiles(edit, node, found, tiles)


def by_tiles(edit: Edit, node: Node, found: Convolution, tiles: Tiles) -> Value:
    """Adds the operators that compute a convolution by tiles."""
    edit.source = node.source
    size, stride, depth, last = tiles.size, found.sizes.stride, tiles.depth, found.sizes.dynamic
    u = transform_filter(found.filters, size, stride, (dtypes.bf16 if depth > 1 else dtypes.f32).numpy)
    factors: dict[str, object] = {}
    product: dict[str, object] = {"spec": "n x t c, x c o -> n x t o" if last else "n x c t, x c o -> n t x o"}
    if depth > 1:
        u = u.reshape(u.shape[0], -1, depth, u.shape[2])
        factors = {"depth": depth, "dtype": dtypes.bf16}
        product = {"spec": "n x c t p, x c p o -> n t x o", "dtype": dtypes.f32}
    filters = edit.constant(u, "filters")

    def add(op: str, *inputs: Value, **attrs: object) -> Value:
        made = edit.typed(op, inputs, attrs, op)
        assert made is not None, f"{op} of a convolution can always be typed"
        return edit.add(made).outputs[0]

    tiling = {"size": size, "shape": found.shape[2:], "stride": stride, "last": last}
    image = add("transpose", found.image, perm=(0, 2, 3, 1)) if last else found.image
    v = add("winograd_input", image, low=found.low, **tiling, **factors)
    y = add("winograd_output", add("contract", v, filters, **product), **tiling)
    return add("transpose", y, perm=(0, 3, 1, 2)) if last else y
