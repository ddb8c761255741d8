"""Whether a product by a constant is better computed as Strassen's seven half-size products: its error, its time.

Errors. A sum of K products with independent rounding errors is off by a multiple of √K roundings (Higham and Mary, "A
new approach to probabilistic rounding error analysis", 2019); sums of blocks add a few roundings. The sums of products
amplify all these errors. Relative to the sum of |w| times the largest |x| of a pair of rows, results are off by

    u * (√(K/2) + R) * growth        growth = max over columns of (sum over products of |C| |L| |U|) / sum of |w|

with u = 2⁻²⁴, R the roundings of the sums, and the coefficients L, U and C of the sums of x, of w and of products.
With random w, growth is about 7, and the error for random data is twice that of the plain product. A column that is
small compared with the one that it is summed with gets the absolute error of that one: such constants are left alone.

Times. A product takes the price of its contraction, or the time to read the constant from the cache or memory that
holds it, whichever is longer. The sums are priced as by their templates (plan/transforms/strassen.py). Products of few
rows do not gain: they are bound by reading the constant, and its stored sums are more bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Var
from tilewright.ops.strassen import (
    DERIVED,
    PRODUCTS,
    STORED,
    factor_terms,
    half_shape,
    input_terms,
    output_terms,
    rows_at_once,
    transformed_parts,
)
from tilewright.plan.price import contraction
from tilewright.plan.price.contraction import Sums, least_seconds
from tilewright.plan.price.transfer import kept, memory, read_seconds
from tilewright.plan.rewrite.winograd import longest_chain
from tilewright.plan.transforms.strassen import Halves, transform_seconds
from tilewright.target import Target

Array = np.ndarray[Any, Any]

OUTPUT = np.array([output_terms(unit) for unit in np.eye(PRODUCTS).tolist()]).T
"""How often each block of the result has each product."""


def keeps_all(constants: int, target: Target) -> bool:
    """Whether differences are stored, too, in a module with this many bytes of constants: if all fit a cache."""
    return kept(constants, target.caches[-1]) == 1


def pays(sums: Sums, target: Target, stored: bool) -> bool:
    """Whether products by one constant are faster as half-size products; with `stored`, all constant factors of these
    are stored."""
    if min(sums.rows, sums.terms, sums.columns) < 2 * target.lanes(f32):
        return False
    return contraction.pays(least_seconds(sums, target), halved_seconds(sums, target, stored))


def halved_seconds(sums: Sums, target: Target, stored: bool) -> float:
    """Seconds as half-size products: the sums of blocks before, the sums of products after, and the products. These are
    two kernels if some factors are differences."""
    rows, terms, columns = (-(-extent // 2) for extent in (sums.rows, sums.terms, sums.columns))
    whole = Sums(rows, columns, terms, sums.batch * STORED)
    differences = Sums(rows, columns, terms, sums.batch * DERIVED, parts=1 if stored else 2)
    products = least_seconds(whole, target) + least_seconds(differences, target)
    level, read = (len(target.caches), PRODUCTS) if stored else (memory(target), STORED + 2 * DERIVED)
    pairs = sums.batch * rows
    around = transform_seconds(Halves(pairs, terms), Halves(pairs, columns), target) + target.core.kernel_seconds
    return max(products, read_seconds(f32.bytes * terms * columns * read, level, target)) + around


def half_columns(columns: int, target: Target) -> int:
    """The columns of a half-size block: whole vectors, padded to the width that is cheapest for its register tiles."""
    lanes = target.lanes(f32)
    few = -(-columns // (2 * lanes))
    wider = range(few, few + few // 64 + 1)
    return lanes * min(wider, key=lambda n: (_panels(n), n))


def _panels(vectors: int) -> int:
    """The vectors left over beyond whole panels, of two or of three vectors."""
    return vectors % 2 + vectors % 3


def error_bound(w: Array, half: int) -> float:
    """The largest error of a result, relative to the sum of |w| times the largest |x|, where blocks of w have so many
    columns; infinite where w is."""
    rows, _ = half_shape(w, half)
    return float(2.0**-24 * (np.sqrt(rows) + _roundings())) * growth(w, half)


def _roundings() -> int:
    """The roundings of an element in all sums: of x, of w and of differences of these, of the product, of products."""
    blocks = [Var(f"a{n}", f32, None) for n in range(PRODUCTS)]
    return sum(map(longest_chain, (input_terms(blocks[:4]), factor_terms(blocks[:4]), output_terms(blocks)))) + 2


def growth(w: Array, half: int) -> float:
    """The factor by which the sums amplify errors of products; infinite if w is, or if a column of it is zero."""
    left = np.abs([input_terms(unit) for unit in np.eye(4).tolist()]).sum(0)[:, None]  # blocks of x in each product
    sizes, weight = np.zeros((PRODUCTS, half)), np.zeros(w.shape[1])
    with np.errstate(all="ignore"):
        few = rows_at_once(half)
        for k in range(0, len(w), few):
            weight += np.abs(w[k : k + few]).sum(0)
        for _, part in transformed_parts(w, half):
            sizes += [np.abs(term).sum(0) for term in (*part, *(term - part[DERIVED] for term in part[:DERIVED]))]
        worst = 0.0
        for place, reached in enumerate(np.abs(OUTPUT) @ (left * sizes)):
            own = weight[half * (place % 2) :][:half]
            worst = max(worst, float((reached[: own.size] / own).max(initial=0.0)))
    return worst if np.isfinite(weight).all() and not np.isnan(worst) else float("inf")
