"""compute_at, reverse_compute_at, inline, reverse_inline, compact, set_scope, storage_align: programs before and after
with the steps and why they are legal; that both compute the same, in the evaluator and in machine code, on random
schedules, too; and what each says where it may not be applied."""

from __future__ import annotations

import random
import re
from functools import partial
from typing import Any

import pytest
from primitive_checks import Primitives, PrimitiveTests, one_file

import tilewright as tw
from tilewright.loops.edit import allocations, blocks, statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import For
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.report.errors import UserError

MATMUL = """
func matmul[m](x: f32[m, 13], w: f32[13, 9], b: f32[9], y: f32[m, 9]):
  alloc h: f32[m, 9] in arena
  for i in 0..m, j in 0..9, k in 0..13:
    block dot(vi = i, vj = j, reduce vk = k):
      init: h[vi, vj] = 0
      h[vi, vj] += x[vi, vk] * w[vk, vj]
  for i1 in 0..m, j1 in 0..9:
    block relu(vi = i1, vj = j1):
      y[vi, vj] = max(h[vi, vj] + b[vj], 0)
"""
SOFTMAX = """
func softmax[m](x: f32[m, 7], y: f32[m, 7]):
  alloc top: f32[m] in arena
  for i in 0..m, k in 0..7:
    block top(vi = i, reduce vk = k):
      init: top[vi] = -inf
      top[vi] = max(top[vi], x[vi, vk])
  alloc e: f32[m, 7] in arena
  for i1 in 0..m, j1 in 0..7:
    block e(vi = i1, vj = j1):
      e[vi, vj] = x[vi, vj] - top[vi]
  alloc total: f32[m] in arena
  for i2 in 0..m, k2 in 0..7:
    block total(vi = i2, reduce vk = k2):
      init: total[vi] = 0
      total[vi] += e[vi, vk]
  for i3 in 0..m, j3 in 0..7:
    block y(vi = i3, vj = j3):
      y[vi, vj] = e[vi, vj] + total[vi]
"""
TEN_ROWS = MATMUL.replace("[m]", "").replace("[m,", "[10,").replace("0..m", "0..10")
FIVE_ROWS = SOFTMAX.replace("[m]", "", 1).replace("[m,", "[5,").replace("0..m", "0..5").replace("f32[m]", "f32[5]")
BLUR = """
func blur[m](x: f32[m + 2], y: f32[m]):
  alloc t: f32[m + 2] in arena
  for i in 0..m + 2:
    block t(vi = i):
      t[vi] = x[vi] * x[vi]
  for j in 0..m:
    block y(vj = j):
      y[vj] = t[vj] + t[vj + 1] + t[vj + 2]
"""
CHAIN = """
func chain[m](x: f32[m, 6], y: f32[m, 6]):
  alloc t: f32[6, m] in arena
  for i in 0..m, j in 0..6:
    block t(vi = i, vj = j):
      t[vj, vi] = x[vi, vj] + 1
  for a in 0..m, b in 0..6:
    block y(va = a, vb = b):
      y[va, vb] = t[vb, va] * 3
"""
UNREAD = """
func unread[n](x: f32[n], y: f32[n]):
  if 3 < n:
    alloc t: f32[n] in arena
    for i in 0..n:
      block t(vi = i):
        t[vi] = x[vi] * 2.0
  for i in 0..n:
    block y(vi = i):
      y[vi] = x[vi]
"""

MIRROR = CHAIN.replace("t[vb, va] * 3", "t[vb, va] * t[5 - vb, va]")


def of_size(text: str, m: int) -> str:
    """The program for one m."""
    return re.sub(r"\bm\b", str(m), text.replace("[m](", "("))


BOUND = """
func bound(x: i64[1], y: i64[8]):
  alloc t: i64[1] in arena
  for k in 0..1:
    block t(vk = k):
      t[vk] = min(max(x[vk], 0), 8)
  for i in 0..t[0], j in 0..1:
    block y(vi = i, vj = j):
      y[vi] = t[vj]
"""
LAST = """
func last(x: f32[4], y: f32[4], z: f32[1]):
  alloc t: f32[1] in arena
  for i in 0..4:
    for k in 0..1:
      block t(vk = k):
        t[vk] = x[i] * 2.0
    for j in 0..1:
      block y(vi = i + j):
        y[vi] = t[0]
  z[0] = t[0]
"""

PLACEMENT = Primitives("placement", sizes=(0, 1, 3, 4, 5, 13), message_files=one_file)
case, wrong = PLACEMENT.case, PLACEMENT.wrong


def tiled(s: tw.Schedule, rows: str = "mask", columns: str = "mask") -> tuple[Any, ...]:
    """The loops jo, io, k, ii, ji of a product in tiles of 4 x 4."""
    i, j, k = s.get_loops("dot")
    io, ii = s.split(i, 4, tail=rows)
    jo, ji = s.split(j, 4, tail=columns)
    if (rows, columns) == ("mask", "mask"):
        s.reorder(jo, io, k, ii, ji)
    return jo, io, k, ii, ji


@case("reverse-compute-at", MATMUL)
def reverse_compute_at(s: tw.Schedule) -> None:
    _, io, *_ = tiled(s)
    s.reverse_compute_at("relu", io)


@case("reverse-compute-at-register-tile", MATMUL)
def reverse_compute_at_register_tile(s: tw.Schedule) -> None:
    """The tile of a product with its epilogue: what every contraction does."""
    jo, io, _, ii, ji = tiled(s)
    s.reverse_compute_at("relu", io)
    s.compact("h")
    s.set_scope("h", "register")
    s.vectorize(ji)
    s.unroll(ii)
    *_, i, j = s.get_loops("relu")
    s.vectorize(j)
    s.unroll(i)
    s.parallel(jo)


@case("reverse-compute-at-cache-blocks", MATMUL)
def reverse_compute_at_cache_blocks(s: tw.Schedule) -> None:
    """Tiles of rows in blocks, the last of which has fewer."""
    jo, io, *_ = tiled(s)
    ic, it = s.split(io, 3, tail="clip")
    s.reorder(ic, jo)
    s.parallel(ic)
    s.reverse_compute_at("relu", it)
    s.compact("h")


@case("reverse-compute-at-columns", MATMUL)
def reverse_compute_at_columns(s: tw.Schedule) -> None:
    """A loop that moves along one dimension only: the other one is whole."""
    _, io, *_ = tiled(s, rows="clip", columns="clip")
    s.reverse_compute_at("relu", io)
    s.compact("h")


@case("reverse-compute-at-sum", SOFTMAX)
def reverse_compute_at_sum(s: tw.Schedule) -> None:
    """A consumer that adds up keeps its own reduce loops."""
    i, _ = s.get_loops("top")
    for name in ("e", "total", "y"):
        s.reverse_compute_at(name, i)
    for name in ("top", "e", "total"):
        s.compact(name)
        s.set_scope(name, "stack")


@case("compute-at", SOFTMAX)
def compute_at(s: tw.Schedule) -> None:
    i, _ = s.get_loops("y")
    for name in ("total", "e", "top"):
        s.compute_at(name, i)
    for name in ("top", "e", "total"):
        s.compact(name)


@case("compute-at-the-first-reader", SOFTMAX)
def compute_at_the_first_reader(s: tw.Schedule) -> None:
    """Whoever reads it later reads what was computed there."""
    s.compute_at("e", "i2")


@case("compute-at-the-first-tile", TEN_ROWS)
def compute_at_the_first_tile(s: tw.Schedule) -> None:
    """The first tile of rows packs what the others read."""
    s.cache_read("dot", "w")
    io, ii = s.split("i", 4, tail="mask")
    s.reorder(io, "k", ii, "j")
    s.partition(io, 1)
    s.compute_at("w.cache", s.get_loops("dot")[1])


@case("compute-at-tiles", BLUR)
def compute_at_tiles(s: tw.Schedule) -> None:
    """Each tile computes its halo itself; points over the end are left out."""
    jo, _ = s.split("j", 4, tail="mask")
    s.compute_at("t", jo)
    s.compact("t")
    s.parallel(jo)


@case("compute-at-split-producer", BLUR)
def compute_at_split_producer(s: tw.Schedule) -> None:
    """What became of the producer's loops before does not matter."""
    _, ii = s.split("i", 8, tail="mask")
    s.vectorize(ii)
    jo, _ = s.split("j", 4, tail="clip")
    s.compute_at("t", jo)
    s.compact("t")


@case("inline", MIRROR)
def inline(s: tw.Schedule) -> None:
    s.inline("t")


@case("inline-what-nobody-reads", UNREAD)
def inline_what_nobody_reads(s: tw.Schedule) -> None:
    """A condition that then holds nothing stays."""
    s.inline("t")


@case("inline-split", BLUR)
def inline_split(s: tw.Schedule) -> None:
    """A producer in tiles, whose conditions only say where it ends."""
    s.split("i", 4, tail="mask")
    s.inline("t")


@case("inline-in-a-loop", SOFTMAX)
def inline_in_a_loop(s: tw.Schedule) -> None:
    """What the expression reads changes from one iteration to the next, but not before its readers have run."""
    i, _ = s.get_loops("top")
    for name in ("e", "total", "y"):
        s.reverse_compute_at(name, i)
    s.inline("e")


@case("reverse-inline", CHAIN)
def reverse_inline(s: tw.Schedule) -> None:
    s.reverse_inline("y")


@case("reverse-inline-tiles", CHAIN)
def reverse_inline_tiles(s: tw.Schedule) -> None:
    """The producer stays in its tiles."""
    i, j = s.get_loops("t")
    s.tile(i, j, 4, 4, tail="mask")
    s.split(s.get_loops("y")[1], 2)
    s.reverse_inline("y")


@case(
    "reverse-inline-fewer-points",
    CHAIN.replace("for i in 0..m", "for i in 0..m + 2")
    .replace("[6, m]", "[6, m + 2]")
    .replace("x: f32[m", "x: f32[m + 2"),
)
def reverse_inline_fewer_points(s: tw.Schedule) -> None:
    """Points that the block does not read are left out."""
    s.reverse_inline("y")


@case("reverse-inline-lanes", CHAIN)
def reverse_inline_lanes(s: tw.Schedule) -> None:
    """The producer's loops may be lanes."""
    s.vectorize("j")
    s.reverse_inline("y")


@case("storage-align", MATMUL)
def storage_align(s: tw.Schedule) -> None:
    s.storage_align("h", 0, 8, 2)


@case("set-scope", of_size(MATMUL, 5))
def set_scope(s: tw.Schedule) -> None:
    s.set_scope("h", "stack")


def random_step(s: tw.Schedule, draw: random.Random) -> bool:
    """One step drawn at random; whether it was legal."""
    loops = [x.var for x in statements(s.func.body) if isinstance(x, For)]
    names = [b.name for b in blocks(s.func.body)]
    loop, block = draw.choice(loops), draw.choice(names)
    local = [b.name for b in allocations(s.func.body)]
    kind = draw.choice(["split", "reorder", "parallel", "move", "move", "move", "compact", "compact", "inline"])
    try:
        if kind == "split":
            s.split(loop, draw.choice([2, 3, 4]), tail=draw.choice(["mask", "clip"]))
        elif kind == "reorder":
            s.reorder(loop, draw.choice(loops))
        elif kind == "parallel":
            s.parallel(loop)
        elif kind == "move":
            draw.choice([s.compute_at, s.reverse_compute_at])(block, loop)
        elif kind == "compact" and local:
            s.compact(draw.choice(local))
        elif kind == "inline":
            draw.choice([s.inline, s.reverse_inline])(block)
    except UserError:
        return False
    return True


@wrong(MATMUL)
def complete_only_after_the_sum(s: tw.Schedule) -> object:
    _, _, k, *_ = tiled(s)
    return s.reverse_compute_at("relu", k)


@wrong(MATMUL)
def backwards(s: tw.Schedule) -> object:
    return s.reverse_compute_at("dot", "i1")


@wrong(BLUR)
def a_neighbour_that_is_not_there_yet(s: tw.Schedule) -> object:
    return s.reverse_compute_at("y", "i")


@wrong(MATMUL.replace("i1 in", "r in 0..2, i1 in"))
def a_block_that_is_repeated(s: tw.Schedule) -> object:
    return s.reverse_compute_at("relu", "i")


@wrong(MATMUL.replace("  for i1", "  b[0] = 1\n  for i1"))
def what_changes_in_between(s: tw.Schedule) -> object:
    return s.reverse_compute_at("relu", "i")


@wrong(MATMUL.replace("y[vi, vj] =", "y[0, vj] ="))
def points_that_meet(s: tw.Schedule) -> object:
    return s.reverse_compute_at("relu", "i")


@wrong(MATMUL)
def a_part_of_the_points(s: tw.Schedule) -> object:
    i, *_ = s.get_loops("dot")
    first, _ = s.partition(i, 3)
    return s.reverse_compute_at("relu", first)


@wrong(MATMUL.replace("  for i1 in 0..m, j1 in 0..9:\n    block", "  for i1 in 0..m:\n    for j1 in 0..9: block"))
def an_argument(s: tw.Schedule) -> object:
    return s.compute_at("relu", "i")


@wrong(SOFTMAX)
def other_readers(s: tw.Schedule) -> object:
    """One that comes before."""
    return s.compute_at("e", "i3")


@wrong(FIVE_ROWS)
def later_readers_of_more(s: tw.Schedule) -> object:
    """What the first reader needs is less than the others."""
    s.partition("i2", 1)
    return s.compute_at("e", s.get_loops("total")[0])


@wrong(BOUND)
def a_bound_that_is_read_before(s: tw.Schedule) -> object:
    """The loop around the target needs it to know how far it runs."""
    return s.compute_at("t", "j")


@wrong(LAST)
def a_reader_after_the_loop(s: tw.Schedule) -> object:
    """What the last iteration left is read when all have run."""
    return s.inline("t")


@wrong(BLUR)
def a_race(s: tw.Schedule) -> object:
    s.parallel("j")
    return s.compute_at("t", "j")


@wrong(BLUR)
def a_loop_that_is_a_vector(s: tw.Schedule) -> object:
    _, ji = s.split("j", 4, tail="mask")
    s.vectorize(ji)
    return s.compute_at("t", ji)


@wrong(BLUR.replace("  for j", "  x[0] = 1\n  for j"))
def an_input_that_changes(s: tw.Schedule) -> object:
    return s.inline("t")


@wrong(MATMUL)
def a_sum_in_each_reader(s: tw.Schedule) -> object:
    return s.inline("dot")


@wrong(MATMUL)
def a_sum_before_it_is_complete(s: tw.Schedule) -> object:
    return s.reverse_inline("relu")


@wrong(MIRROR)
def two_elements_at_once(s: tw.Schedule) -> object:
    return s.reverse_inline("y")


@wrong(BLUR.replace("0..m + 2:", "1..m + 2:"))
def a_part_of_the_buffer(s: tw.Schedule) -> object:
    return s.inline("t")


@wrong(of_size(CHAIN.replace("for i in 0..m", "for i in 0..2"), 8))
def points_that_no_producer_has(s: tw.Schedule) -> object:
    return s.reverse_inline("y")


@wrong(CHAIN.replace("    block y", "    block z(va = a, vb = b):\n      y[va, vb] = t[vb, va]\n    block y"))
def two_blocks_in_a_nest(s: tw.Schedule) -> object:
    return s.reverse_inline("y")


@wrong(MATMUL)
def no_loop_around_all(s: tw.Schedule) -> object:
    return s.compact("h")


@wrong(
    "func f(x: f32[8], y: f32[8]):\n  alloc t: f32[1] in arena\n  t[0] = 0\n"
    "  for i in 0..8:\n    t[0] = t[0] + x[i]\n    y[i] = t[0]"
)
def a_buffer_of_several_iterations(s: tw.Schedule) -> object:
    return s.compact("t")


@wrong(
    "func f(x: f32[8], y: f32[8]):\n  alloc t: f32[8] in arena\n"
    "  for i in 0..8:\n    y[i] = select(i > 0, t[max(i - 1, 0)], 0.0)\n    t[i] = x[i]"
)
def a_value_that_survives(s: tw.Schedule) -> object:
    return s.compact("t")


@wrong(
    "func f(x: f32[8], y: f32[8]):\n  alloc t: f32[1] in arena\n"
    "  for i in 0..8:\n    if x[i] > 0: t[0] = x[i]\n    y[i] = t[0]"
)
def a_store_that_may_not_happen(s: tw.Schedule) -> object:
    return s.compact("t")


@wrong(MATMUL)
def a_size_that_is_not_known(s: tw.Schedule) -> object:
    return s.set_scope("h", "stack")


@wrong(of_size(MATMUL, 199))
def too_large_for_registers(s: tw.Schedule) -> object:
    return s.set_scope("h", "register")


@wrong(of_size(MATMUL, 4))
def registers_that_are_prefetched(s: tw.Schedule) -> object:
    s.prefetch("h", s.get_loops("relu")[0], 1)
    return s.set_scope("h", "register")


@wrong(of_size(MATMUL, 4))
def a_result_that_is_prefetched(s: tw.Schedule) -> object:
    s.prefetch("y", s.get_loops("relu")[0], 1)
    return s.cache_write("relu", scope="register")


@wrong(MATMUL)
def no_scope(s: tw.Schedule) -> object:
    return s.set_scope("h", "heap")


@wrong(MATMUL)
def the_scope_of_an_argument(s: tw.Schedule) -> object:
    return s.set_scope("y", "stack")


@wrong(MATMUL)
def the_stride_of_the_last_dimension(s: tw.Schedule) -> object:
    return s.storage_align("h", 1, 8, 0)


@wrong(MATMUL.replace("h: f32[m, 9]", "h: f32[m, 9, 4]").replace("h[vi, vj]", "h[vi, vj, 0]"))
def a_stride_that_no_padding_gives(s: tw.Schedule) -> object:
    return s.storage_align("h", 0, 8, 2)


class TestPlacement(PrimitiveTests):
    primitives = PLACEMENT

    @pytest.mark.parametrize("text", [MATMUL, SOFTMAX, BLUR, CHAIN, MIRROR], ids=lambda t: t.split("[")[0].split()[-1])
    def test_random_schedules(self, text: str) -> None:
        before = parse(text)
        legal = 0
        for seed in range(12):
            draw, s = random.Random(seed), tw.Schedule(before)
            for _ in range(14):
                legal += random_step(s, draw)
            verify(s.func)
            for m in (1, 6):
                PLACEMENT.check_results(partial(evaluate, s.func), before, m, told=f"{s.trace}\n{s.func}")
        assert legal > 24
