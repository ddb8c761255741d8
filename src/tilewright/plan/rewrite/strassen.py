"""Whether a product by a constant is better computed as Strassen's seven half-size products: how long it takes. How far
off it is says ops/accuracy.py.

A product takes the price of its contraction while the constant comes from the cache or memory that holds it, or takes
longer. The sums are priced as by their templates (plan/transforms/strassen.py). Products of few rows do not gain: they
are bound by reading the constant, and its stored sums are more bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tilewright.expr.dtypes import f32
from tilewright.ops.strassen import DERIVED, PRODUCTS, STORED
from tilewright.plan.price import contraction
from tilewright.plan.price.contraction import Sums, least_seconds
from tilewright.plan.transforms.strassen import Halves, transform_seconds
from tilewright.target import Target
from tilewright.target.transfer import kept, memory, panel_cycles


def keeps_all(constants: int, target: Target) -> bool:
    """Whether differences are stored, too, in a module with this many bytes of constants: if all fit a cache."""
    return kept(constants, target.kept_caches[-1]) == 1


def pays(sums: Sums, target: Target, stored: bool) -> bool:
    """Whether products by one constant are faster as half-size products; with `stored`, all constant factors of these
    are stored."""
    if min(sums.rows, sums.terms, sums.columns) < 2 * target.lanes(f32):
        return False
    return contraction.pays(plain_seconds(sums, target, stored), halved_seconds(sums, target, stored))


def least_rows(products: Sequence[Sums], most: int, target: Target, stored: bool) -> int | None:
    """The number of rows from which these products, all of so many rows, are faster as half-size products; None where
    no number up to `most` is enough."""
    alike = Counter(products)
    least = 2 * target.lanes(f32)
    if any(min(sums.terms, sums.columns) < least for sums in alike):
        return None

    def gain(rows: int) -> bool:
        each = [(replace(sums, rows=rows), count) for sums, count in alike.items()]
        plain = sum(count * plain_seconds(sums, target, stored) for sums, count in each)
        return contraction.pays(plain, sum(count * halved_seconds(sums, target, stored) for sums, count in each))

    rows = least
    while rows <= most and not gain(rows):
        rows *= 2
    return bisect_left(range(rows), True, lo=max(rows // 2, least), key=gain) if rows <= most else None


def plain_seconds(sums: Sums, target: Target, stored: bool) -> float:
    """Seconds of the product as it is."""
    return _while_read(least_seconds(sums, target), sums.terms * sums.columns, target, stored)


def _while_read(products: float, numbers: int, target: Target, stored: bool) -> float:
    """Seconds of products that multiply by so many numbers of constants, which are asked for ahead."""
    level = len(target.caches) if stored else memory(target)
    read = f32.bytes * numbers * panel_cycles(level, target, asked=True) / target.core.hertz
    return max(products, read + target.core.unhidden * products)


def halved_seconds(sums: Sums, target: Target, stored: bool) -> float:
    """Seconds as half-size products: the sums of blocks before, the sums of products after, and the products. These are
    two kernels if some factors are differences."""
    rows, terms, columns = (-(-extent // 2) for extent in (sums.rows, sums.terms, sums.columns))
    whole = Sums(rows, columns, terms, sums.batch * STORED)
    derived = Sums(rows, columns, terms, sums.batch * DERIVED)
    differences = [derived] if stored else [replace(derived, parts=2), replace(derived, packs=2)]
    products = least_seconds(whole, target) + min(least_seconds(d, target) for d in differences)
    read = PRODUCTS if stored else STORED + 2 * DERIVED
    groups = sums.batch * rows
    around = transform_seconds(Halves(groups, terms), Halves(groups, columns), target) + target.core.kernel_seconds
    return _while_read(products, terms * columns * read, target, stored) + around
