"""The sums around Strassen's products: a matrix product by seven products of half the size in each dimension.

    s: f32[7, 64, 384] = strassen_input(x: f32[128, 768])                  of even and odd rows, left and right columns
    d: f32[4, 64, 512] = contract(s[0:4], u, spec="p m k, p k n -> p m n")            u: transform_factor(w, 512)
    e: f32[3, 64, 512] = contract(s[4:7], u[0:3] - u[3:4], spec="p m k, p k n -> p m n")
    y: f32[128, 1024]  = strassen_output(d, e, shape=(128, 1024))

The scheme is Winograd's variant of Strassen's (15 sums; Higham, "Accuracy and Stability of Numerical Algorithms",
23.1). Its seven sums of the constant factor are over a basis in which four are stored, and three are differences of
these, so that it takes no more memory than before. The idea of such a basis is Karstadt and Schwartz's ("Matrix
Multiplication, a Little Faster", 2017).

The four blocks of the first factor are its even and odd rows, by the left and the right half of its columns; so a sum
of blocks adds neighbouring rows only. An odd number of rows or columns is padded with zeros.

Few rows gain nothing from pairs. With `together=1` each row stands by itself, as if it were paired with a row of zeros,
and four products over the same stored sums of the constant are left, which are as much arithmetic as the product:

    s: f32[4, 7, 384] = strassen_input(x: f32[7, 768], together=1)
    d: f32[4, 7, 512] = contract(s, u, spec="p m k, p k n -> p m n")
    y: f32[7, 1024]   = strassen_output(d, shape=(7, 1024), together=1)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.expr.build import conjunction, less, less_equal, minimum, one_of, select
from tilewright.expr.dtypes import f32, f64
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import check_count, check_same_dtype, number
from tilewright.ops.movement import sizes
from tilewright.types.room import Room
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]
Array = np.ndarray[Any, Any]

PRODUCTS, STORED, DERIVED = 7, 4, 3
"""The products; the sums of the constant factor that are stored; those that are the others of these less the last."""

PARTS = (STORED, DERIVED)
"""Of how many products each operand of `strassen_output` is: of sums that are stored, and of differences."""


def parts_of(together: int) -> tuple[int, ...]:
    """The same for rows in pairs, or each by itself."""
    return PARTS if together == 2 else (STORED,)


def input_terms(a: Sequence[Any]) -> list[Any]:
    """The sums of the blocks of the first factor, a = [a00, a01, a10, a11]; what is used twice is written once. Those
    of a row by itself, a = [a00, a01], are the first four, a10 and a11 being zero."""
    if len(a) == 2:
        return [a[0], a[1], a[1] + a[0], -a[0]]
    total = a[2] + a[3]
    rest = total - a[0]
    return [a[0], a[1], a[1] - rest, rest, a[2] - a[0], a[3], total]


def factor_terms(b: Sequence[Any]) -> list[Any]:
    """The sums of the blocks of the second factor, b = [b00, b01, b10, b11], that are stored."""
    return [b[0], b[2], b[3], b[3] - b[1] + b[0]]


def output_terms(m: Sequence[Any]) -> list[Any]:
    """The blocks [c00, c01, c10, c11] of the result, from all products in order; of a row by itself [c00, c01], from
    the first four."""
    both = m[0] + m[3]
    if len(m) == STORED:
        return [m[0] + m[1], both + m[2]]
    lower, right = both + m[4], both + m[6]
    return [m[0] + m[1], right + m[2], lower + m[5], lower + m[6]]


def transform_factor(w: Array, half: int, room: Room = np.empty) -> Array:
    """The sums of the blocks of w: [k, n] that are stored, [4, ceil(k / 2), half], in the type of w; half is the number
    of columns of a block, n / 2 at least."""
    made = room((STORED, *half_shape(w, half)), w.dtype)
    for rows, terms in transformed_parts(w, half):
        for place, term in enumerate(terms):
            made[place, rows] = term
    return made


def half_shape(w: Array, half: int) -> tuple[int, int]:
    """Rows and columns of a block of w: [k, n]."""
    return -(-w.shape[0] // 2), half


def transformed_parts(w: Array, half: int) -> Iterator[tuple[slice, list[Array]]]:
    """The sums of `transform_factor` for a few rows after the other."""
    k, _ = half_shape(w, half)
    few = rows_at_once(half)
    for row in range(0, k, few):
        rows = slice(row, min(row + few, k))
        corners = [(i, j) for i in (0, k) for j in (0, half)]
        yield rows, factor_terms([_padded(w, i + rows.start, i + rows.stop, j, j + half) for i, j in corners])


def _padded(w: Array, first: int, last: int, left: int, right: int) -> Array:
    """Rows and columns of w, zeros beyond its end."""
    part = w[first:last, left:right]
    missing = (last - first - part.shape[0], right - left - part.shape[1])
    return np.pad(part, [(0, missing[0]), (0, missing[1])]) if any(missing) else part


def rows_at_once(columns: int) -> int:
    """So many rows of a constant at a time that what NumPy makes of them stays in a cache on its way."""
    return max(1, 2**15 // columns)


class InputAttributes(Attributes):
    """`together`: the rows that are summed with each other, 2 or 1."""

    together: int = 2


class OutputAttributes(Attributes):
    """`shape`: rows and columns of the result, at most `together` times and twice those of the products; `together`:
    as of `strassen_input`."""

    shape: tuple[Expr, Expr]
    together: int = 2


class StrassenInput(Op):
    """s[p, …, i, k]: sum p of the blocks x[…, together*i + a, b*half + k] for a in 0..together, b in 0..2; half of the
    columns of x, rounded up, are a block's."""

    name = "strassen_input"
    attributes = InputAttributes
    transforms = True
    known_by_axes = True
    rereads = True
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: InputAttributes) -> Types:
        check_count(context, inputs, 1)
        (x,) = inputs
        _check_floats(context, x)
        _check_together(context, attrs.together)
        if x.rank < 2:
            raise context.error(f"a factor has rows and columns, and {x} is no matrix")
        *outer, rows, columns = x.shape
        if number(columns) in (None, 0) or number(rows) == 0:
            raise context.error(f"{x} has no rows, or its columns are no number from 1")
        halves = (*outer, groups(rows, attrs.together), groups(columns, 2))
        return (TensorType.of(x.dtype, (sum(parts_of(attrs.together)), *halves)),)

    def meaning(self, inputs: Arrays, attrs: InputAttributes) -> Arrays:
        (x,) = inputs
        step, half = attrs.together, -(-x.shape[-1] // 2)
        rows = -(-x.shape[-2] // step)
        whole = np.zeros((*x.shape[:-2], step * rows, 2 * half), x.dtype)
        whole[..., : x.shape[-2], : x.shape[-1]] = x
        terms = input_terms([whole[..., a::step, b * half : (b + 1) * half] for a in range(step) for b in range(2)])
        return (np.stack(terms),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (s,), step = inputs, outputs, attrs.together
        may_end = [may_leave(extent, count) for extent, count in zip(x.shape[-2:], (step, 2), strict=True)]

        def block(a: int, b: int, *at: Expr) -> Expr:
            *outer, i, k = at
            places = (i * step + a, s.shape[-1] * b + k)
            return _within(x, outer, places, [end and side == 1 for end, side in zip(may_end, (a, b), strict=True)])

        def total(p: Expr, *at: Expr) -> Expr:
            return one_of(p, input_terms([block(a, b, *at) for a in range(step) for b in range(2)]))

        build.compute("strassen_input", s, total)


class StrassenOutput(Op):
    """y[…, together*i + a, b*half + j]: block a, b of the sums of the products m[p, …, i, j], which are those of all
    operands in order; half is the number of their columns."""

    name = "strassen_output"
    transforms = True
    known_by_axes = True
    rereads = True
    attributes = OutputAttributes
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: OutputAttributes) -> Types:
        _check_together(context, attrs.together)
        parts = parts_of(attrs.together)
        check_count(context, inputs, len(parts))
        check_same_dtype(context, inputs)
        for products, m in zip(parts, inputs, strict=True):
            _check_floats(context, m)
            if m.rank < 3 or m.rank != inputs[0].rank:
                raise context.error(f"products are matrices, as many for each operand, but {inputs[0]} and {m} are not")
            context.require_equal(m.shape[0], const(products), "the numbers of products")
            for n in range(1, m.rank):
                context.require_equal(m.shape[n], inputs[0].shape[n], "the sizes of products")
        most = "twice that" if attrs.together == 2 else "that, with twice the columns,"
        what = f"the shape ({', '.join(map(str, attrs.shape))}) is larger than {most} of products, {inputs[0]}"
        for extent, half, count in zip(attrs.shape, inputs[0].shape[-2:], (attrs.together, 2), strict=True):
            if groups(extent, count) is half:
                continue
            fits = simplify(conjunction([less_equal(1, extent), less_equal(extent, half * count)]) or const(True))
            if isinstance(fits, Const) and not fits.value:
                raise context.error(what)
            if not isinstance(fits, Const):
                context.require(fits, what)
        return (TensorType.of(inputs[0].dtype, (*inputs[0].shape[1:-2], *attrs.shape)),)

    def meaning(self, inputs: Arrays, attrs: OutputAttributes) -> Arrays:
        c, step = output_terms([*np.concatenate(inputs)]), attrs.together
        y = np.stack([np.concatenate(c[2 * a : 2 * a + 2], -1) for a in range(step)], -2)
        y = y.reshape(*y.shape[:-3], step * y.shape[-3], y.shape[-1])
        rows, columns = sizes(attrs.shape)
        return (np.ascontiguousarray(y[..., :rows, :columns]),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (y,), half, step = outputs, inputs[0].shape[-1], attrs.together
        places = [(m, p) for m, products in zip(inputs, parts_of(step), strict=True) for p in range(products)]

        def element(*at: Expr) -> Expr:
            *outer, i, j = at
            terms = output_terms([load(m, p, *outer, i // step, j % half) for m, p in places])
            sides = [one_of(j // half, terms[n : n + 2]) for n in range(0, 2 * step, 2)]
            return one_of(i % step, sides)

        build.compute("strassen_output", y, element)


def _check_floats(context: TypeContext, x: TensorType) -> None:
    if x.dtype not in (f32, f64):
        raise context.error(f"{context.op} takes f32 or f64, not {x}", "cast the input: cast(dtype=f32)")


def _check_together(context: TypeContext, together: int) -> None:
    if together not in (1, 2):
        raise context.error(f"{context.op} takes rows alone or in pairs, not {together} together")


def groups(extent: Expr, count: int) -> Expr:
    """How many groups of so many there are, the last perhaps not full."""
    return extent if count == 1 else simplify((extent + (count - 1)) // count)


def may_leave(extent: Expr, count: int) -> bool:
    """Whether the last group may not be full."""
    return count > 1 and not (isinstance(extent, Const) and extent.value % count == 0)


def _within(x: Buffer, outer: Sequence[Expr], at: Sequence[Expr], may_end: Sequence[bool]) -> Expr:
    """x at a row and a column; zero beyond those that may end before it."""
    ends = list(zip(at, x.shape[-2:], may_end, strict=True))
    element = load(x, *outer, *(minimum(i, extent - 1) if may else i for i, extent, may in ends))
    for i, extent, may in ends:
        element = select(less(i, extent), element, const(0.0, x.dtype)) if may else element
    return element


register(StrassenInput())
register(StrassenOutput())
