"""Plain programs, scheduled by themselves: the same results as the evaluator's, for sizes that nothing divides, too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
from tilewright.expr.evaluate import evaluate as number
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.loops.same import same
from tilewright.plan.choose import schedule
from tilewright.report.errors import UserError
from tilewright.target import Target
from tilewright.tune.task import Task, task_alone

STENCIL = """
func stencil(x: f32[{h} + 2, {w} + 2], y: f32[{h}, {w}]):
  for i in 0..{h}, j in 0..{w}:
    block stencil(vi = i, vj = j):
      y[vi, vj] = x[vi, vj + 1] + x[vi + 1, vj] + x[vi + 1, vj + 2] + x[vi + 2, vj + 1] - x[vi + 1, vj + 1]*4.0
"""

BATCHED = """
func batched(x: f32[{h}, 4, 5], w: f32[{h}, 5, 4], y: f32[{h}, 4, 4]):
  for b in 0..{h}, i in 0..4, j in 0..4, k in 0..5:
    block dot(vb = b, vi = i, vj = j, reduce vk = k):
      init: y[vb, vi, vj] = 0.0
      y[vb, vi, vj] += x[vb, vi, vk]*w[vb, vk, vj]
"""

DILATED = """
func dilated(x: f32[{h} + 4, 3], w: f32[3, 3, {w}] in constant, y: f32[{h}, {w}]):
  for i in 0..{h}, o in 0..{w}, a in 0..3, c in 0..3:
    block sum(vi = i, vo = o, reduce va = a, reduce vc = c):
      init: y[vi, vo] = 0.0
      y[vi, vo] += x[vi + va*2, vc]*w[va, vc, vo]
"""

OUTER = """
func outer(x: f32[{h}, {w}], z: f32[{h}, {w}], y: f32[{w}, {w}]):
  for i in 0..{w}, j in 0..{w}, k in 0..{h}:
    block outer(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vk, vi]*z[vk, vj]
"""

POOL = """
func pool(x: f32[{h}*2 + 1, {w}*2 + 1, 8], y: f32[{h}, {w}, 8]):
  for i in 0..{h}, j in 0..{w}, c in 0..8, a in 0..3, b in 0..3:
    block pool(vi = i, vj = j, vc = c, reduce va = a, reduce vb = b):
      init: y[vi, vj, vc] = -inf
      y[vi, vj, vc] = max(y[vi, vj, vc], x[vi*2 + va, vj*2 + vb, vc])
"""

TURNED = """
func turned(x: f32[{h}, 3, {w}], y: f32[{w}, {h}]):
  for i in 0..{w}, j in 0..{h}, k in 0..3:
    block turned(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vj, vk, vi]
"""

GROUPED = """
func grouped(x: f32[{h} + 2, 3*{w}], w: f32[3, {w}, 48] in constant, y: f32[{h}, 48]):
  for i in 0..{h}, o in 0..48, a in 0..3, c in 0..{w}:
    block sum(vi = i, vo = o, reduce va = a, reduce vc = c):
      init: y[vi, vo] = 0.0
      y[vi, vo] += x[vi + va, vo//16*{w} + vc]*w[va, vc, vo]
"""

BACKWARDS = """
func backwards(x: f32[{h} + 2, {w}], w: f32[3, 12, {w}] in constant, y: f32[{h}, 12]):
  for i in 0..{h}, o in 0..12, a in 0..3, c in 0..{w}:
    block sum(vi = i, vo = o, reduce va = a, reduce vc = c):
      init: y[vi, vo] = 0.0
      y[vi, vo] += x[vi + va, vc]*w[2 - va, vo, vc]
"""

STRETCHED = """
func stretched(x: f32[{h}, {w}], k: f32[4, 16, {w}] in constant finite, y: f32[{h}*2, 16]):
  alloc p: f32[{h}*2 + 3, {w}] in arena
  for i in 0..{h}*2 + 3, c in 0..{w}:
    block zero(vi = i, vc = c):
      p[vi, vc] = 0.0
  for i in 0..{h}, c in 0..{w}:
    block copy(vi = i, vc = c):
      p[vi*2 + 2, vc] = x[vi, vc]
  for j in 0..{h}*2, o in 0..16, a in 0..4, c in 0..{w}:
    block sum(vj = j, vo = o, reduce va = a, reduce vc = c):
      init: y[vj, vo] = 0.0
      y[vj, vo] += p[vj + va, vc]*k[3 - va, vo, vc]
"""

NARROW = """
func narrow(x: f32[2, {h}, {w}], k: f32[3, {w}, 3] in constant finite, y: f32[2, {h}, 3]):
  alloc p: f32[2, {h} + 2, {w}] in arena
  for i in 0..2, j in 0..{h} + 2, c in 0..{w}:
    block zero(vi = i, vj = j, vc = c):
      p[vi, vj, vc] = 0.0
  for i in 0..2, j in 0..{h}, c in 0..{w}:
    block copy(vi = i, vj = j, vc = c):
      p[vi, vj + 1, vc] = x[vi, vj, vc]
  for i in 0..2, j in 0..{h}, o in 0..3, a in 0..3, c in 0..{w}:
    block sum(vi = i, vj = j, vo = o, reduce va = a, reduce vc = c):
      init: y[vi, vj, vo] = 0.0
      y[vi, vj, vo] += p[vi, vj + va, vc]*k[va, vc, vo]
"""

PROGRAMS = {
    "narrow": NARROW,
    "stretched": STRETCHED,
    "grouped": GROUPED,
    "backwards": BACKWARDS,
    "stencil": STENCIL,
    "batched": BATCHED,
    "dilated": DILATED,
    "outer": OUTER,
    "pool": POOL,
    "turned": TURNED,
}
SIZES = ((1, 1), (2, 16), (7, 13), (17, 40))


def program(text: str, h: int, w: int) -> Function:
    found = tw.parse(text.format(h=h, w=w))
    assert isinstance(found, Function)
    return found


def arrays(function: Function) -> Iterator[np.ndarray]:
    """Random inputs, and room for the result."""
    rng = np.random.default_rng(0)
    for b in function.params:
        yield rng.uniform(-1, 1, [int(number(e, {})) for e in b.shape]).astype(np.float32)


def check(function: Function, target: str = "native") -> None:
    """The schedule of a function computes what the evaluator does, and its trace replays."""
    made = tw.autoschedule(function, target)
    replayed = tw.Schedule(function)
    replayed.replay(made.trace)
    assert same(replayed.func, made.func)
    *inputs, result = arrays(function)
    wanted = np.zeros_like(result)
    evaluate(function, [*inputs, wanted])
    tw.build(made.func, threads=1)(*inputs, result)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_programs_compute_the_same(name: str, sizes: tuple[int, int]) -> None:
    check(program(PROGRAMS[name], *sizes))


@pytest.mark.parametrize("text", [GROUPED, BACKWARDS, DILATED, OUTER])
def test_sums_of_products_run_in_tiles(text: str) -> None:
    _, decision = schedule(program(text, 29, 64), Target.parse("x86-64-v3"))
    assert decision.template == "contraction"


def test_panels_of_a_turned_operand_have_no_edge_where_they_need_none() -> None:
    """Where a call packs columns that lie apart, panels over an edge would be copied element by element."""
    text = """
func scores(q: f32[128, 64], k: f32[128, 64], y: f32[128, 128]):
  for i in 0..128, j in 0..128, e in 0..64:
    block dot(vi = i, vj = j, reduce ve = e):
      init: y[vi, vj] = 0.0
      y[vi, vj] += q[vi, ve]*k[vj, ve]
"""
    function = tw.parse(text)
    assert isinstance(function, Function)
    for target in ("x86-64-v3", "x86-64-v4"):
        _, decision = schedule(function, Target.parse(target))
        assert decision.taken is not None
        tile = decision.taken.choice["tile"]
        assert 128 % (tile["vectors"] * tile["lanes"]) == 0


def test_zeros_that_set_an_image_apart_are_not_multiplied() -> None:
    trace, decision = schedule(program(STRETCHED, 29, 64), Target.parse("x86-64-v3"))
    assert decision.template == "contraction"
    assert "s.skip_zeros" in str(trace.trace) and "s.thin" in str(trace.trace)
    plain = program(STRETCHED.replace(" finite", ""), 29, 64)
    assert "s.skip_zeros" not in str(schedule(plain, Target.parse("x86-64-v3"))[0].trace)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_rows_of_a_narrow_product_lie_along_the_lanes(target: str) -> None:
    _, decision = schedule(program(NARROW, 64, 64), Target.parse(target))
    assert decision.template == "narrow contraction"
    wide = NARROW.replace("{w}, 3] in", "{w}, 32] in").replace("{h}, 3]", "{h}, 32]").replace("o in 0..3", "o in 0..32")
    assert schedule(program(wide, 64, 64), Target.parse(target))[1].template != "narrow contraction"


def test_a_budget_measures_and_keeps(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    function = program(OUTER, 40, 48)
    made = tw.autoschedule(function, budget="1s")
    *inputs, result = arrays(function)
    wanted = np.zeros_like(result)
    evaluate(function, [*inputs, wanted])
    tw.build(made.func, threads=1)(*inputs, result)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "budget", "message"),
    [
        ("func f(x: f32[4]): x[0] = 1.0", None, "cannot schedule a str"),
        (tw.parse("func f(inout x: f32[4]):\n  for i in 0..4: x[i] = x[i]*2.0"), "1s", "it changes x"),
        (tw.parse(TURNED.format(h=3, w=3)), "soon", "cannot tune for so long"),
        (tw.parse(TURNED.format(h=3, w=3)), -1, "cannot tune for so long"),
    ],
)
def test_what_cannot_be_done_is_said(given: object, budget: str | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tw.autoschedule(given, budget=budget)  # type: ignore[arg-type]


def test_a_target_that_is_not_here_is_not_tuned_for() -> None:
    with pytest.raises(UserError, match="this machine cannot run code for"):
        tw.autoschedule(program(TURNED, 3, 3), "aarch64", budget="1s")
    assert tw.autoschedule(program(TURNED, 3, 3), "aarch64").trace is not None


def test_tasks_of_functions_know_their_sizes() -> None:
    function = tw.parse("func f[n](x: f32[n], y: f32[n]):\n  for i in 0..n: y[i] = x[i]")
    assert isinstance(function, Function)
    task = task_alone(function, {"n": 5})
    assert isinstance(task, Task)
    assert task.sizes == {"n": 5}
    hidden = tw.parse("func f[n](x: f32[n*2], y: f32[n]):\n  for i in 0..n: y[i] = x[i]")
    assert isinstance(hidden, Function)
    assert task_alone(hidden, {}) == "no dimension of an input is n"
