"""Each primitive of a schedule on a small program: its text before and after, and that both compute the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from golden_files import check, check_folder

from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import For, Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.plan.nests.sums import prepare_sums
from tilewright.report.errors import UserError
from tilewright.schedule.buffers.copies import cache_write
from tilewright.schedule.loops.merge import jam
from tilewright.schedule.loops.rearrange import fuse, split
from tilewright.schedule.schedule import Schedule, Taken
from tilewright.schedule.sums.lanes import sum_in_blocks, sum_in_lanes

MAP = """
func double[n](x: f32[n, 6], y: f32[n, 6]):
  for i in 0..n, j in 0..6:
    block double(vi = i, vj = j):
      y[vi, vj] = x[vi, vj] * 2
"""
DOT = """
func dot[n](x: f32[n, 6], w: f32[6, 4], y: f32[n, 4]):
  for i in 0..n, j in 0..4, k in 0..6:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
"""
TILE = """
func tile[n](x: f32[n, 6], w: f32[6, 4], y: f32[n, 4]):
  for i in 0..n, j in 0..4:
    alloc t: f32[] in register
    block dot.init(vi = i, vj = j):
      t[] = 0
    for k in 0..6:
      block dot(vi = i, vj = j, reduce vk = k):
        t[] += x[vi, vk] * w[vk, vj]
    block relu(vi = i, vj = j):
      y[vi, vj] = max(t[], 0)
"""
SUM = """
func sum[n](x: f32[n], y: f32[]):
  block s.init():
    y[] = 0
  for k in 0..n:
    block s(reduce vk = k):
      y[] += x[vk]
"""

IMAGES = """
func images[n](x: f32[n, 5, 6], y: f32[n]):
  for i in 0..n:
    block s.init(vi = i):
      y[vi] = 0
    for a in 0..5, b in 0..6:
      block s(vi = i, reduce va = a, reduce vb = b):
        y[vi] += x[vi, va, vb]
"""

Step = Callable[[Function], Function]
CASES: dict[str, tuple[str, Step]] = {}


def case(name: str, text: str) -> Callable[[Step], Step]:
    def keep(step: Step) -> Step:
        CASES[name] = text, step
        return step

    return keep


def loop_of(function: Function, name: str, which: int = 0) -> For:
    found = [s for s in statements(function.body) if isinstance(s, For) and s.var.name == name]
    return found[which]


@case("split-with-a-rest", MAP)
def split_with_a_rest(f: Function) -> Function:
    return split(f, loop_of(f, "i").var, 4, tail="peel").function


@case("split-without-a-rest", MAP)
def split_without_a_rest(f: Function) -> Function:
    return split(f, loop_of(f, "j").var, 3, tail="peel").function


@case("fuse", MAP)
def fuse_two(f: Function) -> Function:
    return fuse(f, loop_of(f, "i").var, loop_of(f, "j").var).function


@case("jam", TILE)
def jam_columns(f: Function) -> Function:
    return jam(f, loop_of(f, "j").var).function


@case("jam-in-front", TILE)
def jam_rows(f: Function) -> Function:
    f = split(f, loop_of(f, "i").var, 2, tail="peel").function
    return jam(f, loop_of(f, "ii").var, front=True).function


@case("cache-write", DOT)
def cache_write_sum(f: Function) -> Function:
    return cache_write(f, "dot").function


@case("sum-in-lanes", SUM)
def lanes(f: Function) -> Function:
    return sum_in_lanes(f, loop_of(f, "k").var, 4).function


@case("sum-in-blocks", SUM)
def in_blocks(f: Function) -> Function:
    return sum_in_blocks(f, loop_of(f, "k").var, 4).function


@case("whole-rows", IMAGES)
def in_one_piece(f: Function) -> Function:
    s = Schedule(f)
    prepare_sums(s, ())
    return s.func


@pytest.mark.parametrize(
    "text", [IMAGES.replace("x: f32[n, 5, 6]", "x: f32[n, 5, 7]"), IMAGES.replace("va, vb", "vb, va")]
)
def test_what_lies_apart_stays_in_two_loops(text: str) -> None:
    function = parse(text.replace("x: f32[n, 5, 6]", "x: f32[n, 6, 5]") if "vb, va" in text else text)
    assert isinstance(function, Function)
    s = Schedule(function)
    s.decompose_reductions()
    decomposed = s.func
    prepare_sums(s, ())
    assert s.func is decomposed


@pytest.mark.parametrize("name", CASES)
def test_primitive(request: pytest.FixtureRequest, name: str) -> None:
    text, step = CASES[name]
    before = parse(text)
    after = step(before)
    verify(after)
    assert same(parse(str(after)), after)
    check(request, f"schedule/{name}.loops", f"{before}\n\n# after {name}\n\n{after}")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [0, 1, 3, 4, 7, 8])
def test_primitive_keeps_results(name: str, n: int) -> None:
    text, step = CASES[name]
    before = parse(text)
    results = []
    for function in (before, step(before)):
        random = np.random.default_rng(n)
        shapes = [[n if str(d) == "n" else int(str(d)) for d in p.shape] for p in function.params]
        arrays = [random.integers(1, 9, shape).astype(np.float32) for shape in shapes]
        arrays[-1][...] = np.nan
        evaluate(function, arrays)
        results.append(arrays[-1])
    np.testing.assert_array_equal(results[1], results[0])


def test_every_primitive_has_its_file_and_no_other(request: pytest.FixtureRequest) -> None:
    check_folder(request, "schedule", [f"{name}.loops" for name in CASES])


def test_a_schedule_knows_which_blocks_are_copies() -> None:
    """Those behind a cut, and copies of copies; not those of steps that were taken back."""
    s = Schedule(parse(MAP.replace("x: f32[n, 6], y: f32[n, 6]", "x: f32[n, 7], y: f32[n, 7]").replace("0..6", "0..7")))
    _, columns = s.get_loops("double")
    _, rest = s.partition(columns, 4)
    s.split(rest, 2, tail="peel")
    assert s.copies == {"double.tail": "double", "double.tail.tail": "double"}

    def cut_and_fail() -> None:
        s.partition(columns, 2)
        s.split(columns, 0)

    s.attempt(cut_and_fail)
    assert len(s.refused) == 1
    assert s.copies == {"double.tail": "double", "double.tail.tail": "double"}
    s.partition(columns, 2)
    assert s.copies["double.tail2"] == "double"


def test_steps_with_which_schedules_begin_alike_are_taken_once() -> None:
    """They are the same programs, until a step differs, and each has its own trace."""
    function, taken = parse(DOT), {}  # type: tuple[Function, Taken]

    def scheduled(factor: int, **shared: Taken) -> tuple[Function, Schedule]:
        s = Schedule(function, **shared)
        s.cache_write("dot")
        (_, j, k), begun = s.get_loops("dot"), s.func
        s.reorder(k, j)
        s.unroll(s.split(j, factor)[1])
        return begun, s

    (begun, one), (again, two), (_, plain) = scheduled(2, taken=taken), scheduled(4, taken=taken), scheduled(4)
    assert begun is again and one.func is not two.func
    assert str(two.trace) == str(plain.trace) and str(two.func) == str(plain.func)
    count = len(taken)
    assert scheduled(2, taken=taken)[1].func is one.func and len(taken) == count
    with pytest.raises(UserError, match="cannot split"):
        Schedule(function, taken).split("k", 5)
    assert len(taken) == count + 1  # the loop was looked for, by its name
