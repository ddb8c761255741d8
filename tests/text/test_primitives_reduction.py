"""cache_write, stage, decompose_reduction, rfactor: programs before and after with the steps and why they are legal;
that both compute the same, in the evaluator and in machine code; and what each says where it may not be applied."""

from __future__ import annotations

from functools import partial

import pytest
from primitive_checks import Primitives, PrimitiveTests, one_file

import tilewright as tw
from tilewright.loops.edit import blocks

MATMUL = """
func matmul[n](x: f32[n, 13], w: f32[13, 9], y: f32[n, 9]):
  for i in 0..n, j in 0..9, k in 0..13:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
"""
SUM = """
func sum[n](x: f32[n], y: f32[]):
  for k in 0..n:
    block sum(reduce vk = k):
      init: y[] = 2
      y[] += x[vk]
"""
STENCIL = """
func stencil[n](x: f32[n], y: f32[n]):
  for i in 0..n:
    block zero(vi = i):
      y[vi] = 0
  for i in 1..n - 1:
    block blur(vi = i):
      y[vi] = x[vi - 1] + x[vi] + x[vi + 1]
"""
SOFTMAX = """
func softmax[n](x: f32[n, 7], y: f32[n, 7]):
  alloc top: f32[n] in arena
  alloc total: f32[n] in arena
  for i in 0..n:
    for k in 0..7:
      block top(vi = i, reduce vk = k):
        init: top[vi] = -inf
        top[vi] = max(top[vi], x[vi, vk])
    for k in 0..7:
      block total(vi = i, reduce vk = k):
        init: total[vi] = 0
        total[vi] += x[vi, vk] - top[vi]
    for j in 0..7:
      block y(vi = i, vj = j):
        y[vi, vj] = x[vi, vj] + total[vi]
"""
WINDOW = """
func window[n](x: f32[n + 2], w: f32[3], y: f32[n]):
  for i in 0..n, k in 0..3:
    block conv(vi = i, reduce vk = k) where i + k < n + 1:
      init: y[vi] = 1
      y[vi] += x[vi + vk] * w[vk]
"""
PREFIX = """
func prefix[n](x: f32[n], y: f32[n + 1]):
  y[0] = 0
  for i in 0..n:
    y[i + 1] = y[i] + x[i]
"""
SKEWED = """
func skewed(x: f32[5, 6], y: f32[6]):
  for i in 0..5, j in 0..6:
    block a(vi = i, vj = j):
      y[vj] = x[vi, vj]
    block b(vi = i, vj = j):
      y[5 - vj] = y[5 - vj] + x[vi, vj]
"""

REDUCTION = Primitives("reduction", sizes=(0, 1, 2, 5, 13), message_files=partial(one_file, space=" "))
case, wrong = REDUCTION.case, REDUCTION.wrong


@case("cache-write", MATMUL)
def cache_write(s: tw.Schedule) -> None:
    assert s.cache_write("dot") == "y.write"


@case("cache-write-tiles", MATMUL)
def cache_write_tiles(s: tw.Schedule) -> None:
    """Masks of a split leave out nothing that is in the buffer."""
    i, j, k = s.get_loops("dot")
    io, ii = s.split(i, 4, tail="clip")
    jo, ji = s.split(j, 4, tail="mask")
    s.reorder(io, jo, k, ii, ji)
    s.vectorize(ji)
    s.cache_write("dot")


@case("cache-write-parts", MATMUL)
def cache_write_parts(s: tw.Schedule) -> None:
    """Two blocks in a nest that fill a buffer together."""
    _i, j, _ = s.get_loops("dot")
    s.split(j, 4, tail="peel")
    s.cache_write("dot.tail")


@case("cache-write-middle", STENCIL)
def cache_write_middle(s: tw.Schedule) -> None:
    """Only what the nest stores is copied."""
    s.cache_write("blur")


@case("cache-write-decomposed", SOFTMAX)
def cache_write_decomposed(s: tw.Schedule) -> None:
    """The buffer is read again in the same nest, after the init that is a block of its own."""
    s.decompose_reduction("top", s.get_loops("top")[1])
    s.cache_write("top")


@case("stage-register-tile", MATMUL)
def stage_register_tile(s: tw.Schedule) -> None:
    """A tile stays in registers while a block of the terms is added."""
    i, j, k = s.get_loops("dot")
    io, ii = s.split(i, 4, tail="mask")
    jo, ji = s.split(j, 4, tail="mask")
    ko, ki = s.split(k, 8, tail="clip")
    s.reorder(ko, io, jo, ki, ii, ji)
    s.decompose_reduction("dot", ko)
    assert s.stage("y", jo, scope="register") == "y.local"
    s.vectorize(ji)
    s.unroll(ii)


@case("stage-operands", MATMUL)
def stage_operands(s: tw.Schedule) -> None:
    """What is only read is only loaded; the nest may still run in parallel."""
    i, j, k = s.get_loops("dot")
    io, ii = s.split(i, 4, tail="clip")
    s.reorder(io, j, k, ii)
    s.stage("x", io)
    s.stage("w", j)
    s.parallel(io)


@case("stage-window", STENCIL)
def stage_window(s: tw.Schedule) -> None:
    """A box that reaches over the end of its buffer; a result that is only stored."""
    io, _ = s.split(s.get_loops("blur")[0], 8, tail="mask")
    s.stage("x", io)
    s.stage("y", io)


@case("stage-stored-before", SOFTMAX)
def stage_stored_before(s: tw.Schedule) -> None:
    """A value that lives in one iteration is not loaded."""
    (i, _) = s.get_loops("top")
    s.stage("top", i, scope="register")
    s.stage("x", i)


@case("stage-prefix", PREFIX)
def stage_prefix(s: tw.Schedule) -> None:
    """Each iteration goes on from what the one before has stored."""
    io, _ = s.split("i", 4, tail="clip")
    s.stage("y", io)


@case("decompose", MATMUL)
def decompose(s: tw.Schedule) -> None:
    assert s.decompose_reduction("dot", s.get_loops("dot")[2]) == "dot.init"


@case("decompose-further-out", MATMUL)
def decompose_further_out(s: tw.Schedule) -> None:
    """Before loops that are no reduce loops; how they run is kept, but for parallel loops."""
    i, j, k = s.get_loops("dot")
    jo, ji = s.split(j, 4, tail="mask")
    ko, ki = s.split(k, 4, tail="mask")
    s.reorder(i, jo, ko, ki, ji)
    s.vectorize(ji)
    s.parallel(jo)
    s.decompose_reduction("dot", i)


@case("decompose-window", WINDOW)
def decompose_window(s: tw.Schedule) -> None:
    """A condition on reduce axes does not keep the init from running."""
    i, k = s.get_loops("conv")
    s.reorder(k, i)
    s.decompose_reduction("conv", k)


@case("rfactor-lanes", MATMUL)
def rfactor_lanes(s: tw.Schedule) -> None:
    _i, _j, k = s.get_loops("dot")
    _ko, ki = s.split(k, 8, tail="mask")
    assert s.rfactor("dot", ki, axis=2) == ("dot.partial", "dot")
    s.vectorize(ki)


@case("rfactor-parallel-sum", SUM)
def rfactor_parallel_sum(s: tw.Schedule) -> None:
    ko, _ = s.split("k", 4, tail="clip")
    s.rfactor("sum", ko)
    s.parallel(ko)


@case("rfactor-whole", SUM)
def rfactor_whole(s: tw.Schedule) -> None:
    """Nothing is left to accumulate in the nest."""
    s.rfactor("sum", "k")
    s.parallel("k")


@case("rfactor-window", WINDOW)
def rfactor_window(s: tw.Schedule) -> None:
    """Conditions on the loop are those of the partial results."""
    s.rfactor("conv", "k", axis=1)


@case("rfactor-decomposed", MATMUL)
def rfactor_decomposed(s: tw.Schedule) -> None:
    """Partial results are added to what is there."""
    i, j, k = s.get_loops("dot")
    s.reorder(k, i, j)
    s.decompose_reduction("dot", k)
    s.rfactor("dot", k)
    s.parallel(k)


@wrong(SKEWED.replace("y[5 - vj] = y[5 - vj]", "y[vj] = y[5 - vj]"))
def cache_write_of_what_is_read_first(s: tw.Schedule) -> object:
    return s.cache_write("a")


@wrong(
    "func f[n](x: f32[n, n], y: f32[n, n]):\n  for i in 0..n, j in 0..i:\n    block b(v = i, u = j): y[v, u] = x[v, u]"
)
def cache_write_of_a_triangle(s: tw.Schedule) -> object:
    return s.cache_write("b")


@wrong("func f(x: f32[8], y: f32[8]):\n  for i in 0..4:\n    block b(v = i): y[v*2] = x[v]")
def cache_write_of_every_other_element(s: tw.Schedule) -> object:
    return s.cache_write("b")


@wrong("func f[n](x: f32[8], y: f32[8]):\n  for r in 0..n, i in 0..8:\n    block b(v = i): y[v] = x[v]")
def cache_write_of_a_nest_that_may_not_run(s: tw.Schedule) -> object:
    return s.cache_write("b")


@wrong(
    """
func f(x: f32[8], out y: f32[8], out z: f32[8]):
  for i in 0..8:
    block b(v = i):
      y[v] = x[v]
      z[v] = x[v]
"""
)
def cache_write_of_two_outputs(s: tw.Schedule) -> object:
    return s.cache_write("b")


@wrong(MATMUL)
def cache_write_to_registers(s: tw.Schedule) -> object:
    return s.cache_write("dot", scope="register")


@wrong(
    """
func f(x: f32[8], y: f32[8]):
  view z: f32[2, 4] = y
  for i in 0..8:
    block b(v = i): y[v] = x[v] + z[0, 0]
"""
)
def cache_write_of_memory_with_two_names(s: tw.Schedule) -> object:
    return s.cache_write("b")


@wrong(MATMUL)
def stage_with_an_init_outside(s: tw.Schedule) -> object:
    i, j, k = s.get_loops("dot")
    s.reorder(k, i, j)
    return s.stage("y", i)


@wrong(MATMUL)
def stage_what_is_not_touched(s: tw.Schedule) -> object:
    return s.stage("z", "i")


@wrong(MATMUL)
def stage_a_size_that_is_not_known(s: tw.Schedule) -> object:
    i, j, _k = s.get_loops("dot")
    s.reorder(j, i)
    return s.stage("x", j, scope="stack")


@wrong("func f[n](x: f32[n, n], y: f32[n]):\n  for i in 0..n, j in 0..i*i:\n    y[i] = x[i, j]")
def stage_a_size_that_changes(s: tw.Schedule) -> object:
    return s.stage("x", "i", scope="arena")


@wrong("func f(x: f32[4], y: f32[8]):\n  for i in 0..4, j in 0..2:\n    if x[i] > 0: y[j*4 + i] = x[i]")
def stage_what_other_threads_store(s: tw.Schedule) -> object:
    """The box of an iteration holds elements of others."""
    s.parallel("i")
    return s.stage("y", "i")


@wrong(MATMUL)
def stage_in_lanes(s: tw.Schedule) -> object:
    _i, j, _k = s.get_loops("dot")
    _, ji = s.split(j, 4, tail="mask")
    s.vectorize(ji)
    return s.stage("y", ji, scope="register")


@wrong(MATMUL)
def stage_in_no_memory(s: tw.Schedule) -> object:
    return s.stage("w", "j", scope="constant")


@wrong("func f(x: f32[8], y: f32[8]):\n  for i in 0..8:\n    alloc t: f32[] in stack\n    t[] = x[i]\n    y[i] = t[]")
def stage_what_lives_inside(s: tw.Schedule) -> object:
    return s.stage("t", "i")


@wrong(MATMUL)
def decompose_inside_the_sum(s: tw.Schedule) -> object:
    i, j, k = s.get_loops("dot")
    s.reorder(i, k, j)
    return s.decompose_reduction("dot", j)


@wrong(MATMUL)
def decompose_twice(s: tw.Schedule) -> object:
    _i, _j, k = s.get_loops("dot")
    s.decompose_reduction("dot", k)
    return s.decompose_reduction("dot", k)


@wrong(SOFTMAX.replace("total[", "top[").replace("- top[vi]", ""))
def decompose_before_what_is_read(s: tw.Schedule) -> object:
    return s.decompose_reduction("total", s.get_loops("total")[0])


@wrong(SUM.replace("  for k", "  for r in 0..3, k"))
def decompose_what_is_repeated(s: tw.Schedule) -> object:
    return s.decompose_reduction("sum", "r")


@wrong(
    """
func f(x: f32[4, 8], y: f32[4]):
  for i in 0..4:
    alloc t: f32[1] in stack
    for k in 0..8:
      block t(vi = i, reduce vk = k):
        init: t[0] = 0
        t[0] += x[vi, vk]
    block y(vi = i):
      y[vi] = t[0]
"""
)
def decompose_before_the_buffer(s: tw.Schedule) -> object:
    return s.decompose_reduction("t", "i")


@wrong(
    """
func f(x: f32[4, 8], y: f32[4]):
  alloc t: f32[1] in stack
  for i in 0..4:
    for k in 0..8:
      block t(vi = i, reduce vk = k):
        init: t[0] = 0
        t[0] += x[vi, vk]
    block y(vi = i):
      y[vi] = t[0]
"""
)
def decompose_an_element_for_all(s: tw.Schedule) -> object:
    return s.decompose_reduction("t", "i")


@wrong(SUM)
def rfactor_clipped(s: tw.Schedule) -> object:
    _, ki = s.split("k", 4, tail="clip")
    return s.rfactor("sum", ki)


@wrong(SUM)
def rfactor_with_a_sum_outside(s: tw.Schedule) -> object:
    ko, ki = s.split("k", 4, tail="mask")
    s.stage("x", ko)
    return s.rfactor("sum", ki)


@wrong(
    """
func f[n](x: f32[n, n], y: f32[n]):
  for i in 0..n:
    if i > 2:
      for j in 0..i:
        block b(v = i, reduce u = j): y[v] += x[v, u]
"""
)
def rfactor_of_sums_of_other_lengths(s: tw.Schedule) -> object:
    return s.rfactor("b", "j")


@wrong(MATMUL)
def rfactor_a_spatial_loop(s: tw.Schedule) -> object:
    return s.rfactor("dot", "i")


@wrong(MATMUL)
def rfactor_to_no_axis(s: tw.Schedule) -> object:
    return s.rfactor("dot", "k", axis=3)


@wrong(SUM.replace("y[] += x[vk]", "y[] = y[] * x[vk] + 1"))
def rfactor_of_a_recurrence(s: tw.Schedule) -> object:
    return s.rfactor("sum", "k")


@wrong(SOFTMAX)
def rfactor_of_a_nest_with_others(s: tw.Schedule) -> object:
    return s.rfactor("top", s.get_loops("top")[0])


@wrong(SUM.replace("y[] += x[vk]", "y[] += y[] * x[vk]"))
def rfactor_of_powers(s: tw.Schedule) -> object:
    return s.rfactor("sum", "k")


class TestReduction(PrimitiveTests):
    primitives = REDUCTION

    def test_programs(self, request: pytest.FixtureRequest, case: str) -> None:
        """No two blocks of a program have the same name, either."""
        super().test_programs(request, case)
        names = [block.name for block in blocks(REDUCTION.scheduled(case).after.body)]
        assert len(set(names)) == len(names)
