"""Blocks of contractions: on a machine with caches so small that small products have every kind of block."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

import tilewright as tw
from tilewright.expr.nodes import Const, Select
from tilewright.loops.edit import allocations, blocks, statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import For, Function, LoopKind, Prefetch, Store
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.plan.facts.contraction import Contraction, find_contraction
from tilewright.plan.gemm import choice as contraction_choice
from tilewright.plan.gemm import operands as contraction_operands
from tilewright.plan.gemm.choice import Choice, choose
from tilewright.plan.gemm.schedule import schedule_as_it_lies
from tilewright.plan.tile.registers import choose_register_tile
from tilewright.schedule.inline import all_inlined
from tilewright.target import Target, native
from tilewright.target.host import Cache
from tilewright.types.scopes import Scope

SMALL = (Cache(1, 1 << 10, 4, 64, 1), Cache(2, 16 << 10, 8, 64, 1), Cache(3, 64 << 10, 8, 64, 2))
PRODUCT = """
func product(x: f32[{m}, {k}], w: f32[{k}, {n}]{constant}, b: f32[{n}], y: f32[{m}, {n}]):
  alloc h: f32[{m}, {n}] in arena
  for i in 0..{m}, j in 0..{n}, k in 0..{k}:
    block dot(vi = i, vj = j, reduce vk = k):
      init: h[vi, vj] = 0.0
      h[vi, vj] += x[vi, vk] * w[vk, vj]
  for i in 0..{m}, j in 0..{n}:
    block out(vi = i, vj = j):
      y[vi, vj] = max(h[vi, vj] + b[vj], 0.0)
"""


ALONE = """
func product(x: f32[12, 200], w: f32[200, 64], y: f32[12, 64]):
  for i in 0..12, j in 0..64, k in 0..200:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A product of m x k by k x n, and what is chosen for it."""

    m: int | str
    n: int
    k: int
    constant: bool
    near: bool
    cut: bool
    rows_stay: bool = True

    def function(self) -> Function:
        text = PRODUCT.format(m=self.m, n=self.n, k=self.k, constant=" in constant" if self.constant else "")
        return parse(text.replace("product(", "product[m](") if self.m == "m" else text)


CASES = {
    "all at once": Case(13, 33, 9, True, near=False, cut=False),
    "panels near": Case(151, 112, 24, True, near=True, cut=False),
    "panels near, with an edge": Case(151, 105, 24, True, near=True, cut=False),
    "panels near, any rows": Case("m", 112, 24, True, near=True, cut=False),
    "sums cut": Case(31, 40, 200, True, near=False, cut=True),
    "sums cut, less than a panel": Case(31, 20, 200, True, near=False, cut=True),
    "packed by the call": Case(150, 64, 27, False, near=True, cut=False),
    "packed by the call, with an edge": Case(150, 63, 27, False, near=True, cut=False),
    "packed at once": Case(150, 16, 27, False, near=False, cut=False),
    "packed in groups": Case(13, 288, 29, False, near=True, cut=False, rows_stay=False),
    "packed in groups, with an edge": Case(13, 282, 29, False, near=True, cut=False, rows_stay=False),
    "packed in groups, sums cut": Case(14, 282, 70, False, near=True, cut=True, rows_stay=False),
    "one row": Case(1, 128, 40, True, near=False, cut=False),
    "one row, with an edge": Case(1, 101, 40, True, near=False, cut=False),
    "one row of a call": Case(1, 130, 40, False, near=False, cut=True),
    "one row of a call, whole vectors": Case(1, 120, 37, False, near=False, cut=True),
    "few rows of a call, sums cut": Case(12, 64, 200, False, near=False, cut=True, rows_stay=True),
    "few rows of a call, sums cut, with an edge": Case(12, 48, 200, False, near=False, cut=True),
    "packed panel by panel": Case(13, 16 * 7, 100, False, near=False, cut=True, rows_stay=False),
}


@pytest.fixture(autouse=True)
def small_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction_choice, "MANY_ROWS", 12 << 10)
    monkeypatch.setattr(contraction_choice, "PACKED_TERMS", 32)
    monkeypatch.setattr(contraction_operands, "FEW_ROWS", 12)
    monkeypatch.setattr(contraction_operands, "FEW_SHORT_ROWS", 12)
    monkeypatch.setattr(contraction_operands, "LEAST_TERMS", 16)


def small(target: Target) -> Target:
    return dataclasses.replace(target, caches=SMALL)


V3 = small(Target.parse("x86-64-v3"))
"""What the cases were made for: vectors of 8 floats in 16 registers."""


def choice_of(function: Function) -> Choice:
    found = find_contraction(all_inlined(function))
    assert found is not None
    choice = choose(found, V3)
    assert choice is not None
    return choice


@pytest.mark.parametrize("name", CASES)
def test_each_case_has_its_kind_of_blocks(name: str) -> None:
    case = CASES[name]
    choice = choice_of(case.function())
    assert (choice.block_panels is not None, choice.block_terms is not None) == (case.near, case.cut)
    assert choice.rows_stay == case.rows_stay


@pytest.mark.parametrize("target", [V3, small(native())], ids=["v3", "native"])
@pytest.mark.parametrize("name", CASES)
def test_blocks_compute_the_product(name: str, target: Target) -> None:
    case = CASES[name]
    s = schedule_as_it_lies(case.function(), target)
    assert s is not None
    verify(s.func)
    rng = np.random.default_rng(3)
    kernel = tw.build(s.func)
    for m in (1, 6, 150) if isinstance(case.m, str) else (case.m,):
        x, w = (rng.standard_normal(shape, np.float32) for shape in ((m, case.k), (case.k, case.n)))
        b, y = rng.standard_normal(case.n, np.float32), np.full((m, case.n), np.nan, np.float32)
        kernel(x, w, b, y)
        np.testing.assert_allclose(y, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["packed in groups, with an edge", "packed by the call, with an edge"])
def test_the_evaluator_agrees(name: str) -> None:
    case = dataclasses.replace(CASES[name], m=13)
    s = schedule_as_it_lies(case.function(), V3)
    assert s is not None
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((13, case.k), (case.k, case.n)))
    b, y = rng.standard_normal(case.n, np.float32), np.full((13, case.n), np.nan, np.float32)
    evaluate(s.func, [x, w, b, y])
    np.testing.assert_allclose(y, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-4, atol=1e-4)


def test_copies_inside_an_edge_are_plain() -> None:
    """Only the panel over the edge chooses element by element what it copies."""
    s = schedule_as_it_lies(CASES["packed in groups, with an edge"].function(), V3)
    assert s is not None
    stored = [b.body.value for b in blocks(s.func.body) if b.name.startswith("w.cache") and isinstance(b.body, Store)]
    assert [isinstance(value, Select) for value in stored] == [False, True]


def test_one_row_is_read_from_several_panels_at_once() -> None:
    choice = choice_of(CASES["one row"].function())
    assert (choice.tile.columns, choice.panel_columns) == (64, 16)
    s = schedule_as_it_lies(CASES["one row"].function(), V3)
    assert s is not None
    (panels,) = [b for b in allocations(s.func.body) if b.name == "w.cache"]
    assert [str(e) for e in panels.shape] == ["8", "40", "16"]


def test_threads_share_blocks_of_rows_and_groups_of_panels() -> None:
    s = schedule_as_it_lies(CASES["panels near"].function(), V3)
    assert s is not None
    loops = [f for f in statements(s.func.body) if isinstance(f, For) and f.kind is LoopKind.PARALLEL]
    choice = choice_of(CASES["panels near"].function())
    assert choice.block_panels is not None
    groups = -(-112 // (choice.tile.columns * choice.block_panels))
    rows = -(-151 // (choice.tile.rows * choice.block_tiles))
    assert [str(f.end) for f in loops] == [str(groups * rows)]


def test_threads_share_panels_where_blocks_of_rows_are_few() -> None:
    """One block of rows leaves the panels to share, with the blocks of terms inside of each."""
    case = Case(31, 200, 200, True, near=False, cut=True)
    assert choice_of(case.function()).block_terms is not None
    s = schedule_as_it_lies(case.function(), V3)
    assert s is not None
    loops = [f for f in statements(s.func.body) if isinstance(f, For) and f.kind is LoopKind.PARALLEL]
    assert [str(f.end) for f in loops] == [str(-(-200 // choice_of(case.function()).tile.columns))]


def test_threads_share_the_rows_of_a_panel_over_the_edge() -> None:
    """Panels of whole vectors are shared, and of the one beside them, which has fewer, the tiles of rows."""
    functions = {n: Case(13, n, 9, True, near=False, cut=False).function() for n in range(130, 150)}
    tiles = {n: choice_of(function).tile for n, function in functions.items()}
    n, tile = next((n, t) for n, t in tiles.items() if 0 < n % t.columns <= t.columns - t.lanes)
    s = schedule_as_it_lies(functions[n], V3)
    assert s is not None
    loops = [f for f in statements(s.func.body) if isinstance(f, For) and f.kind is LoopKind.PARALLEL]
    assert [str(f.end) for f in loops] == [str(n // tile.columns), str(-(-13 // tile.rows))]
    kernel, rng = tw.build(s.func, threads=3), np.random.default_rng(5)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((13, 9), (9, n), (n,)))
    y = np.full((13, n), np.nan, np.float32)
    kernel(x, w, b, y)
    np.testing.assert_allclose(y, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-4, atol=1e-4)


def test_groups_of_panels_are_even_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """196 panels are fourteen groups, where the first tile does not pack them: two threads share seven of twice the
    size less evenly."""
    monkeypatch.undo()
    monkeypatch.setattr(contraction_choice, "first_tile_packs", lambda *_: False)
    found = find_contraction(all_inlined(Case(160, 3136, 72, False, near=True, cut=False).function()))
    assert found is not None
    choice = choose(found, Target.parse("x86-64-v3"))
    assert choice is not None and (choice.tile.columns, choice.block_panels) == (16, 14)


def as_it_lies(m: int, n: int, k: int) -> Case:
    return Case(m, n, k, False, near=False, cut=False)


@pytest.mark.parametrize(
    ("case", "packed", "terms"),
    [
        (as_it_lies(8, 768, 768), False, None),
        (as_it_lies(16, 768, 384), False, None),
        (as_it_lies(128, 768, 768), False, 256),  # 64 of 1024 sets of eight ways: 512 rows of a panel find room
        (as_it_lies(160, 768, 768), True, None),
        (as_it_lies(16, 1000, 3000), False, None),
        (as_it_lies(128, 1000, 3000), False, None),
        (as_it_lies(16, 1024, 768), False, 256),
        (as_it_lies(32, 1024, 768), False, 256),
        (as_it_lies(64, 1024, 768), True, None),  # rows of 4096 bytes begin in one set of the first cache
        (as_it_lies(160, 1024, 768), True, None),
    ],
)
def test_few_rows_read_panels_as_they_lie(
    monkeypatch: pytest.MonkeyPatch, case: Case, packed: bool, terms: int | None
) -> None:
    monkeypatch.undo()
    caches = (Cache(1, 32 << 10, 8, 64, 1), Cache(2, 512 << 10, 8, 64, 1), Cache(3, 32 << 20, 16, 64, 2))
    choice = choose(of(case), dataclasses.replace(Target.parse("x86-64-v3"), caches=caches))
    assert choice is not None and (choice.pack_vector, choice.block_terms) == (packed, terms)


@pytest.mark.parametrize(
    ("case", "packs"),
    [
        (as_it_lies(128, 3072, 768), True),
        (as_it_lies(256, 768, 768), True),
        (as_it_lies(128, 768, 768), False),
        (as_it_lies(32, 1024, 768), False),
        (as_it_lies(128, 1024, 4096), False),  # a panel fills the second cache
        (as_it_lies(4096, 1024, 2048), False),  # rows fill the last one
        (as_it_lies(256, 1000, 768), False),  # panels are not whole
        (as_it_lies(256, 64, 768), False),  # few panels
        (Case("m", 1024, 768, False, near=False, cut=False), False),  # perhaps no tile
        (Case(256, 1024, 768, True, near=False, cut=False), False),
    ],
)
def test_the_first_tile_packs(monkeypatch: pytest.MonkeyPatch, case: Case, packs: bool) -> None:
    monkeypatch.undo()
    caches = (Cache(1, 48 << 10, 12, 64, 1), Cache(2, 1 << 20, 16, 64, 1), Cache(3, 32 << 20, 16, 64, 2))
    choice = choose(of(case), dataclasses.replace(Target.parse("x86-64-v4"), caches=caches))
    assert choice is not None and choice.first_packs == packs


@pytest.mark.parametrize("rows", [48, 50])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_panel_is_packed_while_it_is_first_read(monkeypatch: pytest.MonkeyPatch, rows: int, threads: int) -> None:
    """Term by term in the first tile of rows, and read by the others; also where the last tile is not whole."""
    monkeypatch.undo()
    function = Case(rows, 1024, 40, False, near=False, cut=False).function()
    s = schedule_as_it_lies(function, Target.parse("native"))
    assert s is not None
    loops = [v.name for v in s.get_loops("w.cache")]
    dots = [b.name for b in blocks(s.func.body) if b.reduce]
    assert len(dots) == 2 and set(s.get_loops("dot")) & set(s.get_loops("w.cache")) != set()
    assert [v.name for v in s.get_loops("dot")][: len(loops) - 2] == loops[:-2]
    kernel, rng = tw.build(s.func, threads=threads), np.random.default_rng(5)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((rows, 40), (40, 1024), (1024,)))
    y = np.full((rows, 1024), np.nan, np.float32)
    kernel(x, w, b, y)
    np.testing.assert_allclose(y, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-4, atol=1e-4)


def test_tiles_are_as_tall_as_the_ways_of_the_first_cache_let_rows_be() -> None:
    """Rows a page apart begin in the same set."""
    target = Target.parse("x86-64-v4")
    tall = {k: choose(of(Case(1000, 32, k, True, near=False, cut=False)), target) for k in (1000, 1024)}
    rows = {k: choice.tile.rows for k, choice in tall.items() if choice is not None}
    assert rows[1000] > rows[1024] and rows[1024] <= target.caches[0].ways * 3 // 4


WIDE = dataclasses.replace(
    Target.parse("x86-64-v4"),
    caches=(Cache(1, 48 << 10, 12, 64, 1), Cache(2, 1 << 20, 16, 64, 1), Cache(3, 32 << 20, 16, 64, 2)),
)


def test_rows_in_one_set_of_the_first_cache_are_read_by_the_widest_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A term takes twelve cycles there: the tile has as many multiply-adds."""
    monkeypatch.undo()
    choice = choose(of(as_it_lies(16, 1024, 1000)), WIDE)
    assert choice is not None and not choice.pack_vector
    near = choose_register_tile(16, 1024, 1000, WIDE.vector_registers, choice.tile.lanes)
    assert choice.tile.rows * choice.tile.vectors == 24 > near.rows * near.vectors


@pytest.mark.parametrize(("columns", "rows", "ahead"), [(3072, 8, 16), (96, 9, 0)])
def test_tiles_leave_a_register_to_bring_panels_near(
    monkeypatch: pytest.MonkeyPatch, columns: int, rows: int, ahead: int
) -> None:
    """Where panels of a constant come from beyond the second cache, with rows for no more than the other places."""
    monkeypatch.undo()
    choice = choose(of(Case(197, columns, 768, True, near=False, cut=False)), WIDE)
    assert choice is not None and (choice.tile.rows, choice.ahead) == (rows, ahead)


def test_panels_that_a_call_packs_are_grouped_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    """2048 columns are 43 panels of 48, a prime number, but 64 of 32."""
    monkeypatch.undo()
    case = Case(2048, 2048, 2048, False, near=True, cut=False)
    packed = choose(of(case), WIDE)
    assert packed is not None and packed.block_panels is not None and 2048 % packed.tile.columns == 0
    constant = choose(of(dataclasses.replace(case, constant=True)), WIDE)
    assert constant is not None and 2048 % constant.tile.columns != 0


@pytest.mark.parametrize("epilogue", [True, False])
def test_sums_over_a_panel_as_it_lies_have_a_place_of_their_own(epilogue: bool) -> None:
    """Rows of the result, as far apart as those of the panel, would lie in the same few sets."""
    function = CASES["few rows of a call, sums cut"].function() if epilogue else parse(ALONE)
    s = schedule_as_it_lies(function, V3)
    assert s is not None
    tile = choice_of(function).tile
    sums = [b for b in allocations(s.func.body) if b.scope is Scope.STACK]
    assert [[int(e.value) for e in b.shape if isinstance(e, Const)] for b in sums] == [[12, tile.columns]]


def of(case: Case) -> Contraction:
    found = find_contraction(all_inlined(case.function()))
    assert found is not None
    return found


SIDE_BY_SIDE = """
func product(x: f32[{x}, {k}, {m}], w: f32[{x}, {k}, {n}] in constant, y: f32[{x}, {m}, {n}]):
  for b in 0..{x}, i in 0..{m}, j in 0..{n}, k in 0..{k}:
    block dot(vb = b, vi = i, vj = j, reduce vk = k):
      init: y[vb, vi, vj] = 0.0
      y[vb, vi, vj] += x[vb, vk, vi] * w[vb, vk, vj]
"""


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "vectors"),
    [(196, 128, 128, 7, 2), (49, 128, 128, 7, 2), (16, 256, 256, 8, 2), (64, 64, 1024, 8, 2), (53, 72, 64, 6, 3)],
)
def test_rows_side_by_side_are_cut_evenly(m: int, n: int, k: int, rows: int, vectors: int) -> None:
    """Rows are few enough for terms to be written out and divide what there is, unless that takes much longer; panels
    stay in the first cache."""
    choice = choose(side_by_side(1, m, n, k), Target.parse("x86-64-v4"))
    assert choice is not None and (choice.tile.rows, choice.tile.vectors) == (rows, vectors)


def test_panels_of_all_batches_come_from_afar_together() -> None:
    """Constants that are larger than the second cache only together are brought near all the same."""
    target = Target.parse("x86-64-v4")
    ahead = {x: choose(side_by_side(x, 16, 128, 128), target) for x in (1, 36)}
    assert [choice is not None and choice.ahead for choice in ahead.values()] == [0, 16]


POINTWISE = """
func product(w: f32[{m}, {k}] in constant, x: f32[{k}, 196], y: f32[{m}, 196]):
  for i in 0..{m}, j in 0..196, k in 0..{k}:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += w[vi, vk] * x[vk, vj]
"""


@pytest.mark.parametrize(("m", "k", "ahead"), [(112, 672, 16), (24, 72, 0)])
def test_tiles_of_rows_of_a_constant_come_from_afar(m: int, k: int, ahead: int) -> None:
    """They are read again for every panel, but between two calls of a network other constants take their place: while
    a tile is computed the next one is asked for, unless all of them are few lines."""
    function = parse(POINTWISE.format(m=m, k=k))
    assert isinstance(function, Function)
    found = find_contraction(all_inlined(function))
    assert found is not None
    target = Target.parse("x86-64-v4")
    choice = choose(found, target)
    assert choice is not None and choice.pack_broadcast and choice.ahead == ahead
    s = schedule_as_it_lies(function, target)
    assert s is not None
    asked = {node.place.buffer.name for node in statements(s.func.body) if isinstance(node, Prefetch)}
    assert ("w.cache" in asked) == (ahead > 0)


def side_by_side(x: int, m: int, n: int, k: int) -> Contraction:
    """x products of w by a matrix of which the rows of the result are the last dimension."""
    function = parse(SIDE_BY_SIDE.format(x=x, m=m, n=n, k=k))
    assert isinstance(function, Function)
    found = find_contraction(function)
    assert found is not None
    return found


ROWS = """
graph main[n](x: f32[n, 256]) -> h:
  w: f32[256, 512] = constant(name=@w)
  h: f32[n, 512] = contract(x, w, spec="ik,kj->ij")
"""


@pytest.mark.parametrize("n", [1, 7, 128, 151, 400])
def test_threads_share_panels_where_only_a_call_knows_the_rows(n: int) -> None:
    graph = tw.parse(ROWS)
    assert isinstance(graph, tw.GraphFunction)
    rng = np.random.default_rng(n)
    x, w = rng.normal(size=(n, 256)).astype(np.float32), rng.normal(size=(256, 512)).astype(np.float32)
    exe = tw.compile(tw.Module({"main": graph}, {"w": w}, "main"), target="x86-64-v3", threads=2)
    np.testing.assert_allclose(exe(x)[0], x @ w, rtol=1e-4, atol=1e-3)
    loops = [line for line in exe.show(after="share-out", kernel=0).splitlines() if "parallel" in line]
    assert len(loops) == 1 and "* 8" in loops[0], "eight groups of panels for each block of rows"
