"""Fusion plans: kernels of known graphs, and the chosen plan against every other one on small graphs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
import tilewright.ops
from graph_strategies import Program, programs
from tilewright.analysis.dataflow import Dataflow
from tilewright.graph.nodes import GraphFunction
from tilewright.graph.parse import parse
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.own_results import own_results
from tilewright.plan.fusion.kernels import Kernels
from tilewright.plan.fusion.partitions import KERNEL_NODES, Partition, split, within_size
from tilewright.plan.fusion.planner import FUSE_ALL, NO_REDUNDANCY, UNFUSED, Plan, choose, select
from tilewright.plan.fusion.templates import explore
from tilewright.plan.price.kernels import CostModel
from tilewright.target import Target

TARGET = Target.parse("x86-64-v3")
MOST_REFERENCES = 12
"""Graphs with more references have too many plans to price them all."""


def graph(text: str) -> GraphFunction:
    function = parse(text)
    assert isinstance(function, GraphFunction)
    return function


def plan(text: str) -> list[str]:
    """A line for each kernel: its template and what its nodes make."""
    return str(choose(graph(text), TARGET)).splitlines()


def test_maps_follow_a_contraction_and_rows_keep_to_themselves() -> None:
    found = plan("""
graph main(x: f32[64, 256], w: f32[256, 256], b: f32[256]) -> y:
  h: f32[64, 256] = contract(x, w, spec="ik,kj->ij")
  a: f32[64, 256] = add(h, b)
  m: f32[64, 1] = reduce(a, kind=max, axes=(1,), keepdims=true)
  d: f32[64, 256] = sub(a, m)
  e: f32[64, 256] = exp(d)
  s: f32[64, 1] = reduce(e, kind=sum, axes=(1,), keepdims=true)
  y: f32[64, 256] = div(e, s)
""")
    assert found == ["contraction: h, a", "row: m, d, e, s, y"]


def test_a_residual_is_added_where_its_sum_is_made() -> None:
    found = plan("""
graph main(x: f32[64, 256], v: f32[256, 256], w: f32[256, 256]) -> y:
  h: f32[64, 256] = contract(x, v, spec="ik,kj->ij")
  g: f32[64, 256] = contract(x, w, spec="ik,kj->ij")
  a: f32[64, 256] = add(h, g)
  y: f32[64, 256] = relu(a)
""")
    assert found in (["contraction: h", "contraction: g, a, y"], ["contraction: g", "contraction: h, a, y"])


@pytest.mark.parametrize(("heads", "stored"), [(4, True), (64, False)])
def test_rows_whose_elements_lie_apart_are_stored_before_they_are_reduced(heads: int, stored: bool) -> None:
    """Where the axis that was last fills vectors, rows side by side are read as they lie."""
    found = plan(f"""
graph main(x: f32[96, 96, {heads}]) -> y:
  t: f32[{heads}, 96, 96] = transpose(x, perm=(2, 0, 1))
  m: f32[{heads}, 96, 1] = reduce(t, kind=max, axes=(2,), keepdims=true)
  d: f32[{heads}, 96, 96] = sub(t, m)
  e: f32[{heads}, 96, 96] = exp(d)
  s: f32[{heads}, 96, 1] = reduce(e, kind=sum, axes=(2,), keepdims=true)
  y: f32[{heads}, 96, 96] = div(e, s)
""")
    assert found == (["cell: t", "row: m, d, e, s, y"] if stored else ["row: t, m, d, e, s, y"])


def test_a_cheap_map_is_computed_by_each_reader() -> None:
    found = plan("""
graph main(x: f32[512, 512]) -> p, q:
  a: f32[512, 512] = relu(x)
  p: f32[512] = reduce(a, kind=sum, axes=(0,))
  q: f32[512] = reduce(a, kind=max, axes=(1,))
""")
    assert found == ["cell: a, p", "row: a, q"]


def test_a_dear_map_is_stored_for_its_readers() -> None:
    found = plan("""
graph main(x: f32[64, 64]) -> p, q:
  a: f32[64, 64] = pow(x, x)
  b: f32[64, 64] = pow(a, x)
  p: f32[64] = reduce(b, kind=sum, axes=(0,))
  q: f32[64] = reduce(b, kind=max, axes=(1,))
""")
    assert found == ["cell: a, b", "cell: p", "row: q"]


def test_a_mask_is_made_once_and_not_at_every_point() -> None:
    found = plan("""
graph main(x: f32[64, 32, 128], m: i64[1, 1, 128]) -> y:
  f: f32[1, 1, 128] = cast(m, dtype=f32)
  e: f32[1, 1, 128] = exp(f)
  y: f32[64, 32, 128] = add(x, e)
""")
    assert found == ["cell: f, e", "cell: y"]


def test_a_padding_joins_the_one_window_that_reads_it() -> None:
    text = """
graph main(x: f32[1, 8, 16, 16], w: f32[8, 8, 3, 3]) -> {results}:
  z: f32[] = full(value=0.0, shape=())
  p: f32[1, 8, 18, 18] = pad(x, z, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
  c: f32[1, 8, 16, 16] = contract(p, w, spec="n c i+a j+b, o c a b -> n o i j", sizes=(("i", 16), ("j", 16)))
  y: f32[1, 8, 16, 16] = relu(c)
"""
    assert plan(text.format(results="y")) == ["window: z, p, c, y"]
    assert plan(text.format(results="p, y")) == ["opaque: z, p", "window: c, y"]


def test_what_a_scatter_copies_is_computed_there() -> None:
    """Indices and updates are not: they are read one by one."""
    found = plan("""
graph main(u: f32[64, 64], i: i64[64, 64], x: f32[1]) -> y:
  b: f32[64, 128] = broadcast(x, shape=(64, 128))
  e: f32[64, 64] = exp(u)
  y: f32[64, 128] = scatter_elements(b, i, e, axis=1, reduction=add)
""")
    assert sorted(found) == ["cell: e", "opaque: b, y"]
    twice = plan("""
graph main(i: i64[64, 64], x: f32[1]) -> y:
  b: f32[64, 64] = broadcast(x, shape=(64, 64))
  y: f32[64, 64] = scatter_elements(b, i, b, axis=1, reduction=add)
""")
    assert twice == ["cell: b", "opaque: y"]


@pytest.mark.parametrize("side", [("h", "w"), ("256", "256")])
def test_a_product_stores_into_the_padding_that_another_one_reads(side: tuple[str, str]) -> None:
    """Else an image that leaves the caches would be copied. A pool pads what it reads itself, and so does a convolution
    of what others read, too."""
    h, w = side
    around = ", ".join(str(int(e) + 2) if e.isdigit() else f"{e} + 2" for e in side)
    symbols = "" if h.isdigit() else f"[{h}, {w}]"
    text = f"""
graph main{symbols}(x: f32[4, 16, {h}, {w}], v: f32[16, 16], u: f32[32, 16, 3, 3]) -> {{results}}:
  z: f32[] = full(value=0.0, shape=())
  a: f32[4, 16, {h}, {w}] = contract(x, v, spec="n c i j, c o -> n o i j")
  b: f32[4, 16, {h}, {w}] = relu(a)
  p: f32[4, 16, {around}] = pad(b, z, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
  {{reader}}
"""
    windows = 'contract(p, u, spec="n c i+a j+b, o c a b -> n o i j", sizes=(("i", {h}), ("j", {w})))'
    ones = "kind=max, strides=(1, 1, 1, 1), dilations=(1, 1, 1, 1)"
    pool = f"y: f32[4, 16, {h}, {w}] = window_reduce(p, {ones}, window=(1, 1, 3, 3))"
    convolved = f"y: f32[4, 32, {h}, {w}] = {windows.format(h=h, w=w)}"
    assert plan(text.format(results="y", reader=convolved)) == ["contraction: z, a, b, p", "window: y"]
    assert plan(text.format(results="y", reader=pool)) == ["contraction: a, b", "window: z, p, y"]
    assert plan(text.format(results="b, y", reader=convolved)) == ["contraction: a, b", "window: z, p, y"]


def test_long_chains_are_cut() -> None:
    steps = "\n".join(f"  a{n + 1}: f32[64, 64] = exp(a{n})" for n in range(100))
    found = choose(graph(f"graph main(a0: f32[64, 64]) -> a100:\n{steps}\n"), TARGET)
    assert [len(k.nodes) for k in found.kernels] == [KERNEL_NODES, KERNEL_NODES, 100 - 2 * KERNEL_NODES]


LAYER = """
  h{n}: f32[64, 256] = contract(x{n}, w, spec="ik,kj->ij")
  a{n}: f32[64, 256] = add(h{n}, x{n})
  s{n}: f32[64, 1] = reduce(a{n}, kind=sum, axes=(1,), keepdims=true)
  d{n}: f32[64, 256] = sub(a{n}, s{n})
  x{m}: f32[64, 256] = tanh(d{n})
"""


def test_layers_that_are_alike_are_solved_once() -> None:
    layers = "".join(LAYER.format(n=n, m=n + 1) for n in range(6))
    found = choose(graph(f"graph main(x0: f32[64, 256], w: f32[256, 256]) -> x6:{layers}"), TARGET)
    assert [k.template for k in found.kernels] == ["contraction", "row"] * 6
    assert len({id(part.selection) for part in found.parts if part.partition.points}) <= 2


def test_named_alternatives_are_always_priced() -> None:
    layers = "".join(LAYER.format(n=n, m=n + 1) for n in range(2))
    found = choose(graph(f"graph main(x0: f32[64, 256], w: f32[256, 256]) -> x2:{layers}"), TARGET)
    for part in found.parts:
        assert {UNFUSED, FUSE_ALL, NO_REDUNDANCY} <= part.selection.alternatives.keys()
        assert part.selection.seconds <= min(part.selection.alternatives.values())
        assert part.selection.seconds == pytest.approx(sum(k.cost.seconds for k in part.kernels))


def seconds(found: Plan) -> float:
    return sum(k.cost.seconds for k in found.kernels)


def cheapest_of_all(function: GraphFunction) -> float | None:
    """What the cheapest of all plans costs: every set of references that exploring found is cut once, but for those
    from maps that read nothing. None where they are too many."""
    flow = Dataflow(function)
    memo = explore(flow)
    open_ones = [n for n, r in enumerate(memo.references) if flow.makers[r.value].inputs]
    if len(open_ones) > MOST_REFERENCES:
        return None
    joined = {(r.value, r.reader) for r in memo.references}
    stored = frozenset(
        v
        for node in memo.entries
        for v in node.outputs
        if v in flow.results
        or not flow.readers_of(v)
        or any((v, reader) not in joined for reader in flow.readers_of(v))
    )
    whole = Partition(tuple(memo.entries), tuple(memo.references), (), stored)
    kernels = Kernels(whole, CostModel(flow, TARGET))
    return min(kernels.seconds(sum(1 << n for n in cut)) for cut in subsets(open_ones))


def subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(items, n) for n in range(len(items) + 1))


SMALL = [
    """
graph main(x: f32[128, 64], y: f32[64, 96], b: f32[96], r: f32[96, 128]) -> z:
  t: f32[128, 96] = contract(x, y, spec="ik,kj->ij")
  a: f32[128, 96] = add(t, b)
  s: f32[96, 128] = transpose(a, perm=(1, 0))
  z: f32[96, 128] = add(s, r)
""",
    """
graph main(x: f32[32, 64], w: f32[64, 64]) -> y, z:
  h: f32[32, 64] = contract(x, w, spec="ik,kj->ij")
  a: f32[32, 64] = relu(h)
  s: f32[32] = reduce(a, kind=sum, axes=(1,))
  y: f32[32] = tanh(s)
  b: f32[32, 64] = exp(a)
  z: f32[64] = reduce(b, kind=sum, axes=(0,))
""",
    """
graph main(x: f32[32, 64]) -> p, q, r:
  a: f32[32, 64] = relu(x)
  b: f32[32, 64] = add(a, x)
  c: f32[32, 64] = exp(b)
  p: f32[64, 32] = transpose(c, perm=(1, 0))
  q: f32[32] = reduce(c, kind=sum, axes=(1,))
  r: f32[64] = reduce(b, kind=max, axes=(0,))
""",
    """
graph main(x: f32[16, 512]) -> y:
  m: f32[16, 1] = reduce(x, kind=sum, axes=(1,), keepdims=true)
  d: f32[16, 512] = sub(x, m)
  q: f32[16, 512] = mul(d, d)
  v: f32[16, 1] = reduce(q, kind=sum, axes=(1,), keepdims=true)
  s: f32[16, 1] = sqrt(v)
  e: f32[16, 512] = div(d, s)
  t: f32[512, 16] = transpose(e, perm=(1, 0))
  u: f32[512, 1] = reduce(t, kind=max, axes=(1,), keepdims=true)
  y: f32[512, 16] = sub(t, u)
""",
    """
graph main(x: f32[1, 4, 34, 34], w: f32[4, 4, 3, 3], v: f32[4, 4]) -> y:
  c: f32[1, 4, 32, 32] = contract(x, w, spec="n c i+a j+b, o c a b -> n o i j", sizes=(("i", 32), ("j", 32)))
  r: f32[1, 4, 32, 32] = relu(c)
  d: f32[1, 4, 32, 32] = contract(r, v, spec="n c i j, o c -> n o i j")
  a: f32[1, 4, 32, 32] = add(d, r)
  s: f32[1, 4, 32, 32] = sigmoid(a)
  m: f32[1, 4, 32, 32] = mul(a, s)
  y: f32[1, 4] = reduce(m, kind=sum, axes=(2, 3))
""",
    # the product computes long enough to hide what else it reads: a stored value costs its write alone there
    """
graph main(x: f32[1, 64, 28, 28], w: f32[64, 64], b: f32[1, 64, 1, 1]) -> y:
  c: f32[1, 64, 28, 28] = contract(x, w, spec="n c i j, o c -> n o i j")
  a: f32[1, 64, 28, 28] = add(c, b)
  r: f32[1, 64, 28, 28] = relu(a)
  s: f32[1, 64, 1, 1] = reduce(r, kind=sum, axes=(2, 3), keepdims=true)
  e: f32[1, 64, 1, 1] = sigmoid(s)
  y: f32[1, 64, 28, 28] = mul(r, e)
""",
]


@pytest.mark.parametrize("text", SMALL)
def test_the_chosen_plan_is_the_cheapest_of_all(text: str) -> None:
    function = graph(text)
    best = cheapest_of_all(function)
    assert best is not None
    assert seconds(choose(function, TARGET)) == pytest.approx(best, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(programs())
def test_no_plan_of_a_random_graph_is_cheaper(program: Program) -> None:
    function = own_results(eliminate_dead(program.module)).graph
    best = cheapest_of_all(function)
    if best is not None:
        assert seconds(choose(function, TARGET)) <= best * (1 + 1e-9)


PLACED = {
    "padded": """
graph main(x: f32[64, 100]) -> y:
  e: f32[64, 100] = erf(x)
  z: f32[] = full(value=f32(0.0), shape=())
  y: f32[64, 400] = pad(e, z, low=(0, 0), high=(0, 300))
""",
    "concatenated": """
graph main(x: f32[64, 100], z: f32[64, 300]) -> y:
  e: f32[64, 100] = erf(x)
  f: f32[64, 300] = exp(z)
  y: f32[64, 400] = concat(e, f, axis=1)
""",
}


@pytest.mark.parametrize("text", PLACED.values(), ids=PLACED)
def test_what_stands_in_a_larger_result_is_computed_once(text: str) -> None:
    """A kernel computes what it pads or concatenates at its own elements, not at those of all it writes."""
    assert len(choose(graph(text), TARGET).kernels) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["relu", "exp", "sum", "max", "matmul", "add"]), min_size=3, max_size=9), st.data())
def test_skipping_assignments_skips_none_that_is_cheaper(steps: list[str], data: st.DataObject) -> None:
    """Points alone: the enumeration that skips against one that prices every assignment."""
    function = graph(_random_text(steps, data))
    flow = Dataflow(function)
    model = CostModel(flow, TARGET)
    memo = explore(flow)
    for partition in split(memo, within_size(memo, memo.references)):
        kernels = Kernels(partition, model)
        points = [kernels.cut([p]) for p in partition.points]
        if len(points) > MOST_REFERENCES:
            continue
        every = min(kernels.seconds(sum(cut)) for cut in subsets(points))
        assert select(kernels).seconds <= every * (1 + 1e-9)


NORMALISED = """
graph main(x: f32[4, 64, 16], g: f32[4, 64, 16], m: f32[1, 64, 1], i: f32[1, 64, 1]) -> b, y:
  r: f32[4, 64, 16] = relu(x)
  c: f32[4, 64, 16] = sub(r, m)
  h: f32[4, 64, 16] = mul(g, r)
  b: f32[64] = reduce(h, kind=sum, axes=(0, 2))
  p: f32[4, 64, 16] = mul(h, c)
  s: f32[64] = reduce(p, kind=sum, axes=(0, 2))
  t: f32[1, 64, 1] = reshape(s, shape=(1, 64, 1))
  n: f32[4, 64, 16] = mul(c, i)
  q: f32[4, 64, 16] = mul(n, t)
  d: f32[4, 64, 16] = sub(h, q)
  y: f32[4, 64, 16] = mul(d, i)
"""


def test_only_sums_begin_as_one_kernel() -> None:
    """Of stored values that are as large as what is summed, each has a kernel that begins: most assignments are skipped
    although the sums may be one kernel."""
    parts = [part for part in choose(graph(NORMALISED), TARGET).parts if part.partition.points]
    assert any(kernel.beside for part in parts for kernel in part.kernels)
    assert sum(part.selection.priced for part in parts) < sum(1 << len(part.partition.points) for part in parts) / 3


def _random_text(steps: list[str], data: st.DataObject) -> str:
    """A graph over matrices of one shape with these operators, each on values made before."""
    lines = ["graph main(v0: f32[48, 48]) -> RESULTS:"]
    for n, step in enumerate(steps):
        a = f"v{data.draw(st.integers(max(n - 3, 0), n))}"
        b = f"v{data.draw(st.integers(max(n - 3, 0), n))}"
        out = f"v{n + 1}"
        if step in ("relu", "exp"):
            lines.append(f"  {out}: f32[48, 48] = {step}({a})")
        elif step == "add":
            lines.append(f"  {out}: f32[48, 48] = add({a}, {b})")
        elif step == "matmul":
            lines.append(f'  {out}: f32[48, 48] = contract({a}, {b}, spec="ik,kj->ij")')
        else:
            lines.append(f"  r{n}: f32[48, 1] = reduce({a}, kind={step}, axes=(1,), keepdims=true)")
            lines.append(f"  {out}: f32[48, 48] = sub({a}, r{n})")
    last = len(steps)
    lines[0] = lines[0].replace("RESULTS", f"v{last}, v{last - 1}")
    return "\n".join(lines) + "\n"


def test_a_value_both_read_and_computed_in_a_kernel_has_a_buffer_of_each() -> None:
    """A constant that a padding reads from memory and an addition makes for itself."""
    text = """
graph main(x: f32[4, 4]) -> y:
  z: f32[4, 4] = full(value=2.0, shape=(4, 4))
  c: f32[4, 4] = contract(x, z, spec="ik,kj->ij")
  y: f32[4, 4] = add(c, z)
"""
    module = tw.parse(text)
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    (got,) = tw.compile(module)(x)
    np.testing.assert_allclose(got, x @ np.full((4, 4), 2, np.float32) + 2, rtol=1e-6)
