"""Steps that schedule whole nests, as default schedules take them: programs before and after, with the steps and why
they are legal; that both compute the same, in the evaluator and in machine code; that text of a trace reads back; and
what each says where it may not be applied."""

from __future__ import annotations

import pytest
from primitive_checks import Primitives, PrimitiveTests

import tilewright as tw
from tilewright.core.records import choice_of, record_of
from tilewright.loops.nodes import For
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.plan.choose import schedule as default
from tilewright.plan.nests.passes import Nest, apply_nests, choose_nest
from tilewright.plan.nests.sums import prepare_sums
from tilewright.report.errors import UserError
from tilewright.schedule.find import nests
from tilewright.target import Target

POINTS = """
func points[n](x: f32[n, 3, 16], y: f32[3, n, 16]):
  for i in 0..n, j in 0..3, k in 0..16:
    block copy(vi = i, vj = j, vk = k):
      y[vj, vi, vk] = x[vi, vj, vk] * 2.0
"""
FUNCTIONS = """
func f(x: f32[29], y: f32[29], z: f32[29]):
  for i in 0..29:
    block e(vi = i):
      y[vi] = x[vi] + exp(x[vi] * 0.0)
  for j in 0..29:
    block a(vi = j):
      z[vi] = y[vi] + 1.0
"""

NARROW = """
func f(x: f32[9, 20], y: f32[9, 14], z: f32[9, 14]):
  for i in 0..9, j in 0..14:
    block e(vi = i, vj = j):
      y[vi, vj] = x[vi, vj] + exp(x[vi, vj] * 0.0)
  for k in 0..9, l in 0..14:
    block a(vi = k, vj = l):
      z[vi, vj] = x[vi, vj] + 1.0
"""

TURNED = """
func turned(x: f32[20, 33], y: f32[33, 20]):
  for i in 0..20, j in 0..33:
    block turn(vi = i, vj = j):
      y[vj, vi] = x[vi, vj]
"""
ROWS = """
func rows[n](x: f32[n, 5, 8], y: f32[n, 5, 8]):
  alloc m: f32[n] in arena
  for i in 0..n, j in 0..5, k in 0..8:
    block most(vi = i, reduce vj = j, reduce vk = k):
      init: m[vi] = -inf
      m[vi] = max(m[vi], x[vi, vj, vk])
  alloc e: f32[n, 5, 8] in arena
  for i in 0..n, j in 0..5, k in 0..8:
    block shift(vi = i, vj = j, vk = k):
      e[vi, vj, vk] = x[vi, vj, vk] - m[vi]
  for i in 0..n, j in 0..5, k in 0..8:
    block twice(vi = i, vj = j, vk = k):
      y[vi, vj, vk] = e[vi, vj, vk] * 2.0
"""
STANDARD = """
func standard[n](x: f32[n, 20], y: f32[n, 20]):
  alloc m: f32[20] in arena
  for j in 0..20, i in 0..n:
    block most(vj = j, reduce vi = i):
      init: m[vj] = -inf
      m[vj] = max(m[vj], x[vi, vj])
  for i in 0..n, j in 0..20:
    block y(vi = i, vj = j):
      y[vi, vj] = x[vi, vj] / m[vj]
"""
COLUMNS = """
func columns(x: f32[7, 70], w: f32[70, 20], y: f32[7, 20]):
  for i in 0..7, j in 0..20:
    alloc t: f32[1] in register
    block t.init():
      t[0] = 0.0
    for k in 0..70:
      block t(reduce vk = k, vi = i, vj = j):
        t[0] += x[vi, vk] * w[vk, vj]
    block y(vi = i, vj = j):
      y[vi, vj] = t[0]
"""
SUMS = """
func sums[n](x: f32[n, 4], y: f32[n, 4], a: f32[], b: f32[]):
  for k in 0..n, l in 0..4:
    block one(reduce vk = k, reduce vl = l):
      init: a[] = 0.0
      a[] += x[vk, vl]
  for k in 0..n, l in 0..4:
    block two(reduce vk = k, reduce vl = l):
      init: b[] = 0.0
      b[] += x[vk, vl] * y[vk, vl]
"""
PRODUCTS = """
func products(q: f32[6, 4], k: f32[4, 9], v: f32[9, 5], o: f32[6, 5]):
  alloc s: f32[6, 9] in arena
  for i in 0..6, j in 0..9, l in 0..4:
    block s(vi = i, vj = j, reduce vl = l):
      init: s[vi, vj] = 0.0
      s[vi, vj] += q[vi, vl] * k[vl, vj]
  for i in 0..6, j in 0..5, l in 0..9:
    block o(vi = i, vj = j, reduce vl = l):
      init: o[vi, vj] = 0.0
      o[vi, vj] += s[vi, vl] * v[vl, vj]
"""
BETWEEN = """
func between(x: f32[6, 16], w: f32[8, 16], y: f32[6, 8]):
  for i in 0..6, ko in 0..2, j in 0..8, ki in 0..8:
    block dot(vi = i, vj = j, reduce vk = ko*8 + ki):
      y[vi, vj] += x[vi, vk] * w[vj, vk]
"""
TURNED_SUMS = """
func few[n](x: f32[n, 10], y: f32[n, 10]):
  alloc m: f32[n] in arena
  for i in 0..n, k in 0..10:
    block most(vi = i, reduce vk = k):
      init: m[vi] = -inf
      m[vi] = max(m[vi], x[vi, vk])
  for i in 0..n, k in 0..10:
    block y(vi = i, vk = k):
      y[vi, vk] = exp(x[vi, vk] * 0.0) + m[vi]
"""
PREFIX = """
func prefix(x: f32[17]):
  for i in 0..16:
    block next(vi = i):
      x[vi + 1] = x[vi + 1] + x[vi]
"""


def in_nests(s: tw.Schedule, target: str) -> None:
    """Every nest as the plan runs it: its loops fused, split, vectorized."""
    prepare_sums(s, ())
    chosen = [choose_nest(nest, Target.parse(target)) for nest in nests(s.func) if isinstance(nest, For)]
    assert [choice_of(Nest, record_of(choice)) for choice in chosen] == chosen
    apply_nests(s, chosen)


NESTS = Primitives("nests", sizes=(0, 1, 13), stores_all=False, threads=2)
case, wrong = NESTS.case, NESTS.wrong


@case("vectorize-points", POINTS)
def vectorize_points(s: tw.Schedule) -> None:
    """What lies in one piece stays whole: the last loop is the one that is contiguous in both arrays."""
    in_nests(s, "x86-64-v3")


@case("vectorize-points-of-functions", FUNCTIONS)
def vectorize_points_of_functions(s: tw.Schedule) -> None:
    """Of 29 points three vectors of 8, one of 4, and one point, whatever is computed."""
    in_nests(s, "x86-64-v3")


@case("vectorize-points-of-short-rows", NARROW)
def vectorize_points_of_short_rows(s: tw.Schedule) -> None:
    """Of 14 points vectors of 8 and of 4, and two points, whatever is computed."""
    in_nests(s, "x86-64-v4")


@case("vectorize-points-turned", TURNED)
def vectorize_points_turned(s: tw.Schedule) -> None:
    """Blocks of both loops, since lanes lie apart in one array whichever is taken."""
    in_nests(s, "x86-64-v3")


@case("jam", COLUMNS)
def jam(s: tw.Schedule) -> None:
    """A vector of sums: the loop over its lanes stands around each statement."""
    _, lanes, _ = s.split("j", 8, tail="peel")
    for copy in s.jam(lanes):
        s.vectorize(copy)


@case("jam-two", COLUMNS)
def jam_two(s: tw.Schedule) -> None:
    """A tile of sums: rows, whose places come first, around vectors, which stay innermost."""
    _, rows, _ = s.split("i", 3, tail="peel")
    lanes, *_ = s.get_loops("y")[::-1]
    _, lanes, _ = s.split(lanes, 4, tail="peel")
    for copy in s.jam(lanes):
        s.vectorize(copy)
    for copy in s.jam(rows, front=True):
        s.unroll(copy)


@case("jam-into-a-sum", COLUMNS)
def jam_into_a_sum(s: tw.Schedule) -> None:
    """Terms that are written out follow each other: each is added to all rows, and the next rows of w are asked for."""
    _, rows, _ = s.split("i", 3, tail="peel")
    terms, few = s.split(s.get_loops("t")[-1], 5)
    s.unroll(few)
    s.prefetch("w", terms, 1)
    for copy in s.jam(rows, front=True):
        s.unroll(copy)


@case("rows", ROWS)
def rows(s: tw.Schedule) -> None:
    """All steps of a kernel of rows."""
    s.inline_all(once=True)
    s.pull_producers()
    in_nests(s, "x86-64-v3")


@case("rows-with-loops-between", BETWEEN)
def rows_with_loops_between(s: tw.Schedule) -> None:
    """A loop over terms lies outside of one over points: rows are what lies outside of both."""
    in_nests(s, "x86-64")


@case("tile-registers", COLUMNS)
def tile_registers(s: tw.Schedule) -> None:
    """Rows of vectors, with smaller tiles for the rows and columns that are left over."""
    in_nests(s, "x86-64-v3")


@case("tile-registers-turned", TURNED_SUMS)
def tile_registers_turned(s: tw.Schedule) -> None:
    """Lanes lie along rows of a softmax of few columns: four of these at a time are written out, to be transposed."""
    s.pull_producers()
    in_nests(s, "x86-64-v3")


@case("sums-in-blocks", SUMS)
def sums_in_blocks(s: tw.Schedule) -> None:
    s.decompose_reductions()
    s.join_sums()
    loop = next(v for v in s.get_nests() if v is not None)
    s.sum_in_blocks(s.fuse(loop, s.get_loops("one")[1]), 8)


@case("sums-in-lanes", SUMS)
def sums_in_lanes(s: tw.Schedule) -> None:
    """Two sums of one loop, each in lanes of its own; what is left over in fewer."""
    s.decompose_reductions()
    s.join_sums()
    loop = next(v for v in s.get_nests() if v is not None)
    _, rest = s.sum_in_lanes(s.fuse(loop, s.get_loops("one")[1]), 12)
    s.sum_in_lanes(rest, 3)


@case("sums-in-lanes-with-a-masked-tail", SUMS)
def sums_in_lanes_with_a_masked_tail(s: tw.Schedule) -> None:
    """What does not fill the lanes is added to those that it fills."""
    s.decompose_reductions()
    s.join_sums()
    loop = next(v for v in s.get_nests() if v is not None)
    s.sum_in_lanes(s.fuse(loop, s.get_loops("one")[1]), 12, tail="mask")


@case("sums-in-parts", SUMS)
def sums_in_parts(s: tw.Schedule) -> None:
    """The loop that is cut may lie inside: the loop over parts is outermost all the same."""
    s.sum_in_parts("one", s.get_loops("one")[0], 3)
    s.sum_in_parts("two", s.get_loops("two")[1], 2)


@case("merge-loops", ROWS)
def merge_loops(s: tw.Schedule) -> None:
    """Nests are neighbours once allocations are out of the way; a loop that is not named stays."""
    _, most, _, shift, twice = s.get_nests()
    s.merge_loops(shift, twice)
    s.merge_loops(most, shift)


REPEATED = """
func repeated(x: f32[2, 3], y: f32[3], z: f32[]):
  for i in 0..3, k in 0..2:
    block y(vi = i, reduce vk = k) where vi + vk < 4:
      init: y[vi] = 0.0
      y[vi] += x[vk, vi]
  for r in 0..3, k in 0..2, l in 0..3:
    block z(reduce vk = k, reduce vl = l) where vk + vl < 4:
      init: z[] = 0.0
      z[] += x[vk, vl]
  for o in 0..1, k in 0..2, l in 0..3:
    block z2(vo = o, reduce vk = k, reduce vl = l) where vo < 1:
      init: z[] = z[] * 2.0
      z[] += x[vk, vl]
"""


@case("fuse-with-a-sum", REPEATED)
def fuse_with_a_sum(s: tw.Schedule) -> None:
    """Two loops of one sum, and a loop of one iteration with that."""
    s.fuse(*s.get_loops("z")[1:])
    o, k, _ = s.get_loops("z2")
    s.fuse(o, k)


@wrong(REPEATED)
def a_fuse_across_the_begin_of_a_sum(s: tw.Schedule) -> object:
    return s.fuse(*s.get_loops("y"))


@wrong(REPEATED)
def a_fuse_with_a_loop_that_repeats_a_sum(s: tw.Schedule) -> object:
    return s.fuse(*s.get_loops("z")[:2])


@wrong(REPEATED.replace("0..2", "0..1").replace("vi + vk < 4", "i + k < 2"))
def a_fuse_that_leaves_a_condition_to_an_init(s: tw.Schedule) -> object:
    return s.fuse(*s.get_loops("y"))


@case("pieces", PRODUCTS)
def pieces(s: tw.Schedule) -> None:
    """Each product by a trace of its own; what lies between them is an argument of both."""
    first = 'i, j, l = s.get_loops("s")\ns.reorder(i, l, j)\ns.vectorize(j)'
    s.schedule_pieces([["s"], ["o"]], [first, ""])


@case("by_size", POINTS)
def by_size(s: tw.Schedule) -> None:
    """Calls of few elements run as they are, all others in vectors."""
    s.schedule_by_size("n*48", [64], ["", 'i, j, k = s.get_loops("copy")\ns.vectorize(k)'])


@wrong(POINTS)
def bounds_that_fall(s: tw.Schedule) -> object:
    return s.schedule_by_size("8", [4, 2], ["", "", ""])


@wrong(POINTS)
def a_size_that_is_no_number(s: tw.Schedule) -> object:
    return s.schedule_by_size("n < 8", [4], ["", ""])


@wrong(POINTS)
def a_bound_without_a_trace(s: tw.Schedule) -> object:
    return s.schedule_by_size("8", [4], [""])


@wrong(POINTS)
def a_size_that_no_symbol_has(s: tw.Schedule) -> object:
    return s.schedule_by_size("m", [4], ["", ""])


@wrong(PREFIX)
def a_jam_of_iterations_that_depend_on_each_other(s: tw.Schedule) -> object:
    return s.jam("i")


@wrong(POINTS)
def a_jam_into_nothing(s: tw.Schedule) -> object:
    return s.jam("k")


@wrong(COLUMNS.replace("0..20", "0..x_").replace("columns(", "columns[x_](").replace("20]", "x_]"))
def a_jam_of_sums_that_nobody_can_count(s: tw.Schedule) -> object:
    return s.jam("j")


@wrong("func f(x: f32[8], y: f32[8]):\n  for i in 0..8:\n    let a = x[i]\n    y[i] = a")
def a_jam_that_parts_a_name_from_its_value(s: tw.Schedule) -> object:
    return s.jam("i")


@wrong(ROWS)
def sums_that_are_not_decomposed(s: tw.Schedule) -> object:
    return s.sum_in_lanes(s.get_loops("most")[2], 8)


@wrong(COLUMNS)
def a_lane_too_few(s: tw.Schedule) -> object:
    return s.sum_in_lanes("k", 1)


@wrong(COLUMNS)
def a_tail_that_sums_have_not(s: tw.Schedule) -> object:
    return s.sum_in_lanes("k", 8, tail="shift")


@wrong(COLUMNS)
def more_lanes_than_terms(s: tw.Schedule) -> object:
    return s.sum_in_lanes("k", 128)


@wrong(BETWEEN)
def a_loop_that_is_no_sum(s: tw.Schedule) -> object:
    s.reorder("ki", "j")
    return s.sum_in_blocks("j", 4)


@wrong(COLUMNS)
def a_loop_around_other_statements(s: tw.Schedule) -> object:
    return s.sum_in_blocks("j", 4)


@wrong(ROWS)
def a_merge_of_loops_inside(s: tw.Schedule) -> object:
    return s.merge_loops(s.get_loops("most")[0], s.get_loops("twice")[1])


@wrong(SUMS)
def parts_of_a_loop_that_is_not_summed(s: tw.Schedule) -> object:
    return s.sum_in_parts("one", s.get_loops("two")[0], 3)


@wrong(PRODUCTS)
def a_piece_that_lacks_a_nest(s: tw.Schedule) -> object:
    return s.schedule_pieces([["s"]], [""])


@wrong(PRODUCTS)
def pieces_in_another_order(s: tw.Schedule) -> object:
    return s.schedule_pieces([["o"], ["s"]], ["", ""])


@wrong(PRODUCTS)
def a_trace_too_few(s: tw.Schedule) -> object:
    return s.schedule_pieces([["s"], ["o"]], [""])


@wrong(PRODUCTS)
def a_trace_that_does_not_fit(s: tw.Schedule) -> object:
    return s.schedule_pieces([["s"], ["o"]], ["", 's.unroll("j")\ns.vectorize("z")'])


def schedule_of(text: str) -> tw.Schedule:
    return tw.Schedule(parse(text))  # type: ignore[arg-type]


class TestNests(PrimitiveTests):
    primitives = NESTS

    def test_a_nest_that_no_step_takes_stays_and_is_written_down(self) -> None:
        apart, s = (schedule_of(text) for text in (PREFIX.replace("+ x[vi]", "+ x[vi + 1]"), PREFIX))
        before, (nest,) = s.func, nests(apart.func)
        assert isinstance(nest, For)
        apply_nests(s, [choose_nest(nest, Target.parse("x86-64-v3"))])
        assert same(s.func, before)
        (refused,) = s.refused
        assert str(refused).startswith("cannot vectorize loop ii")
        assert refused.why == (
            "the distance is 1: 1 iteration of ii after one that stores x[io*8 + ii + 1], another loads x[io*8 + ii]"
        )

    def test_a_nest_of_iterations_that_depend_on_each_other_is_not_tried(self) -> None:
        s = schedule_of(PREFIX)
        made, decision = default(s.func, Target.parse("x86-64-v3"))
        assert same(made.func, s.func)
        assert not decision.refusals

    def test_what_each_row_would_compute_again_stays_where_it_is(self) -> None:
        """The largest number of a column, which all rows are divided by."""
        s = schedule_of(STANDARD)
        s.pull_producers()
        assert not s.trace.steps and str(s.func) == str(parse(STANDARD))

    def test_steps_with_nothing_to_do_leave_no_trace(self) -> None:
        s = schedule_of(TURNED)
        s.inline_all()
        s.pull_producers()
        s.decompose_reductions()
        s.join_sums()
        s.merge_loops("i")
        assert not s.trace.steps and str(s.func) == str(parse(TURNED))

    @pytest.mark.parametrize(
        "text", ["x = 1", "s.split(", "t.split(i, 2)", "s.split(i, 2 + 2)", "s.split(*x)", "s.f(**x)"]
    )
    def test_text_that_is_no_trace(self, text: str) -> None:
        with pytest.raises(UserError, match="this is no text of a trace"):
            tw.Trace.from_python(text)
