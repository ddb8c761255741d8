"""Computes the tables of coefficients in src/tilewright/expr/functions, and prints them.

    python tools/fit_polynomials.py [NAME ...]

Each table is the minimax polynomial of a smooth function on an interval, found by the exchange algorithm of Remez
(1934) in 60-digit arithmetic: solve for the coefficients and the levelled error on n + 2 points, move the points to
the extrema of the error, repeat. The errors are weighted so that the error of the whole function, relative to its
value, is what is levelled. Coefficients are then rounded to the type they are used in. Needs mpmath.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mpmath as mp

mp.mp.dps = 60
Real = Callable[[mp.mpf], mp.mpf]
GRID = 600


@dataclass(frozen=True)
class Fit:
    """What to fit: `function` on the interval, the error multiplied by `weight`, by `terms` coefficients."""

    name: str
    comment: str
    function: Real
    weight: Real
    low: float
    high: float
    terms: int
    double: bool


def remez(fit: Fit) -> tuple[list[mp.mpf], mp.mpf]:
    """(coefficients, constant first; the greatest weighted error)."""
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    count = fit.terms + 1
    points = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * k / GRID) for k in range(GRID + 1)]
    wanted = [fit.function(x) for x in grid]
    weights = [fit.weight(x) for x in grid]
    coefficients: list[mp.mpf] = []
    worst = mp.mpf(0)
    for _ in range(8):
        matrix = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, x in enumerate(points):
            for power in range(fit.terms):
                matrix[row, power] = x**power
            matrix[row, fit.terms] = (-1) ** row / fit.weight(x)
            right[row] = fit.function(x)
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[k] for k in range(fit.terms)]
        errors = [(mp.polyval(coefficients[::-1], x) - f) * w for x, f, w in zip(grid, wanted, weights, strict=True)]
        worst = max(abs(e) for e in errors)
        points = _extrema(grid, errors, count)
        if worst < abs(solution[fit.terms]) * mp.mpf("1.02"):
            break
    return coefficients, worst


def _extrema(grid: list[mp.mpf], errors: list[mp.mpf], count: int) -> list[mp.mpf]:
    """The greatest error of each run of one sign; of too many runs the `count` neighbouring ones with the greatest."""
    runs: list[int] = []
    for n, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = n
        else:
            runs.append(n)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    if len(runs) < count:
        raise ValueError("the error alternates too seldom: the fit has more terms than the arithmetic can tell apart")
    return [grid[n] for n in runs]


def _one(x: mp.mpf) -> mp.mpf:
    return mp.mpf(1)


def _exp_tail(r: mp.mpf) -> mp.mpf:
    """(e^r - 1 - r) / r^2."""
    return mp.hyp1f1(1, 3, r) / 2


def _log_tail(z: mp.mpf) -> mp.mpf:
    """(2 atanh(s) / s - 2) / z for z = s^2."""
    s = mp.sqrt(z)
    return 2 * (mp.atanh(s) / s - 1) / z if z > 1e-9 else mp.mpf(2) / 3 + 2 * z / 5 + 2 * z * z / 7


def _sin_tail(z: mp.mpf) -> mp.mpf:
    """(sin(x) / x - 1) / z for z = x^2."""
    return mp.hyp1f2(1, 2, mp.mpf(5) / 2, -z / 4) / -6


def _cos_tail(z: mp.mpf) -> mp.mpf:
    """(cos(x) - 1 + z/2) / z^2 for z = x^2."""
    return mp.hyp1f2(1, mp.mpf(5) / 2, 3, -z / 4) / 24


def _atan_tail(z: mp.mpf) -> mp.mpf:
    """(atan(x) / x - 1) / z for z = x^2."""
    return (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z > 1e-9 else -mp.mpf(1) / 3 + z / 5 - z * z / 7


def _asin_tail(z: mp.mpf) -> mp.mpf:
    """(asin(x) / x - 1) / z for z = x^2."""
    return (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z > 1e-9 else mp.mpf(1) / 6 + 3 * z / 40 + 15 * z * z / 336


def _erf_ratio(z: mp.mpf) -> mp.mpf:
    """erf(x) / x - 1 for z = x^2."""
    x = mp.sqrt(z)
    return (mp.erf(x) / x if z > 0 else 2 / mp.sqrt(mp.pi)) - 1


def _tanh_tail(z: mp.mpf) -> mp.mpf:
    """(tanh(x) / x - 1) / z for z = x^2."""
    x = mp.sqrt(z)
    return (mp.tanh(x) / x - 1) / z if z > 1e-9 else -mp.mpf(1) / 3 + 2 * z / 15 - 17 * z * z / 315


def _log_erfc(x: mp.mpf) -> mp.mpf:
    return mp.log(mp.erfc(x))


def _root_erfc(x: mp.mpf) -> mp.mpf:
    return mp.root(mp.erfc(x), 4)


def _root_erf(x: mp.mpf) -> mp.mpf:
    """(1 - erfc(x)^(1/8)) / x - 1/8."""
    return (-mp.expm1(mp.log(mp.erfc(x)) / 8) / x if x > 1e-9 else 1 / (4 * mp.sqrt(mp.pi))) - mp.mpf(1) / 8


def _root_erf_weight(x: mp.mpf) -> mp.mpf:
    """What an error of _root_erf is in erf, relative to it."""
    return 8 * mp.erfc(x) ** (mp.mpf(7) / 8) * x / mp.erf(x) if x > 1e-9 else 4 * mp.sqrt(mp.pi)


HALF_LN2 = 0.34658
QUARTER_PI2 = 0.6169
LOG_Z = 0.02944


def _both(
    name: str, comment: str, function: Real, weight: Real, low: float, high: float, terms: tuple[int, int]
) -> list[Fit]:
    return [
        Fit(f"{name}_{bits}", comment, function, weight, low, high, n, bits == 64)
        for bits, n in zip((32, 64), terms, strict=True)
        if n
    ]


FITS = [
    *_both(
        "EXP",
        "(exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2",
        _exp_tail,
        lambda r: r * r / mp.exp(r) if abs(r) > 0.1 else mp.mpf("0.01"),
        -HALF_LN2,
        HALF_LN2,
        (5, 10),
    ),
    *_both(
        "LOG", "(2*atanh(s)/s - 2) / z, z = s^2, for |s| <= 3 - 2*sqrt(2)", _log_tail, lambda z: z, 0, LOG_Z, (3, 7)
    ),
    *_both("SIN", "(sin(x)/x - 1) / z, z = x^2, for |x| <= pi/4", _sin_tail, lambda z: z, 0, QUARTER_PI2, (3, 6)),
    *_both(
        "COS", "(cos(x) - 1 + z/2) / z^2, z = x^2, for |x| <= pi/4", _cos_tail, lambda z: z * z, 0, QUARTER_PI2, (3, 6)
    ),
    *_both("ATAN", "(atan(x)/x - 1) / z, z = x^2, for |x| <= tan(pi/8)", _atan_tail, lambda z: z, 0, 0.17158, (0, 11)),
    *_both("ASIN", "(asin(x)/x - 1) / z, z = x^2, for |x| <= 1/2", _asin_tail, lambda z: z, 0, 0.25, (0, 12)),
    *_both("ERF", "erf(x)/x - 1, z = x^2, for |x| <= 1", _erf_ratio, _one, 0, 1, (7, 12)),
    *_both("TANH", "(tanh(x)/x - 1) / z, z = x^2, for |x| <= 0.55", _tanh_tail, lambda z: z, 0, 0.3025, (5, 0)),
    *_both("ROOT_ERFC", "erfc(a)^(1/4) for 1 <= a <= 4", _root_erfc, lambda a: 4 * _root_erfc(a) ** 3, 1, 4, (8, 0)),
    *_both("ROOT_ERF", "(1 - erfc(a)^(1/8)) / a - 1/8 for a <= 4", _root_erf, _root_erf_weight, 0, 4, (8, 0)),
    *_both("LOG_ERFC", "log(erfc(a)) for 1 <= a <= 6", _log_erfc, mp.erfc, 1, 6, (0, 19)),
]


def rounded(value: mp.mpf, double: bool) -> float:
    """The coefficient in the type it is used in."""
    nearest = float(value)
    return nearest if double else float(struct.unpack("f", struct.pack("f", nearest))[0])


def split(value: mp.mpf, bits: tuple[int, ...], double: bool) -> list[float]:
    """The value as a sum of numbers that have at most so many bits each, and a last one that has all it can have."""
    parts: list[float] = []
    for count in bits:
        scale = mp.mpf(2) ** (count - int(mp.floor(mp.log(value, 2))) - 1)
        part = mp.floor(value * scale) / scale
        parts.append(float(part))
        value -= part
    return [*parts, rounded(value, double)]


SPLITS = [
    ("LN2_32", "ln(2): the product of the first part and an exponent is exact", mp.log(2), (15,), False),
    ("LN2_64", "ln(2): the product of the first part and an exponent is exact", mp.log(2), (32,), True),
    ("HALF_PI", "pi/2: products of the first two parts and an integer below 2^20 are exact", mp.pi / 2, (33, 33), True),
]


def tables() -> Iterator[tuple[str, str, list[float]]]:
    """(name, what it is, its numbers) of every table."""
    for name, comment, value, bits, double in SPLITS:
        yield name, comment, split(value, bits, double)
    for fit in FITS:
        coefficients, worst = remez(fit)
        error = f"{fit.comment}; error 2^{mp.nstr(mp.log(worst, 2), 4)} before rounding"
        yield fit.name, error, [rounded(c, fit.double) for c in coefficients]


def main() -> None:
    for name, comment, numbers in tables():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            print(f"# {comment}\n{name} = (", *(f"    {number!r}," for number in numbers), ")\n", sep="\n", flush=True)


if __name__ == "__main__":
    main()
