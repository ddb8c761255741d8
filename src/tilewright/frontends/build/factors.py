"""Factors of matrices [batch, row, column], column by column: a scan whose states are the matrices. Sums are over whole
columns: of what a step has not reached yet, factors are 0."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Expr
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Loop
from tilewright.frontends.build.values import Tensor


def triangle(b: Emit, x: Tensor, upper: bool, strict: bool = False) -> Tensor:
    """The elements on and above (`upper`) or below the diagonal, or `strict`, without it; zeros elsewhere."""
    row, column = (b.align(b.iota((x.shape[a],), 0), a, x.rank) for a in (x.rank - 2, x.rank - 1))
    low, high = (row, column) if upper else (column, row)
    return b.select(b.map("lt" if strict else "le", low, high), x, b.scalar(0, x.dtype))


def identity(b: Emit, rows: Expr, columns: Expr, like: Tensor) -> Tensor:
    """Ones on the diagonal of [row, column]."""
    here = b.map("eq", b.align(b.iota((rows,), 0), 0, 2), b.align(b.iota((columns,), 0), 1, 2))
    return b.select(here, b.scalar(1, like.dtype), b.scalar(0, like.dtype))


def _at(b: Emit, x: Tensor, axis: int, place: Expr) -> Tensor:
    """x at one place of an axis, which it keeps: a step of a loop, that is inside."""
    starts: list[Expr | int] = [0] * x.rank
    starts[axis] = place
    return b.slice(x, starts, [1 if a == axis else d for a, d in enumerate(x.shape)], clamped=True)


@dataclass(frozen=True)
class Factored:
    """The factors of P A = L U: L without its diagonal of ones and U as one matrix, the row of A that each row of it is
    of, and for each step the row that was swapped with its own [batch, step]."""

    both: Tensor
    rows: Tensor
    swaps: Tensor


def lower_upper(b: Emit, a: Tensor, steps: Expr) -> Factored:
    """Gauss' elimination with the greatest pivot of each column; a column of zeros is left as it is."""
    batch, count, width = a.shape
    rows = b.broadcast(b.align(b.iota((count,), 0), 1, 2), (batch, count))
    loop = Loop(b, "lower_upper", steps, [a, rows], [], [])
    (now, order), body, k = loop.states, loop.b, loop.step
    row = body.align(body.iota((count,), 0), 1, 3)
    step = body.of_size(k)
    own = body.map("abs", _at(body, now, 2, k))
    size = body.select(body.map("lt", row, step), body.scalar(-1, a.dtype), own)
    pivot = body.arg_reduce("max", size, 1, keepdims=True)
    source = body.select(body.map("eq", row, step), pivot, body.select(body.map("eq", row, pivot), step, row))
    source = body.broadcast(source, (batch, count, 1))
    moved = body.gather_elements(now, body.broadcast(source, (batch, count, width)), 1)
    order = body.gather_elements(order, body.squeeze(source, [2]), 1)
    column, across = _at(body, moved, 2, k), _at(body, moved, 1, k)
    divisor = _at(body, across, 2, k)
    nothing = body.map("eq", divisor, 0)
    factor = body.select(nothing, column, column / divisor)
    below = body.map("lt", step, row)
    place = body.align(body.iota((width,), 0), 2, 3)
    made = body.select(body.map("lt", step, place), moved - factor * across, moved)
    made = body.select(body.map("eq", place, step), factor, made)
    (both, rows), (swaps,) = loop.finish(
        [body.select(below, made, moved), order], [body.squeeze(pivot, [1, 2])], [False]
    )
    return Factored(both, rows, b.transpose(swaps, [1, 0]))


def rows_of(b: Emit, swaps: Tensor, count: Expr) -> Tensor:
    """The row that each row is of after swaps [batch, step] of a step's own row with another."""
    batch = swaps.shape[0]
    rows = b.broadcast(b.align(b.iota((count,), 0), 1, 2), (batch, count))
    loop = Loop(b, "swaps", swaps.shape[1], [rows], [b.transpose(swaps, [1, 0])], [False])
    (order,), (other,), body = loop.states, loop.slices, loop.b
    row = body.align(body.iota((count,), 0), 1, 2)
    step, other = body.of_size(loop.step), body.unsqueeze(other, [1])
    source = body.select(body.map("eq", row, step), other, body.select(body.map("eq", row, other), step, row))
    made = body.gather_elements(order, body.broadcast(source, (batch, count)), 1)
    (found,), _ = loop.finish([made], [], [])
    return found


def solve_triangular(b: Emit, t: Tensor, y: Tensor, upper: bool, unit: bool) -> Tensor:
    """The x of t x = y, for a triangular t: row by row, from the one with one element on. `unit`: its diagonal is 1."""
    clean = triangle(b, t, upper, strict=True)
    diagonal = diagonal_of(b, t)
    slices = [b.transpose(clean, [1, 0, 2]), b.transpose(y, [1, 0, 2]), b.transpose(diagonal, [1, 0])]
    start = b.broadcast(b.scalar(0, y.dtype), y.shape)
    loop = Loop(b, "solve_triangular", y.shape[1], [start], slices, [upper] * 3)
    (x,), (factors, right, divisor), body = loop.states, loop.slices, loop.b
    rest = right - body.contract("bk,bkr->br", factors, x)
    own = rest if unit else rest / body.unsqueeze(divisor, [1])
    row = body.align(body.iota((y.shape[1],), 0), 1, 3)
    step = body.of_size(y.shape[1] - 1 - loop.step if upper else loop.step)
    made = body.select(body.map("eq", row, step), body.unsqueeze(own, [1]), x)
    (found,), _ = loop.finish([made], [], [])
    return found


def diagonal_of(b: Emit, x: Tensor) -> Tensor:
    """The diagonals of matrices [batch, row, column], as many as there are rows."""
    row, column = (b.align(b.iota((x.shape[a],), 0), a, 3) for a in (1, 2))
    return b.reduce("sum", b.select(b.map("eq", row, column), x, b.scalar(0, x.dtype)), [2])


def cholesky(b: Emit, a: Tensor) -> Tensor:
    """The lower L of L Lᵀ = a, of whose elements those above the diagonal are not read; NaN where there is none."""
    start = b.broadcast(b.scalar(0, a.dtype), a.shape)
    loop = Loop(b, "cholesky", a.shape[1], [start], [b.transpose(a, [2, 0, 1])], [False])
    (found,), (column,), body = loop.states, loop.slices, loop.b
    own = body.squeeze(_at(body, found, 1, loop.step), [1])
    rest = column - body.contract("bik,bk->bi", found, own)
    root = body.map("sqrt", _at(body, rest, 1, loop.step))
    row = body.align(body.iota((a.shape[1],), 0), 1, 2)
    step = body.of_size(loop.step)
    made = body.select(body.map("lt", row, step), body.scalar(0, a.dtype), rest / root)
    place = body.align(body.iota((a.shape[1],), 0), 2, 3)
    next = body.select(body.map("eq", place, step), body.unsqueeze(made, [2]), found)
    (last,), _ = loop.finish([next], [], [])
    return last


def permutation(b: Emit, rows: Tensor, dtype: DType) -> Tensor:
    """The matrix P of A = P L U, of the row of A that each row of L U is of."""
    count = rows.shape[1]
    here = b.map("eq", b.align(b.iota((count,), 0), 1, 3), b.unsqueeze(rows, [1]))
    return b.cast(here, dtype)
