"""Lanes four or more elements apart, next to which other lanes lie: machine code does what the evaluator does, by whole
vectors, and touches nothing beside what the lanes touch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from moved_lanes import assert_moved
from test_masks import Page

import tilewright as tw
from drawn import drawn
from tilewright.expr.dtypes import DTYPES
from tilewright.loops.evaluate import evaluate
from tilewright.loops.parse import parse
from tilewright.target import native

Array = np.ndarray[Any, Any]

APART = """
func apart(x: {0}[{2}], y: {0}[6, {1}]):
  for o in 0..1:
    unroll q in 0..{3}:
      vectorize i in 0..{1}:
        block apart(vo = o, vq = q, vi = i):
          y[vq, vi] = x[vo*{2} + vi*{4} + vq]
"""
CLAMPED = """
func clamped(x: {0}[{5}, {2}], y: {0}[2, 6, {1}]):
  for o in 0..2:
    unroll q in 0..{3}:
      vectorize i in 0..{1}:
        block apart(vo = o, vq = q, vi = i):
          y[vo, vq, vi] = select(vo*{1} + vi < {5}, x[min(vo*{1} + vi, {5} - 1), vq], {4})
"""
TOGETHER = """
func together(x: {0}[4, {1}], y: {0}[{2}]):
  for o in 0..1:
    unroll q in 0..{3}:
      vectorize i in 0..{1}:
        block together(vo = o, vq = q, vi = i):
          y[vo*{2} + vi*{4} + vq] = x[vq, vi]
"""
OVERWRITTEN = """
func overwritten(x: f32[64], y: f32[32]):
  for o in 0..2:
    vectorize i in 0..8:
      y[i*4] = x[i*4 + o*32]
    vectorize i in 0..8:
      y[i*4 + 1] = x[i*4 + o*32 + 1] + y[i*4]
    vectorize i in 0..8:
      y[i*4 + 2] = x[i*4 + o*32 + 2] + y[i*4 + 1]
    vectorize i in 0..8:
      y[i*4 + 3] = x[i*4 + o*32 + 3] + y[i*4 + 2]
"""


ACROSS = """
func across(x: f32[96], y: f32[{1}]):
  for o in 0..1:
    alloc t: f32[96] in register
    unroll q in 0..{3}:
      vectorize i in 0..{1}:
        block load(vo = o, vi = q*{1} + i):
          t[vi] = x[vo*96 + vi]
    vectorize i in 0..{1}:
      block across(vo = o, vi = i):
        y[vo*96 + vi] = t[vi*{0} + {2}]
"""


def compiled(text: str, x: Array, y: Array) -> tuple[Array, Array, str]:
    """(what the evaluator writes, what machine code writes, the LLVM IR); all memory ends where a page ends."""
    function = parse(text)
    wanted = y.copy()
    evaluate(function, {"x": x, "y": wanted})
    assert_moved(function, native(), [x], [y.copy()], [wanted])
    kernel = tw.build(function)
    found = Page().last(y)
    kernel(Page().last(x), found)
    front = Page().first(y)
    kernel(Page().first(x), front)
    np.testing.assert_array_equal(front, found)
    return wanted, found, kernel.show("llvm")


@pytest.mark.parametrize(
    ("dtype", "lanes", "columns", "apart"), drawn(["f32", "i32"], [4, 8, 16], [3, 4, 6], [4, 5, 6, 37])
)
def test_loads(dtype: str, lanes: int, columns: int, apart: int) -> None:
    size = apart * (lanes - 1) + columns
    x = np.arange(1, size + 1).astype(np.float32 if dtype == "f32" else np.int32)
    wanted, found, llvm = compiled(APART.format(dtype, lanes, size, columns, apart), x, np.zeros((6, lanes), x.dtype))
    np.testing.assert_array_equal(found, wanted)
    assert ("load <4 x" in llvm) == (columns >= 4)


@pytest.mark.parametrize(
    ("dtype", "lanes", "sizes", "rows"), drawn(["f32", "i32"], [4, 8, 16], [(4, 4), (6, 9), (3, 3)], [3, 13, 18])
)
def test_loads_of_rows_up_to_the_last_one(dtype: str, lanes: int, sizes: tuple[int, int], rows: int) -> None:
    columns, width = sizes
    x = np.arange(1, rows * width + 1).astype(np.float32 if dtype == "f32" else np.int32).reshape(rows, width)
    text = CLAMPED.format(dtype, lanes, width, columns, "7.0" if dtype == "f32" else "7", rows)
    wanted, found, llvm = compiled(text, x, np.zeros((2, 6, lanes), x.dtype))
    np.testing.assert_array_equal(found, wanted)
    whole = np.full((2 * lanes, columns), 7, x.dtype)
    whole[:rows] = x[: 2 * lanes, :columns]
    np.testing.assert_array_equal(found[:, :columns], whole.reshape(2, lanes, columns).swapaxes(1, 2))
    assert columns < 4 or "load <4 x" in llvm


@pytest.mark.parametrize(("dtype", "lanes", "columns", "apart"), drawn(["f32", "i32"], [4, 8, 16], [3, 4], [4, 5, 37]))
def test_stores(dtype: str, lanes: int, columns: int, apart: int) -> None:
    size = apart * (lanes - 1) + columns
    x = np.arange(1, 4 * lanes + 1).reshape(4, lanes).astype(np.float32 if dtype == "f32" else np.int32)
    wanted, found, llvm = compiled(TOGETHER.format(dtype, lanes, size, columns, apart), x, np.zeros(size, x.dtype))
    np.testing.assert_array_equal(found, wanted)
    assert ("store <4 x" in llvm) == (columns == 4)


@pytest.mark.parametrize(
    ("dtype", "lanes", "sizes"),
    drawn(["f32", "bf16", "i8", "i64", "bool"], [2, 8, 16], [(2, 2), (1, 2), (2, 3), (4, 4), (3, 4)]),
)
def test_woven_stores(dtype: str, lanes: int, sizes: tuple[int, int]) -> None:
    """As many vectors as their lanes are apart are one piece of memory; four of 32 bits are rows of matrices."""
    columns, apart = sizes
    size = apart * (lanes - 1) + columns
    numbers = np.arange(1, 4 * lanes + 1).reshape(4, lanes)
    x = (numbers % 3 == 0 if dtype == "bool" else numbers).astype(DTYPES[dtype].numpy)
    wanted, found, llvm = compiled(TOGETHER.format(dtype, lanes, size, columns, apart), x, np.zeros(size, x.dtype))
    np.testing.assert_array_equal(found, wanted)
    whole = columns == apart and dtype != "bool" and not (apart == 4 and dtype == "f32" and lanes > 2)
    assert (re.search(rf"store <{columns * lanes} x ", llvm) is not None) == whole


@pytest.mark.parametrize(("lanes", "apart", "first"), drawn([4, 8, 16], [1, 2, 3, 4], [0, 1, 3, 7, 16]))
def test_lanes_across_vectors_of_a_register(apart: int, first: int, lanes: int) -> None:
    """They are shuffled out of the vectors that were stored, and the register is none of memory."""
    x = np.arange(1, 97).astype(np.float32)
    text = ACROSS.format(apart, lanes, first, 96 // lanes)
    wanted, found, _ = compiled(text, x, np.zeros(lanes, np.float32))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(found, x[first : first + apart * lanes : apart])
    assert "rsp" not in tw.build(parse(text), target="x86-64-v4").show("assembly").split("k.across:")[1]


def test_stores_that_read_each_other_keep_their_order() -> None:
    x = np.arange(1, 65).astype(np.float32)
    wanted, found, _ = compiled(OVERWRITTEN, x, np.zeros(32, np.float32))
    np.testing.assert_array_equal(found, wanted)


TURNS = """
func turns(x: {0}[{1}, 48], y: {0}[2, {2}]):
  for o in 0..2:
    vectorize i in 0..{2}:
      block turn(vo = o, vi = i):
        y[vo, vi] = x[vi % {1}, vo*7 + vi // {1}]
"""


@pytest.mark.parametrize("dtype", ["i8", "bf16", "f32"])
@pytest.mark.parametrize("runs", [2, 4])
@pytest.mark.parametrize("each", [1, 2, 16])
def test_runs_that_lanes_take_in_turns_are_loaded_whole(dtype: str, runs: int, each: int) -> None:
    """Two or four rows, the first elements of each before the second ones: loads of vectors and shuffles. One element
    of each is no run."""
    lanes = each * runs
    f = parse(TURNS.format(dtype, runs, lanes))
    bits = {1: np.int8, 2: np.int16, 4: np.int32}[DTYPES[dtype].bytes]
    x = np.arange(1, runs * 48 + 1, dtype=bits).view(DTYPES[dtype].numpy).reshape(runs, 48)
    y, z = (np.zeros((2, lanes), x.dtype) for _ in range(2))
    evaluate(f, [x, y])
    expected = np.stack([x[:, o * 7 : o * 7 + each].T.reshape(-1) for o in range(2)])
    exe = tw.build(f)
    exe(x, z)
    for found in (y, z):
        np.testing.assert_array_equal(found.view(bits), expected.view(bits))
    text = exe.show(after="llvm")
    if each > 1:
        assert text.count("shufflevector") >= runs - 1 and "insertelement" not in text.split("define")[-1]
