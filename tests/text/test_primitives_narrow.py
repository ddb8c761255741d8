"""widen, pad_sum: programs before and after with the steps and why they are legal; that both compute the same, in the
evaluator and in machine code; and what each says where it may not be applied."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from primitive_checks import Primitives, PrimitiveTests

import tilewright as tw
from tilewright.expr.dtypes import DType

Array = np.ndarray[Any, Any]

BYTES = """
func matmul[m](x: i8[m, 9], w: u8[9, 11], y: i32[m, 11]):
  for i in 0..m, j in 0..11, k in 0..9:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += i32(x[vi, vk]) * i32(w[vk, vj])
"""
ANY_DEPTH = BYTES.replace("[m](x: i8[m, 9], w: u8[9,", "[m](x: i8[5, m], w: u8[m,").replace("y: i32[m", "y: i32[5")
ANY_DEPTH = ANY_DEPTH.replace("i in 0..m", "i in 0..5").replace("k in 0..9", "k in 0..m")
HALVES = BYTES.replace("i8", "bf16").replace("u8", "bf16").replace("i32", "f32").replace(" = 0\n", " = 0.0\n")
CHAIN = """
func chain[n](x: i8[n], y: i8[n], z: f32[n]):
  alloc t: i8[n] in arena
  for i in 0..n:
    block t(vi = i):
      t[vi] = x[vi] * 3
  for i in 0..n:
    block y(vi = i):
      y[vi] = t[vi] + 1
  for i in 0..n:
    block z(vi = i):
      z[vi] = f32(t[vi]) * 0.5 + f32(u8(t[vi]))
"""


def any_bytes(random: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Numbers that 8 bits hold, of which sums of products are exact in f32, too."""
    return random.integers(0 if dtype.kind == "u" else -128, 128, shape)


NARROW = Primitives("narrow", sizes=(0, 1, 6, 13), draw=any_bytes)
case, wrong = NARROW.case, NARROW.wrong


@case("widen-a-copy", BYTES)
def widen_a_copy(s: tw.Schedule) -> None:
    s.widen(s.cache_read("dot", "x"), "i16")
    s.widen(s.cache_read("dot", "w"), "i16")


@case("widen-what-wraps-around", CHAIN)
def widen_what_wraps_around(s: tw.Schedule) -> None:
    """Values are stored and read as before; only where they lie is wider."""
    s.widen("t", "i32")


@case("widen-to-floats", CHAIN)
def widen_to_floats(s: tw.Schedule) -> None:
    s.widen("t", "f32")


@case("widen-halves", HALVES)
def widen_halves(s: tw.Schedule) -> None:
    """After a change of layout as well as before."""
    for buffer in ("x", "w"):
        copy = s.cache_read("dot", buffer)
        s.transform_layout(copy, "a, b -> b, a")
        s.widen(copy, "f32")


def two_at_a_time(s: tw.Schedule, buffers: str) -> None:
    """Copies of operands in pairs of terms, filled up with zeros."""
    for buffer in buffers:
        copy = s.cache_read("dot", buffer)
        s.transform_layout(copy, "a, b -> a, b // 2, b % 2" if buffer == "x" else "a, b -> a // 2, b, a % 2", pad=0)
    s.split("k", 2, tail="mask")
    s.pad_sum("dot", "ki")


@case("pad-sum-one-factor", BYTES)
def pad_sum_one_factor(s: tw.Schedule) -> None:
    """The other factor is loaded from its end."""
    two_at_a_time(s, "w")


@case("pad-sum-both-factors", HALVES)
def pad_sum_both_factors(s: tw.Schedule) -> None:
    two_at_a_time(s, "xw")


@case("pad-sum-any-depth", ANY_DEPTH)
def pad_sum_any_depth(s: tw.Schedule) -> None:
    two_at_a_time(s, "xw")


@case("pad-sum-widened", BYTES)
def pad_sum_widened(s: tw.Schedule) -> None:
    """A condition on rows stays."""
    s.split("i", 4, tail="mask")
    two_at_a_time(s, "x")
    s.widen("x.cache", "i16")


@wrong(CHAIN)
def a_type_that_is_none(s: tw.Schedule) -> object:
    return s.widen("t", "i12")


@wrong(CHAIN)
def a_type_without_negative_numbers(s: tw.Schedule) -> object:
    return s.widen("t", "u16")


@wrong(CHAIN)
def the_type_that_it_has(s: tw.Schedule) -> object:
    return s.widen("t", "i8")


@wrong(CHAIN)
def a_buffer_of_the_caller(s: tw.Schedule) -> object:
    return s.widen("x", "i16")


@wrong("func f(y: i8[8]):\n  alloc t: i8[8] in arena\n  view v: i8[2, 4] = t\n  for i in 0..8: y[i] = t[i]")
def a_buffer_with_two_names(s: tw.Schedule) -> object:
    return s.widen("t", "i16")


@wrong(BYTES)
def no_condition(s: tw.Schedule) -> object:
    return s.pad_sum("dot", "k")


@wrong(BYTES)
def a_loop_of_no_condition(s: tw.Schedule) -> object:
    s.split("k", 2, tail="mask")
    return s.pad_sum("dot", "i")


@wrong(BYTES)
def no_zeros(s: tw.Schedule) -> object:
    s.split("k", 2, tail="mask")
    return s.pad_sum("dot", "ki")


@wrong(HALVES)
def zeros_in_one_factor_of_floats(s: tw.Schedule) -> object:
    two_at_a_time(s, "w")
    return None


@wrong(BYTES)
def zeros_too_late(s: tw.Schedule) -> object:
    """What is filled up to a multiple of 4 holds zeros from 9 on; the sum ends at 9 as well, but rows do not."""
    s.split("i", 2, tail="mask")
    return s.pad_sum("dot", "ii")


@wrong(
    BYTES.replace("= 0\n", "= 1\n").replace(
        "y[vi, vj] += i32(x[vi, vk]) * i32(w[vk, vj])", "y[vi, vj] = max(y[vi, vj], i32(x[vi, vk]))"
    )
)
def no_sum(s: tw.Schedule) -> object:
    s.split("k", 2, tail="mask")
    return s.pad_sum("dot", "ki")


@wrong(BYTES)
def other_padding(s: tw.Schedule) -> object:
    s.cache_read("dot", "w")
    s.transform_layout("w.cache", "a, b -> a // 2, b, a % 2", pad=1)
    s.split("k", 2, tail="mask")
    return s.pad_sum("dot", "ki")


class TestNarrow(PrimitiveTests):
    primitives = NARROW

    def test_infinities_beside_what_is_filled_up(self) -> None:
        x, w = np.full((5, 9), np.inf, ml_dtypes.bfloat16), np.ones((9, 11), ml_dtypes.bfloat16)
        y = np.zeros((5, 11), np.float32)
        tw.build(NARROW.scheduled("pad-sum-both-factors").after)(x, w, y)
        assert (y == np.inf).all()
