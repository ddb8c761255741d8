"""Which template schedules a kernel, and what is said of those that refused it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import tilewright as tw
from tilewright.analysis.contractions import find_contraction
from tilewright.compiler import compile_module
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.plan.choose import schedule
from tilewright.plan.decision import Decision, Refusal
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Template, register, unregister
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

V3 = Target.parse("x86-64-v3")
ODD_SIZES = """
graph main[n](x: i8[n // 3 * 2 + 1, n % 5 + 2], w: i8[n % 5 + 2, n]) -> y:
  y: i32[n // 3 * 2 + 1, n] = contract(x, w, spec="ik,kj->ij", dtype=i32)
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


@dataclass(frozen=True, slots=True)
class Take:
    """The only choice of the template below."""

    loop: str


class Refusing(Template[Function, Take]):
    """A template whose second step is not legal, cheaper than all others."""

    choice = Take

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds

    def recognise(self, facts: Facts) -> Function | None:
        return facts.function if facts.names <= {"dot", "contract"} else None

    def choices(self, shape: Function, target: Target) -> Iterator[Take]:
        yield Take("k")

    def price(self, choice: Take, shape: Function, target: Target) -> float:
        return self.seconds

    def apply(self, s: Schedule, shape: Function, choice: Take) -> Schedule:
        s.unroll("j")
        s.vectorize(choice.loop)
        return s


@pytest.fixture
def refusing() -> Iterator[list[str]]:
    """Two such templates, registered while a test runs: the dearer one first."""
    names = ["second", "first"]
    for n, name in enumerate(names):
        register(Refusing(name, -1.0 - n))
    yield names
    for name in names:
        unregister(name)


def test_a_template_that_refuses_is_written_down_with_its_step_and_the_reason(refusing: list[str]) -> None:
    exe = compile_module(parse_module(ODD_SIZES), V3)
    (decision,) = exe.decisions.values()
    assert [r.template for r in decision.refusals] == refusing[::-1]
    refusal = decision.refusals[0]
    assert refusal.step == "s.unroll(j)" and refusal.what == "cannot unroll loop j"
    assert refusal.why == "its extent n is dynamic"
    assert exe.show(kernel=0, explain=True) == "\n".join(
        [f"# scheduled by {decision.template}", *(f"# {r}" for r in decision.refusals), exe.show(kernel=0)]
    )


def test_a_size_that_is_a_quotient_is_proved_to_hold_what_is_tiled() -> None:
    for size in ("n // 3", "n // 3 * 2 + 1"):
        exe = compile_module(parse_module(ODD_SIZES.replace("n // 3 * 2 + 1", size)), V3)
        assert [(d.template, d.refusals) for d in exe.decisions.values()] == [("contraction", ())]


def test_nothing_is_written_down_where_nothing_refuses() -> None:
    module = parse_module(PLAIN_SIZES)
    exe = compile_module(module, V3)
    assert exe.decisions == {name: Decision("contraction") for name in exe.kernels} and len(exe.kernels) == 1
    assert exe.show(kernel=0, explain=True) == f"# scheduled by contraction\n{exe.show(kernel=0)}"
    assert exe.show("plan", 0, explain=True) == exe.show("plan", 0)


def test_a_kernel_that_a_user_scheduled_has_no_decision() -> None:
    exe = tw.build(matmul())
    assert exe.decisions == {} and exe.show(kernel=0, explain=True) == exe.show(kernel=0)


def test_a_kernel_gets_the_same_schedule_again() -> None:
    made, decision = schedule(matmul(), V3)
    assert decision == Decision("contraction") and str(made.func) == str(schedule(matmul(), V3)[0].func)


def test_refusals_are_kept_in_the_order_of_prices_and_the_next_cheapest_is_taken(refusing: list[str]) -> None:
    _, decision = schedule(matmul(), V3)
    why = "different iterations of k store y[i, j]"
    refusals = tuple(Refusal(t, "s.vectorize(k)", "cannot vectorize loop k", why) for t in ("first", "second"))
    assert decision == Decision("contraction", refusals)
    assert [a.template for a in decision.alternatives][:3] == ["first", "second", "contraction"]
    assert decision.alternatives[0].record() == {"template": "first", "seconds": -2.0, "choice": {"loop": "k"}}


def test_a_name_is_taken_once(refusing: list[str]) -> None:
    class Other(Refusing):
        pass

    with pytest.raises(tw.UserError, match="there is a template 'first' for targets of kind cpu already"):
        register(Other("first", 0.0))


def test_a_choice_can_be_forced(refusing: list[str]) -> None:
    made, decision = schedule(matmul(), V3, {"template": "nests"})
    assert decision.template == "nests" and decision.forced and decision.refusals == ()
    again, _ = schedule(matmul(), V3, {"template": "nests", "choice": decision.taken.choice})  # type: ignore[union-attr]
    assert str(again.func) == str(made.func)


@pytest.mark.parametrize(
    ("forced", "text"),
    [
        ({"template": "none"}, "there is no template 'none'"),
        ({"template": "attention"}, "template attention does not recognise it"),
        ({"template": "first"}, "cannot vectorize loop k"),
        ({"template": "first", "choice": {}}, "Take is no choice that this template knows"),
        ({"template": "first", "choice": {"loop": 3}}, "Take.loop is 3"),
        ({"template": "first", "choice": {"loop": "k", "l": 1}}, "there is no l"),
    ],
)
def test_a_forced_choice_that_does_not_fit_is_refused(refusing: list[str], forced: dict[str, Any], text: str) -> None:
    with pytest.raises(tw.UserError, match=re.escape(text)):
        schedule(matmul(), V3, forced)


def test_a_forced_template_without_a_choice_is_refused(refusing: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refusing, "choices", lambda *given: iter(()))
    with pytest.raises(tw.UserError, match="template first has no way to run it on x86-64-v3"):
        schedule(matmul(), V3, {"template": "first"})


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
    made, _ = schedule(function, Target.parse(target))
    assert [str(f.end) for f in statements(made.func.body) if isinstance(f, For) and f.kind is LoopKind.VECTORIZE]


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
