"""What is assumed of dynamic sizes, and prices for the sizes of a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from cli_models import save_affine
from tilewright.analysis.sizes import LARGE, SIDE, USUAL, Sizes, known, sizes_of_call, sizes_of_images
from tilewright.explain.why import explainer
from tilewright.expr.nodes import Const, Var, const
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.runtime.executable import Executable

LAYER = """
graph main[n](x: f32[n, 96]) -> y:
  w: f32[96, 128] = constant(name=@w)
  h: f32[n, 128] = contract(x, w, spec="ik,kj->ij")
  e: f32[n, 128] = exp(h)
  s: f32[n, 1] = reduce(e, kind=sum, axes=(1,), keepdims=true)
  y: f32[n, 128] = div(e, s)
"""
WEIGHTS = {"w": np.random.default_rng(0).normal(size=(96, 128)).astype(np.float32) / 10}

LOOP = """
graph step[m](h: f32[m], x: f32[m]) -> next:
  next: f32[m] = add(h, x)

graph main[n, t](h: f32[2*n], n2: f32[n], xs: f32[t, 2*n]) -> last:
  last: f32[2*n] = scan(h, xs, body="step", symbols=(2*n,), steps=t, states=1, scanned=(forward,), stacked=(),
                         types=(f32[2*n],))
"""

FOUND = """
graph main[n](mask: bool[n], x: f32[n]) -> y:
  one: i64[n] = cast(mask, dtype=i64)
  count: i64[] = reduce(one, kind=sum, axes=(0,))
  k = size(count, low=0, high=n, what="rows")
  at: i64[k, 1] = compact(mask, size=k)
  f: f32[k, 1] = cast(at, dtype=f32)
  y: f32[k, 1] = exp(f)
"""


def compiled(text: str = LAYER, **options: Any) -> Executable:
    function = tw.parse(text.strip())
    functions = {function.name: function} if isinstance(function, GraphFunction) else function.functions
    return tw.compile(Module(functions, WEIGHTS), **options)


def test_images_are_looked_at_one_by_one() -> None:
    text = """
graph main[n, h, w, t, k](x: f32[n, 3, h, w], y: f32[n, t], z: f32[k, k, 2, 2], s: f32[]) -> r:
  r: f32[] = neg(s)
"""
    function = tw.parse(text)
    assert isinstance(function, GraphFunction)
    sizes = sizes_of_images(function)
    assert [sizes.of(s) for s in function.symbols] == [1, SIDE, SIDE, USUAL, SIDE]
    assert sizes.value(function.symbols[1] // 2 + 1) == SIDE // 2 + 1


def test_a_symbol_is_assumed_within_its_bounds() -> None:
    n = Var("n")
    assert Sizes().of(n) == USUAL
    for low, high, number in ((0, 40, 40), (300, 400, 300)):
        assert Sizes({}, {n: (const(low), const(high))}).of(n) == number
    assert Sizes().of(Var("m", least=500)) == 500


def test_sizes_are_those_of_a_call_where_they_are_known() -> None:
    n, m = Var("n"), Var("m")
    sizes = Sizes({n: 6}, {m: (const(0), n * 2)})
    assert sizes.value(n * 3 + 1) == 19 and sizes.of(m) == 12
    assert sizes.knows(n + 1) and not sizes.knows(n + m)
    assert Sizes().extent(n * 0) == 1


def test_tiles_take_a_dynamic_extent_for_a_large_one() -> None:
    assert known(Var("n")) == LARGE and known(Const(7, Var("n").dtype)) == 7


def test_the_symbols_of_a_loop_are_what_it_gives_them() -> None:
    module = tw.parse(LOOP.strip())
    assert isinstance(module, Module)
    found = sizes_of_call(module, {"n": 5, "t": 3})
    body = module.functions["step"]
    assert isinstance(body, GraphFunction) and found["step"].known == {body.symbols[0]: 10}
    assert not sizes_of_call(module, {"t": 3})["step"].known


def seconds(exe: Executable, n: int) -> float:
    found = exe.predict({"n": n})
    assert None not in found
    return sum(s for s in found if s is not None)


def test_predictions_are_those_of_a_program_compiled_for_the_sizes() -> None:
    """The plan is the same for these sizes, and so is each kernel's price."""
    dynamic = compiled()
    for n in (64, 512):
        fixed = compiled(dims={"n": n})
        assert [row.operators for row in fixed.plan.kernels] == [row.operators for row in dynamic.plan.kernels]
        assert seconds(dynamic, n) == pytest.approx(seconds(fixed, n), rel=0.02)
    assert seconds(dynamic, 512) > 5 * seconds(dynamic, 64)


def test_a_prediction_without_the_sizes_is_none() -> None:
    exe = compiled()
    assert set(exe.predict({})) == {None}
    assert None not in compiled(dims={"n": 4}).predict({})


def test_a_profile_predicts_for_the_sizes_that_were_run() -> None:
    exe = compiled()
    for n in (8, 256):
        found = exe.profile({"x": np.ones((n, 96), np.float32)}, seconds=0.0)
        assert found.sizes == {"n": n}
        assert [row.predicted for row in found.sites] == list(exe.predict({"n": n}))


def test_why_prices_a_measured_call_for_its_sizes() -> None:
    exe = compiled()
    profile = exe.profile({"x": np.ones((7, 96), np.float32)}, seconds=0.0)
    asked = explainer(exe)
    measured = [line.predicted for line in asked.lines(profile)]
    assert measured == list(exe.predict({"n": 7})) != [line.predicted for line in asked.lines()]
    place = asked.program.places[0]
    assert asked.kernel(place).assumed == (("n", USUAL),) and asked.kernel(place, profile).assumed == ()
    assert asked.kernel(place, profile).price.seconds == measured[0]


def test_sizes_that_are_computed_during_a_call_are_not_predicted_for() -> None:
    exe = compiled(FOUND)
    assert exe.run({"mask": np.array([True, False, True]), "x": np.zeros(3, np.float32)})["y"].shape == (2, 1)
    predicted = dict(zip((s.kernel for s in exe.program.sites), exe.predict({"n": 40}), strict=True))
    assert None in predicted.values() and any(s is not None for s in predicted.values())


def test_a_program_from_the_store_predicts_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    path = save_affine(tmp_path)
    first, stored = tw.compile(path), tw.compile(path)
    assert stored.cached and not first.cached
    found = stored.predict({"n": 1000})
    assert None not in found and found == first.predict({"n": 1000}) != first.predict({"n": 10})


def test_a_loaded_program_says_that_it_does_not_know(tmp_path: Path) -> None:
    compiled().save(tmp_path / "dynamic.tw")
    compiled(dims={"n": 4}).save(tmp_path / "fixed.tw")
    assert set(tw.load(tmp_path / "dynamic.tw").predict({"n": 4})) == {None}
    assert None not in tw.load(tmp_path / "fixed.tw").predict({})
