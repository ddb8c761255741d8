"""split_axes, order_axes, skip_zeros, thin: programs before and after with the steps and why they are legal; that both
compute the same, in the evaluator and in machine code; and what each says where it may not be applied."""

from __future__ import annotations

from primitive_checks import Primitives, PrimitiveTests

import tilewright as tw

GROUPS = """
func groups(x: f32[5, 12], w: f32[3, 8], y: f32[5, 8]):
  alloc t: f32[5, 8] in arena
  for i in 0..5, o in 0..8, c in 0..3:
    block sum(vi = i, vo = o, reduce vc = c):
      init: t[vi, vo] = 0.0
      t[vi, vo] += x[vi, vo//2*3 + vc]*w[vc, vo]
  for i in 0..5, o in 0..8:
    block y(vi = i, vo = o):
      y[vi, vo] = max(t[vi, vo], 1.0)
"""
DIGITS = """
func digits(x: f32[24], y: f32[24]):
  for i in 0..2, j in 0..3, k in 0..4:
    block y(vi = i*12 + j*4 + k) where vi < 23:
      y[vi] = x[vi%4*6 + vi//4]
"""
SPARSE = """
func sparse(x: f32[24], y: f32[24]):
  for i in 0..2, k in 0..4:
    block y(vi = i*12 + k):
      y[vi] = x[vi]
"""

STRETCHED = """
func stretched(x: f32[5, 3], w: f32[4, 3] finite, y: f32[10]):
  alloc p: f32[13, 3] in arena
  alloc t: f32[5, 2] in arena
  for i in 0..13, c in 0..3:
    block zero(vi = i, vc = c):
      p[vi, vc] = 0.0
  for i in 0..5, c in 0..3:
    block copy(vi = i, vc = c):
      p[vi*2 + 2, vc] = x[vi, vc]
  for jo in 0..5, ji in 0..2, ao in 0..2, ai in 0..2, c in 0..3:
    block sum(vjo = jo, vji = ji, reduce vao = ao, reduce vai = ai, reduce vc = c):
      init: t[vjo, vji] = 0.0
      t[vjo, vji] += p[vjo*2 + vji + vao*2 + vai, vc]*w[3 - vao*2 - vai, vc]
  for jo in 0..5, ji in 0..2:
    block y(vjo = jo, vji = ji):
      y[vjo*2 + vji] = t[vjo, vji]
"""
THIRDS = """
func thirds(x: i32[4], w: i32[6], y: i32[3, 3]):
  alloc p: i32[15] in arena
  for i in 0..15:
    block zero(vi = i):
      p[vi] = 0
  for i in 0..4:
    block copy(vi = i):
      p[vi*3 + 1] = x[vi]
  for jo in 0..3, ji in 0..3, ao in 0..2, ai in 0..3:
    block sum(vjo = jo, vji = ji, reduce vao = ao, reduce vai = ai):
      init: y[vjo, vji] = 0
      y[vjo, vji] += p[vjo*3 + vji + vao*3 + vai]*w[vao*3 + vai]
"""

AXES = Primitives("axes", sizes=(0,), stores_all=False)
case, wrong = AXES.case, AXES.wrong


@case("split-axes-of-groups", GROUPS)
def split_axes_of_groups(s: tw.Schedule) -> None:
    s.transform_layout("t", "i, o -> i, o // 2, o % 2")
    for block in ("sum", "y"):
        s.split(s.get_loops(block)[1], 2)
        s.split_axes(block)


@case("split-axes-of-digits", DIGITS)
def split_axes_of_digits(s: tw.Schedule) -> None:
    s.split_axes("y")


@case("skip-zeros-of-two", STRETCHED)
def skip_zeros_of_two(s: tw.Schedule) -> None:
    s.skip_zeros("sum", "ai")


@case("skip-zeros-of-three", THIRDS)
def skip_zeros_of_three(s: tw.Schedule) -> None:
    s.skip_zeros("sum", "ai")


@case("order-axes", GROUPS)
def order_axes(s: tw.Schedule) -> None:
    s.transform_layout("t", "i, o -> o, i")
    i, o, c = s.get_loops("sum")
    s.reorder(c, o, i)
    s.order_axes("sum")


@case("thin-by-two", STRETCHED)
def thin_by_two(s: tw.Schedule) -> None:
    s.skip_zeros("sum", "ai")
    s.thin("p", 0, 2)


@wrong(STRETCHED)
def all_is_read(s: tw.Schedule) -> object:
    return s.thin("p", 0, 2)


@wrong(STRETCHED)
def too_few_elements(s: tw.Schedule) -> object:
    s.skip_zeros("sum", "ai")
    return s.thin("p", 1, 4)


@wrong(STRETCHED)
def the_place_of_an_argument(s: tw.Schedule) -> object:
    return s.thin("x", 0, 2)


@wrong(STRETCHED)
def filled_in_two_loops(s: tw.Schedule) -> object:
    s.skip_zeros("sum", "ai")
    s.fuse(*s.get_loops("zero"))
    return s.thin("p", 0, 2)


@wrong(STRETCHED.replace(" finite", ""))
def may_be_infinite(s: tw.Schedule) -> object:
    return s.skip_zeros("sum", "ai")


@wrong(STRETCHED.replace("init: t[vjo, vji] = 0.0", "init: t[vjo, vji] = 1.0"))
def begins_with_one(s: tw.Schedule) -> object:
    return s.skip_zeros("sum", "ai")


@wrong(STRETCHED.replace("for i in 0..13", "for i in 0..12"))
def not_filled(s: tw.Schedule) -> object:
    return s.skip_zeros("sum", "ai")


@wrong(STRETCHED.replace("p[vi*2 + 2, vc] = x", "p[vi*2 + vi, vc] = x"))
def stored_elsewhere(s: tw.Schedule) -> object:
    return s.skip_zeros("sum", "ai")


@wrong(STRETCHED.replace("p[vi, vc] = 0.0", "p[vi, vc] = 2.0"))
def filled_with_twos(s: tw.Schedule) -> object:
    return s.skip_zeros("sum", "ai")


@wrong(STRETCHED)
def no_reduce_loop(s: tw.Schedule) -> object:
    return s.skip_zeros("sum", s.get_loops("sum")[1])


@wrong(STRETCHED)
def not_one_of_so_many(s: tw.Schedule) -> object:
    return s.skip_zeros("sum", s.get_loops("sum")[-1])


@wrong(GROUPS)
def one_loop_each(s: tw.Schedule) -> object:
    return s.split_axes("sum")


@wrong(SPARSE)
def no_digits(s: tw.Schedule) -> object:
    return s.split_axes("y")


class TestAxes(PrimitiveTests):
    primitives = AXES
