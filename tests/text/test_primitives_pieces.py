"""unite, guard: programs before and after with the steps and why they are legal; that both compute the same, in the
evaluator and in machine code; and what each says where it may not be applied."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from primitive_checks import Primitives, PrimitiveTests

import tilewright as tw
from tilewright.expr.dtypes import DType

Array = np.ndarray[Any, Any]

PADDED = """
func padded(x: f32[3, 8], y: f32[3, 9]):
  alloc p: f32[3, 11] in arena
  for i in 0..3, j in 0..2:
    block before(vi = i, vj = j):
      p[vi, vj] = 0.5
  for i in 0..3, j in 0..8:
    block copy(vi = i, vj = j):
      p[vi, vj + 2] = x[vi, vj]
  for i in 0..3, j in 0..1:
    block behind(vi = i, vj = j):
      p[vi, vj + 10] = 0.5
  for i in 0..3, j in 0..9:
    block sum(vi = i, vj = j):
      y[vi, vj] = p[vi, vj] + p[vi, vj + 2]
"""
OVER_ALL = """
func over_all(x: f32[6], y: f32[9]):
  alloc p: f32[9] in arena
  for i in 0..9:
    block fill(vi = i):
      p[vi] = 1.0
  for i in 0..6:
    block copy(vi = i):
      p[vi + 1] = x[5 - vi]
  for i in 0..9:
    block y(vi = i):
      y[vi] = p[vi] * 2.0
"""
APART = OVER_ALL.replace("1.0", "0.0").replace("5 - vi", "vi")
OVERLAPPING = """
func overlapping(x: f32[6], y: f32[9]):
  alloc p: f32[9] in arena
  for i in 0..4:
    block fill(vi = i):
      p[vi] = 1.0
  for i in 0..6:
    block copy(vi = i):
      p[vi + 2] = x[vi]
  for i in 0..3:
    block fill2(vi = i):
      p[vi + 6] = 1.0
  for i in 0..2:
    block copy2(vi = i):
      p[vi + 5] = x[vi + 4]
  for i in 0..9:
    block y(vi = i):
      y[vi] = p[vi]
"""
ANY_COUNT = """
func any_count[n](x: f32[n, 6], y: f32[n, 9]):
  alloc p: f32[n, 9] in arena
  for i in 0..n, j in 0..3:
    block fill(vi = i, vj = j):
      p[vi, vj] = 1.0
  for i in 0..n, j in 0..6:
    block copy(vi = i, vj = j):
      p[vi, vj + 3] = x[vi, vj]
  for i in 0..n, j in 0..9:
    block y(vi = i, vj = j):
      y[vi, vj] = p[vi, vj]
"""
IN_A_LOOP = """
func in_a_loop(x: f32[4, 6], y: f32[4, 9]):
  for i in 0..4:
    alloc p: f32[9] in stack
    for j in 0..3:
      block fill(vj = j):
        p[vj] = 1.0
    for j in 0..6:
      block copy(vi = i, vj = j):
        p[vj + 3] = x[vi, vj]
    for j in 0..9:
      block y(vi = i, vj = j):
        y[vi, vj] = p[vj]
"""
CHOICE = """
func choice(x: f32[9], y: f32[12]):
  for i in 0..12:
    block y(vi = i) where vi < 11:
      y[vi] = select(2 <= vi, select(vi < 11, x[min(max(vi - 2, 0), 8)], 4.0), 4.0)
"""

READ_BETWEEN = """
func read_between(x: f32[6], y: f32[6]):
  alloc p: f32[9] in arena
  for i in 0..9:
    block fill(vi = i):
      p[vi] = 1.0
  for i in 0..6:
    block y(vi = i):
      y[vi] = p[vi] * x[vi]
  for i in 0..6:
    block copy(vi = i):
      p[vi + 1] = x[vi]
"""
CHANGED_BETWEEN = """
func changed_between(x: f32[6], y: f32[6]):
  alloc p: f32[9] in arena
  for i in 0..6:
    block copy(vi = i):
      p[vi] = x[vi]
  for i in 0..6:
    block x(vi = i):
      x[vi] = 0.0
  for i in 0..3:
    block fill(vi = i):
      p[vi + 6] = 1.0
  for i in 0..6:
    block y(vi = i):
      y[vi] = p[vi]
"""
OLDER = """
func older(x: f32[4, 6], y: f32[4, 9]):
  alloc p: f32[4, 9] in arena
  for i in 0..4:
    for j in 0..3:
      block fill(vi = i, vj = j):
        p[vi, vj] = 1.0
    for j in 0..6:
      block copy(vi = i, vj = j):
        p[vi, vj + 3] = x[vi, vj]
  for i in 0..4, j in 0..9:
    block y(vi = i, vj = j):
      y[vi, vj] = p[vi, vj]
"""


def unlike_fills(random: np.random.Generator, _: DType, shape: tuple[int, ...]) -> Array:
    """Numbers that no program fills in."""
    return random.uniform(5, 6, shape)


PIECES = Primitives("pieces", sizes=(0,), draw=unlike_fills, stores_all=False)
case, wrong = PIECES.case, PIECES.wrong


@case("unite-slabs", PADDED)
def unite_slabs(s: tw.Schedule) -> None:
    assert s.unite("p") == "copy"


@case("unite-over-a-fill", OVER_ALL)
def unite_over_a_fill(s: tw.Schedule) -> None:
    s.unite("p")


@case("unite-two-fills", PADDED.replace("p[vi, vj + 10] = 0.5", "p[vi, vj + 10] = 0.25"))
def unite_two_fills(s: tw.Schedule) -> None:
    s.unite("p")


@case("unite-over-one-another", OVERLAPPING)
def unite_over_one_another(s: tw.Schedule) -> None:
    """Whoever comes last has stored an element: a fill over a copy, and a copy over that."""
    assert s.unite("p") == "copy2"


@case("unite-and-move", PADDED)
def unite_and_move(s: tw.Schedule) -> None:
    """What the pieces could not: a row of the padding at a time, in masked vectors."""
    s.unite("p")
    i, j = s.get_loops("sum")
    s.compute_at("copy", i)
    s.compact("p")
    s.set_scope("p", "stack")
    _, lanes = s.split(s.get_loops("copy")[-1], 8, tail="shift")
    s.vectorize(lanes)
    s.guard("copy")
    s.vectorize(s.split(j, 8, tail="shift")[1])


@case("guard-selections", CHOICE)
def guard_selections(s: tw.Schedule) -> None:
    """Of both selections, and no condition twice."""
    s.guard("y")


@case("unite-any-count", ANY_COUNT)
def unite_any_count(s: tw.Schedule) -> None:
    """Pieces without points: where there are none, there is nothing to fill."""
    s.unite("p")


@case("unite-in-a-loop", IN_A_LOOP)
def unite_in_a_loop(s: tw.Schedule) -> None:
    s.unite("p")


@case("guard-odd-and-even", APART)
def guard_odd_and_even(s: tw.Schedule) -> None:
    """Conditions on several axes decide the minima of what they choose, too; every second element in masked lanes."""
    s.unite("p")
    s.transform_layout("p", "i -> i % 2, i // 2", pad=0)
    s.vectorize(s.get_loops("copy")[-1])
    s.guard("copy")


@wrong(PADDED)
def a_buffer_of_the_caller(s: tw.Schedule) -> object:
    return s.unite("y")


@wrong(PADDED)
def nothing_stores(s: tw.Schedule) -> object:
    return s.unite("x")


@wrong(PADDED.replace("= 0.5", "= x[vi, vj]"))
def no_fill(s: tw.Schedule) -> object:
    return s.unite("p")


@wrong(PADDED.replace("p[vi, vj + 2] =", "p[vi, vj*1 + vj + 2] =").replace("j in 0..8", "j in 0..4"))
def no_box(s: tw.Schedule) -> object:
    return s.unite("p")


@wrong(PADDED.replace("(x:", "[n](x:").replace("j in 0..8", "j in 0..min(n, 8)"))
def a_piece_that_may_be_empty(s: tw.Schedule) -> object:
    return s.unite("p")


@wrong(READ_BETWEEN)
def read_between(s: tw.Schedule) -> object:
    return s.unite("p")


@wrong(CHANGED_BETWEEN)
def changed_between(s: tw.Schedule) -> object:
    return s.unite("p")


@wrong(OLDER)
def older_than_an_iteration(s: tw.Schedule) -> object:
    return s.unite("p")


@wrong(PADDED)
def no_selection(s: tw.Schedule) -> object:
    return s.guard("copy")


@wrong(CHOICE.replace("4.0), 4.0)", "4.0), y[vi])"))
def reads_what_it_stores(s: tw.Schedule) -> object:
    return s.guard("y")


class TestPieces(PrimitiveTests):
    primitives = PIECES

    @pytest.mark.parametrize("name", ["guard-odd-and-even", "unite-over-a-fill"])
    @pytest.mark.parametrize("behind", [False, True])
    def test_masked_vectors_read_no_more_than_they_must(self, name: str, behind: bool) -> None:
        """Neither before nor behind the array is memory that may be read."""
        s = tw.Schedule(PIECES.scheduled(name).after)
        if name == "unite-over-a-fill":
            s.guard("copy")
            s.vectorize(s.split(s.get_loops("copy")[0], 8, tail="shift")[1])
        kernel, page = tw.build(s.func), mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        with mmap.mmap(-1, 2 * page) as memory:
            both = np.frombuffer(memory, np.float32)
            closed, middle = both.ctypes.data + page * behind, page // 4
            x = both[middle - 6 : middle] if behind else both[middle : middle + 6]
            x[:] = range(6)
            y = np.zeros(9, np.float32)
            assert libc.mprotect(ctypes.c_void_p(closed), page, 0) == 0
            kernel(x, y)
            assert libc.mprotect(ctypes.c_void_p(closed), page, mmap.PROT_READ | mmap.PROT_WRITE) == 0
            del x, both
        numbers = [0, 0, 2, 4, 6, 8, 10, 0, 0] if name == "guard-odd-and-even" else [2, 10, 8, 6, 4, 2, 0, 2, 2]
        np.testing.assert_array_equal(y, numbers)
