"""cache_read, transform_layout, pad: programs before and after with the steps and why they are legal; that both compute
the same, in the evaluator and in machine code; and what each says where it may not be applied."""

from __future__ import annotations

from primitive_checks import Primitives, PrimitiveTests, one_file

import tilewright as tw

MATMUL = """
func matmul[m](x: f32[m, 77], w: f32[77, 45], y: f32[m, 45]):
  alloc h: f32[m, 45] in arena
  for i in 0..m, j in 0..45, k in 0..77:
    block dot(vi = i, vj = j, reduce vk = k):
      init: h[vi, vj] = 0
      h[vi, vj] += x[vi, vk] * w[vk, vj]
  for i1 in 0..m, j1 in 0..45:
    block y(vi = i1, vj = j1):
      y[vi, vj] = max(h[vi, vj], 1)
"""
FIXED = MATMUL.replace("[m]", "").replace("[m,", "[33,").replace("0..m", "0..33")
CHAIN = """
func chain[n](x: f32[n, 20], y: f32[n, 20]):
  alloc t: f32[n, 20] in arena
  for i in 0..n, j in 0..20:
    block t(vi = i, vj = j):
      t[vi, vj] = x[vi, vj] * 2 + 1
  for a in 0..n, b in 0..20:
    block y(vi = a, vj = b):
      y[vi, vj] = t[vi, 19 - vj]
"""
TILE = """
func tile[m](x: f32[m, 9], w: f32[9, 16], y: f32[m, 13]):
  for io in 0..(m + 5)//6:
    alloc t: f32[6, 16] in stack
    for k in 0..9, ii in 0..6, ji in 0..16:
      block dot(vi = io*6 + ii, vj = ji, reduce vk = k) where io*6 + ii < m and ji < 13:
        init: t[ii, ji] = 0
        t[ii, ji] += x[vi, vk] * w[vk, vj]
    for ii in 0..6, ji in 0..16:
      block relu(vi = io*6 + ii, vj = ji) where io*6 + ii < m:
        t[ii, ji] = max(t[ii, ji], 1)
    for ii in 0..6, ji in 0..16:
      block y(vi = io*6 + ii, vj = ji) where vi < m and vj < 13:
        y[vi, vj] = t[ii, ji]
"""

BESIDE = "  for io in 0..(m + 5)//6:\n    alloc t: f32[6, 16] in stack\n"
OUTLIVES = "  alloc t: f32[6, 16] in stack\n  for io in 0..(m + 5)//6:\n"
COLUMNS = """
func columns(x: f32[8, 9], w: f32[9, 16], y: f32[12, 13]):
  for io in 0..2:
    alloc t: f32[6, 16] in stack
    for ii in 0..6, ji in 0..16:
      block zero(vi = ii, vj = ji):
        t[vi, vj] = 0
    for k in 0..9, ii in 0..6, ji in 0..16:
      block dot(vi = io*6 + ii, vj = ji, reduce vk = k) where io*6 + ii < 8 and ji < 13:
        t[ii, ji] += x[vi, vk] * w[vk, vj]
    for ii in 0..6, ji in 0..16:
      block y(vi = io*6 + ii, vj = ji) where vj < 13:
        y[vi, vj] = t[ii, ji]
"""

IMAGE = """
func image[h, w](x: f32[3, h, w], y: f32[3, h, w]):
  alloc t: f32[3, h, w] in arena
  for c in 0..3, i in 0..h, j in 0..w, k in 0..3:
    block sum(vc = c, vi = i, vj = j, reduce vk = k):
      init: t[vc, vi, vj] = 0
      t[vc, vi, vj] += x[vk, vi, vj]
  for c in 0..3, i in 0..h, j in 0..w:
    block y(vc = c, vi = i, vj = j):
      y[vc, vi, vj] = t[vc, vi, vj] * 2
"""

DIFFERENCE = """
func difference[m](x: f32[m, 5], a: f32[5, 9], b: f32[1, 9], y: f32[m, 9]):
  for i in 0..m, j in 0..9, k in 0..5:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += x[vi, vk] * (a[vk, vj] - b[0, vj])
"""

GRAM = """
func gram[n](x: f32[n, 12], y: f32[12, 12]):
  alloc t: f32[n, 12] in arena
  for l in 0..n, j in 0..12:
    block t(vl = l, vj = j):
      t[vl, vj] = x[vl, vj] * 2
  for i in 0..12, j in 0..12, l in 0..n:
    block dot(vi = i, vj = j, reduce vl = l):
      init: y[vi, vj] = 0
      y[vi, vj] += t[vl, vi] * t[vl, vj]
"""

WEIGHTED = """
func weighted[n](x: f32[n, 12], w: f32[n], y: f32[12, 12]):
  for i in 0..12, j in 0..12, l in 0..n:
    block dot(vi = i, vj = j, reduce vl = l):
      init: y[vi, vj] = 0
      y[vi, vj] += abs(w[vl]) * x[vl, vi] * x[vl, vj]
"""

LAYOUT = Primitives("layout", sizes=(0, 1, 6, 13), message_files=one_file)
case, wrong = LAYOUT.case, LAYOUT.wrong


@case("cache-read-parameter", MATMUL)
def cache_read_parameter(s: tw.Schedule) -> None:
    assert s.cache_read("dot", "w") == "w.cache"
    assert s.cache_read("dot", "w.cache", scope="stack") == "w.cache.cache"


@case("cache-read-after-its-writer", CHAIN)
def cache_read_after_its_writer(s: tw.Schedule) -> None:
    s.cache_read("y", "t")


@case("view-factor", GRAM)
def view_factor(s: tw.Schedule) -> None:
    """One factor is packed, and the other is read as it lies."""
    assert s.view("dot", "t") == "t.view"
    assert s.cache_read("dot", "t.view") == "t.view.cache"
    s.transform_layout("t.view.cache", "l, j -> j // 4, l, j % 4")


@case("view-first-load", GRAM)
def view_first_load(s: tw.Schedule) -> None:
    s.view("dot", "t", 0)


@case("bind-expression", DIFFERENCE)
def bind_expression(s: tw.Schedule) -> None:
    """One subtraction for each element of both tables, not for each row that is multiplied."""
    assert s.bind_expression("dot", ["a", "b"]) == "dot.part"


@case("bind-factor", WEIGHTED)
def bind_factor(s: tw.Schedule) -> None:
    """A function of each row, not of each element of the result."""
    assert s.bind_factor("dot", 0) == "dot.part"


@case("bind-factor-of-one-load", WEIGHTED)
def bind_factor_of_one_load(s: tw.Schedule) -> None:
    s.bind_factor("dot", 1)


@case("bind-expression-in-panels", DIFFERENCE.replace("[m]", "").replace("[m,", "[10,").replace("0..m", "0..10"))
def bind_expression_in_panels(s: tw.Schedule) -> None:
    """The first tile of rows computes what all of them read, term by term."""
    s.bind_expression("dot", ["b"])
    s.bind_expression("dot", ["a", "dot.part"])
    s.transform_layout("dot.part2", "j, k -> j // 4, k, j % 4", pad=0.0)
    io, ii = s.split("i", 4, tail="mask")
    s.reorder(io, "k", ii, "j")
    s.partition(io, 1)
    s.compute_at("dot.part2", s.get_loops("dot")[1])


@case("layout-panels", CHAIN)
def layout_panels(s: tw.Schedule) -> None:
    """4 divides 20: nothing is padded."""
    s.transform_layout("t", lambda i, j: (j // 4, i, j % 4), pad=0)


@case("layout-padded", CHAIN)
def layout_padded(s: tw.Schedule) -> None:
    s.transform_layout("t", "i, j -> j // 8, i // 4, i % 4, j % 8", pad=-1.5)


@case("layout-with-unwritten-places", CHAIN)
def layout_with_unwritten_places(s: tw.Schedule) -> None:
    s.transform_layout("t", "i, j -> i // 4, j, i % 4")
    s.transform_layout("t", "o, j, i -> j, o, i")


@case("layout-three-digits", CHAIN)
def layout_three_digits(s: tw.Schedule) -> None:
    s.transform_layout("t", "i, j -> j // 12, i, j // 4 % 3, j % 4", pad=float("-inf"))


@case("layout-of-a-sum", MATMUL)
def layout_of_a_sum(s: tw.Schedule) -> None:
    """Its elements are stored many times: the nest that does stays as it is."""
    s.transform_layout("h", "i, j -> j, i")


@case("layout-whole-panels-apart", FIXED)
def layout_whole_panels_apart(s: tw.Schedule) -> None:
    """The panels that are full are copied without a condition."""
    s.cache_read("dot", "w")
    s.transform_layout("w.cache", "k, j -> j // 16, k, j % 16", pad=0.0)
    jo, _, ji = s.get_loops("w.cache")
    s.vectorize(ji)
    s.partition(jo)


TRIANGLE = """
func triangle(x: f32[6, 8], w: f32[8, 8], y: f32[6, 8]):
  for i in 0..6, j in 0..8, k in 0..8:
    block dot(vi = i, vj = j, reduce vk = k) where vk <= vj:
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
"""


@case("partition-twice", TRIANGLE)
def partition_twice(s: tw.Schedule) -> None:
    """Of a triangle: what lies before its edge without a condition, the edge, and nothing of what lies behind it."""
    i, j, k = s.get_loops("dot")
    jo, ji = s.split(j, 4)
    s.reorder(jo, i, k, ji)
    s.decompose_reduction("dot", k)
    _, rest = s.partition(k)
    _, beyond = s.partition(rest)
    assert beyond is None


MIRRORED = TILE.replace("x[vi, vk]", "x[m - 1 - abs(m - 1 - vi*2), vk]")
"""Beyond the end, a place is before the first row."""


@case("pad-mirrored", MIRRORED)
@case("pad-tile", TILE)
def pad_tile(s: tw.Schedule) -> None:
    s.pad("dot")
    s.pad("relu")


@case("pad-one-loop", TILE)
def pad_one_loop(s: tw.Schedule) -> None:
    s.pad("dot", s.get_loops("dot")[-1])


@case("pad-some-conditions", TILE)
def pad_some_conditions(s: tw.Schedule) -> None:
    """A condition on terms of the sum stays."""
    s.split("k", 4, tail="mask")
    s.pad("dot")


@case("pad-columns-alone", COLUMNS)
def pad_columns_alone(s: tw.Schedule) -> None:
    """The zeros of the rows beyond the end are read."""
    s.pad("dot")


@case("pad-register-tiles-of-any-height", MATMUL)
@case("pad-register-tiles", FIXED)
def register_tiles(s: tw.Schedule) -> None:
    """A matrix product of any size in register tiles of 6 x 16 without a condition on what it multiplies."""
    s.cache_read("dot", "w")
    s.transform_layout("w.cache", lambda k, j: (j // 16, k, j % 16), pad=0.0)
    po, _, pi = s.get_loops("w.cache")
    s.vectorize(pi)
    s.partition(po)
    s.transform_layout("h", lambda i, j: (i // 6, j // 16, i % 6, j % 16))
    i, j, k = s.get_loops("dot")
    io, ii = s.split(i, 6, tail="mask")
    jo, ji = s.split(j, 16, tail="mask")
    s.reorder(jo, io, k, ii, ji)
    s.pad("dot")
    s.vectorize(ji)
    s.unroll(ii)
    _, j1 = s.get_loops("y")
    _, ji1 = s.split(j1, 16, tail="mask")
    s.vectorize(ji1)


@case("flatten-a-local-buffer", CHAIN)
def flatten_a_local_buffer(s: tw.Schedule) -> None:
    """Of loops that are apart, axes stay apart."""
    s.flatten("t", 0)


@case("flatten-fused-loops", IMAGE)
def flatten_fused_loops(s: tw.Schedule) -> None:
    """Axes of a fused loop are one; what they index elsewhere is divided."""
    for block in ("sum", "y"):
        s.fuse(*s.get_loops(block)[1:3])
    s.flatten("t", 1)


@case("pad-an-axis-that-is-divided", IMAGE)
def pad_an_axis_that_is_divided(s: tw.Schedule) -> None:
    """The last position is repeated beyond the end: no bound of a row or a column would do."""
    flatten_fused_loops(s)
    for block in ("sum", "y"):
        s.split(s.get_loops(block)[1], 4, tail="mask")
    s.compute_at("sum", s.get_loops("y")[1])
    s.compact("t")
    block = s.get_loops("sum")
    s.pad("sum", block[-2])


@wrong(CHAIN)
def no_dimension_to_join(s: tw.Schedule) -> object:
    return s.flatten("t", 1)


@wrong(CHAIN)
def dimensions_of_the_caller(s: tw.Schedule) -> object:
    return s.flatten("x", 0)


@wrong(MATMUL)
def a_buffer_that_is_written_beside(s: tw.Schedule) -> object:
    return s.cache_read("dot", "h")


@wrong(MATMUL)
def a_buffer_that_is_not_read(s: tw.Schedule) -> object:
    return s.cache_read("dot", "y")


@wrong(MATMUL)
def a_buffer_that_is_not_there(s: tw.Schedule) -> object:
    return s.cache_read("dot", "z")


@wrong(WEIGHTED)
def a_factor_that_is_not_there(s: tw.Schedule) -> object:
    return s.bind_factor("dot", 2)


@wrong(WEIGHTED)
def a_factor_in_split_loops(s: tw.Schedule) -> object:
    s.split("j", 5, tail="mask")
    return s.bind_factor("dot", 0)


@wrong(CHAIN)
def a_factor_of_no_sum(s: tw.Schedule) -> object:
    return s.bind_factor("y", 0)


@wrong(GRAM)
def a_view_of_what_is_written(s: tw.Schedule) -> object:
    return s.view("dot", "y")


@wrong(GRAM)
def a_view_of_a_load_that_is_not_there(s: tw.Schedule) -> object:
    return s.view("dot", "t", 2)


@wrong(GRAM)
def a_view_of_what_lives_inside(s: tw.Schedule) -> object:
    s.compute_at("t", s.get_loops("dot")[2])
    s.compact("t")
    return s.view("dot", "t")


@wrong(MATMUL)
def an_expression_of_what_is_not_read(s: tw.Schedule) -> object:
    return s.bind_expression("dot", ["y"])


@wrong(MATMUL)
def an_expression_that_changes(s: tw.Schedule) -> object:
    return s.bind_expression("dot", ["w", "h"])


@wrong(DIFFERENCE)
def an_expression_in_split_loops(s: tw.Schedule) -> object:
    s.split("j", 4, tail="mask")
    return s.bind_expression("dot", ["a", "b"])


@wrong(DIFFERENCE.replace("0..9, k", "0..9, k in 0..1, l").replace("vk = k", "vk = k + l"))
def an_expression_of_two_loops(s: tw.Schedule) -> object:
    return s.bind_expression("dot", ["a", "b"])


@wrong(CHAIN)
def an_expression_of_no_buffers(s: tw.Schedule) -> object:
    return s.bind_expression("y", [])


@wrong(MATMUL)
def a_scope_that_is_not_local(s: tw.Schedule) -> object:
    return s.cache_read("dot", "w", scope="argument")


@wrong(MATMUL)
def registers_of_unknown_number(s: tw.Schedule) -> object:
    return s.cache_read("dot", "x", scope="register")


@wrong(TILE)
def a_buffer_of_one_iteration(s: tw.Schedule) -> object:
    return s.cache_read("y", "t")


@wrong("func f(x: f32[8], y: f32[8]):\n  view v: f32[8] = y\n  for i in 0..8:\n    block b(vi = i): v[vi] = y[7 - vi]")
def a_buffer_that_is_written_under_another_name(s: tw.Schedule) -> object:
    return s.cache_read("b", "y")


@wrong(MATMUL)
def a_parameter(s: tw.Schedule) -> object:
    return s.transform_layout("w", "k, j -> j, k")


@wrong(MATMUL)
def padding_that_nobody_writes(s: tw.Schedule) -> object:
    return s.transform_layout("h", "i, j -> j // 16, i, j % 16", pad=0)


@wrong(MATMUL)
def too_few_indices(s: tw.Schedule) -> object:
    return s.transform_layout("h", "i -> i // 4, i % 4")


@wrong(MATMUL)
def no_arrow(s: tw.Schedule) -> object:
    return s.transform_layout("h", "j, i")


@wrong(MATMUL)
def no_digit(s: tw.Schedule) -> object:
    return s.transform_layout("h", "i, j -> i*2, j")


@wrong(MATMUL)
def an_index_left_out(s: tw.Schedule) -> object:
    return s.transform_layout("h", "i, j -> i")


@wrong(MATMUL)
def a_digit_left_out(s: tw.Schedule) -> object:
    return s.transform_layout("h", "i, j -> i, j % 16")


@wrong(MATMUL)
def digits_that_do_not_fit(s: tw.Schedule) -> object:
    return s.transform_layout("h", lambda i, j: (i, j // 16, j % 8))


@wrong(MATMUL)
def an_index_twice(s: tw.Schedule) -> object:
    return s.transform_layout("h", "i, j -> i, j, j // 4")


@wrong(MATMUL)
def an_unknown_index(s: tw.Schedule) -> object:
    return s.transform_layout("h", "i, j -> i, k")


@wrong("func f(y: f32[8]):\n  alloc t: f32[8] in arena\n  view v: f32[2, 4] = t\n  for i in 0..8: y[i] = t[i]")
def a_buffer_with_two_names(s: tw.Schedule) -> object:
    return s.transform_layout("t", "i -> i // 4, i % 4")


@wrong(MATMUL)
def no_condition(s: tw.Schedule) -> object:
    return s.pad("dot")


@wrong(MATMUL)
def a_result_of_the_caller(s: tw.Schedule) -> object:
    s.split("j1", 16, tail="mask")
    return s.pad("y")


@wrong(MATMUL)
def elements_that_are_not_there(s: tw.Schedule) -> object:
    s.split("j", 16, tail="mask")
    return s.pad("dot")


@wrong(MATMUL)
def terms_of_a_sum(s: tw.Schedule) -> object:
    s.split("k", 16, tail="mask")
    return s.pad("dot")


@wrong(TILE.replace("where vi < m and vj < 13", "where vi < m and vj < 14").replace("13]", "16]"))
def a_reader_of_more(s: tw.Schedule) -> object:
    s.pad("relu")
    return s.pad("dot") or s.pad("dot")


@wrong(TILE.replace(BESIDE, OUTLIVES).replace(" and ji < 13:", ":"))
def a_tile_that_outlives_an_iteration(s: tw.Schedule) -> object:
    """What is stored beyond the end could be read in the next iteration."""
    return s.pad("dot")


@wrong(TILE)
def a_loop_of_no_condition(s: tw.Schedule) -> object:
    return s.pad("dot", s.get_loop("k"))


@wrong(TILE.replace("    alloc", "    let c = io*6\n    alloc"))
def a_value_with_a_name(s: tw.Schedule) -> object:
    return s.pad("dot")


class TestLayout(PrimitiveTests):
    primitives = LAYOUT

    def test_the_padded_product_has_no_conditions(self) -> None:
        text = str(LAYOUT.scheduled("pad-register-tiles-of-any-height").after)
        assert "block dot(vi = io*6 + ii, vj = jo*16 + ji, reduce vk = k):" in text
        assert "h[vi//6, vj//16, vi%6, vj%16] += x[min(vi, m - 1), vk] * w.cache[vj//16, vk, vj%16]" in text
