"""Lanes whose places are known but for where they begin: shuffled out of registers, loaded as one number and repeated,
and as single elements otherwise. Each is compared with NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from moved_lanes import assert_moved

import tilewright as tw
from tilewright.expr.nodes import Broadcast, FloorDiv, Mod, Ramp, Var, const
from tilewright.loops.known_lanes import known_lanes, repeated
from tilewright.target import Target

LANES = np.arange(16)


def ramp(step: int = 1, base: int = 0) -> Ramp:
    return Ramp(const(base), const(step), 16)


def all_lanes(number: int) -> Broadcast:
    return Broadcast(const(number), 16)


def test_a_scalar_and_a_number_for_each_lane() -> None:
    j = Var("j")
    index = Broadcast(j * 18, 16) + FloorDiv(ramp(), all_lanes(2)) - Mod(ramp(3, 1), all_lanes(5)) * all_lanes(7)
    found = known_lanes(index)
    assert found is not None
    assert found == (j * 18, tuple(LANES // 2 - (3 * LANES + 1) % 5 * 7))


def test_what_is_not_known() -> None:
    j = Var("j")
    scalar = Broadcast(j, 16)
    for index in (FloorDiv(ramp() + scalar, all_lanes(2)), scalar * ramp(), Ramp(j, j, 16), Mod(ramp(), all_lanes(0))):
        assert known_lanes(index) is None


@pytest.mark.parametrize(
    ("at", "places"),
    [
        ((0, 1) * 8, (0, 1) * 8),
        ((0, 1, 2, 3) * 4, (0, 1, 2, 3) * 4),
        ((0, 0, 1, 1) * 4, (0, 0, 1, 1) * 4),
        ((5, 5, 6, 6) * 2, (0, 0, 1, 1) * 2),
        ((0, 1, 2) * 2, (0, 1, 2) * 2),
        ((0,) * 16, ()),
        (tuple(range(16)), ()),
        ((0,) * 8 + (1,) * 8, ()),
        ((0, 2) * 8, ()),
        ((1, 0) * 8, ()),
        ((), ()),
    ],
)
def test_elements_again_and_again(at: tuple[int, ...], places: tuple[int, ...]) -> None:
    assert repeated(at) == places


PLACES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "{0} % 2": lambda n: n % 2,
    "{0} % 4 + 3": lambda n: n % 4 + 3,
    "{0} // 2 + {0} % 2 * 9": lambda n: n // 2 + n % 2 * 9,
    "15 - {0}": lambda n: 15 - n,
    "{0} // 8 + {0} % 8 * 2 + 1": lambda n: n // 8 + n % 8 * 2 + 1,
    "{0} % 4 * 13 + {0} // 4": lambda n: n % 4 * 13 + n // 4,
    "{0} // 16 + 7": lambda n: n // 16 + 7,
}


@pytest.mark.parametrize("target", ["native", "x86-64-v2"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rows", [3])
def test_loads(place: str, rows: int, target: str) -> None:
    """Out of memory, whole and under a mask, and out of a register that was filled by whole vectors."""
    func = tw.parse(f"""
func lanes(x: f32[{rows}, 64], y: f32[{rows}, 16], z: f32[{rows}, 16], m: f32[{rows}, 16]):
  for i in 0..{rows}:
    alloc r: f32[64] in register
    unroll jo in 0..4:
      vectorize ji in 0..16:
        block fill(vj = jo*16 + ji):
          r[vj] = x[i, vj] * 2.0
    vectorize l in 0..16:
      block first(vl = l):
        y[i, vl] = x[i, {place.format("vl")}]
    vectorize l in 0..16:
      block second(vl = l):
        z[i, vl] = r[{place.format("vl")}]
    vectorize l in 0..16:
      block third(vl = l) where l < 11:
        m[i, vl] = x[i, {place.format("vl")}]
""")
    x = np.random.default_rng(0).standard_normal((rows, 64), np.float32)
    y, z, m = np.zeros((3, rows, 16), np.float32)
    tw.build(func, target=target)(x, y, z, m)
    assert_moved(func, Target.parse(target), [x], [np.zeros_like(y) for _ in range(3)], [y, z, m])
    wanted = x[:, PLACES[place](LANES)]
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(z, 2 * wanted)
    np.testing.assert_array_equal(m[:, :11], wanted[:, :11])
    assert not m[:, 11:].any()


def test_stores() -> None:
    func = tw.parse("""
func lanes(x: f32[4, 16], y: f32[4, 64]):
  for i in 0..4:
    vectorize l in 0..16:
      block spread(vl = l):
        y[i, vl % 2 * 20 + vl // 2 * 2 + 1] = x[i, vl]
""")
    x, y = np.random.default_rng(0).standard_normal((4, 16), np.float32), np.zeros((4, 64), np.float32)
    tw.build(func)(x, y)
    wanted = np.zeros_like(y)
    wanted[:, LANES % 2 * 20 + LANES // 2 * 2 + 1] = x
    np.testing.assert_array_equal(y, wanted)


def test_numbers_that_are_repeated_are_loaded_as_one() -> None:
    func = tw.parse("""
func pairs(w: f32[2000], y: f32[1000, 16]):
  for i in 0..1000:
    vectorize l in 0..16:
      block pair(vi = i, vl = l):
        y[vi, vl] = w[vi*2 + vl % 2]
""")
    text = tw.build(func, target="x86-64-v4").show(after="assembly")
    assert re.search(r"vbroadcastsd\t\S*\(%r", text) and "gather" not in text and "vinsertps" not in text
    w, y = np.random.default_rng(0).standard_normal(2000, np.float32), np.zeros((1000, 16), np.float32)
    tw.build(func)(w, y)
    np.testing.assert_array_equal(y, np.tile(w.reshape(1000, 2), 8))
