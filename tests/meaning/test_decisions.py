"""Which template schedules a kernel, and what is said of those that refused it."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.compiler import compile_module
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.plan.decision import Attempts, Decision, Refusal
from tilewright.plan.defaults import default_schedule, scheduled
from tilewright.plan.facts.contraction import find_contraction
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

V3 = Target.parse("x86-64-v3")
ODD_SIZES = """
graph main[n](x: i8[n // 3, n % 5 + 2], w: i8[n % 5 + 2, n]) -> y:
  y: i32[n // 3, n] = contract(x, w, spec="ik,kj->ij", dtype=i32)
"""
PLAIN_SIZES = """
graph main[n](x: f32[n, 64], w: f32[64, 96]) -> z:
  y: f32[n, 96] = contract(x, w, spec="ik,kj->ij")
  z: f32[n, 96] = exp(y)
"""
NESTS = """
func matmul[n](x: f32[n, 13], w: f32[13, 17], y: f32[n, 17]):
  for i in 0..n, j in 0..17, k in 0..13:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
"""


def matmul() -> Function:
    found = tw.parse(NESTS)
    assert isinstance(found, Function)
    return found


def refuses(function: Function) -> Schedule:
    """A template whose second step is not legal."""
    s = Schedule(function)
    s.unroll("j")
    s.vectorize("k")
    return s


def test_a_template_that_refuses_is_written_down_with_its_step_and_the_reason() -> None:
    module = parse_module(ODD_SIZES)
    exe = compile_module(module, V3)
    (decision,) = exe.decisions.values()
    refusal = next(r for r in decision.refusals if r.template == "dots")
    assert refusal.step.startswith("s.pad(") and refusal.what == "cannot pad block contract" and "n//3" in refusal.why
    assert exe.show(kernel=0, explain=True) == "\n".join(
        [f"# scheduled by {decision.template}", *(f"# {r}" for r in decision.refusals), exe.show(kernel=0)]
    )


def test_nothing_is_written_down_where_nothing_refuses() -> None:
    module = parse_module(PLAIN_SIZES)
    exe = compile_module(module, V3)
    assert exe.decisions == {name: Decision("contraction") for name in exe.kernels} and len(exe.kernels) == 1
    assert exe.show(kernel=0, explain=True) == f"# scheduled by contraction\n{exe.show(kernel=0)}"
    assert exe.show("plan", 0, explain=True) == exe.show("plan", 0)


def test_a_kernel_that_a_user_scheduled_has_no_decision() -> None:
    exe = tw.build(matmul())
    assert exe.decisions == {} and exe.show(kernel=0, explain=True) == exe.show(kernel=0)


def test_the_function_is_that_of_the_default_schedule() -> None:
    made, decision = scheduled(matmul(), V3)
    assert decision == Decision("contraction") and str(made) == str(default_schedule(matmul(), V3))


def test_a_template_inside_another_one_is_the_kernels_when_it_succeeds() -> None:
    attempts = Attempts()
    inner = Schedule(matmul())
    assert attempts.schedule("outer", lambda: attempts.schedule("inner", lambda: inner)) is inner
    assert attempts.decision("else") == Decision("inner")


def test_refusals_are_kept_in_order_whatever_comes_after() -> None:
    attempts = Attempts()

    def outer() -> Schedule:
        assert attempts.schedule("inner", lambda: refuses(matmul())) is None
        return Schedule(matmul())

    assert attempts.schedule("not for it", lambda: None) is None
    assert attempts.schedule("first", lambda: refuses(matmul())) is None
    assert attempts.schedule("second", outer) is not None
    why = "different iterations of k store y[i, j]"
    refusals = tuple(Refusal(t, "s.vectorize(k)", "cannot vectorize loop k", why) for t in ("first", "inner"))
    assert attempts.decision("else") == Decision("second", refusals)


def test_a_template_that_fails_after_an_inner_one_succeeded_has_made_nothing() -> None:
    attempts = Attempts()

    def outer() -> Schedule:
        attempts.schedule("inner", lambda: Schedule(matmul()))
        return refuses(matmul())

    assert attempts.schedule("outer", outer) is None
    assert attempts.decision("else").template == "else"


POOL = """
func pool[n](x: f32[n, 32, 8, 8], y: f32[n, 32, 4, 4]):
  for i in 0..n, c in 0..32, a in 0..4, b in 0..4, k in 0..2, l in 0..2:
    block pool(vi = i, vc = c, va = a, vb = b, reduce vk = k, reduce vl = l):
      init: y[vi, vc, va, vb] = -inf
      y[vi, vc, va, vb] = max(y[vi, vc, va, vb], x[vi, vc, va*2 + vk, vb*2 + vl])
"""


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_short_rows_of_windows_are_computed_in_short_vectors(target: str) -> None:
    function = tw.parse(POOL)
    assert isinstance(function, Function)
    made, _ = scheduled(function, Target.parse(target))
    assert [str(f.end) for f in statements(made.body) if isinstance(f, For) and f.kind is LoopKind.VECTORIZE]


def test_rows_of_a_tile_are_along_an_axis_that_is_long_for_certain() -> None:
    """Of a batch of one, tiles along the batch would compute each row many times."""
    batch = tw.parse("""
func product[n](x: f32[n, 200, 64], w: f32[64, 48], y: f32[n, 200, 48]):
  for i in 0..n, r in 0..200, j in 0..48, k in 0..64:
    block dot(vi = i, vr = r, vj = j, reduce vk = k):
      init: y[vi, vr, vj] = 0
      y[vi, vr, vj] += x[vi, vr, vk] * w[vk, vj]
""")
    assert isinstance(batch, Function)
    found = find_contraction(batch)
    assert found is not None and found.rows is not None
    assert found.block.axes[found.rows].var.name == "vr"
