"""Kernels of a dynamic number of rows that run in several ways by how many rows there are."""

from __future__ import annotations

from bisect import bisect_left
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from chosen import candidates_of

import tilewright as tw
from planned import planned_kernels
from tilewright.analysis.sizes import rows_of_calls
from tilewright.core.records import record_of
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function, If
from tilewright.plan.attention.schedule import AttentionsByRows
from tilewright.plan.by_rows import ByRows, OfRows
from tilewright.plan.choose import schedule
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.schedule import ContractionsByRows
from tilewright.plan.price.contraction import MARGIN
from tilewright.plan.template import Template, registered
from tilewright.target import Target

Array = np.ndarray[Any, Any]
K, N = 24, 40
MOST = 4

DENSE = f"""
func contract[n](x: f32[n, {K}], w: f32[{K}, {N}] in constant, y: f32[n, {N}]):
  for i in 0..n, j in 0..{N}, k in 0..{K}:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
"""
GRAPH = f"""
graph main[n](x: f32[n, {K}]) -> y:
  w: f32[{K}, {N}] = constant(name=@w)
  y: f32[n, {N}] = contract(x, w, spec="ik,kj->ij")
"""
ATTENTION = """
graph main[n](q: f32[3, n, 16], k: f32[3, n, 16], v: f32[3, n, 16]) -> o:
  s: f32[3, n, n] = contract(q, k, spec="hik,hjk->hij")
  m: f32[3, n, 1] = reduce(s, kind=max, axes=(2,), keepdims=true)
  d: f32[3, n, n] = sub(s, m)
  e: f32[3, n, n] = exp(d)
  t: f32[3, n, 1] = reduce(e, kind=sum, axes=(2,), keepdims=true)
  p: f32[3, n, n] = div(e, t)
  o: f32[3, n, 16] = contract(p, v, spec="hij,hjk->hik")
"""


def function(text: str = DENSE) -> Function:
    made = tw.parse(text)
    assert isinstance(made, Function)
    return made


def wide() -> Function:
    return function(DENSE.replace(str(K), "768").replace(str(N), "960"))


def attention() -> Function:
    graph = tw.parse(ATTENTION)
    assert isinstance(graph, tw.GraphFunction)
    (kernel,) = planned_kernels(Module({"main": graph}, {}, "main"), Target.parse("x86-64-v3"))
    return kernel


def slow_to_ask(target: Target) -> Target:
    """A machine whose loads, and so its prefetches, take long beside its arithmetic."""
    return target.with_rates({"core": {"load_cycles": 4 * target.core.load_cycles}})


def weights() -> Array:
    return np.random.default_rng(1).normal(size=(K, N)).astype(np.float32)


def dense() -> Module:
    graph = tw.parse(GRAPH)
    assert isinstance(graph, tw.GraphFunction)
    return Module({"main": graph}, {"w": weights()}, "main")


def two_ways(target: Target) -> dict[str, Any]:
    """A few rows by one register tile and many by another, which read the same panels."""
    found = [c.choice for c in candidates_of(function(), target)]
    few, many = next((a, b) for a, b in combinations(found, 2) if a.packing == b.packing and a.tile != b.tile)
    return {"template": "contraction-by-rows", "choice": record_of(ContractionsByRows((MOST,), (few, many)))}


@pytest.mark.parametrize("name", ["native", "x86-64-v3"])
def test_results_are_right_on_both_sides_of_the_bound(name: str) -> None:
    target = Target.parse(name)
    s, decision = schedule(function(), target, two_ways(target))
    assert decision.forced
    assert isinstance(s.func.body, If)
    run, w = tw.build(s.func, target=target), weights()
    rng = np.random.default_rng(0)
    for rows in (0, 1, MOST - 1, MOST, MOST + 1, 12, 37):
        x, y = rng.normal(size=(rows, K)).astype(np.float32), np.full((rows, N), np.nan, np.float32)
        run(x, w, y)
        np.testing.assert_allclose(y, x.astype(np.float64) @ w, rtol=1e-4, atol=1e-4)


def test_a_trace_makes_the_program_again() -> None:
    target = Target.parse("x86-64-v3")
    s, _ = schedule(function(), target, two_ways(target))
    again = tw.Schedule(function())
    again.replay(tw.Trace.from_python(str(s.trace)))
    assert str(again.func) == str(s.func)


def test_both_ways_read_weights_that_are_packed_once() -> None:
    """The program holds no more bytes of constants than one that runs all rows the same way."""
    asked = two_ways(Target.parse("x86-64-v3"))
    many = {"template": "contraction", "choice": asked["choice"]["ways"][-1]}
    one, two = (tw.compile(dense(), target="x86-64-v3", choices={"contract": way}, tune="off") for way in (many, asked))
    assert two.decisions["contract"].template == "contraction-by-rows"
    held = [sum(array.nbytes for array in exe.program.constants) for exe in (one, two)]
    assert held[0] == held[1] >= K * N * 4
    for rows in (MOST, 3 * MOST):
        x = np.random.default_rng(rows).normal(size=(rows, K)).astype(np.float32)
        np.testing.assert_allclose(two(x)[0], x @ weights(), rtol=1e-4, atol=1e-4)


def test_ways_that_pack_weights_differently_are_refused() -> None:
    asked = two_ways(Target.parse("x86-64-v3"))
    tile = asked["choice"]["ways"][0]["tile"]
    tile["vectors"] += 1
    with pytest.raises(tw.UserError, match="in memory twice"):
        schedule(function(), Target.parse("x86-64-v3"), asked)


def test_products_of_no_batch_have_one_way() -> None:
    text = """
func f[n](x: f32[0, n, 8], w: f32[0, 8, 16] in constant, y: f32[0, n, 16]):
  for b in 0..0, i in 0..n, j in 0..16, k in 0..8:
    block dot(vb = b, vi = i, vj = j, reduce vk = k):
      init: y[vb, vi, vj] = 0.0
      y[vb, vi, vj] += x[vb, vi, vk] * w[vb, vk, vj]
"""
    _, decision = schedule(function(text), Target.parse("x86-64-v3"))
    assert "by-rows" not in decision.template


def test_a_template_without_steps_says_so() -> None:
    class Empty(Template[str, ByRows]):
        name, choice = "empty", ByRows

        def recognise(self, facts: Facts) -> str | None:
            return "anything"

        def choices(self, shape: str, target: Target) -> list[ByRows]:
            return [ByRows((1,), (None, None))]

        def price(self, choice: ByRows, shape: str, target: Target) -> float:
            return 1.0

    facts, target = Facts(function()), Target.parse("x86-64-v3")
    (candidate,) = Empty().candidates(facts, target)
    with pytest.raises(tw.UserError, match="define apply"):
        candidate.schedule(facts, target)


def test_an_attention_runs_few_rows_in_small_blocks() -> None:
    module = tw.parse(ATTENTION)
    assert isinstance(module, tw.GraphFunction)
    name = next(n for n, d in tw.compile(module, tune="off").decisions.items() if d.template.startswith("attention"))
    taken = tw.compile(module, choices={name: {"template": "attention"}}, tune="off").decisions[name].taken
    assert taken is not None
    few = {**taken.choice, "rows": 2, "together": 2}
    for tile in ("scores", "sums"):
        few[tile] = {**few[tile], "rows": 2}
    ways = {"bounds": [MOST], "ways": [few, taken.choice]}
    assert set(ways) == set(AttentionsByRows.__dataclass_fields__)
    asked = {name: {"template": "attention-by-rows", "choice": ways}}
    one, two = (tw.compile(module, choices=asked, threads=threads, tune="off") for threads in (1, 2))
    for rows in (1, 3, MOST, MOST + 1, 19):
        q, k, v = np.random.default_rng(rows).normal(size=(3, 3, rows, 16)).astype(np.float32)
        s = np.exp(np.einsum("hik,hjk->hij", q, k))
        expected = np.einsum("hij,hjk->hik", s / s.sum(2, keepdims=True), v)
        for exe in (one, two):
            np.testing.assert_allclose(exe(q, k, v)[0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("template", ["contraction", "attention"])
def test_no_number_of_rows_is_dearer_than_by_one_way(template: str) -> None:
    """Each number of rows that is looked at is cheaper by its way than by the last one, and so are the first and the
    last one of each way by it than by the way beside; on machines with much memory for their arithmetic and with
    little."""
    kernel = wide() if template == "contraction" else attention()
    outer, inner = registered()[f"{template}-by-rows"], registered()[template]
    assert isinstance(inner, OfRows)
    shape = outer.shape_of(Facts(kernel))
    found = 0
    for machine in (Target.parse("x86-64-v3"), slow_to_ask(Target.parse("x86-64-v4"))):
        for choice in outer.choices(shape, machine):
            assert isinstance(choice, ByRows)
            assert list(choice.bounds) == sorted(set(choice.bounds))
            assert len(choice.ways) == len(choice.bounds) + 1
            for most, (way, other) in zip(choice.bounds, pairwise(choice.ways), strict=True):
                calls = [inner.of_call(shape, rows) for rows in (most, most + 1)]
                first, second = ([inner.price(c, call, machine) for c in (way, other)] for call in calls)
                assert first[0] <= first[1]
                assert second[0] > second[1] or most + 1 in rows_of_calls()
            for rows in rows_of_calls():
                way, call = choice.ways[bisect_left(choice.bounds, rows)], inner.of_call(shape, rows)
                assert inner.price(way, call, machine) <= inner.price(choice.ways[-1], call, machine)
            found += 1
    assert found


def test_each_further_way_is_worth_its_code() -> None:
    """A program with one way less takes longer by more than prices err, in the mean over the calls looked at."""
    outer, inner = registered()["contraction-by-rows"], registered()["contraction"]
    assert isinstance(inner, OfRows)
    shape, machine = outer.shape_of(Facts(wide())), slow_to_ask(Target.parse("x86-64-v4"))
    (choice,) = outer.choices(shape, machine)
    assert isinstance(choice, ByRows)

    def parts(bounds: tuple[int, ...], ways: tuple[Any, ...]) -> float:
        """What calls take, each as a part of what it takes by the last way."""
        calls = {rows: inner.of_call(shape, rows) for rows in rows_of_calls()}
        prices = ((ways[bisect_left(bounds, rows)], call) for rows, call in calls.items())
        return sum(inner.price(way, c, machine) / inner.price(ways[-1], c, machine) for way, c in prices)

    for n in range(len(choice.bounds)):
        fewer = choice.bounds[:n] + choice.bounds[n + 1 :], choice.ways[:n] + choice.ways[n + 1 :]
        assert parts(*fewer) - parts(choice.bounds, choice.ways) >= len(rows_of_calls()) * (MARGIN - 1)
