"""Choices that are asked for: by argument, by setting, by option; kept apart in the store; refused where they do not
fit. And what a program adds to the compiler, which is part of what it compiles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from cli_models import invoke, save_affine
from tilewright.compiler.processes import useful_processes
from tilewright.core import extensions
from tilewright.core.forced import forced_in, read_forced
from tilewright.graph.nodes import Module
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Template, register, unregister
from tilewright.report import settings
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

NET = """
graph main(x: f32[48, 96]) -> y:
  w: f32[96, 128] = constant(name=@w)
  h: f32[48, 128] = contract(x, w, spec="ik,kj->ij")
  y: f32[48, 128] = relu(h)
"""
KERNEL = "contract_relu"
NARROW = {"rows": 3, "vectors": 1, "lanes": 8}


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))


def net() -> Module:
    graph = tw.parse(NET)
    assert isinstance(graph, tw.GraphFunction)
    return Module({"main": graph}, {"w": np.random.default_rng(0).normal(size=(96, 128)).astype(np.float32)}, "main")


def compiled(**options: Any) -> tw.Executable:
    return tw.compile(net(), target="x86-64-v3", threads=1, **options)


def narrow(exe: tw.Executable) -> dict[str, Any]:
    """What the plan chose for the product, in another tile of registers."""
    taken = exe.decisions[KERNEL].taken
    assert taken is not None
    return {**taken.choice, "tile": NARROW}


def test_a_kernel_runs_as_it_is_asked_to() -> None:
    plain = compiled()
    forced = compiled(choices={KERNEL: {"template": "contraction", "choice": narrow(plain)}})
    decision = forced.decisions[KERNEL]
    assert decision.forced and decision.taken is not None and decision.taken.choice["tile"] == NARROW
    assert plain.decisions[KERNEL].taken.choice["tile"] != NARROW  # type: ignore[union-attr]
    assert plain.show("schedule", KERNEL) != forced.show("schedule", KERNEL)
    x = np.random.default_rng(1).normal(size=(48, 96)).astype(np.float32)
    np.testing.assert_allclose(forced(x)[0], plain(x)[0], rtol=1e-4, atol=1e-4)


def test_the_record_of_a_decision_can_be_asked_for_again() -> None:
    plain = compiled()
    again = compiled(choices={name: d.taken.record() for name, d in plain.decisions.items() if d.taken is not None})
    assert all(d.forced for d in again.decisions.values())
    assert again.show("schedule") == plain.show("schedule")


def test_why_tells_what_was_asked_for_and_replays_it() -> None:
    forced = compiled(choices={KERNEL: {"template": "contraction", "choice": narrow(compiled())}})
    (answer,) = tw.why(forced, KERNEL).kernels
    (taken,) = [way for way in answer.ways if way.taken]
    assert taken.choice["tile"] == NARROW and answer.chosen.startswith("contraction was asked for; the cheapest")
    s = tw.Schedule(tw.parse(forced.show(after="own-states", kernel=KERNEL)))
    exec(answer.schedule, {"s": s})
    assert str(s.func) == forced.show(after="schedule", kernel=KERNEL)


def test_a_template_alone_takes_its_cheapest_choice() -> None:
    plain = compiled().decisions[KERNEL]
    (decision,) = compiled(choices={KERNEL: {"template": "contraction"}}).decisions.values()
    assert decision.template == "contraction" and decision.forced and decision.taken == plain.taken


@pytest.mark.parametrize(
    ("choices", "what", "why"),
    [
        ({"contract": {"template": "nests"}}, "a choice is asked for 'contract'", "no kernel of the program is called"),
        ({KERNEL: {"template": "none"}}, f"kernel {KERNEL} cannot have", "there is no template 'none': the templates"),
        ({KERNEL: {"template": "windows by columns"}}, f"kernel {KERNEL} cannot have", "template"),
        ({KERNEL: {"template": "contraction", "choice": {"tile": 1}}}, f"kernel {KERNEL} cannot have", "is missing"),
        ({KERNEL: {}}, "cannot use the choices", "has no name of a template at `template`"),
        ({KERNEL: {"template": "nests", "tile": 3}}, "cannot use the choices", "has tile; the fields are"),
        ({KERNEL: "nests"}, "cannot use the choices", "'contract_relu' has 'nests'"),
        ({3: {"template": "nests"}}, "cannot use the choices", "3 has"),
        ([KERNEL], "cannot use the choices", "a list came"),
        ({KERNEL: {"template": "nests", "choice": {"x": object()}}}, "cannot use the choices", "it is no JSON"),
        ({KERNEL: {"template": "nests", "choice": {"x": float("nan")}}}, "cannot use the choices", "it is no JSON"),
    ],
)
def test_what_does_not_fit_is_an_error(choices: Any, what: str, why: str) -> None:
    with pytest.raises(tw.UserError) as caught:
        compiled(choices=choices)
    assert caught.value.what.startswith(what) and why in str(caught.value), str(caught.value)


@pytest.mark.parametrize("tile", [{"rows": 0}, {"rows": -3}, {"vectors": 0}, {"lanes": 0}])
def test_a_tile_that_makes_no_sense_is_an_error_of_the_user(tile: dict[str, int]) -> None:
    choice = {**narrow(compiled()), "tile": {**NARROW, **tile}}
    with pytest.raises(tw.UserError, match=f"kernel {KERNEL} cannot have the choice that is asked for"):
        compiled(choices={KERNEL: {"template": "contraction", "choice": choice}})


@pytest.mark.parametrize("tile", [{"lanes": 7}, {"rows": 100}, {"vectors": 13}])
def test_a_choice_that_is_slow_computes_the_same(tile: dict[str, int]) -> None:
    plain = compiled()
    choice = {**narrow(plain), "tile": {**NARROW, **tile}}
    forced = compiled(choices={KERNEL: {"template": "contraction", "choice": choice}})
    x = np.random.default_rng(1).normal(size=(48, 96)).astype(np.float32)
    np.testing.assert_allclose(forced(x)[0], plain(x)[0], rtol=1e-4, atol=1e-4)


def test_choices_need_schedules() -> None:
    with pytest.raises(tw.UserError, match="choices are asked for kernels, and schedules are switched off"):
        compiled(level=1, choices={KERNEL: {"template": "nests"}})


def test_the_setting_holds_where_no_argument_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "choices.json"
    file.write_text(json.dumps({KERNEL: {"template": "nests"}}))
    monkeypatch.setenv("TILEWRIGHT_CHOICES", str(file))
    assert compiled().decisions[KERNEL].template == "nests"
    assert compiled(choices={KERNEL: {"template": "contraction"}}).decisions[KERNEL].template == "contraction"
    file.write_text('["nests"]')
    with pytest.raises(tw.UserError, match="it holds no JSON object"):
        compiled()
    file.write_text('{"contract_relu": 3}')
    with pytest.raises(tw.UserError, match="cannot use the choices") as caught:
        compiled()
    assert str(file) in str(caught.value)
    assert settings.CHOICES.read({}) is None


def test_equal_choices_have_one_text() -> None:
    one = {"a": {"template": "t", "choice": {"x": 1, "y": 2}, "seconds": 3.0}, "b": {"template": "u"}}
    other = {"b": {"template": "u", "seconds": 1.0}, "a": {"choice": {"y": 2, "x": 1}, "template": "t"}}
    assert read_forced(one, "") == read_forced(other, "") and read_forced({}, "") == ""
    assert forced_in(read_forced(one, ""))["a"] == {"template": "t", "choice": {"x": 1, "y": 2}}
    assert forced_in("") == {}


@pytest.fixture
def affine(tmp_path: Path) -> Path:
    return save_affine(tmp_path)


def test_the_store_keeps_choices_apart(affine: Path) -> None:
    plain = tw.compile(affine, threads=1)
    (kernel, *_) = plain.decisions
    forced = tw.compile(affine, threads=1, choices={kernel: {"template": "nests"}})
    assert not forced.cached and forced.decisions[kernel].forced
    again = tw.compile(affine, threads=1, choices={kernel: {"template": "nests", "seconds": 1.0}})
    assert again.cached and again.decisions[kernel].forced, "a look inside compiles with the choices, too"
    assert tw.compile(affine, threads=1).cached


def test_commands_take_a_file(affine: Path, tmp_path: Path) -> None:
    (kernel, *_) = tw.compile(affine, threads=1).decisions
    file = tmp_path / "choices.json"
    file.write_text(json.dumps({kernel: {"template": "nests"}}))
    told = invoke("why", str(affine), kernel, "--json", "--choices", str(file))
    (answer,) = json.loads(told.out)["kernels"]
    assert answer["scheduled_by"] == "nests" and answer["chosen"].startswith("nests was asked for")
    assert [way["taken"] for way in answer["ways"]].count(True) == 1
    file.write_text("{")
    failed = invoke("run", str(affine), "--random", "--choices", str(file))
    assert failed.code == 2 and "cannot read the file of --choices" in failed.err
    file.write_text('{"nobody": {"template": "nests"}}')
    failed = invoke("compile", str(affine), "-o", str(tmp_path / "made.tw"), "--choices", str(file))
    assert failed.code == 2 and "a choice is asked for 'nobody'" in failed.err


@dataclass(frozen=True, slots=True)
class Plain:
    """The number of iterations that are written out."""

    times: int


class Unrolled(Template[str, Plain]):
    """A product with its innermost loop unrolled: no good way to run it, which says that it is the best."""

    name = "unrolled"
    choice = Plain

    def recognise(self, facts: Facts) -> str | None:
        return facts.products[0] if facts.products else None

    def choices(self, shape: str, target: Target) -> Iterator[Plain]:
        yield from (Plain(2), Plain(4))

    def price(self, choice: Plain, shape: str, target: Target) -> float:
        return 1e-9 / choice.times

    def apply(self, s: Schedule, shape: str, choice: Plain) -> Schedule:
        *_, inner = s.get_loops(shape)
        _, least = s.split(inner, choice.times, tail="mask")
        s.unroll(least)
        return s


@pytest.fixture
def unrolled() -> Iterator[None]:
    register(Unrolled())
    yield
    unregister("unrolled")


def test_a_template_of_a_program_is_chosen_by_its_price(unrolled: None) -> None:
    decision = compiled().decisions[KERNEL]
    assert decision.template == "unrolled" and decision.taken is not None and decision.taken.choice == {"times": 4}


def test_what_is_added_is_part_of_what_is_kept(affine: Path) -> None:
    assert extensions.stamp() == ""
    tw.compile(affine, threads=1)
    register(Unrolled())
    try:
        assert "template unrolled" in extensions.stamp() and __name__ in extensions.stamp()
        assert not tw.compile(affine, threads=1).cached
        assert tw.compile(affine, threads=1).cached
    finally:
        unregister("unrolled")
    assert extensions.stamp() == "" and tw.compile(affine, threads=1).cached


def test_other_processes_do_not_have_what_is_added(monkeypatch: pytest.MonkeyPatch, unrolled: None) -> None:
    monkeypatch.setattr("tilewright.compiler.processes.is_large", lambda module: True)
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "3")
    assert useful_processes(net()) == 1
    unregister("unrolled")
    assert useful_processes(net()) == 3
