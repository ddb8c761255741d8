"""Libraries answer as executables do: on sizes of all kinds, values that they must not go on with, results of sizes
that a call computes, and loops that grow."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled_models import FLOAT, INT64, model
from fault_cases import compiled, counted, floats, indices, integers, shapes, shown
from hypothesis import settings
from onnx import helper

import tilewright as tw
from libraries import digits, linux, same_bits
from tilewright.expr.dtypes import DTYPES
from tilewright.graph.parse import parse_module
from tilewright.report.errors import RuntimeFault, UserError
from tilewright.runtime.library import Library, load

pytestmark = linux

LONG = settings.get_current_profile_name() == "long"
STEP = 1 if LONG else 6
Outcome = tuple[np.ndarray[Any, Any], ...] | str


def outcome(run: tw.Executable | Library, arrays: list[np.ndarray[Any, Any]]) -> Outcome:
    """The results, or the first line of the error, with its place."""
    try:
        return run(*arrays)
    except (UserError, RuntimeFault) as error:
        return f"{type(error).__name__}: {error.what}{'' if error.where is None else f' at {error.where}'}"


def agree(exe: tw.Executable, library: Library, arrays: list[np.ndarray[Any, Any]]) -> Outcome:
    """What both answer: the same bits, the same fault, or an error about the same input."""
    first, second = outcome(exe, arrays), outcome(library, arrays)
    if isinstance(first, str) or isinstance(second, str):
        assert isinstance(first, str) and isinstance(second, str), (first, second)
        what = " has " if first.startswith("UserError: input") else "\n"
        assert second.split(what)[0].startswith(first.split(what)[0]), (first, second)
    else:
        assert same_bits(first, second), (first, second)
    return second


def saved(exe: tw.Executable, folder: Path) -> Library:
    place = folder / f"{len(list(folder.iterdir()))}.so"
    exe.save_library(place)
    return load(place)


def test_bad_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MEMORY_LIMIT", "128M")
    cases = itertools.chain(indices(), shapes(), counted(), floats(), integers())
    faults = results = 0
    for case in itertools.islice(cases, 0, None, STEP):
        op, attributes, feeds, constants = case
        try:
            exe = compiled(op, attributes, feeds, constants)
        except UserError:
            continue
        given = [feeds[port.name] for port in exe.inputs]
        found = agree(exe, saved(exe, tmp_path), given)
        faults, results = faults + isinstance(found, str), results + isinstance(found, tuple)
        assert not isinstance(found, str) or "{" not in found, shown(case)
    assert faults > 5 and results > 5


SHAPES = """
graph main[n, m](x: f32[n, m], y: f32[m + 2*n, 3], z: i64[]) -> a, b, c:
  t: f32[m, n] = transpose(x, perm=(1, 0))
  a: f32[n*m] = reshape(t, shape=(n*m,))
  b: f32[m + 2*n, 3] = exp(y)
  c: i64[] = add(z, z)
"""


def test_sizes_of_all_kinds(tmp_path: Path) -> None:
    exe = tw.compile(tw.parse(SHAPES))
    library = saved(exe, tmp_path)

    def arrays(n: int, m: int, k: int) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(n + m)
        return [rng.random((n, m), np.float32), rng.random((k, 3), np.float32), np.array(n)]

    for n, m in itertools.product((0, 1, 2, 3, 7, 31), repeat=2):
        assert isinstance(agree(exe, library, arrays(n, m, m + 2 * n)), tuple)
        wrong = agree(exe, library, arrays(n, m, m + 2 * n + 1))
        assert isinstance(wrong, str) and "wrong shape" in wrong and f"expects n*2 + m = {m + 2 * n}" in wrong


def test_results_of_run_time_sizes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Compress", ["x", "c"], ["y"], axis=0, name="it"),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    exe = tw.compile(model(nodes, {"x": (FLOAT, ["n", 4]), "c": (9, ["k"])}, outputs=("at", "y", "z")))
    library = saved(exe, tmp_path)
    for n in (5, 0, 1, 64, 3):
        x = np.random.default_rng(n).integers(-1, 2, (n, 4)).astype(np.float32)
        assert isinstance(agree(exe, library, [x, x[:, 0] > 0]), tuple)
    assert isinstance(agree(exe, library, [x, np.ones(9, np.bool_)]), str)


GROW = """
graph main[n](go: bool[], h0: f32[n, 2], limit: f32[], w0: f32[1, 2]) -> h, sums, i:
  w: f32[2, 2] = constant(name=@w)
  i0: i64[] = full(value=0, shape=())
  k, m, h: f32[m, 2], i: i64[], sums: f32[k, 2] = while(go, h0, i0, limit, w0, w, body="turn", states=2, most=500)

graph turn[step, m](h: f32[m, 2], i: i64[], limit: f32[], w0: f32[1, 2], w: f32[2, 2]) -> on, t, j, s:
  p: f32[m, 2] = contract(h, w, spec="ij,jk->ik")
  t: f32[m + 1, 2] = concat(p, w0, axis=0)
  s: f32[2] = reduce(t, kind=sum, axes=(0,), keepdims=false)
  total: f32[] = reduce(s, kind=sum, axes=(0,), keepdims=false)
  one: i64[] = full(value=1, shape=())
  j: i64[] = add(i, one)
  on: bool[] = lt(total, limit)
"""


def test_loops_that_grow(tmp_path: Path) -> None:
    w = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    exe = tw.compile(parse_module(GROW, {"w": w}))
    library = saved(exe, tmp_path)
    for limit in (3.0, 900.0, 10.0):
        given = [np.array(True), np.ones((2, 2), np.float32), np.array(limit, np.float32), np.ones((1, 2), np.float32)]
        assert isinstance(agree(exe, library, given), tuple)


def test_flushed_subnormal_numbers(tmp_path: Path) -> None:
    x = np.full(40, 1e-39, np.float32)
    for word in ("keep", "flush"):
        exe = tw.compile(tw.parse("graph main[n](x: f32[n]) -> y:\n  y: f32[n] = add(x, x)\n"), denormals=word)
        found = agree(exe, saved(exe, tmp_path), [x])
        assert isinstance(found, tuple) and bool(found[0].any()) == (word == "keep")


def test_elements_of_all_types(tmp_path: Path) -> None:
    for name, dtype in list(DTYPES.items()) if LONG else list(DTYPES.items())[::3]:
        exe = tw.compile(tw.parse(f"graph main[n](x: {name}[n]) -> y:\n  y: {name}[n, 1] = reshape(x, shape=(n, 1))\n"))
        x = np.array([0, 1, 1, 0, 1]).astype(dtype.numpy)
        assert isinstance(agree(exe, saved(exe, tmp_path), [x]), tuple), name


def test_a_program_without_inputs(tmp_path: Path) -> None:
    exe = tw.compile(tw.parse("graph main() -> y:\n  y: i64[3] = full(value=2, shape=(3,))\n"))
    assert isinstance(agree(exe, saved(exe, tmp_path), []), tuple)


def test_names_of_all_kinds(tmp_path: Path) -> None:
    name = 'a "b" \\ {x} ü\n*/'
    exe = tw.compile(model([helper.make_node("Relu", [name], ["y"])], {name: (INT64, ["n"])}))
    exe.save_library(tmp_path / "names.so", header=tmp_path / "names.h")
    library = load(tmp_path / "names.so")
    assert library.inputs[0].name == name and library.run({name: np.array([3, -1])})["y"].tolist() == [3, 0]
    assert (tmp_path / "names.h").read_text(encoding="utf-8").splitlines()[0].count("*/") == 0
    wrong = agree(exe, library, [np.zeros((2, 2), np.int64)])
    assert isinstance(wrong, str)


def test_weights_are_shared_where_they_are_equal(tmp_path: Path) -> None:
    exe = digits()
    exe.save_library(tmp_path / "a.so")
    assert (tmp_path / "a.so").stat().st_size < sum(c.nbytes for c in exe.program.constants) + 150_000
