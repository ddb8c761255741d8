"""blockize, tensorize, annotate, prefetch: programs before and after with the steps and why they are legal; that both
compute the same, in the evaluator and in machine code; and what each says where it may not be applied."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from primitive_checks import Primitives, PrimitiveTests, one_file

import tilewright as tw
from tilewright.target import native

SUM = """
func sum(x: f32[8, 32], y: f32[8]):
  for i in 0..8, k in 0..32:
    block sum(vi = i, reduce vk = k):
      init: y[vi] = 0
      y[vi] += x[vi, vk]
"""
CHAIN = """
func chain[n](x: f32[n, 6], y: f32[n, 6]):
  for i in 0..n:
    alloc t: f32[6] in stack
    for j in 0..6:
      block t(vi = i, vj = j):
        t[vj] = x[vi, vj] + 1
    for j in 0..6:
      block y(vi = i, vj = j):
        y[vi, vj] = t[vj] * t[5 - vj]
"""
MATMUL = """
func matmul(x: {a}[6, 16], w: {b}[16, 32], y: {c}[6, 32]):
  for i in 0..6, j in 0..32:
    block zero(vi = i, vj = j):
      y[vi, vj] = 0
  for i in 0..6, j in 0..32, k in 0..16:
    block dot(vi = i, vj = j, reduce vk = k):
      y[vi, vj] += {value}
"""
WHOLE = "i32(x[vi, vk]) * i32(w[vk, vj])"
INTEGERS = MATMUL.format(a="i16", b="i16", c="i32", value=WHOLE)
NARROW = MATMUL.format(a="i8", b="i8", c="i32", value=WHOLE)
FLOATS = MATMUL.format(a="f32", b="f32", c="f32", value="x[vi, vk] * w[vk, vj]")
STARTED = """
func started(x: f32[6, 16], w: f32[16, 32], y: f32[6, 32]):
  for i in 0..6, j in 0..32, k in 0..16:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
"""
VECTOR = """
func vector[n](x: u8[64], w: u8[n, 64], y: i32[n, 8]):
  for i in 0..n, ko in 0..4, l in 0..8, q in 0..2:
    block dot(vi = i, vl = l, reduce vk = ko*16 + l*2 + q):
      y[vi, vl] += i32(w[vi, vk]) * i32(x[vk])
"""

AROUND = """
func around(x: f32[5, 8], y: f32[5, 10]):
  for i in 0..5, j in 0..10:
    block zero(vi = i, vj = j):
      y[vi, vj] = 0
    block copy(vi = i, vj = j) where 1 <= vj and vj < 9:
      y[vi, vj] = x[vi, vj - 1]
"""
WINDOWS = """
func windows(x: i32[8, 8], y: i32[8, 8]):
  for i in 0..8, jo in 0..2, ji in 0..4, k in 0..3:
    block add(vi = i, vj = jo*4 + ji, reduce vk = k) where 1 <= vi + vk and vi + vk < 9:
      init: y[vi, vj] = 0
      y[vi, vj] += x[vi + vk - 1, vj]
"""
PANELS = """
func panels[n](x: i32[n, 8], w: i32[4, 8, 16], y: i32[n, 64]):
  for j in 0..4, i in 0..n, k in 0..8, l in 0..16:
    block dot(vi = i, vj = j*16 + l, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += x[vi, vk] * w[vj//16, vk, vj%16]
"""

DIFFERENCE = "* (w[vj//16, vk, vj%16] - w[3 - vj//16, vk, vj%16])"
"""What puts a difference of two panels in the place of one."""

TENSORIZE = Primitives("tensorize", sizes=(0, 1, 5), message_files=partial(one_file, space=" "))
case, wrong = TENSORIZE.case, TENSORIZE.wrong


@case("blockize-sum", SUM)
def blockize_sum(s: tw.Schedule) -> None:
    """What starts the sum goes to the outer block."""
    io, ii = s.split("i", 4)
    ko, ki = s.split("k", 8)
    s.reorder(io, ko, ii, ki)
    s.blockize(ii)


@case("blockize-whole-sum", SUM)
def blockize_whole_sum(s: tw.Schedule) -> None:
    """The whole sum is inside: its init stays where it is."""
    s.blockize("k")


@case("blockize-masked-sum", SUM)
def blockize_masked_sum(s: tw.Schedule) -> None:
    io, ii = s.split("i", 3, tail="mask")
    ko, ki = s.split("k", 5, tail="mask")
    s.reorder(ko, io, ii, ki)
    s.blockize(ii)


@case("blockize-two-blocks", CHAIN)
def blockize_two_blocks(s: tw.Schedule) -> None:
    s.blockize(s.get_loops("y")[-1])
    s.blockize(s.get_loops("t")[-1])


def packed(s: tw.Schedule, lanes: int, depth: int) -> tuple[Any, ...]:
    """The right operand in panels of lanes, with the terms that one instruction adds next to each other."""
    s.cache_read("dot", "w")
    s.transform_layout("w.cache", f"k, j -> j // {lanes}, k // {depth}, j % {lanes}, k % {depth}")
    i, j, k = s.get_loops("dot")
    jo, ji = s.split(j, lanes)
    ko, ki = s.split(k, depth)
    s.reorder(jo, i, ko, ji, ki)
    return jo, i, ko, ji


@case("tensorize-dot", INTEGERS)
def tensorize_dot(s: tw.Schedule) -> None:
    _, i, _, ji = packed(s, 8, 2)
    s.tensorize(ji, "x86.avx2.dot_i16")
    s.unroll(i)


@case("tensorize-narrow-dot", NARROW)
def tensorize_narrow_dot(s: tw.Schedule) -> None:
    *_, ji = packed(s, 8, 2)
    s.vectorize(ji)
    s.tensorize(ji, "x86.avx2.dot_i8")


@case("tensorize-multiply-add", FLOATS)
def tensorize_multiply_add(s: tw.Schedule) -> None:
    i, j, k = s.get_loops("dot")
    jo, ji = s.split(j, 8)
    s.reorder(i, jo, k, ji)
    s.tensorize(ji, "x86.fma.fma_f32")


@case("tensorize-started-sum", STARTED)
def tensorize_started_sum(s: tw.Schedule) -> None:
    """What starts the sum stays with the block: it runs before the loop outside the nest."""
    i, j, k = s.get_loops("dot")
    jo, ji = s.split(j, 8)
    s.reorder(i, jo, k, ji)
    s.tensorize(ji, "x86.fma.fma_f32")


@case("tensorize-guarded", FLOATS)
def tensorize_guarded(s: tw.Schedule) -> None:
    """A condition that holds or not for all of the nest: rows that are not there."""
    i, j, k = s.get_loops("dot")
    io, ii = s.split(i, 4, tail="mask")
    jo, ji = s.split(j, 8)
    s.reorder(jo, io, k, ii, ji)
    s.tensorize(ji, "x86.fma.fma_f32")
    s.unroll(ii)


@case("tensorize-two-vectors", VECTOR)
def tensorize_two_vectors(s: tw.Schedule) -> None:
    """Both registers are filled from memory that lies one element after the other."""
    s.tensorize("l", "x86.avx2.dot_u8")


@case("prefetch", INTEGERS)
def prefetch(s: tw.Schedule) -> None:
    _, i, ko, ji = packed(s, 8, 2)
    s.tensorize(ji, "x86.avx2.dot_i16")
    s.prefetch("w.cache", ko, 4)
    s.prefetch("x", i)


@case("prefetch-rows", CHAIN)
def prefetch_rows(s: tw.Schedule) -> None:
    s.prefetch("x", "i", 2)
    s.prefetch("y", "i", 2)


def in_blocks_of_rows(s: tw.Schedule) -> None:
    j, i, k, lane = s.get_loops("dot")
    io, ii = s.split(i, 4, tail="clip")
    s.reorder(io, j, ii, k, lane)


@case("prefetch-rows-with-zeros-around", AROUND)
def prefetch_rows_with_zeros_around(s: tw.Schedule) -> None:
    """What conditions keep a block from is not asked for: a row of x is one piece."""
    i = s.get_loop("i")
    j = s.get_loop("j")
    s.prefetch("x", i, 1, j)


@case("prefetch-fresh-row-of-windows", WINDOWS)
def prefetch_fresh_row_of_windows(s: tw.Schedule) -> None:
    """Rows i - 1, i and i + 1 of x are touched: of those of the next iteration only row i + 2 is asked for, in two
    pieces of a row."""
    s.prefetch("x", "i", 1, "jo", apart=4, fresh=True)


@case("prefetch-fresh-piece", WINDOWS)
def prefetch_fresh_piece(s: tw.Schedule) -> None:
    s.prefetch("x", "i", fresh=True)


@case("prefetch-fresh-is-all-without-overlap", PANELS)
def prefetch_fresh_is_all_without_overlap(s: tw.Schedule) -> None:
    in_blocks_of_rows(s)
    s.prefetch("w", "j", 1, "k", fresh=True)


@case("prefetch-panels", PANELS)
def prefetch_panels(s: tw.Schedule) -> None:
    """Panel j + 1, 128 elements, in at most 4 times 8 iterations: each asks for one element in 4."""
    in_blocks_of_rows(s)
    s.prefetch("w", "j", 1, "k")


@case("prefetch-piece-in-a-loop", PANELS)
def prefetch_piece_in_a_loop(s: tw.Schedule) -> None:
    s.prefetch("w", "k", 2, "l")


@case("prefetch-rows-of-a-tile", PANELS)
def prefetch_rows_of_a_tile(s: tw.Schedule) -> None:
    """The four rows of the next tile of y lie apart: each iteration over rows asks for its own."""
    io, ii = s.split("i", 4, tail="mask")
    s.reorder("j", io, ii, "k", "l")
    s.unroll(ii)
    s.prefetch("y", io, 1, ii)


@case("prefetch-lines-of-panels", PANELS)
def prefetch_lines_of_panels(s: tw.Schedule) -> None:
    """Panel j + 1, 128 elements, in at most 4 iterations: each asks for 32 of them, a line of 8 at a time."""
    in_blocks_of_rows(s)
    s.prefetch("w", "j", 1, "ii", apart=8)


@case("prefetch-in-first-tiles", PANELS)
def prefetch_in_first_tiles(s: tw.Schedule) -> None:
    """Panel j + 1 is asked for by the first tile of rows alone: of 128 elements, each of its 4 times 8 iterations asks
    for 4."""
    in_blocks_of_rows(s)
    s.prefetch("w", "j", 1, "k", apart=4, first=1)


@case("prefetch-pieces-of-a-difference", PANELS.replace("* w[vj//16, vk, vj%16]", DIFFERENCE))
def prefetch_pieces_of_a_difference(s: tw.Schedule) -> None:
    """Panels j + 1 and 2 - j lie apart: each iteration asks for its share of both."""
    in_blocks_of_rows(s)
    s.prefetch("w", "j", 1, "ii", apart=8)


@case("prefetch-whole-piece", PANELS)
def prefetch_whole_piece(s: tw.Schedule) -> None:
    s.prefetch("w", "k", 2, apart=8)


@case(
    "prefetch-empty-piece",
    PANELS.replace("k in 0..8", "k in 0..0").replace("[n, 8]", "[n, 0]").replace("8, 16]", "0, 16]"),
)
def prefetch_empty_piece(s: tw.Schedule) -> None:
    """Nothing is touched: what is asked for is one place."""
    in_blocks_of_rows(s)
    s.prefetch("w", "j", 1, "ii")


@case("annotate-grain", SUM)
def annotate_grain(s: tw.Schedule) -> None:
    s.parallel("i")
    s.annotate("i", "grain", 4)


@wrong(SUM)
def prefetch_in_an_init(s: tw.Schedule) -> object:
    """What begins the sum of a nest that became a block has loops of its own."""
    blockize_sum(s)
    return s.prefetch("y", s.get_loops("sum.init")[-1], 1)


@wrong(INTEGERS)
def an_unknown_instruction(s: tw.Schedule) -> object:
    return s.tensorize("k", "x86.dot")


@wrong(INTEGERS)
def loops_of_other_extents(s: tw.Schedule) -> object:
    return s.tensorize("k", "x86.avx2.dot_i16")


@wrong(INTEGERS)
def an_operand_that_is_not_packed(s: tw.Schedule) -> object:
    i, j, k = s.get_loops("dot")
    jo, ji = s.split(j, 8)
    ko, ki = s.split(k, 2)
    s.reorder(i, jo, ko, ji, ki)
    return s.tensorize(ji, "x86.avx2.dot_i16")


@wrong(INTEGERS)
def other_element_types(s: tw.Schedule) -> object:
    *_, ji = packed(s, 8, 2)
    return s.tensorize(ji, "x86.avx2.dot_i8")


@wrong(INTEGERS.replace(" * ", " - "))
def another_operator(s: tw.Schedule) -> object:
    *_, ji = packed(s, 8, 2)
    return s.tensorize(ji, "x86.avx2.dot_i16")


@wrong(SUM)
def a_sum_that_is_started(s: tw.Schedule) -> object:
    return s.tensorize("i", "x86.fma.fma_f32")


@wrong(INTEGERS.replace("32", "30").replace("i30", "i32"))
def a_masked_block(s: tw.Schedule) -> object:
    i, j, k = s.get_loops("dot")
    jo, ji = s.split(j, 8, tail="mask")
    ko, ki = s.split(k, 2)
    s.reorder(jo, i, ko, ji, ki)
    return s.tensorize(ji, "x86.avx2.dot_i16")


@wrong(VECTOR.replace("y[vi, vl] +=", "y[vi, 0] +="))
def an_accumulator_that_stands_still(s: tw.Schedule) -> object:
    return s.tensorize("l", "x86.avx2.dot_u8")


@wrong("func f(y: f32[64]):\n  for l in 0..8: y[l] += y[l + 8] * y[l + 16]")
def what_is_read_is_stored_to(s: tw.Schedule) -> object:
    return s.tensorize("l", "x86.fma.fma_f32")


@wrong("func f(y: f32[8]):\n  view x: f32[8] = y\n  for l in 0..8: y[l] += x[7 - l + 2*l - 7] * x[l]")
def two_names_of_the_same_memory(s: tw.Schedule) -> object:
    return s.tensorize("l", "x86.fma.fma_f32")


@wrong(VECTOR)
def a_loop_of_an_instruction(s: tw.Schedule) -> object:
    s.tensorize("l", "x86.avx2.dot_u8")
    return s.split("q", 2)


@wrong("func f(x: f32[8]):\n  for i in 0..8: x[i] = 0")
def a_block_of_nothing(s: tw.Schedule) -> object:
    return s.blockize("i")


@wrong(
    """
func f(x: f32[8], y: f32[8]):
  for i in 0..8:
    y[i] = x[i]
    block z(v = i):
      y[v] = y[v] + 1
"""
)
def a_store_of_no_block(s: tw.Schedule) -> object:
    return s.blockize("i")


@wrong(SUM)
def an_unknown_note(s: tw.Schedule) -> object:
    return s.annotate("i", "unroll", 4)


@wrong(SUM)
def a_grain_of_a_serial_loop(s: tw.Schedule) -> object:
    return s.annotate("i", "grain", 4)


@wrong(SUM)
def a_grain_of_nothing(s: tw.Schedule) -> object:
    s.parallel("i")
    return s.annotate("i", "grain", 0)


@wrong(SUM)
def a_buffer_that_stands_still(s: tw.Schedule) -> object:
    return s.prefetch("y", "k")


@wrong(CHAIN)
def a_buffer_of_the_iteration(s: tw.Schedule) -> object:
    return s.prefetch("t", "i")


@wrong(SUM)
def an_iteration_before(s: tw.Schedule) -> object:
    return s.prefetch("x", "k", -1)


@wrong(SUM)
def lanes_do_not_come_later(s: tw.Schedule) -> object:
    _, ii = s.split("i", 4)
    s.vectorize(ii)
    return s.prefetch("x", ii)


@wrong(PANELS)
def a_loop_that_is_not_inside(s: tw.Schedule) -> object:
    return s.prefetch("w", "k", 1, "j")


@wrong(PANELS)
def a_loop_that_is_the_same(s: tw.Schedule) -> object:
    return s.prefetch("w", "k", 1, "k")


@wrong(PANELS)
def iterations_that_nobody_counts(s: tw.Schedule) -> object:
    return s.prefetch("w", "j", 1, "k")


@wrong(PANELS)
def lanes_that_ask_for_parts(s: tw.Schedule) -> object:
    s.vectorize("l")
    return s.prefetch("w", "k", 1, "l")


@wrong(WINDOWS.replace("x[vi + vk - 1, vj]", "x[vi + vk - 1, (vi + vj)//2]"))
def rows_that_move_aside(s: tw.Schedule) -> object:
    return s.prefetch("x", "i", 1, "jo", fresh=True)


@wrong(PANELS)
def rows_that_lie_apart(s: tw.Schedule) -> object:
    in_blocks_of_rows(s)
    return s.prefetch("y", "j", 1, "k")


@wrong(PANELS)
def rows_that_lie_apart_in_lines(s: tw.Schedule) -> object:
    in_blocks_of_rows(s)
    return s.prefetch("y", "j", 1, "ii", apart=8)


@wrong(PANELS)
def elements_no_distance_apart(s: tw.Schedule) -> object:
    return s.prefetch("w", "k", 2, apart=0)


@wrong(NARROW)
def a_layout_that_an_instruction_does_not_take(s: tw.Schedule) -> object:
    *_, ji = packed(s, 8, 2)
    s.tensorize(ji, "x86.avx2.dot_i8")
    return s.transform_layout("w.cache", "a, k, j, l -> j, a, k, l")


@wrong(NARROW)
def a_type_that_an_instruction_does_not_take(s: tw.Schedule) -> object:
    *_, ji = packed(s, 8, 2)
    s.tensorize(ji, "x86.avx2.dot_i8")
    return s.widen("w.cache", "i32")


class TestTensorize(PrimitiveTests):
    primitives = TENSORIZE

    @pytest.mark.skipif("avx2" not in native().features, reason="the instructions of these programs need AVX2")
    def test_machine_code(self, case: str) -> None:
        super().test_machine_code(case)
