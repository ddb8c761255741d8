"""What `never_negative` claims holds: random numbers over loops, divisions, minima, against all small values."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tilewright.analysis.intervals import Range
from tilewright.analysis.proofs import never_negative
from tilewright.expr.build import maximum, minimum
from tilewright.expr.evaluate import evaluate
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.simplify import simplify

SIZE, I_LOOP, J_LOOP = Var("n"), Var("i"), Var("j")


def draw(source: random.Random, depth: int) -> Expr:
    """A number over n, i and j."""
    if depth == 0:
        return source.choice([SIZE, I_LOOP, J_LOOP, const(source.randint(-3, 9))])
    a, b = draw(source, depth - 1), draw(source, depth - 1)
    match source.randrange(8):
        case 0:
            return a // source.randint(1, 5)
        case 1:
            return minimum(a, b)
        case 2:
            return maximum(a, b)
        case 3:
            return a * source.randint(-4, 4)
        case 4 | 5:
            return a - b
    return a + b


def ranges(source: random.Random) -> dict[Var, Range]:
    if source.random() < 0.3:
        inner = minimum(source.randint(1, 3), (SIZE + 2) // 3 - I_LOOP * source.randint(1, 3))
        return {I_LOOP: Range(const(0), (SIZE + 5) // source.randint(3, 6)), J_LOOP: Range(const(0), inner)}
    ends = [SIZE // 3, (SIZE + 3) // 4, minimum(SIZE // 2, (SIZE + 1) // 2), SIZE, const(4)]
    return {I_LOOP: Range(const(0), source.choice(ends)), J_LOOP: Range(const(0), const(source.randint(1, 4)))}


def points(known: dict[Var, Range]) -> Iterator[dict[Var, int]]:
    """Every iteration of the two loops, for n up to 12."""
    for n in range(13):
        for i in range(int(evaluate(known[I_LOOP].extent, {SIZE: n}))):
            for j in range(int(evaluate(known[J_LOOP].extent, {SIZE: n, I_LOOP: i}))):
                yield {SIZE: n, I_LOOP: i, J_LOOP: j}


@pytest.mark.parametrize("seed", range(4))
def test_what_is_proved_holds(seed: int) -> None:
    source = random.Random(seed)
    proved = 0
    for _ in range(150):
        known = ranges(source)
        e = draw(source, 3)
        if never_negative(polynomial(e), known):
            proved += 1
            assert all(int(evaluate(e, point)) >= 0 for point in points(known)), str(e)
    assert proved >= 10


@pytest.mark.parametrize("d", [1, 3, 16])
def test_tiles(d: int) -> None:
    whole = {I_LOOP: Range(const(0), minimum(SIZE // d, (SIZE + (d - 1)) // d)), J_LOOP: Range(const(0), const(d))}
    some = {I_LOOP: Range(const(0), (SIZE + (d - 1)) // d), J_LOOP: Range(const(0), const(d))}
    spare = polynomial(SIZE - I_LOOP * d - J_LOOP - 1)
    assert never_negative(spare, whole)
    assert never_negative(spare, some) is (d == 1)
    assert never_negative(polynomial(SIZE - I_LOOP * d - 1), some)
    assert not never_negative(polynomial(SIZE - I_LOOP * d - 2), some)


def test_tiles_of_tiles() -> None:
    """What an inner loop's end takes from the outer loop's place is not lost."""
    rows = (SIZE + 13) // 14
    known = {
        I_LOOP: Range(const(0), (rows + 32) // 33),
        J_LOOP: Range(const(0), minimum(33, rows - I_LOOP * 33)),
    }
    place = (I_LOOP * 33 + J_LOOP) * 14
    assert never_negative(polynomial(SIZE - place - 1), known)
    assert not never_negative(polynomial(SIZE - place - 2), known)


def test_tiles_of_a_quotient() -> None:
    """Of SIZE // 8, which is what halves of SIZE // 4 are rounded to, two are at least SIZE // 4 - 1."""
    positions = SIZE // 4 - 1
    tiles = simplify((positions + 1) // 2)
    assert tiles is simplify(SIZE // 8)
    assert never_negative(polynomial(tiles * 2 - positions), {})
    assert not never_negative(polynomial(tiles * 2 - positions - 1), {})


def test_tiles_that_read_a_dilated_window() -> None:
    """Of tiles of 7 places, terms 24 apart that any of them reads lie in an image of 28 between borders of 24."""
    first, end = (I_LOOP * -7 + 17) // 24 + 1, (I_LOOP * -7 + 3) // 24 + 3
    known = {I_LOOP: Range(const(0), const(4)), J_LOOP: Range(first, end - first)}
    assert never_negative(polynomial(J_LOOP), known)
    assert never_negative(polynomial(2 - J_LOOP), known)
    assert never_negative(polynomial(I_LOOP * 7 + 6 + J_LOOP * 24 - 24), known)
    assert not never_negative(polynomial(I_LOOP * 7 + J_LOOP * 24 - 24), known)
