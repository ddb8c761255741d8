"""How far off results are, and may be, where a program is computed in another way than it is written: the package's
policy, the same for every machine. Errors are relative to the sum of |w| times the largest |x|, of a pair of rows or of
a tile.

They are here and not with the decisions of plan/rewrite/, for they are part of what operators promise: a rewrite may
choose what is fast, but not what is right.

A sum of K products with independent rounding errors is off by a multiple of √K roundings (Higham and Mary, "A new
approach to probabilistic rounding error analysis", 2019); sums around the products add a few roundings R, and amplify
all these errors:

    u * (√K + R) * growth        u = 2⁻²⁴
    Strassen     growth = max over columns of (sum over products of |C| |L| |U|) / sum of |w|
    Winograd     growth = max of |Aᵀ| (sum over c of |G w Gᵀ|) ⊙ (|Bᵀ| 1 |B|) |A| / sum of |w|

with the coefficients L, U and C of the sums of x, of w and of products. With random w, Strassen's growth is about 7,
and the error for random data is twice that of the plain product. A column that is small compared with the one that it
is summed with gets the absolute error of that one: such constants are left alone. With random filters, Winograd's
growth is about 3.5 for tiles of 2 x 2 and 140 for 4 x 4; at most it is 16 and 860, with filters of a single nonzero
weight. Random data is off by a hundredth of the bound.

Each rounding of a factor to bf16 is off by 2⁻⁸ at most, and tiles amplify it by `growth`, compared with a direct
convolution in bf16. For random data and tiles of 2 x 2, errors are 1.6 times those of the direct one. Tiles of 4 x 4
amplify too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.ops import strassen, winograd

Array = np.ndarray[Any, Any]

PRODUCT_ERROR: Final = 1e-4
"""The largest error that a product may have by fewer multiplications (strassen.py)."""

WINDOW_ERROR: Final = 1e-3
"""The largest error that a convolution in f32 may have by fewer multiplications (winograd.py)."""

ROUNDED_GROWTH: Final = 8.0
"""The most that a convolution by fewer multiplications may amplify the errors of rounded factors, compared
with a direct one."""


def product_error(w: Array, half: int) -> float:
    """The largest error of a product by Strassen's, where blocks of w have so many columns; infinite where w is."""
    rows, _ = strassen.half_shape(w, half)
    blocks = [Var(f"a{n}", f32, None) for n in range(strassen.PRODUCTS)]
    first, second = strassen.input_terms(blocks[:4]), strassen.factor_terms(blocks[:4])
    roundings = sum(map(longest_chain, (first, second, strassen.output_terms(blocks)))) + 2
    return float(2.0**-24 * (np.sqrt(rows) + roundings)) * product_growth(w, half)


def product_growth(w: Array, half: int) -> float:
    """The factor by which Strassen's sums amplify errors of products; infinite if w is, or if a column of it is
    zero."""
    count, derived = strassen.PRODUCTS, strassen.DERIVED
    left = np.abs([strassen.input_terms(unit) for unit in np.eye(4).tolist()]).sum(0)[:, None]  # blocks of x in each
    output = np.abs([strassen.output_terms(unit) for unit in np.eye(count).tolist()]).T  # of products in each block
    sizes, weight = np.zeros((count, half)), np.zeros(w.shape[1])
    with np.errstate(all="ignore"):
        few = strassen.rows_at_once(half)
        for k in range(0, len(w), few):
            weight += np.abs(w[k : k + few]).sum(0)
        for _, part in strassen.transformed_parts(w, half):
            sizes += [np.abs(term).sum(0) for term in (*part, *(term - part[derived] for term in part[:derived]))]
        worst = 0.0
        for place, reached in enumerate(output @ (left * sizes)):
            own = weight[half * (place % 2) :][:half]
            worst = max(worst, float((reached[: own.size] / own).max(initial=0.0)))
    return worst if np.isfinite(weight).all() and not np.isnan(worst) else float("inf")


def tiles_are_accurate(filters: Array, size: int, stride: int, *, rounded: bool) -> bool:
    """Whether Winograd's tiles are accurate enough: in f32 by their error, else by how they amplify rounding of
    factors."""
    if rounded:
        return window_growth(filters, size, stride) <= ROUNDED_GROWTH
    return window_error(filters, size, stride) <= WINDOW_ERROR


def window_error(filters: Array, size: int, stride: int = 1, *, rounded: bool = False) -> float:
    """The largest error of an output of tiles of `size` x `size`, with factors in f32 or `rounded` to bf16; infinite
    where filters are."""
    elements = [Var(f"d{n}", f32, None) for n in range(winograd.edge_of(size, stride))]
    image, result = (terms(size, stride, elements) for terms in (winograd.input_terms, winograd.output_terms))
    roundings = 2 * (longest_chain(image) + winograd.WINDOW - 1 + longest_chain(result))  # along both axes
    of_factors = 2 * 2.0**-8 + 2.0**-16 if rounded else 0.0
    of_sums = 2.0**-24 * (np.sqrt(filters.shape[1]) + roundings)
    return float(of_factors + of_sums) * window_growth(filters, size, stride)


def window_growth(filters: Array, size: int, stride: int = 1) -> float:
    """The factor by which the matrices of tiles amplify errors of factors and products; infinite where filters are."""
    if not np.isfinite(filters).all():
        return float("inf")
    weight = np.abs(filters.astype(np.float64)).sum((1, 2, 3))
    edge = winograd.edge_of(size, stride)
    rows = np.abs(np.array(winograd.INPUT[size, stride])).sum(1)
    out = np.abs(np.array(winograd.OUTPUT[size, stride]))
    sums = np.zeros((edge * edge, len(filters)))
    for _, part in winograd.transformed_parts(filters, size, stride):
        sums += np.abs(part, out=part).sum(1)
    u = sums.reshape(edge, edge, -1)
    reached = np.einsum("ap,pqo,bq->abo", out, u * rows[:, None, None] * rows[None, :, None], out).max((0, 1))
    return float((reached[weight > 0] / weight[weight > 0]).max(initial=0.0))


def longest_chain(terms: Iterable[Expr]) -> int:
    """The most operations between a variable of some terms and their result: so often sums round an element."""
    return max((_operations(e) for e in terms), default=0)


def _operations(e: Expr) -> int:
    return 0 if isinstance(e, Const | Var) else 1 + longest_chain(c for c in e.children() if isinstance(c, Expr))
