"""Several reductions in one kernel, and long ones in parts: which kernels there are, and that they compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from drawn import drawn
from tilewright.graph.nodes import GraphFunction
from tilewright.plan.fusion.planner import APART, UNFUSED, Plan, choose
from tilewright.plan.price.points import additions
from tilewright.target import Target

Array = np.ndarray[Any, Any]
TARGET = Target.parse("x86-64-v3")


def chosen(text: str) -> Plan:
    function = tw.parse(text)
    assert isinstance(function, GraphFunction)
    return choose(function, TARGET)


def plan(text: str) -> list[str]:
    """A line for each kernel: its template and what its nodes make."""
    return str(chosen(text)).splitlines()


PRODUCTS = """
graph main(x: f64[400, 500], y: f64[400, 500], z: f64[400, 500]) -> a, b:
  p: f64[400, 500] = mul(x, y)
  a: f64[] = reduce(p, kind=sum, axes=(0, 1))
  q: f64[400, 500] = mul(x, z)
  b: f64[] = reduce(q, kind=sum, axes=(0, 1))
"""


def test_sums_that_share_an_input_are_one_kernel() -> None:
    found = chosen(PRODUCTS)
    assert str(found) == "multi aggregate: p, a, q, b"
    (kernel,) = found.kernels
    assert [v.name for v in kernel.outputs] == ["a", "b"]
    assert [v.name for v in kernel.reads()] == ["x", "y", "z"]


def test_both_prices_are_in_the_report() -> None:
    (part,) = chosen(PRODUCTS).parts
    prices = part.selection.alternatives
    assert part.selection.seconds < prices[APART] < prices[UNFUSED]


def test_statistics_of_one_tensor_are_one_kernel() -> None:
    text = """
graph main(x: f32[300, 400]) -> least, most, mean, spread:
  least: f32[] = reduce(x, kind=min, axes=(0, 1))
  most: f32[] = reduce(x, kind=max, axes=(0, 1))
  s: f32[] = reduce(x, kind=sum, axes=(0, 1))
  n: f32[] = full(value=120000.0, shape=())
  mean: f32[] = div(s, n)
  q: f32[300, 400] = mul(x, x)
  r: f32[] = reduce(q, kind=sum, axes=(0, 1))
  spread: f32[] = div(r, n)
"""
    assert plan(text) == ["multi aggregate: least, most, s, n, mean, q, r, spread"]


def test_a_dear_map_that_reductions_share_is_computed_once_and_not_stored() -> None:
    text = """
graph main(x: f32[300, 400]) -> s, m:
  e: f32[300, 400] = exp(x)
  s: f32[300] = reduce(e, kind=sum, axes=(1,))
  m: f32[300] = reduce(e, kind=max, axes=(1,))
"""
    assert plan(text) == ["multi aggregate: e, s, m"]


def test_reductions_that_need_each_other_stay_apart() -> None:
    text = """
graph main(x: f32[300, 400]) -> s, r:
  s: f32[1, 1] = reduce(x, kind=sum, axes=(0, 1), keepdims=true)
  d: f32[300, 400] = sub(x, s)
  r: f32[] = reduce(d, kind=max, axes=(0, 1))
"""
    assert plan(text) == ["cell: s", "cell: d, r"]


def test_reductions_over_other_axes_or_other_tensors_stay_apart() -> None:
    text = """
graph main(x: f32[300, 300], y: f32[300, 300]) -> s, r, t:
  s: f32[300] = reduce(x, kind=sum, axes=(0,))
  r: f32[300] = reduce(x, kind=sum, axes=(1,))
  t: f32[300] = reduce(y, kind=sum, axes=(0,))
"""
    assert sorted(plan(text)) == ["cell: s", "cell: t", "row: r"]


def test_groups_do_not_need_each_other_in_a_circle() -> None:
    """a and b share x, c and d share y; c needs a, and b needs d: not both pairs can be one kernel."""
    text = """
graph main(x: f32[300, 400], y: f32[300, 400]) -> b, c:
  a: f32[1, 1] = reduce(x, kind=sum, axes=(0, 1), keepdims=true)
  ya: f32[300, 400] = mul(y, a)
  c: f32[1, 1] = reduce(ya, kind=max, axes=(0, 1), keepdims=true)
  d: f32[1, 1] = reduce(y, kind=sum, axes=(0, 1), keepdims=true)
  xd: f32[300, 400] = mul(x, d)
  b: f32[1, 1] = reduce(xd, kind=max, axes=(0, 1), keepdims=true)
"""
    module = tw.parse(text)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((300, 400)).astype(np.float32) for _ in range(2))
    b, c = tw.compile(module)(x, y)
    np.testing.assert_allclose(b, (x * y.sum()).max(), rtol=1e-3)
    np.testing.assert_allclose(c, (y * x.sum()).max(), rtol=1e-3)


def test_a_kernel_comes_before_who_reads_any_of_its_results() -> None:
    """What reads a stands before b: the kernel of both is called before it."""
    text = """
graph main(x: f32[300, 400], w: f32[64, 64]) -> y, b:
  a: f32[] = reduce(x, kind=sum, axes=(0, 1))
  v: f32[64, 64] = mul(w, a)
  y: f32[64, 64] = contract(v, w, spec="ik,kj->ij")
  b: f32[] = reduce(x, kind=max, axes=(0, 1))
"""
    assert plan(text) == ["multi aggregate: a, b", "cell: v", "contraction: y"]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((300, 400)).astype(np.float32), rng.standard_normal((64, 64)).astype(np.float32)
    y, b = tw.compile(tw.parse(text))(x, w)
    np.testing.assert_allclose(y, (w * x.astype(np.float64).sum()) @ w, rtol=1e-3, atol=1e-2)
    assert b == x.max()


def test_no_more_results_than_registers_hold() -> None:
    most = additions(TARGET)
    sums = "".join(
        f"  q{n}: f32[300, 400] = mul(x, y{n})\n  s{n}: f32[] = reduce(q{n}, kind=sum, axes=(0, 1))\n"
        for n in range(most + 2)
    )
    params = ", ".join(f"y{n}: f32[300, 400]" for n in range(most + 2))
    results = ", ".join(f"s{n}" for n in range(most + 2))
    found = chosen(f"graph main(x: f32[300, 400], {params}) -> {results}:\n{sums}")
    assert [len(k.outputs) for k in found.kernels] == [most, 2]


def test_three_sums_are_one_kernel_on_cores_of_one_load_a_cycle() -> None:
    core = TARGET.with_core(load_cycles=1, add_cycles=1, fma_cycles=1)
    lines = [f"  {kind}_: f32[] = reduce(x, kind={kind}, axes=(0, 1))" for kind in ("max", "min", "sum")]
    function = tw.parse("graph main(x: f32[1021, 67]) -> max_, min_, sum_:\n" + "\n".join(lines) + "\n")
    assert isinstance(function, GraphFunction)
    assert [k.template for k in choose(function, core).kernels] == ["multi aggregate"]


COMBINED = {"sum": np.sum, "max": np.max, "min": np.min}


def reductions(kinds: list[str], dtype: str, shape: str, axes: str, out: str) -> str:
    """A graph of reductions of one tensor, the second and later ones of products with another."""
    lines = [
        f"graph main(x: {dtype}[{shape}], y: {dtype}[{shape}]) -> {', '.join(f's{n}' for n in range(len(kinds)))}:"
    ]
    for n, kind in enumerate(kinds):
        if n:
            lines.append(f"  q{n}: {dtype}[{shape}] = {('mul', 'add', 'sub')[n % 3]}(x, y)")
        lines.append(f"  s{n}: {dtype}[{out}] = reduce({f'q{n}' if n else 'x'}, kind={kind}, axes={axes})")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("threads", "dtype", "sign", "shape"),
    drawn([1, 2], ["f32", "f64", "i64"], [1, -1], [(1021, 67), (3, 50021), (40000,), (7, 5), (1, 3)]),
)
def test_extremes_and_sums_of_one_sign(threads: int, dtype: str, sign: int, shape: tuple[int, ...]) -> None:
    """Partial results begin from neutral elements: zero is no maximum of negative and no minimum of positive data."""
    of, axes = f"{dtype}[{', '.join(map(str, shape))}]", f"({', '.join(map(str, range(len(shape))))},)"
    lines = [f"  {kind}_: {dtype}[] = reduce(x, kind={kind}, axes={axes})" for kind in ("max", "min", "sum")]
    module = tw.parse(f"graph main(x: {of}) -> max_, min_, sum_:\n" + "\n".join(lines) + "\n")
    x = (sign * np.random.default_rng(1).integers(1, 100, shape)).astype({"f32": "f4", "f64": "f8", "i64": "i8"}[dtype])
    exe = tw.compile(module, threads=threads)
    assert [row.template for row in exe.plan.kernels] == ["multi aggregate"]
    got = exe(x)
    assert [g.item() for g in got] == [x.max(), x.min(), x.astype(np.int64).sum()]


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(COMBINED)), min_size=2, max_size=4),
    st.tuples(st.integers(1, 40), st.sampled_from([1, 2, 7, 16, 33, 130])),
    st.sampled_from([(0,), (1,), (0, 1)]),
    st.sampled_from(["f32", "f64", "i32"]),
)
def test_reductions_together_compute_what_each_computes(
    kinds: list[str], shape: tuple[int, int], axes: tuple[int, ...], dtype: str
) -> None:
    out = ", ".join(str(n) for d, n in enumerate(shape) if d not in axes)
    text = reductions(kinds, dtype, ", ".join(map(str, shape)), f"({', '.join(map(str, axes))},)", out)
    rng = np.random.default_rng(shape[0])
    x, y = (rng.uniform(1, 2, shape) if dtype != "i32" else rng.integers(-9, 9, shape) for _ in range(2))
    x, y = (v.astype({"f32": "f4", "f64": "f8", "i32": "i4"}[dtype]) for v in (x, y))
    terms = [x] + [(x * y, x + y, x - y)[n % 3] for n in range(1, len(kinds))]
    wide = np.int32 if dtype == "i32" else np.float64
    for got, kind, term in zip(tw.compile(tw.parse(text))(x, y), kinds, terms, strict=True):
        options = {"dtype": wide} if kind == "sum" else {}
        np.testing.assert_allclose(got, COMBINED[kind](term, axis=axes, **options), rtol=2e-5, atol=1e-3)


def test_sums_of_sizes_that_only_a_call_knows() -> None:
    text = """
graph main[n](x: f32[n, 300], y: f32[n, 300]) -> a, b, m:
  p: f32[n, 300] = mul(x, y)
  a: f32[] = reduce(p, kind=sum, axes=(0, 1))
  b: f32[] = reduce(x, kind=sum, axes=(0, 1))
  m: f32[] = reduce(x, kind=min, axes=(0, 1))
"""
    exe = tw.compile(tw.parse(text), threads=2)
    for n in (0, 1, 127, 128, 1000, 5003):
        rng = np.random.default_rng(n)
        x, y = (rng.uniform(1, 2, (n, 300)).astype(np.float32) for _ in range(2))
        a, b, m = exe(x, y)
        np.testing.assert_allclose(a, (x.astype(np.float64) * y).sum(), rtol=1e-5, err_msg=f"{n}")
        np.testing.assert_allclose(b, x.astype(np.float64).sum(), rtol=1e-5, err_msg=f"{n}")
        assert m == (x.min() if n else np.inf), n


def test_a_sum_is_the_same_for_any_number_of_threads() -> None:
    text = "graph main(x: f32[1000, 999]) -> s:\n  s: f32[] = reduce(x, kind=sum, axes=(0, 1))\n"
    x = np.random.default_rng(3).standard_normal((1000, 999)).astype(np.float32)
    found = {tw.compile(tw.parse(text), threads=n)(x)[0].item() for n in (1, 2, 3)}
    assert len(found) == 1


def test_a_long_sum_is_shared_by_threads() -> None:
    """Long sums have a parallel loop over parts; short ones and rows have none of these."""

    def schedule(shape: str) -> str:
        text = f"graph main(x: f32[{shape}]) -> s:\n  s: f32[] = reduce(x, kind=sum, axes=(0, 1))\n"
        return str(tw.compile(tw.parse(text)).show(after="share-out"))

    assert "s.acc.partial: f32[32]" in schedule("100000, 500") and "parallel kk1o in 0..32" in schedule("100000, 500")
    assert "parallel kk1o in 0..32" in schedule("4, 1000000")
    assert "partial" not in schedule("16, 500")


KEPT = """
graph main[n](x: f32[n]) -> most, y:
  z: f32[] = full(value=0.0, shape=())
  p: bool[n] = lt(z, x)
  c: f32[n] = cast(p, dtype=f32)
  s: f32[] = reduce(c, kind=sum, axes=(0,))
{before}  d: i64[] = cast(s, dtype=i64)
  m = size(d, low=0, high=n, what="the number of elements kept")
  i: i64[m, 1] = compact(p, size=m)
  y: i64[m] = reshape(i, shape=(m,))
{after}"""
MOST = "  most: f32[] = reduce(x, kind=max, axes=(0,))\n"


def test_reductions_on_either_side_of_a_size_stay_apart() -> None:
    """A kernel of both would have to run before the size is known, and after."""
    text = KEPT.format(before="", after=MOST)
    assert "multi aggregate" in str(chosen(KEPT.format(before=MOST, after="")))
    assert "multi aggregate" not in str(chosen(text))
    most, y = tw.compile(tw.parse(text))(np.array([3, -1, 5], np.float32))
    assert most == 5 and list(y) == [0, 2]
