"""Loops of graphs that end by a condition: what they mean, and that compiled code stops when they end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tilewright as tw
from graph_strategies import Program, agree, ending
from stages import check, stages_of
from tilewright.compiler import compile_module
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.lower.graph.eliminate_common import eliminate_common
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.fix_dimensions import fix_dimensions
from tilewright.lower.graph.fold_constants import fold_constants
from tilewright.lower.graph.own_results import own_results
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.lower.graph.sink_constants import sink_constants
from tilewright.report.errors import RuntimeFault

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=2000 if LONG else 4, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)
PASSES = (sink_constants, fold_constants, simplify_graph, eliminate_common, eliminate_dead, own_results)


@given(program=ending())
@some
def test_random_loops(program: Program) -> None:
    check(program.module, [program.inputs])


@given(program=ending())
@some
def test_passes_keep_loops(program: Program) -> None:
    text = str(program.module)
    assert str(parse_module(text, program.module.constants)) == text
    module = program.module
    for step in PASSES:
        module = step(module)
        agree(program, module)


GROW = """
graph main[n](go: bool[], h0: f32[n, 2], limit: f32[], w0: f32[1, 2]) -> h, sums, i:
  w: f32[2, 2] = constant(name=@w)
  i0: i64[] = full(value=0, shape=())
  k, m, h: f32[m, 2], i: i64[], sums: f32[k, 2] = while(go, h0, i0, limit, w0, w, body="turn", states=2, most=500)

graph turn[step, m](h: f32[m, 2], i: i64[], limit: f32[], w0: f32[1, 2], w: f32[2, 2]) -> on, t, j, s:
  p: f32[m, 2] = contract(h, w, spec="ij,jk->ik")
  t: f32[m + 1, 2] = concat(p, w0, axis=0)
  s: f32[2] = reduce(t, kind=sum, axes=(0,))
  top: f32[] = reduce(s, kind=max, axes=(0,))
  on: bool[] = lt(top, limit)
  number: i64[] = index_values(values=(step,), shape=())
  j: i64[] = add(i, number)
"""


def growing() -> Module:
    return parse_module(GROW.strip(), {"w": np.array([[0, 1], [1, 0]], np.float32)})


def grown(go: bool, h: np.ndarray, limit: float, w0: np.ndarray) -> list[np.ndarray]:
    """The loop in NumPy."""
    sums: list[np.ndarray] = []
    while go and len(sums) < 500:
        h = np.concatenate([h[:, ::-1], w0])
        sums.append(h.sum(0))
        go = bool(sums[-1].max() < limit)
    return [h, np.array(sums, np.float32).reshape(-1, 2), np.array(sum(range(len(sums))))]


def arguments(n: int, limit: float, go: bool = True) -> list[np.ndarray]:
    return [np.array(go), np.ones((n, 2), np.float32), np.array(limit, np.float32), np.array([[1, 2]], np.float32)]


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize(("limit", "go"), [(8, False), (8, True), (-1, True)])
def test_a_while_is_the_loop_of_its_body(n: int, limit: float, go: bool) -> None:
    module, given = growing(), arguments(n, limit, go)
    verify(module)
    for found, wanted in zip(evaluate(module, given).values(), grown(go, *given[1:]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_compiled_loops_end_when_the_condition_says_so() -> None:
    check(growing(), [arguments(3, 20), arguments(0, -1), arguments(2, 20, False)])


def test_states_and_stacks_grow_as_far_as_they_must() -> None:
    """More steps and rows than there is room for at first; and small calls after it, and calls of a saved program."""
    exe = compile_module(growing())
    for limit in (500, 5, 1e9, 30):
        given = arguments(3, limit)
        for found, wanted in zip(exe(*given), grown(True, *given[1:]), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_saved_programs_grow_too(tmp_path: Path) -> None:
    exe = compile_module(growing())
    exe.save(tmp_path / "grow.tw")
    given = arguments(2, 900)
    for found, wanted in zip(tw.load(tmp_path / "grow.tw")(*given), grown(True, *given[1:]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_weights_are_constants_of_the_body() -> None:
    module = sink_constants(growing())
    turn = module.functions["turn"]
    assert isinstance(turn, GraphFunction)
    assert [p.name for p in turn.params] == ["h", "i", "limit", "w0"]


def test_the_loop_that_runs_stops_by_its_condition() -> None:
    made = next(stage.program for stage in stages_of(growing()) if stage.name == "bufferize")
    assert "while count[] < 500 and go_1[]:" in str(made.main)


def test_fixed_sizes_are_those_of_the_body() -> None:
    module = fix_dimensions(growing(), {"n": 3})
    verify(module)
    for found, wanted in zip(
        evaluate(module, arguments(3, 9)).values(), grown(True, *arguments(3, 9)[1:]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_outputs_larger_than_the_limit_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is named, and the next call has the memory that it needs, not that of the one before."""
    endless = GROW.replace(", most=500", "")
    exe = compile_module(parse_module(endless.strip(), {"w": np.array([[0, 1], [1, 0]], np.float32)}))
    monkeypatch.setenv("TILEWRIGHT_MEMORY_LIMIT", "64KiB")
    with pytest.raises(RuntimeFault, match="TILEWRIGHT_MEMORY_LIMIT"):
        exe(*arguments(1, float("inf")))
    found, *_ = exe(*arguments(1, 20))
    np.testing.assert_allclose(found, grown(True, *arguments(1, 20)[1:])[0], rtol=1e-5)


CHECKED = """
graph main[n](x: f32[n], c: i64[]) -> h, ks:
  yes: bool[] = full(value=true, shape=())
  k, m, h: f32[m], ks: i64[k] = while(yes, x, c, body="cut", states=1)

graph cut[step, m](x: f32[m], c: i64[]) -> on, y, c:
  k = size(c, low=0, high=m, what="rows")
  require(m >= step + 1, message="{1} is less than {0}")
  y: f32[k] = slice(x, starts=(0,), sizes=(k,), steps=(1,))
  zero: f32[] = full(value=0.0, shape=())
  sum: f32[] = reduce(y, axes=(0,), kind=sum)
  on: bool[] = lt(zero, sum)
"""


def test_checks_of_a_step_fail_where_it_runs() -> None:
    module = parse_module(CHECKED.strip())
    check(module, [[np.array([1, -1, 1], np.float32), np.array(2)], [np.array([-1], np.float32), np.array(1)]])
    exe = compile_module(module)
    for array, rows, why in (([1, 1], 3, "rows is 3, outside 0 to 2"), ([1, 1, 1], 2, "2 is less than 3")):
        for run in (exe, lambda *given: evaluate(module, given)):
            with pytest.raises(RuntimeFault, match=why if run is exe else "rows is 3|2 is less than 3"):
                run(np.array(array, np.float32), np.array(rows))


NESTED = """
graph main[n](a: bool[], x: f32[n, 3]) -> y, counts:
  yes: bool[] = full(value=true, shape=())
  k, m, y: f32[m, 3], counts: i64[k] = while(yes, x, a, body="outer", states=1, most=3)

graph outer[step, m](x: f32[m, 3], a: bool[]) -> on, z, count:
  yes: bool[] = full(value=true, shape=())
  k, l, h: f32[l, 3], each: f32[k, 3] = while(yes, x, body="inner", states=1, most=step + 2)
  j, z: f32[j, 3] = if(a, h, each, then="first", otherwise="second", symbols=(l, k))
  count: i64[] = index_values(values=(j,), shape=())
  some: i64[] = full(value=100, shape=())
  on: bool[] = lt(count, some)

graph inner[step, m](h: f32[m, 3]) -> on, t, s:
  two: f32[] = full(value=0.5, shape=())
  t: f32[m*2, 3] = concat(h, h, axis=0)
  s: f32[3] = reduce(t, axes=(0,), kind=sum)
  top: f32[] = reduce(s, axes=(0,), kind=max)
  many: f32[] = full(value=50.0, shape=())
  on: bool[] = lt(top, many)

graph first[l, k](h: f32[l, 3], each: f32[k, 3]) -> y:
  y: f32[l + k, 3] = concat(h, each, axis=0)

graph second[l, k](h: f32[l, 3], each: f32[k, 3]) -> each:
  pass
"""


def test_loops_in_loops_and_branches_of_other_sizes() -> None:
    rng = np.random.default_rng(2)
    calls = [[np.array(a), rng.uniform(-1, 2, (n, 3)).astype(np.float32)] for a in (True, False) for n in (0, 1, 4)]
    check(parse_module(NESTED.strip()), calls)
