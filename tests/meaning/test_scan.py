"""Loops of graphs: scan means the loop that NumPy runs, and compiled code does what it means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from graph_strategies import Program, agree, repeating
from stages import check, stages_of
from tilewright.compiler import compile_module
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Function, Reserve
from tilewright.lower.graph.eliminate_common import eliminate_common
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.fold_constants import fold_constants
from tilewright.lower.graph.own_results import own_results
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.lower.graph.sink_constants import sink_constants
from tilewright.report.errors import RuntimeFault

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=2000 if LONG else 6, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)
PASSES = (sink_constants, fold_constants, simplify_graph, eliminate_common, eliminate_dead, own_results)


@given(program=repeating())
@some
def test_random_loops(program: Program) -> None:
    check(program.module, [program.inputs])


@given(program=repeating())
@some
def test_passes_keep_loops(program: Program) -> None:
    text = str(program.module)
    assert str(parse_module(text, program.module.constants)) == text
    module = program.module
    for step in PASSES:
        module = step(module)
        agree(program, module)


CELL = """
graph main[s, n](x: f32[s, n, 3], h0: f32[n, 3]) -> h, c, forth, back:
  w: f32[3, 3] = constant(name=@w)
  c0: f32[n, 3] = broadcast(h0, shape=(n, 3))
  h: f32[n, 3], c: f32[n, 3], forth: f32[s, n, 3], back: f32[s, n, 3] = scan(
    h0, c0, x, x, w, body="cell", symbols=(n,), steps=s, states=2,
    scanned=(forward, reverse), stacked=(forward, reverse))

graph cell[m](h: f32[m, 3], c: f32[m, 3], x: f32[m, 3], y: f32[m, 3], w: f32[3, 3]) -> new, old, sum, new as again:
  hw: f32[m, 3] = contract(h, w, spec="ij,jk->ik")
  sum: f32[m, 3] = add(hw, x)
  gate: f32[m, 3] = sigmoid(y)
  kept: f32[m, 3] = mul(gate, c)
  old: f32[m, 3] = add(kept, sum)
  new: f32[m, 3] = tanh(old)
"""


def cell() -> Module:
    w = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    return parse_module(CELL.strip(), {"w": w})


def inputs(s: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(s * 10 + n)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((s, n, 3), (n, 3))]


@pytest.mark.parametrize(("s", "n"), [(0, 1), (1, 1), (4, 2), (7, 5), (3, 0)])
def test_scan_is_the_loop_of_its_body(s: int, n: int) -> None:
    x, h = inputs(s, n)
    module = cell()
    verify(module)
    c, w = h.copy(), module.constants["w"]
    found = evaluate(module, [x, h])
    forth, back = np.zeros((2, s, n, 3), np.float32)
    for t in range(s):
        total = h @ w + x[t]
        c = c / (1 + np.exp(-x[s - 1 - t])) + total
        h = np.tanh(c)
        forth[t], back[s - 1 - t] = total, h
    for name, expected in {"h": h, "c": c, "forth": forth, "back": back}.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


def test_compiled_loops_take_any_number_of_steps() -> None:
    check(cell(), [inputs(s, n) for s, n in ((0, 1), (1, 2), (4, 2))])


SWAP = """
graph main(a: f32[3], b: f32[3], n: f32[5]) -> x, y, z, a as same:
  x: f32[3], y: f32[3], z: f32[3] = scan(a, b, a, n, body="swap", steps=5, states=3, scanned=(forward,))

graph swap(a: f32[3], b: f32[3], c: f32[3], n: f32[]) -> b, a, next:
  next: f32[3] = add(c, n)
"""


def test_states_that_change_places() -> None:
    """Each next state is written where a state still is that another one becomes."""
    rng = np.random.default_rng(1)
    check(parse_module(SWAP.strip()), [[rng.standard_normal(k).astype(np.float32) for k in (3, 3, 5)]])


NESTED = """
graph main[n](x: f64[n, 4, 3]) -> sum, sums, rows:
  zero: f64[3] = full(value=f64(0.0), shape=(3,))
  sum: f64[3], sums: f64[n, 3], rows: f64[n, 4, 3] = scan(
    zero, x, body="outer", steps=n, states=1, scanned=(forward,), stacked=(reverse, forward))

graph outer(s: f64[3], x: f64[4, 3]) -> t, t as every, rows:
  t: f64[3], rows: f64[4, 3] = scan(s, x, body="inner", steps=4, states=1, scanned=(reverse,), stacked=(reverse,))

graph inner(s: f64[3], x: f64[3]) -> t, t as row:
  t: f64[3] = add(s, x)
"""


def test_loops_in_loops() -> None:
    x = np.random.default_rng(2).standard_normal((3, 4, 3))
    module = parse_module(NESTED.strip())
    found = evaluate(module, [x])
    running = np.cumsum(x[:, ::-1].reshape(-1, 3), axis=0).reshape(3, 4, 3)
    np.testing.assert_allclose(found["rows"], running[:, ::-1])
    np.testing.assert_allclose(found["sums"], running[::-1, -1])
    check(module, [[x], [x[:1]], [x[:0]]])


SHARED = """
graph main(x: f32[4, 16]) -> y, z:
  h: f32[16] = full(value=f32(0.5), shape=(16,))
  u: f32[16, 16] = constant(name=@u)
  v: f32[16, 16] = constant(name=@v)
  y: f32[16] = scan(h, x, u, body="cell", steps=4, states=1, scanned=(forward,))
  z: f32[16] = scan(h, x, v, body="cell", steps=4, states=1, scanned=(reverse,))

graph cell(h: f32[16], x: f32[16], w: f32[16, 16]) -> y:
  p: f32[16] = contract(h, w, spec="i,ij->j")
  s: f32[16] = add(p, x)
  y: f32[16] = tanh(s)
"""


def test_two_loops_with_weights_of_their_own() -> None:
    rng = np.random.default_rng(3)
    weights = {name: rng.standard_normal((16, 16)).astype(np.float32) for name in "uv"}
    module = parse_module(SHARED.strip(), weights)
    sunk = eliminate_dead(sink_constants(module))
    assert [len(f.params) for f in sunk.functions.values() if isinstance(f, GraphFunction)] == [1, 2, 2]
    assert sink_constants(sunk) is sunk
    check(module, [[rng.standard_normal((4, 16)).astype(np.float32)]])


CHECKED = """
graph main[n, m, s](x: f32[s, n], y: f32[m]) -> z:
  h: f32[n] = full(value=f32(0.0), shape=(n,))
  z: f32[n] = scan(h, x, y, body="sum", symbols=(n, m), steps=s, states=1, scanned=(forward,))

graph sum[n, m](h: f32[n], x: f32[n], y: f32[m]) -> t:
  require(n == m, message="{0} is not {1}")
  p: f32[n] = add(h, x)
  t: f32[n] = add(p, y)
"""


def test_what_a_body_requires_is_checked_before_the_first_step() -> None:
    module = parse_module(CHECKED.strip())
    check(module, [[np.ones((s, 3), np.float32), np.ones(3, np.float32)] for s in (0, 2)])
    wrong = [np.ones((0, 3), np.float32), np.ones(2, np.float32)]
    for run in (lambda: evaluate(module, wrong), lambda: compile_module(module)(*wrong)):
        with pytest.raises(RuntimeFault, match="3 is not 2"):
            run()


def test_memory_of_a_loop_is_as_large_as_one_step_needs() -> None:
    """A long loop takes no more memory than a short one: what a step makes is made anew by the next."""
    sizes = []
    for steps in (2, 2000):
        text = CELL.strip().replace("[s, n]", "").replace("s, n", f"{steps}, 2").replace("steps=s", f"steps={steps}")
        text = text.replace("[n, 3]", "[2, 3]").replace("(n, 3)", "(2, 3)").replace("(n,)", "(2,)")
        module = parse_module(text, dict(cell().constants))
        main = stages_of(module).after("bufferize").program.main
        assert isinstance(main, Function)
        sizes += [s.bytes for s in statements(main.body) if isinstance(s, Reserve)]
    assert len(sizes) == 2 and sizes[0] is sizes[1]


COUNTED = """
graph main[n](x: f32[20, n], h0: f32[n]) -> h, sums, threes, squares:
  h: f32[n], sums: f32[7, n], threes: i64[7], squares: i64[7, 2] = scan(
    h0, x, body="step", symbols=(n,), steps=7, states=1, stacked=(forward, reverse, forward))

graph step[m, t](h: f32[m], x: f32[20, m]) -> sum, sum as again, three, squares:
  row: f32[1, m] = slice(x, starts=(t*2, 0), sizes=(1, m), steps=(1, 1))
  flat: f32[m] = reshape(row, shape=(m,))
  sum: f32[m] = add(h, flat)
  three: i64[] = index_values(values=(t*3,), shape=())
  squares: i64[2] = scan(body="within", symbols=(t,), steps=2, states=0, stacked=(forward,))

graph within[t, k]() -> square:
  square: i64[] = index_values(values=(t*t + k,), shape=())
"""


def test_a_body_that_has_the_number_of_the_step() -> None:
    module = parse_module(COUNTED.strip())
    verify(module)
    assert str(parse_module(str(module))) == str(module)
    x, h = np.arange(60, dtype=np.float32).reshape(20, 3), np.ones(3, np.float32)
    found = evaluate(module, [x, h])
    sums = 1 + np.cumsum(x[:14:2], 0)
    np.testing.assert_array_equal(found["sums"], sums)
    np.testing.assert_array_equal(found["h"], sums[-1])
    np.testing.assert_array_equal(found["threes"], np.arange(7)[::-1] * 3)
    np.testing.assert_array_equal(found["squares"], np.arange(7)[:, None] ** 2 + np.arange(2))
    check(module, [[x, h]])


def test_what_such_a_body_requires_is_checked_in_each_step() -> None:
    text = COUNTED.replace("  three:", '  require(cond=t*m < 18, message="{0} is not below {1}")\n  three:')
    module = parse_module(text.strip())
    verify(module)
    check(module, [[np.ones((20, 2), np.float32), np.ones(2, np.float32)]])
    x, h = np.ones((20, 3), np.float32), np.ones(3, np.float32)
    with pytest.raises(RuntimeFault, match="18 is not below 18"):
        evaluate(module, [x, h])
    with pytest.raises(RuntimeFault, match="18 is not below 18"):
        compile_module(module)(x, h)
