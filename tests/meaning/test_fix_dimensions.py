"""Programs compiled for one size of a dynamic dimension: the same results, other code, an entry of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright as tw
from cli_models import invoke, save_affine
from graph_strategies import Program, agree, programs
from tilewright.expr.nodes import Var
from tilewright.lower.graph.fix_dimensions import fix_dimensions

ordinary = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def sizes_of(program: Program) -> dict[str, int]:
    """The sizes that the inputs give to the symbols."""
    pairs = zip(program.module.graph.params, program.inputs, strict=True)
    return {d.name: n for p, x in pairs for d, n in zip(p.type.shape, x.shape, strict=True) if isinstance(d, Var)}


@given(program=programs(), data=st.data())
@ordinary
def test_results_stay_the_same_for_the_sizes(program: Program, data: st.DataObject) -> None:
    sizes = sizes_of(program)
    chosen = data.draw(st.sets(st.sampled_from(sorted(sizes)))) if sizes else set()
    fixed = fix_dimensions(program.module, {name: sizes[name] for name in chosen})
    assert {s.name for s in fixed.graph.symbols} == {s.name for s in program.module.graph.symbols} - chosen
    agree(program, fixed)


def test_nothing_fixed_is_the_same_object() -> None:
    graph = tw.parse("graph main[n](x: f32[n]) -> y:\n  y: f32[n] = relu(x)")
    assert isinstance(graph, tw.GraphFunction)
    module = tw.Module({"main": graph})
    assert fix_dimensions(module, {}) is module


def test_requirements_that_the_sizes_decide_are_gone() -> None:
    graph = tw.parse("""
graph main[n, m](x: f32[n], y: f32[m]) -> z:
  require(n == m, message="lengths differ: {0} and {1}")
  require(m <= 7, message="more than seven: {0}")
  z: f32[n] = add(x, y)
""")
    assert isinstance(graph, tw.GraphFunction)
    module = fix_dimensions(tw.Module({"main": graph}), {"n": 3})
    assert str(module) == (
        "graph main[m](x: f32[3], y: f32[m]) -> z:\n"
        '  require(3 == m, message="lengths differ: {0} and {1}")\n'
        '  require(m <= 7, message="more than seven: {0}")\n'
        "  z: f32[3] = add(x, y)"
    )
    assert "require" not in str(fix_dimensions(module, {"m": 3}))


def test_a_file_has_an_entry_for_each_choice_of_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    path = save_affine(tmp_path)
    x, scale = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2, 3], np.float32)
    for dims in ({}, {"n": 2}, {"n": 5}):
        assert not tw.compile(path, dims=dims).cached
    exe = tw.compile(path, dims={"n": 2})
    assert exe.cached
    assert str(exe.interface) == "(x: f32[2, 3], scale: f32[3]) -> (y: f32[2, 3])"
    np.testing.assert_array_equal(exe(x, scale)[0], x * scale + 1)
    assert "x: f32[2, 3]" in exe.show(after="plan")
    with pytest.raises(tw.UserError, match="expects 2"):
        exe(np.ones((3, 3), np.float32), scale)


@pytest.mark.parametrize("command", [("run", "--random"), ("bench", "--rounds", "1", "--vs", "none")])
def test_commands_run_what_was_compiled_for_the_sizes(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = save_affine(tmp_path)
    words = (command[0], path, *command[1:], "--dim", "n=4", "--json")
    assert invoke(*words).code == 0
    wrong = invoke(*words, "--size", "n=4")
    assert (wrong.code, wrong.err.splitlines()[2]) == (2, "why:  all dimensions of the inputs are fixed")


def test_show_prints_what_was_compiled_for_the_sizes(tmp_path: Path) -> None:
    outcome = invoke("show", save_affine(tmp_path), "--dim", "n=4", "--after", "simplify")
    assert outcome.code == 0
    assert "x: f32[4, 3]" in outcome.out
