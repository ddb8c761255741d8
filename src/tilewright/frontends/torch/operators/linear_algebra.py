"""Linear algebra of small matrices: triangular systems, Cholesky's and Gauss' factors, and what these give. Computed in
f64 and rounded once; a matrix that has no solution gives its number (`info`) as in eager, and NaN or infinity."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tilewright.expr import dtypes
from tilewright.expr.build import minimum
from tilewright.expr.nodes import Const, Expr
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.factors import (
    cholesky,
    diagonal_of,
    identity,
    lower_upper,
    permutation,
    rows_of,
    solve_triangular,
    triangle,
)
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import handles

LARGEST = 64
"""The most rows and columns of a matrix: eager's factors are computed by blocks, which pays for larger ones."""


Function = Callable[..., Tensor | tuple[Tensor, ...]]


def _unless_empty(*fills: int) -> Callable[[Function], Function]:
    """Where an operand has no elements, the results are of these numbers, if they have any elements at all."""

    def decorated(function: Function) -> Function:
        @wraps(function)
        def handler(b: TorchEmit, *operands: Tensor, **attributes: Any) -> Tensor | tuple[Tensor, ...]:
            if not any(isinstance(e, Const) and e.value == 0 for x in operands for e in x.shape):
                return function(b, *operands, **attributes)
            types = [type for type in b.results if type is not None]
            found = [b.full(type.shape, fill, type.dtype) for type, fill in zip(types, fills, strict=True)]
            return tuple(found) if len(found) > 1 else found[0]

        return handler

    return decorated


def _matrices(b: TorchEmit, x: Tensor) -> Tensor:
    """[batch, row, column] in f64."""
    if any(not isinstance(e, Const) or not 0 < e.value <= LARGEST for e in x.shape[-2:]) or x.rank < 2:
        raise Unsupported(f"factors of matrices {list(x.shape)} are not supported: {LARGEST} rows and columns at most")
    return b.cast(b.reshape(x, (simplify(product(x.shape[:-2])), *x.shape[-2:])), dtypes.f64)


def _given(b: TorchEmit, x: Tensor, n: int) -> Tensor:
    """The tensor as the node's result number n."""
    type = b.results[n]
    return x if type is None else b.reshape(b.done(x, n), type.shape)


def _flipped(b: TorchEmit, x: Tensor) -> Tensor:
    return b.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _broadcast(b: TorchEmit, x: Tensor, front: tuple[Expr, ...]) -> Tensor:
    return b.broadcast(x, (*front, *x.shape[-2:]))


def _front(a: Tensor, c: Tensor) -> tuple[Expr, ...]:
    """What the batches of two matrices broadcast to."""
    rank = max(a.rank, c.rank) - 2
    found: list[Expr] = []
    for n in range(rank):
        own = [t.shape[n - rank - 2] for t in (a, c) if t.rank - 2 >= rank - n]
        found.append(next((e for e in own if not (isinstance(e, Const) and e.value == 1)), own[0]))
    return tuple(found)


# Triangular systems and Cholesky's factors


@handles("aten.linalg_solve_triangular.default")
@_unless_empty(0)
def solve_by_triangle(
    b: TorchEmit, a: Tensor, y: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """x of a x = y, or of x a = y, of which the transposes are such a system."""
    front = _front(a, y)
    a, y = _broadcast(b, a, front), _broadcast(b, y, front)
    if left:
        return _given(b, solve_triangular(b, _matrices(b, a), _matrices(b, y), upper, unitriangular), 0)
    found = solve_triangular(b, _matrices(b, _flipped(b, a)), _matrices(b, _flipped(b, y)), not upper, unitriangular)
    return _given(b, _flipped(b, found), 0)


@handles("aten.triangular_solve.default")
@_unless_empty(0, 0)
def triangular_system(
    b: TorchEmit, y: Tensor, a: Tensor, *, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    front = _front(a, y)
    a, y = _broadcast(b, a, front), _broadcast(b, y, front)
    matrix, up = (_flipped(b, a), not upper) if transpose else (a, upper)
    return _given(b, solve_triangular(b, _matrices(b, matrix), _matrices(b, y), up, unitriangular), 0), a


@handles("aten.linalg_cholesky_ex.default")
@_unless_empty(0, 0)
def cholesky_with_info(
    b: TorchEmit, x: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """The factor, and the number of the first column that has none, or 0."""
    if check_errors:
        raise Unsupported("errors that depend on data are not supported")
    a = _matrices(b, _flipped(b, x) if upper else x)
    found = cholesky(b, a)
    wrong = b.map("not", b.map("lt", 0, diagonal_of(b, found)))
    info = _first_wrong(b, wrong)
    return _given(b, _flipped(b, found) if upper else found, 0), _given(b, info, 1)


@handles("aten.cholesky.default")
@_unless_empty(0)
def cholesky_or_fault(b: TorchEmit, x: Tensor, *, upper: bool = False) -> Tensor:
    """The factor; a call fails where there is none."""
    a = _matrices(b, _flipped(b, x) if upper else x)
    found = cholesky(b, a)
    wrong = b.cast(b.map("not", b.map("lt", 0, diagonal_of(b, found))), dtypes.i64)
    sound = b.checked(wrong, 1, "1 for each pivot that is not positive:", from_end=False)
    found = found + b.unsqueeze(b.cast(sound, found.dtype), [2])
    return _given(b, _flipped(b, found) if upper else found, 0)


def _first_wrong(b: TorchEmit, wrong: Tensor) -> Tensor:
    """One more than the first place [batch, place], or 0."""
    first = b.arg_reduce("max", b.cast(wrong, dtypes.i32), 1) + 1
    return b.select(b.reduce("any", wrong, [1]), first, 0)


@handles("aten.cholesky_solve.default")
@_unless_empty(0)
def solve_by_cholesky(b: TorchEmit, y: Tensor, factor: Tensor, *, upper: bool = False) -> Tensor:
    front = _front(factor, y)
    lower = _matrices(b, _broadcast(b, _flipped(b, factor) if upper else factor, front))
    return _given(b, _by_cholesky(b, lower, _matrices(b, _broadcast(b, y, front))), 0)


def _by_cholesky(b: TorchEmit, lower: Tensor, y: Tensor) -> Tensor:
    """The x of L Lᵀ x = y."""
    return solve_triangular(b, _flipped(b, lower), solve_triangular(b, lower, y, False, False), True, False)


@handles("aten.cholesky_inverse.default")
@_unless_empty(0)
def inverse_by_cholesky(b: TorchEmit, factor: Tensor, *, upper: bool = False) -> Tensor:
    lower = _matrices(b, _flipped(b, factor) if upper else factor)
    one = b.broadcast(identity(b, lower.shape[1], lower.shape[2], lower), lower.shape)
    return _given(b, _by_cholesky(b, lower, one), 0)


# Gauss' factors


class _Factors:
    """P A = L U of a batch of matrices; `places` are the swapped rows as LAPACK counts them, from 1 on."""

    def __init__(self, b: TorchEmit, x: Tensor) -> None:
        self.b = b
        a = _matrices(b, x)
        self.a = a
        made = lower_upper(b, a, simplify(minimum(a.shape[1], a.shape[2])))
        self.both, self.rows, self.swaps = made.both, made.rows, made.swaps
        self.places = b.cast(made.swaps + 1, dtypes.i32)

    def info(self) -> Tensor:
        """The number of the first pivot that is 0, or 0."""
        steps = self.swaps.shape[1]
        square = self.b.slice(self.both, [0, 0, 0], (self.both.shape[0], steps, steps), clamped=True)
        return _first_wrong(self.b, self.b.map("eq", diagonal_of(self.b, square), 0))

    def solved(self, y: Tensor) -> Tensor:
        """The x of A x = y."""
        return _solved(self.b, self.both, self.rows, y)

    def sign(self) -> Tensor:
        """That of the permutation: minus for an odd number of swaps."""
        step = self.b.align(self.b.iota((self.swaps.shape[1],), 0), 1, 2)
        swapped = self.b.map("ne", self.swaps, step)
        signs = self.b.select(swapped, self.b.scalar(-1, self.a.dtype), 1)
        return self.b.reduce("prod", signs, [1])


def _solved(b: TorchEmit, both: Tensor, rows: Tensor, y: Tensor) -> Tensor:
    """The x of A x = y for the factors of A, whose rows they are of."""
    moved = b.gather_elements(y, b.broadcast(b.unsqueeze(rows, [2]), y.shape), 1)
    return solve_triangular(b, both, solve_triangular(b, both, moved, False, True), True, False)


def _solved_across(b: TorchEmit, both: Tensor, rows: Tensor, y: Tensor) -> Tensor:
    """The x of Aᵀ x = y, where Aᵀ = Uᵀ Lᵀ P."""
    across = _flipped(b, both)
    found = solve_triangular(b, across, solve_triangular(b, across, y, False, False), True, True)
    return b.contract("bij,bjr->bir", permutation(b, rows, dtypes.f64), found)


def _check(pivot: bool = True, check_errors: bool = False) -> None:
    if not pivot or check_errors:
        raise Unsupported("factors without pivots and errors that depend on data are not supported")


@handles("aten.linalg_lu_factor_ex.default")
@_unless_empty(0, 0, 0)
def factor_with_info(
    b: TorchEmit, x: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    _check(pivot, check_errors)
    made = _Factors(b, x)
    return _given(b, made.both, 0), _given(b, made.places, 1), _given(b, made.info(), 2)


def _parts(b: TorchEmit, both: Tensor) -> tuple[Tensor, Tensor]:
    """L with its diagonal of ones, and U, of [batch, m, n]."""
    batch, m, n = both.shape
    k = simplify(minimum(m, n))
    lower = triangle(b, b.slice(both, [0, 0, 0], (batch, m, k), clamped=True), False, strict=True)
    upper = triangle(b, b.slice(both, [0, 0, 0], (batch, k, n), clamped=True), True)
    return lower + identity(b, m, k, both), upper


@handles("aten.linalg_lu.default")
def factors(b: TorchEmit, x: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    _check(pivot)
    made = _Factors(b, x)
    lower, upper = _parts(b, made.both)
    return _given(b, permutation(b, made.rows, dtypes.f64), 0), _given(b, lower, 1), _given(b, upper, 2)


def _rows_of(b: TorchEmit, pivots: Tensor, count: Expr) -> Tensor:
    """The rows that LAPACK's swaps, counted from 1 on, bring to each place."""
    flat = b.reshape(pivots, (simplify(product(pivots.shape[:-1])), pivots.shape[-1]))
    return rows_of(b, b.checked(b.cast(flat, dtypes.i64) - 1, count, "pivot", from_end=False), count)


@handles("aten.lu_unpack.default")
def unpacked(
    b: TorchEmit, x: Tensor, pivots: Tensor, *, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, ...]:
    """P, L and U; what is not asked for has no elements."""
    both = _matrices(b, x)
    lower, upper = _parts(b, both)
    found = (permutation(b, _rows_of(b, pivots, both.shape[1]), dtypes.f64), lower, upper)
    asked = (unpack_pivots, unpack_data, unpack_data)
    types = [type for type in b.results if type is not None]
    return tuple(
        [_given(b, found[n], n) if asked[n] else b.full(type.shape, 0, type.dtype) for n, type in enumerate(types)]
    )


@handles("aten.linalg_lu_solve.default")
@_unless_empty(0)
def solve_by_factors(
    b: TorchEmit, x: Tensor, pivots: Tensor, y: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The x of A x = y, or of x A = y (not `left`), where `adjoint` has the transpose of A."""
    front = _front(x, y)
    both = _matrices(b, _broadcast(b, x, front))
    pivots = b.broadcast(pivots, (*front, pivots.shape[-1]))
    rows = _rows_of(b, pivots, both.shape[1])
    right = _matrices(b, _broadcast(b, y if left else _flipped(b, y), front))
    found = (_solved if left != adjoint else _solved_across)(b, both, rows, right)
    return _given(b, found if left else _flipped(b, found), 0)


@handles("aten.linalg_inv_ex.default")
@_unless_empty(0, 0)
def inverse_with_info(b: TorchEmit, x: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    _check(check_errors=check_errors)
    made = _Factors(b, x)
    one = b.broadcast(identity(b, made.a.shape[1], made.a.shape[2], made.a), made.a.shape)
    return _given(b, made.solved(one), 0), _given(b, made.info(), 1)


@handles("aten._linalg_solve_ex.default")
@_unless_empty(0, 0, 0, 0)
def solve_with_info(
    b: TorchEmit, x: Tensor, y: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, ...]:
    """The x of A x = y; the factors of A, and which of its pivots is 0."""
    _check(check_errors=check_errors)
    if not left:
        raise Unsupported("a solution from the right is not supported")
    vector = y.rank == 1 or (y.rank == x.rank - 1 and y.shape == x.shape[:-1])
    right = b.unsqueeze(y, [y.rank]) if vector else y
    front = _front(x, right)
    made = _Factors(b, _broadcast(b, x, front))
    found = made.solved(_matrices(b, _broadcast(b, right, front)))
    return _given(b, found, 0), _given(b, made.both, 1), _given(b, made.places, 2), _given(b, made.info(), 3)


@handles("aten._linalg_det.default")
@_unless_empty(1, 0, 0)
def determinant(b: TorchEmit, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The determinants; the factors are those that eager takes, by which gradients solve."""
    made = _Factors(b, _flipped(b, x) if b.is_in_order else x)
    found = b.reduce("prod", diagonal_of(b, made.both), [1]) * made.sign()
    return _given(b, found, 0), _given(b, made.both, 1), _given(b, made.places, 2)


@handles("aten._linalg_slogdet.default")
@_unless_empty(1, 0, 0, 0)
def log_determinant(b: TorchEmit, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sign of the determinant, and the logarithm of its magnitude; the factors as those of `determinant`."""
    made = _Factors(b, _flipped(b, x) if b.is_in_order else x)
    pivots = diagonal_of(b, made.both)
    sign = b.reduce("prod", b.map("sign", pivots), [1]) * made.sign()
    size = b.reduce("sum", b.map("log", b.map("abs", pivots)), [1])
    return _given(b, sign, 0), _given(b, size, 1), _given(b, made.both, 2), _given(b, made.places, 3)
