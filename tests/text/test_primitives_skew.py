"""skew: programs before and after with the steps and why they are legal; that both compute the same, in the evaluator
and in machine code; and what it says where it may not be applied."""

from __future__ import annotations

from functools import partial

from primitive_checks import Primitives, PrimitiveTests, one_file

import tilewright as tw

ROWS = """
func rows(x: f32[11], w: f32[3], y: f32[4]):
  for m in 0..4, a in 0..3:
    block sum(vm = m, reduce va = a):
      init: y[vm] = 1
      y[vm] += x[vm*2 + va] * w[va]
"""
POINTS = """
func points[n](x: f32[n, 5], y: f32[n, 5]):
  for i in 2..n, j in 1..5:
    block copy(vi = i, vj = j) where vi + vj < n:
      y[vi, vj] = x[vi, vj] + y[vi, vj]
"""
WAVE = """
func wave[n](y: f32[n, 6]):
  for i in 1..n, j in 0..5:
    block step(vi = i, vj = j):
      y[vi, vj] = y[vi - 1, vj + 1] + 1
"""
PREFIX = """
func prefix(y: f32[9, 6]):
  for i in 0..9, j in 1..6:
    block step(vi = i, vj = j):
      y[vi, vj] = y[vi, vj - 1] + 1
"""
SKEW = Primitives("skew", sizes=(2, 3, 5, 13), stores_all=False, message_files=partial(one_file, space=" "))
case, wrong = SKEW.case, SKEW.wrong


@case("skew", ROWS)
def skew(s: tw.Schedule) -> None:
    m, a = s.get_loops("sum")
    s.decompose_reduction("sum", m)
    i, t = s.skew(m, a, 2)
    s.unroll(i)
    s.unroll(t)


@case("skew-by-one", ROWS)
def skew_by_one(s: tw.Schedule) -> None:
    m, a = s.get_loops("sum")
    s.decompose_reduction("sum", m)
    s.skew(m, a)


@case("skew-places-that-never-meet", ROWS)
def skew_places_that_never_meet(s: tw.Schedule) -> None:
    m, a = s.get_loops("sum")
    s.decompose_reduction("sum", m)
    s.skew(m, a, 3)


@case("skew-points", POINTS)
def skew_points(s: tw.Schedule) -> None:
    s.skew("i", "j", 2)


@case("skew-wave", WAVE)
def skew_wave(s: tw.Schedule) -> None:
    s.skew("i", "j", 2)


@case("skew-wave-of-ties", WAVE)
def skew_wave_of_ties(s: tw.Schedule) -> None:
    s.skew("i", "j")


@case("skew-prefix", PREFIX)
def skew_prefix(s: tw.Schedule) -> None:
    s.skew("i", "j", 4)


@wrong(ROWS)
def an_init_without_a_place(s: tw.Schedule) -> object:
    return s.skew("m", "a", 2)


@wrong(POINTS)
def the_inner_loop_first(s: tw.Schedule) -> object:
    return s.skew("j", "i")


@wrong(POINTS)
def no_places_apart(s: tw.Schedule) -> object:
    return s.skew("i", "j", 0)


@wrong(POINTS.replace("1..5", "1..n").replace("[n, 5]", "[n, n]"))
def an_extent_that_only_a_call_knows(s: tw.Schedule) -> object:
    return s.skew("i", "j")


@wrong(POINTS.replace("1..5", "i..i + 2").replace("[n, 5]", "[n, n + 2]"))
def bounds_that_move(s: tw.Schedule) -> object:
    return s.skew("i", "j")


@wrong(WAVE.replace("j in 0..5", "j in 0..4").replace("vj + 1", "vj + 2"))
def a_value_that_comes_too_late(s: tw.Schedule) -> object:
    return s.skew("i", "j")


@wrong(
    "func f(x: f32[4, 3, 3], y: f32[3, 3], n: f32[3]):\n  for k in 0..4, i in 0..3, j in 0..3:\n"
    "    if n[i] < 1:\n      block sum(vi = i, vj = j, reduce vk = k):\n        init: y[vi, vj] = 0\n"
    "        y[vi, vj] += x[vk, vi, vj]"
)
def an_init_outside_a_branch(s: tw.Schedule) -> object:
    return s.skew("i", "j", 2)


@wrong(POINTS)
def lanes(s: tw.Schedule) -> object:
    s.vectorize("j")
    return s.skew("i", "j")


@wrong(ROWS.replace("for m in 0..4, a", "for r in 0..2, m in 0..4, a"))
def a_loop_that_repeats_sums_inside_them(s: tw.Schedule) -> object:
    """The init would run once for all iterations of r."""
    return s.reorder("a", "r")


class TestSkew(PrimitiveTests):
    primitives = SKEW
