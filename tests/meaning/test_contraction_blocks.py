"""Blocks of contractions: on a machine with caches so small that small products have every kind of block."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from chosen import candidates_of, choice_for, schedule_for

import tilewright as tw
from drawn import LONG
from tilewright.expr.dtypes import f32
from tilewright.expr.evaluate import evaluate as evaluate_expr
from tilewright.expr.nodes import Const, Select, Var
from tilewright.loops.edit import allocations, blocks, statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import For, Function, If, LoopKind, Prefetch, Stmt, Store
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import Choice, best_parts, in_parts, likely_tiles
from tilewright.plan.gemm.shape import recognise
from tilewright.plan.price.contraction import RegisterTile, term_cycles
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


GROUPS = {"pack_vector": True, "block_tiles": 4, "block_panels": 3}
ALONE = """
func product(x: f32[12, 200], w: f32[200, 64], y: f32[12, 64]):
  for i in 0..12, j in 0..64, k in 0..200:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A product of m x k by k x n, and what is chosen for it: rows and vectors of the tile, and fields of Choice."""

    m: int | str
    n: int
    k: int
    constant: bool
    tile: tuple[int, int] = (4, 2)
    fields: dict[str, Any] = field(default_factory=dict)

    def function(self) -> Function:
        text = PRODUCT.format(m=self.m, n=self.n, k=self.k, constant=" in constant" if self.constant else "")
        return parse(text.replace("product(", "product[m](") if self.m == "m" else text)

    def choice(self, target: Target) -> Choice:
        packed = {"pack_vector": self.constant, "pack_broadcast": False, "block_terms": None, "block_tiles": 1}
        return Choice(RegisterTile(*self.tile, target.lanes(f32)), **(packed | self.fields))


CASES = {
    "all at once": Case(13, 33, 9, True, fields={"block_tiles": 4}),
    "panels near": Case(151, 112, 24, True, fields={"block_tiles": 7, "block_panels": 2}),
    "panels near, with an edge": Case(151, 105, 24, True, fields={"block_tiles": 7, "block_panels": 2}),
    "panels near, any rows": Case("m", 112, 24, True, fields={"block_tiles": 7, "block_panels": 2}),
    "any rows": Case("m", 112, 24, True, fields={"block_tiles": 7}),
    "any rows, panels prefetched by the first tiles": Case(
        "m", 112, 24, True, fields={"block_tiles": 7, "prefetch": 16, "prefetch_tiles": 2}
    ),
    "any rows, tiles of parts": Case(
        "m", 112, 24, True, (6, 2), {"block_tiles": 3, "prefetch": 16, "prefetch_tiles": 2, "parts": (3,), "terms": 4}
    ),
    "any rows, tiles of parts, with an edge": Case(
        "m", 105, 24, True, fields={"block_tiles": 7, "parts": (2, 1), "terms": 2}
    ),
    "any rows, each tile prefetches its panel": Case(
        "m", 105, 24, True, (6, 2), {"block_tiles": 3, "prefetch": 16, "distance": 8, "parts": (3,), "terms": 4}
    ),
    "one tile, which prefetches its panel": Case(4, 112, 24, True, fields={"prefetch": 16, "distance": 8}),
    "panels prefetched": Case(31, 112, 24, True, fields={"block_tiles": 8, "prefetch": 16}),
    "sums cut": Case(31, 40, 200, True, fields={"block_tiles": 8, "block_terms": 67}),
    "sums cut, less than a panel": Case(31, 20, 200, True, fields={"block_tiles": 8, "block_terms": 67}),
    "packed by the call": Case(150, 64, 27, False, fields=GROUPS | {"block_tiles": 7, "block_panels": 2}),
    "packed by the call, with an edge": Case(150, 63, 27, False, fields=GROUPS | {"block_tiles": 7, "block_panels": 2}),
    "packed at once": Case(150, 16, 27, False, fields={"pack_vector": True, "block_tiles": 38}),
    "packed in groups": Case(13, 288, 29, False, fields=GROUPS),
    "packed in groups, with an edge": Case(13, 282, 29, False, fields=GROUPS),
    "packed in groups, sums cut": Case(14, 282, 70, False, fields=GROUPS | {"block_terms": 32}),
    "one row": Case(1, 128, 40, True, (1, 8), {"streams": 4}),
    "one row, with an edge": Case(1, 101, 40, True, (1, 4)),
    "one row of a call": Case(1, 130, 40, False, (1, 4), {"block_tiles": 5, "block_terms": 8}),
    "one row of a call, whole panels": Case(1, 256, 37, False, (1, 4), {"block_tiles": 2, "block_terms": 8}),
    "few rows of a call, sums cut": Case(12, 64, 200, False, fields={"block_tiles": 3, "block_terms": 67}),
    "few rows of a call, sums cut, with an edge": Case(
        12, 48, 200, False, (4, 3), {"block_tiles": 3, "block_terms": 67}
    ),
    "packed panel by panel": Case(
        13, 16 * 7, 100, False, fields={"pack_vector": True, "rows_stay": False, "block_tiles": 4, "block_terms": 32}
    ),
    "packed panel by panel, with an edge": Case(
        13, 282, 29, False, fields={"pack_vector": True, "rows_stay": False, "block_tiles": 4}
    ),
    "as it lies": Case(13, 70, 30, False, fields={"block_tiles": 4}),
}


def small(target: Target) -> Target:
    return dataclasses.replace(target, caches=SMALL)


def asked_for(function: Function, sizes: dict[str, int]) -> set[int]:
    """The elements of packed panels, counted from the first one, that a call prefetches."""
    asked = set[int]()

    def run(stmt: Stmt, at: dict[Var, int]) -> None:
        match stmt:
            case Prefetch(place) if place.buffer.name == "w.cache":
                shape = [int(evaluate_expr(e, at)) for e in place.buffer.shape]
                element = 0
                for index, extent in zip(place.indices, shape, strict=True):
                    element = element * extent + int(evaluate_expr(index, at))
                asked.add(element)
            case For():
                if any(isinstance(s, Prefetch) for s in statements(stmt.body)):
                    begin, extent = (int(evaluate_expr(e, at)) for e in (stmt.begin, stmt.extent))
                    for turn in range(begin, begin + extent):
                        run(stmt.body, {**at, stmt.var: turn})
            case If(cond, then, _):
                if evaluate_expr(cond, at):
                    run(then, at)
            case _:
                for held in stmt.held():
                    run(held, at)

    run(function.body, {v: sizes[v.name] for v in function.symbols})
    return asked


V3 = small(Target.parse("x86-64-v3"))
"""Vectors of 8 floats in 16 registers."""


def choice_of(function: Function) -> Choice:
    choice = choice_for(function, V3)
    assert isinstance(choice, Choice)
    return choice


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(name, target, id=f"{name}-{machine}")
        for n, name in enumerate(CASES)
        for machine, target in (("v3", V3), ("native", small(native())))
        if LONG or machine == ("v3", "native")[n % 2]
    ],
)
def test_blocks_compute_the_product(name: str, target: Target) -> None:
    case = CASES[name]
    s = schedule_for(case.function(), target, case.choice(target))
    verify(s.func)
    _check(case, s.func)


@pytest.mark.parametrize("name", CASES)
def test_any_choice_computes_the_product(name: str) -> None:
    """The dearest choices, too: what is offered can be run. Two of four choices by turns, unless in long runs."""
    case, turn = CASES[name], [*CASES].index(name) % 2
    offered = candidates_of(case.function(), V3)
    chosen = [0, len(offered) // 3, len(offered) // 2, len(offered) - 1]
    for n in sorted(set(chosen if LONG else chosen[turn::2])):
        _check(case, schedule_for(case.function(), V3, offered[n].choice).func)


def _check(case: Case, function: Function) -> None:
    rng = np.random.default_rng(3)
    kernel = tw.build(function)
    for m in (1, 6, 9, 150) if isinstance(case.m, str) else (case.m,):
        x, w = (rng.standard_normal(shape, np.float32) for shape in ((m, case.k), (case.k, case.n)))
        b, y = rng.standard_normal(case.n, np.float32), np.full((m, case.n), np.nan, np.float32)
        kernel(x, w, b, y)
        np.testing.assert_allclose(y, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["packed in groups, with an edge", "packed by the call, with an edge"])
def test_the_evaluator_agrees(name: str) -> None:
    case = dataclasses.replace(CASES[name], m=13)
    s = schedule_for(case.function(), V3, case.choice(V3))
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((13, case.k), (case.k, case.n)))
    b, y = rng.standard_normal(case.n, np.float32), np.full((13, case.n), np.nan, np.float32)
    evaluate(s.func, [x, w, b, y])
    np.testing.assert_allclose(y, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-4, atol=1e-4)


def test_copies_inside_an_edge_are_plain() -> None:
    """Only the panel over the edge chooses element by element what it copies."""
    case = CASES["packed panel by panel, with an edge"]
    s = schedule_for(case.function(), V3, case.choice(V3))
    stored = [b.body.value for b in blocks(s.func.body) if b.name.startswith("w.cache") and isinstance(b.body, Store)]
    assert [isinstance(value, Select) for value in stored] == [False, True]


def test_one_row_is_read_from_several_panels_at_once() -> None:
    case = CASES["one row"]
    choice = choice_of(case.function())
    assert choice.tile.rows == 1 and choice.streams > 1
    s = schedule_for(case.function(), V3, case.choice(V3))
    (panels,) = [b for b in allocations(s.func.body) if b.name == "w.cache"]
    assert [str(e) for e in panels.shape] == ["8", "40", "16"]


def test_threads_share_blocks_of_rows_and_groups_of_panels() -> None:
    case = CASES["panels near"]
    s = schedule_for(case.function(), V3, case.choice(V3))
    loops = [f for f in statements(s.func.body) if isinstance(f, For) and f.kind is LoopKind.PARALLEL]
    groups = -(-112 // (2 * 16))
    rows = -(-151 // (7 * 4))
    assert [str(f.end) for f in loops] == [str(groups * rows)]


def test_threads_share_panels_where_blocks_of_rows_are_few() -> None:
    """One block of rows leaves the panels to share, with the blocks of terms inside of each."""
    case = Case(31, 200, 200, True, fields={"block_tiles": 8, "block_terms": 67})
    s = schedule_for(case.function(), V3, case.choice(V3))
    loops = [f for f in statements(s.func.body) if isinstance(f, For) and f.kind is LoopKind.PARALLEL]
    assert [str(f.end) for f in loops] == [str(-(-200 // 16))]


def test_threads_share_the_rows_of_a_panel_over_the_edge() -> None:
    """Panels of whole vectors are shared, and of the one beside them, which has fewer, the tiles of rows."""
    case = Case(13, 136, 9, True, fields={"block_tiles": 4})
    s = schedule_for(case.function(), V3, case.choice(V3))
    loops = [f for f in statements(s.func.body) if isinstance(f, For) and f.kind is LoopKind.PARALLEL]
    assert [str(f.end) for f in loops] == ["8", "4"]
    kernel, rng = tw.build(s.func, threads=3), np.random.default_rng(5)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((13, 9), (9, 136), (136,)))
    y = np.full((13, 136), np.nan, np.float32)
    kernel(x, w, b, y)
    np.testing.assert_allclose(y, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-4, atol=1e-4)


WIDE = dataclasses.replace(
    Target.parse("x86-64-v4"),
    caches=(Cache(1, 48 << 10, 12, 64, 1), Cache(2, 1 << 20, 16, 64, 1), Cache(3, 32 << 20, 16, 64, 2)),
)


def of_a_call(m: int | str, n: int, k: int) -> Case:
    return Case(m, n, k, False)


@pytest.mark.parametrize(
    ("case", "packed"),
    [
        (of_a_call(8, 768, 768), False),  # nothing would be read often enough
        (of_a_call(16, 768, 384), False),
        (of_a_call(128, 768, 768), False),  # rows of 3072 bytes lie in all sets of the second cache
        (of_a_call(128, 3072, 768), True),  # rows lie three pages apart: each would be waited for
        (of_a_call(512, 1024, 1024), True),
        (Case(256, 1024, 768, True), True),
    ],
)
def test_what_a_call_brings_is_packed_where_that_pays(case: Case, packed: bool) -> None:
    assert choice_for(case.function(), WIDE).pack_vector == packed


@pytest.mark.parametrize(
    "case",
    [
        of_a_call(256, 1000, 768),  # panels are not whole
        of_a_call(256, 64, 768),  # few panels
        of_a_call("m", 1024, 768),  # perhaps no tile
        Case(256, 1024, 768, True),
    ],
)
def test_the_first_tile_packs_whole_panels_of_a_call(case: Case) -> None:
    offered = [c.choice for c in candidates_of(of_a_call(256, 1024, 768).function(), WIDE)]
    assert any(choice.first_packs for choice in offered)
    assert not any(c.choice.first_packs for c in candidates_of(case.function(), WIDE))


def test_waits_for_rows_are_as_long_as_the_second_cache_is_slow() -> None:
    """Of rows a page apart: the slower the cache that they come from, the more packing pays."""
    case = of_a_call(32, 1024, 700).function()
    price = {
        packed: {
            rate: min(c.seconds for c in candidates_of(case, slow) if c.choice.pack_vector == packed)
            for rate, slow in (
                (rate, WIDE.with_peaks(cache_gbs=(288.0, rate * WIDE.core.ghz, 8 * WIDE.core.ghz))) for rate in (20, 60)
            )
        }
        for packed in (True, False)
    }
    assert price[False][20] / price[False][60] > price[True][20] / price[True][60] > 1


@pytest.mark.parametrize("rows", [48, 50])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_panel_is_packed_while_it_is_first_read(rows: int, threads: int) -> None:
    """Term by term in the first tile of rows, and read by the others; also where the last tile is not whole."""
    target = Target.parse("native")
    fields = {"pack_vector": True, "rows_stay": False, "first_packs": True, "block_tiles": -(-rows // 4), "terms": 4}
    case = Case(rows, 1024, 40, False, fields=fields)
    s = schedule_for(case.function(), target, case.choice(target))
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
    tall = {k: choice_for(Case(1000, 32, k, True).function(), target).tile.rows for k in (1000, 1024)}
    assert tall[1000] > tall[1024] and tall[1024] <= target.caches[0].ways * 3 // 4


def test_panels_of_a_constant_are_prefetched_where_they_come_from_memory() -> None:
    """Those of one tile of rows are not: nothing is computed with a panel before the next one is needed. They are where
    memory delivers more to who asks ahead; then, a page before."""
    assert choice_for(Case(197, 3072, 768, True).function(), WIDE).prefetch == 16
    one = Case(8, 768, 768, True).function()
    assert choice_for(one, WIDE).prefetch == 0
    ahead = choice_for(one, WIDE.with_peaks(memory_tile_gbs=WIDE.peaks.memory_gbs / 2))
    assert ahead.prefetch == 16 and ahead.distance * ahead.tile.columns * f32.bytes >= WIDE.page


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 24, 31, 100])
def test_rows_of_any_number_ask_for_all_of_the_next_panel(rows: int) -> None:
    """Once there are all tiles that share it; or each tile asks for its own."""
    case, target = Case("m", 96, 128, True).function(), V3
    found = [c.choice for c in candidates_of(case, target) if c.choice.prefetch and c.choice.parts]
    assert {c.distance > 0 for c in found} == {True, False}
    for choice in {c.distance > 0: c for c in found}.values():
        s = schedule_for(case, target, choice)
        asked = asked_for(s.func, {"m": rows})
        panel = choice.tile.columns * 128
        lines = range(panel, 2 * panel, choice.prefetch)
        if rows >= (choice.prefetch_tiles or 0) * choice.part.rows:
            assert {at // choice.prefetch for at in asked} >= {at // choice.prefetch for at in lines}
        kernel, rng = tw.build(s.func), np.random.default_rng(rows)
        x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((rows, 128), (128, 96), (96,)))
        y = np.full((rows, 96), np.nan, np.float32)
        kernel(x, w, b, y)
        np.testing.assert_allclose(y, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-4, atol=1e-4)


def test_as_many_first_tiles_prefetch_as_memory_takes_to_deliver_a_panel() -> None:
    """Of a dynamic number of rows; the slower memory is, the more tiles share that."""
    case = Case("m", 3072, 768, True).function()
    found = [choice_for(case, WIDE.with_peaks(memory_asked_gbs=rate)) for rate in (40.0, 20.0, 5.0)]
    tiles = [c.prefetch_tiles or 0 for c in found]
    assert all(c.prefetch == 16 for c in found) and 0 < tiles[0] < tiles[1] < tiles[2]
    assert choice_for(Case(197, 3072, 768, True).function(), WIDE).prefetch_tiles is None


def test_rows_left_over_run_in_parts_of_a_tile() -> None:
    """Of a dynamic number of rows: in tiles in which they take the least in the mean."""
    case = Case("m", 3072, 768, True)
    choice = choice_for(case.function(), WIDE)
    assert (choice.tile.rows, choice.parts) == (8, (4, 3, 2, 1))
    s = schedule_for(case.function(), WIDE, choice)
    rows = [[str(e) for e in b.shape[:-1]] for b in allocations(s.func.body) if b.scope is Scope.REGISTER]
    assert sorted(rows) == [["1"], ["2", "1"], ["3", "1"], ["4", "1"], ["8", "1"]]
    assert choice_for(Case(197, 3072, 768, True).function(), WIDE).parts is None


@pytest.mark.parametrize("target", [WIDE, V3])
def test_rows_left_over_take_no_longer_than_in_halves_of_a_tile(target: Target) -> None:
    """Of all tiles that are likely for a dynamic number of rows, and in code of a quarter more rows at most."""
    product = recognise(Facts(Case("m", 3072, 768, True).function()))
    assert product is not None
    size, shorter = product.size, set[bool]()

    def cycles(tile: RegisterTile, parts: Sequence[int]) -> float:
        found = 0.0
        for left in range(1, tile.rows):
            runs = list(in_parts(tile, parts, left))
            assert sum(rows for rows, _ in runs) == left
            terms = {p: term_cycles(size.tile_sums(p.rows, size.terms, target), p, target) for _, p in runs}
            found += sum(-(-rows // part.rows) * terms[part] for rows, part in runs)
        return found

    for tile in likely_tiles(size, target):
        parts = best_parts(size, tile, target)
        assert 4 * sum(parts) <= 5 * tile.rows and list(parts) == sorted(set(parts), reverse=True)
        halves = [rows for n in range(1, 5) if (rows := tile.rows >> n)]
        shorter.add(cycles(tile, parts) < cycles(tile, halves))
        assert cycles(tile, parts) <= cycles(tile, halves)
    assert True in shorter
    tile = likely_tiles(size, target)[0]
    assert len(best_parts(dataclasses.replace(size, terms=0), tile, target)) <= tile.rows  # all take no time


def test_panels_of_several_constants_are_prefetched_for_any_rows() -> None:
    """Blocks of rows are outside of panels, so that first tiles prefetch the next one: of the next constant, too."""
    text = """
func products[m](x: f32[5, m, 64], w: f32[5, 64, 96] in constant, y: f32[5, m, 96]):
  for l in 0..5, i in 0..m, j in 0..96, k in 0..64:
    block dot(vl = l, vi = i, vj = j, reduce vk = k):
      init: y[vl, vi, vj] = 0.0
      y[vl, vi, vj] += x[vl, vi, vk] * w[vl, vk, vj]
"""
    case = parse(text)
    assert isinstance(case, Function)
    choice = choice_for(case, WIDE)
    assert choice.prefetch == 16 and choice.prefetch_tiles
    s = schedule_for(case, V3, dataclasses.replace(choice, tile=RegisterTile(4, 2, 8), parts=(2,)))
    assert "w.cache" in {node.place.buffer.name for node in statements(s.func.body) if isinstance(node, Prefetch)}
    kernel, rng = tw.build(s.func), np.random.default_rng(7)
    for m in (1, 37):
        x, w = (rng.standard_normal(shape, np.float32) for shape in ((5, m, 64), (5, 64, 96)))
        y = np.full((5, m, 96), np.nan, np.float32)
        kernel(x, w, y)
        np.testing.assert_allclose(y, x.astype(np.float64) @ w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batches", [1, 3])
def test_batches_of_a_dynamic_number_of_rows_are_products_in_tiles(batches: int) -> None:
    """Blocks of rows are shared with groups of panels, around the batches."""
    text = f"""
func product[m](x: f32[{batches}, m, 24], w: f32[24, 512] in constant, y: f32[{batches}, m, 512]):
  for l in 0..{batches}, i in 0..m, j in 0..512, k in 0..24:
    block dot(vl = l, vi = i, vj = j, reduce vk = k):
      init: y[vl, vi, vj] = 0.0
      y[vl, vi, vj] += x[vl, vi, vk] * w[vk, vj]
"""
    case = parse(text)
    choice = choice_for(case, WIDE)
    assert isinstance(choice, Choice)
    kernel, rng = tw.build(schedule_for(case, V3, choice_of(case)).func), np.random.default_rng(6)
    for m in (1, 37):
        x, w = (rng.standard_normal(shape, np.float32) for shape in ((batches, m, 24), (24, 512)))
        y = np.full((batches, m, 512), np.nan, np.float32)
        kernel(x, w, y)
        np.testing.assert_allclose(y, x.astype(np.float64) @ w, rtol=1e-4, atol=1e-4)


def test_panels_of_a_constant_are_grouped_where_the_last_cache_has_no_room_for_all() -> None:
    """Panels that a call packs are not: each is packed by the tiles that read it."""
    grouped = {
        constant: any(c.choice.block_panels for c in candidates_of(Case(4096, 4096, 4096, constant).function(), WIDE))
        for constant in (True, False)
    }
    assert grouped == {True: True, False: False}


@pytest.mark.parametrize("epilogue", [True, False])
def test_sums_over_a_panel_as_it_lies_have_a_place_of_their_own(epilogue: bool) -> None:
    """Rows of the result, as far apart as those of the panel, would lie in the same few sets."""
    case = CASES["few rows of a call, sums cut"]
    s = schedule_for(case.function() if epilogue else parse(ALONE), V3, case.choice(V3))
    sums = [b for b in allocations(s.func.body) if b.scope is Scope.STACK]
    assert [[int(e.value) for e in b.shape if isinstance(e, Const)] for b in sums] == [[12, 16]]


SIDE_BY_SIDE = """
func product(x: f32[{x}, {k}, {m}], w: f32[{x}, {k}, {n}] in constant, y: f32[{x}, {m}, {n}]):
  for b in 0..{x}, i in 0..{m}, j in 0..{n}, k in 0..{k}:
    block dot(vb = b, vi = i, vj = j, reduce vk = k):
      init: y[vb, vi, vj] = 0.0
      y[vb, vi, vj] += x[vb, vk, vi] * w[vb, vk, vj]
"""


@pytest.mark.parametrize(("m", "n", "k"), [(196, 128, 128), (49, 128, 128), (16, 256, 256), (64, 64, 1024)])
def test_rows_side_by_side_are_few_enough_for_terms_to_be_written_out(m: int, n: int, k: int) -> None:
    choice = choice_for(side_by_side(1, m, n, k), Target.parse("x86-64-v4"))
    assert choice.tile.rows <= 8 and choice.terms > 1


def test_panels_of_all_batches_come_from_afar_together() -> None:
    """Constants that are larger than the second cache only together are prefetched all the same."""
    near, far = (
        [c.seconds for c in candidates_of(side_by_side(x, 64, 128, 128), WIDE) if (c.choice.prefetch > 0) == asked]
        for x, asked in ((36, True), (36, False))
    )
    assert min(near) < min(far)


POINTWISE = """
func product(w: f32[{m}, {k}] in constant, x: f32[{k}, 196], y: f32[{m}, 196]):
  for i in 0..{m}, j in 0..196, k in 0..{k}:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += w[vi, vk] * x[vk, vj]
"""


def test_tiles_of_rows_of_a_constant_can_be_prefetched() -> None:
    """They are read again for every panel, but between two calls of a network other constants take their place."""
    function = parse(POINTWISE.format(m=112, k=672))
    assert isinstance(function, Function)
    target = Target.parse("x86-64-v4")
    for candidate in candidates_of(function, target):
        choice = candidate.choice
        if not choice.pack_vector and choice.block_terms is None and choice.tile.rows == 8:
            s = schedule_for(function, target, choice)
            asked = {node.place.buffer.name for node in statements(s.func.body) if isinstance(node, Prefetch)}
            assert choice.pack_broadcast and ("w.cache" in asked) == (choice.prefetch > 0)


def side_by_side(x: int, m: int, n: int, k: int) -> Function:
    """x products of w by a matrix of which the rows of the result are the last dimension."""
    function = parse(SIDE_BY_SIDE.format(x=x, m=m, n=n, k=k))
    assert isinstance(function, Function)
    return function


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_short_sums_are_stored_in_long_pieces(machine: str) -> None:
    """Of rows that are pages apart: the first line of each piece is waited for."""
    target = Target.parse(machine)
    text = PRODUCT.format(m=64, n=12544, k=12, constant="")
    apart, near = (choice_for(parse(t), target) for t in (text, PRODUCT.format(m=64, n=128, k=12, constant="")))
    assert isinstance(apart, Choice) and isinstance(near, Choice)
    assert apart.tile.columns * f32.bytes >= 2 * target.caches[0].line
    assert apart.tile.vectors > near.tile.vectors


ROWS = """
graph main[n](x: f32[n, 256]) -> h:
  w: f32[256, 512] = constant(name=@w)
  h: f32[n, 512] = contract(x, w, spec="ik,kj->ij")
"""


def test_threads_share_panels_where_only_a_call_knows_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STRASSEN", "0")
    graph = tw.parse(ROWS)
    assert isinstance(graph, tw.GraphFunction)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(256, 512)).astype(np.float32)
    exe = tw.compile(tw.Module({"main": graph}, {"w": w}, "main"), target="x86-64-v3", threads=2)
    for n in (1, 7, 128, 151, 400):
        x = rng.normal(size=(n, 256)).astype(np.float32)
        np.testing.assert_allclose(exe(x)[0], x @ w, rtol=1e-4, atol=1e-3)
    loops = [line for line in exe.show(after="share-out", kernel=0).splitlines() if "parallel" in line]
    assert loops
    for loop in loops:
        iterations, grain = re.search(r"\* (\d+)(?: grain (\d+))?:$", loop).groups()  # type: ignore[union-attr]
        assert int(iterations) // int(grain or 1) >= 2 * 2, "two shares a thread for each block of rows"


GROUPED = """
func grouped(x: f32[9, {m}, 24], w: f32[8, {n}] in constant, y: f32[9, {m}, {n}]):
  for b in 0..9, i in 0..{m}, o in 0..{n}, k in 0..8:
    block dot(vb = b, vi = i, vo = o, reduce vk = k):
      init: y[vb, vi, vo] = 0.0
      y[vb, vi, vo] += x[vb, vi, vo//{each}*8 + vk] * w[vk, vo]
"""


@pytest.mark.parametrize(("each", "vectors"), [(32, 1), (32, 2), (40, 1), (40, 2), (56, 3)])
def test_constants_of_groups_are_packed_in_panels_of_each(each: int, vectors: int) -> None:
    """The columns of a group are a part of a dimension; its last panel may be over the edge."""
    f, target = parse(GROUPED.format(m=12, n=3 * each, each=each)), Target.parse("x86-64-v4")
    packed = {"pack_vector": True, "prefetch": 0, "distance": 0}
    choice = dataclasses.replace(choice_for(f, target), tile=RegisterTile(4, vectors, 16), block_tiles=3, **packed)
    made = schedule_for(f, target, choice).func
    verify(made)
    assert f"w.cache: f32[3, {-(-each // (16 * vectors))}, 8, {16 * vectors}]" in str(made)
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((9, 12, 24), (8, 3 * each)))
    y = np.zeros((9, 12, 3 * each), np.float32)
    evaluate(made, [x, w, y])
    groups = range(3)
    expected = [x[..., 8 * g : 8 * g + 8] @ w[:, g * each : (g + 1) * each] for g in groups]
    np.testing.assert_allclose(y, np.concatenate(expected, axis=-1), atol=1e-5)


def test_tiles_are_taller_than_there_are_registers_for_places_where_they_divide_the_rows() -> None:
    """Rows of 56 positions by one vector: 14 of them, whose places lie apart by a constant."""
    target = Target.parse("x86-64-v4")
    assert choice_for(parse(GROUPED.format(m=56, n=48, each=16)), target).tile == RegisterTile(14, 1, 16)
    assert choice_for(parse(GROUPED.format(m=57, n=48, each=16)), target).tile.rows <= 13


def test_one_tile_of_rows_asks_for_its_panels() -> None:
    """A constant that all rows pass once, in one tile, is always asked for ahead."""
    f = parse(PRODUCT.format(m=12, n=512, k=392, constant=" in constant"))
    found = [c.choice for c in candidates_of(f, Target.parse("x86-64-v4"))]
    alone = [c for c in found if c.tile.rows == 12]
    assert alone and all(c.distance for c in alone)


def test_groups_of_any_width_run_in_tiles() -> None:
    """Those of 40 columns end in a panel over the edge, so that threads share blocks of rows instead."""
    f = parse(GROUPED.format(m=64, n=120, each=40).replace("0..9", "0..1").replace("[9, ", "[1, "))
    made = schedule_for(f, Target.parse("x86-64-v4")).func
    assert [s.var.name for s in statements(made.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL]


TURNED = """
func scores(q: f32[{b}, {m}, 64], k: f32[{b}, {m}, 64], y: f32[{b}, {m}, {m}]):
  for b in 0..{b}, i in 0..{m}, j in 0..{m}, e in 0..64:
    block dot(vb = b, vi = i, vj = j, reduce ve = e):
      init: y[vb, vi, vj] = 0.0
      y[vb, vi, vj] += q[vb, vi, ve] * k[vb, vj, ve]
"""


def test_panels_that_are_packed_before_all_tiles_come_back_from_where_all_have_room() -> None:
    """Those of one batch after the other stay near."""
    target = Target.parse("x86-64-v4")
    f = parse(TURNED.format(b=192, m=128))
    assert not choice_for(f, target).rows_stay
    prices = {c.choice.rows_stay: c.seconds for c in candidates_of(f, target)[::-1]}
    assert prices[True] > 1.1 * prices[False]


AS_IT_LIES = """
func product(x: f32[{b}, 512, 512], w: f32[{b}, 512, 512], y: f32[{b}, 512, 512]):
  for b in 0..{b}, i in 0..512, j in 0..512, k in 0..512:
    block dot(vb = b, vi = i, vj = j, reduce vk = k):
      init: y[vb, vi, vj] = 0.0
      y[vb, vi, vj] += x[vb, vi, vk] * w[vb, vk, vj]
"""


def test_sums_that_are_taken_up_again_are_cleared_where_results_lie() -> None:
    """In blocks of terms, sums are stored once more, which of many batches takes as long as memory does."""
    target = Target.parse("x86-64-v4")
    few, many = (
        {c.choice: c.seconds / b for c in candidates_of(parse(AS_IT_LIES.format(b=b)), target)} for b in (1, 16)
    )
    blocked = [c for c in few.keys() & many.keys() if c.block_terms is not None and not c.pack_vector]
    assert blocked and all(many[c] > 1.01 * few[c] for c in blocked)


def test_rows_lie_apart_by_what_is_between_them() -> None:
    """Rows that are images lie whole images apart: in one set of the first cache, where these are whole pages."""
    f = parse("""
func product(x: f32[16, 4, 6400], w: f32[576, 16] in constant, y: f32[4, 16, 16]):
  for b in 0..4, i in 0..16, j in 0..16, k in 0..576:
    block dot(vb = b, vi = i, vj = j, reduce vk = k):
      init: y[vb, vi, vj] = 0.0
      y[vb, vi, vj] += x[vi, vb, vk] * w[vk, vj]
""")
    assert isinstance(f, Function)
    shape = recognise(Facts(f))
    assert shape is not None and shape.size.element.apart == 4 * 6400 * 4
    target = dataclasses.replace(
        Target.parse("x86-64-v4"),
        caches=(Cache(1, 48 << 10, 12, 64, 1), Cache(2, 1 << 20, 16, 64, 1), Cache(3, 32 << 20, 16, 64, 2)),
    )
    assert choice_for(f, target).tile.rows <= 9
