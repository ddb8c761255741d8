"""Subnormal numbers are kept or flushed, in all threads of a call, and the caller's own arithmetic stays as it was."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright as tw
from cli_models import invoke, save_affine, save_rows
from tilewright.codegen.module import generate
from tilewright.codegen.pool import pool_text
from tilewright.codegen.subnormals import control_of
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.runtime.executable import Executable
from tilewright.runtime.subnormals import Subnormals, check_denormals, count_subnormals
from tilewright.target import Target, native

Array = np.ndarray[Any, Any]
F32 = np.float32
SMALL = F32(1e-38)  # normal, and a tenth of it is not

pytestmark = pytest.mark.skipif(control_of(native().triple) is None, reason="this machine is not told to flush")

SCALED = """
graph main[n](x: f32[n], f: f32[n]) -> y:
  y: f32[n] = mul(x, f)
"""
DOUBLE = SCALED.replace("f32", "f64")
MANY = """
graph main(x: f32[64, 4096], f: f32[64, 4096]) -> y:
  a: f32[64, 4096] = mul(x, f)
  y: f32[64, 4096] = mul(a, f)
"""
FAULT = """
graph main[n](x: f32[64, 4096], f: f32[64, 4096], table: f32[n], indices: i64[3]) -> y, z:
  y: f32[64, 4096] = mul(x, f)
  i: i64[3] = checked_indices(indices, limit=n, what="rows")
  z: f32[3] = take(table, i, axis=0)
"""


def compiled(text: str = SCALED, **options: Any) -> Executable:
    function = tw.parse(text.strip())
    assert isinstance(function, GraphFunction)
    return tw.compile(Module({function.name: function}, {}), **options)


def keeps() -> bool:
    """Whether this thread computes with subnormal numbers, as operands and as results."""
    small = np.full(64, SMALL)
    below = small * F32(0.1)
    return bool((below != 0).all() and (below * F32(8) != 0).all())


def result(exe: Executable, dtype: type = F32, factor: float = 0.1) -> Array:
    tiny = np.full(100, np.finfo(dtype).tiny, dtype)
    return exe(tiny, np.full(100, factor, dtype))[0]


@pytest.mark.parametrize(("text", "dtype"), [(SCALED, np.float32), (DOUBLE, np.float64)])
def test_results_are_kept_or_flushed(text: str, dtype: type) -> None:
    kept, flushed = (result(compiled(text, denormals=d), dtype) for d in ("keep", "flush"))
    np.testing.assert_array_equal(kept, np.finfo(dtype).tiny * dtype(0.1))
    assert (kept != 0).all() and not flushed.any() and keeps()


def test_operands_are_kept_or_flushed() -> None:
    x, f = np.full(100, 1e-40, F32), np.full(100, 1e10, F32)
    assert compiled(denormals="keep")(x, f)[0].all() and not compiled(denormals="flush")(x, f)[0].any()
    assert keeps()


def test_it_may_be_chosen_between_calls() -> None:
    exe = compiled(denormals="keep")
    assert exe.denormals == "keep" and result(exe).all()
    exe.denormals = "flush"
    assert exe.denormals == "flush" and not result(exe).any() and keeps()
    exe.denormals = "keep"
    assert result(exe).all()


GUARDED = """
graph main[n](x: f32[n], f: f32[n]) -> y:
  least: f32[] = full(value=1e-40, shape=())
  a: f32[n] = mul(x, f)
  b: f32[n] = max(a, least)
  y: f32[n] = log(b)
"""


def test_the_highest_level_flushes_and_the_others_keep() -> None:
    assert not result(compiled()).any() and keeps()
    assert result(compiled(level=2)).all()


def test_models_with_a_subnormal_scalar_keep() -> None:
    x, f = np.zeros(100, F32), np.ones(100, F32)
    exe = compiled(GUARDED)
    assert exe.denormals == "keep" and np.isfinite(exe(x, f)[0]).all()
    assert compiled(GUARDED.replace("1e-40", "1e-30")).denormals == "flush"
    assert not np.isfinite(compiled(GUARDED, denormals="flush")(x, f)[0]).any()
    named = GUARDED.replace("full(value=1e-40, shape=())", "constant(name=@least)")
    module = Module({"main": cast(GraphFunction, tw.parse(named.strip()))}, {"least": np.array(1e-40, F32)})
    assert tw.compile(module).denormals == "keep"


def test_machines_that_are_not_told_to_flush_keep() -> None:
    assert compiled(target="riscv64").denormals == "keep" and compiled(target="aarch64").denormals == "flush"


def test_gates_that_are_all_but_shut_make_no_subnormal_numbers() -> None:
    text = "graph main[n](x: f32[n]) -> y:\n  s: f32[n] = sigmoid(x)\n  y: f32[n] = mul(x, s)"
    x = np.linspace(-110, -80, 1000, dtype=F32)
    (found,) = compiled(text)(x)
    least = float(np.finfo(F32).tiny)  # of a gate, which is multiplied by up to 110
    assert not count_subnormals([found]) and count_subnormals(compiled(text, denormals="keep")(x))
    np.testing.assert_allclose(found, x / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6, atol=110 * least)


def in_a_thread(run: Callable[[], object]) -> None:
    """Runs something in a thread of its own, whose arithmetic is the default's."""
    failed: list[BaseException] = []

    def body() -> None:
        try:
            run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def test_workers_flush_with_their_caller_and_keep_with_the_next() -> None:
    """In turns, so that a worker that is started by one call, and inherits its state, runs the other kind, too."""
    flush, keep = (compiled(MANY, threads=2, denormals=d) for d in ("flush", "keep"))
    assert "parallel" in flush.show(after="share-out")
    x, f = np.full((64, 4096), SMALL), np.full((64, 4096), 0.1, F32)
    normal = np.full((64, 4096), 0.5, F32)

    def both() -> None:
        for _ in range(200):
            assert not flush(x, f)[0].any()
            assert (keep(x, f)[0] == SMALL * F32(0.1) * F32(0.1)).all()
            assert (flush(normal, f)[0] == normal * F32(0.1) * F32(0.1)).all()
            assert keeps()

    in_a_thread(both)


def test_the_state_is_put_back_after_a_fault_and_in_workers() -> None:
    flush, keep = (compiled(FAULT, threads=2, denormals=d) for d in ("flush", "keep"))
    x, f = np.full((64, 4096), SMALL), np.full((64, 4096), 0.1, F32)
    table = np.ones(4, F32)

    def faults() -> None:
        for _ in range(20):
            with pytest.raises(tw.RuntimeFault):
                flush(x, f, table, np.array([0, 9, 1]))
            assert keeps()
            assert keep(x, f, table, np.array([0, 3, 1]))[0].all()
            assert not flush(x, f, table, np.array([0, 3, 1]))[0].any()

    in_a_thread(faults)


def test_a_larger_arena_is_asked_for_and_the_state_put_back() -> None:
    text = """
graph main[n](x: f32[n, 64], f: f32[64, 64]) -> y:
  a: f32[n, 64] = contract(x, f, spec="ik,kj->ij")
  y: f32[n, 64] = contract(a, f, spec="ik,kj->ij")
"""
    exe = compiled(text, denormals="flush")
    for n in (1, 500, 2000):
        y = exe(np.full((n, 64), SMALL), np.eye(64, dtype=F32) * F32(0.1))[0]
        assert not y.any() and keeps()


def test_a_file_keeps_the_option(tmp_path: Path) -> None:
    compiled(denormals="flush").save(tmp_path / "model.tw")
    loaded = tw.load(tmp_path / "model.tw")
    assert loaded.denormals == "flush" and not result(loaded).any()
    assert result(tw.load(tmp_path / "model.tw", denormals="keep")).all()
    compiled(denormals="keep").save(tmp_path / "other.tw")
    assert tw.load(tmp_path / "other.tw").denormals == "keep"


def test_what_is_stored_serves_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    path = save_affine(tmp_path)
    first = tw.compile(path)
    kept, flushed = tw.compile(path, denormals="keep"), tw.compile(path, denormals="flush")
    assert not first.cached and kept.cached and flushed.cached
    assert (first.denormals, kept.denormals, flushed.denormals) == ("flush", "keep", "flush")


def test_other_words_are_refused() -> None:
    with pytest.raises(tw.UserError, match="denormals='zero'"):
        compiled(denormals="zero")
    with pytest.raises(tw.UserError, match="denormals=''"):
        compiled().denormals = ""


def test_a_machine_that_is_not_known_to_flush_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.runtime.subnormals.control_of", lambda triple: None)
    with pytest.raises(tw.UserError, match="cannot flush subnormal numbers on"):
        check_denormals("flush", native())
    assert check_denormals("keep", native()) == "keep"


def test_other_architectures_have_their_own_control_word() -> None:
    function = tw.parse("func main(x: f32[4]):\n  for i in 0..4:\n    x[i] = x[i] * f32(2.0)")
    target = Target.parse("aarch64")
    text = generate({"main": function}, "main", target).text
    assert "llvm.aarch64.set.fpcr" in text and "mxcsr" not in text
    assert "llvm.aarch64.get.fpcr" in pool_text(target.triple, "")
    other = pool_text("riscv64-unknown-linux-gnu", "")
    assert "fpcr" not in other and "mxcsr" not in other


# What a profile tells


@pytest.mark.parametrize(
    ("values", "count"),
    [
        (np.array([0, -0.0, 1e-40, -1e-45, 1.2e-38, np.inf, np.nan, 1], F32), 2),
        (np.array([1e-310, 1e-300, 0]), 1),
        (np.array([1e-7, 1], np.float16), 0),
        (np.array([1, 2, 3]), 0),
        (np.zeros((0, 3), F32), 0),
        (np.full((3, 4), 1e-40, F32).T[1:], 9),
    ],
)
def test_subnormal_numbers_are_counted(values: Array, count: int) -> None:
    assert count_subnormals([values]) == count


def test_subnormal_numbers_of_bf16_are_counted() -> None:
    import ml_dtypes

    assert count_subnormals([np.array([1e-40, 1e-30, 0], ml_dtypes.bfloat16)]) == 1


def test_a_profile_counts_them_and_measures_what_they_cost() -> None:
    exe = compiled(threads=1, denormals="keep")
    x, f = np.full(1000, 0.5, F32), np.ones(1000, F32)
    assert exe.profile({"x": x, "f": f}, seconds=0.0).subnormals == Subnormals(0, 0, 0)
    x[:7] = 1e-40
    found = exe.profile({"x": x, "f": f}, seconds=0.0).subnormals
    assert found is not None and (found.inputs, found.constants, found.outputs) == (7, 0, 7)
    assert found.kept is not None and found.flushed is not None and result(exe).all() and keeps()
    exe.denormals = "flush"
    flushed = exe.profile({"x": x, "f": f}, seconds=0.0).subnormals
    assert flushed is not None and (flushed.inputs, flushed.outputs, flushed.kept) == (7, 0, None)


def test_what_a_profile_says_of_them() -> None:
    slow = Subnormals(0, 210, 0, 28e-6, 10.5e-6).told()
    assert slow == (
        "210 of the constants' elements are subnormal: "
        "a call takes 28.0 µs, and 10.5 µs where they are taken for zero: "
        'compile with denormals="flush" (--denormals flush)'
    )
    assert "compile" not in Subnormals(1, 0, 0, 10.1e-6, 10e-6).told()
    assert Subnormals(3, 2, 0).told() == (
        "3 of the inputs' elements and 2 of the constants' elements are subnormal, and taken for zero"
    )


# The command line


def test_the_commands_take_it(tmp_path: Path) -> None:
    model = save_affine(tmp_path)
    words = ("--input", "x=1e-40", "--input", "scale=1e30", "--json")
    kept, flushed = (
        json.loads(invoke("run", model, *words, "--compare", "--denormals", d).out) for d in ("keep", "flush")
    )
    assert kept["compare"][0]["agrees"] and flushed["compare"][0]["agrees"]
    assert kept["outputs"][0]["first"] == flushed["outputs"][0]["first"] == [1.0] * 3
    assert invoke("compile", model, "-o", tmp_path / "m.tw", "--denormals", "flush").code == 0
    assert tw.load(tmp_path / "m.tw").denormals == "flush"
    wrong = invoke("run", model, "--random", "--denormals", "maybe")
    assert wrong.code == 2 and "denormals='maybe'" in wrong.err


def test_a_comparison_allows_what_flushing_does(tmp_path: Path) -> None:
    """1e-40 * 1e40 + 1 is 2, or 1 where the first is taken for zero."""
    model = save_affine(tmp_path)
    words = ("run", model, "--input", "x=1e-40", "--input", "scale=1e38", "--compare", "--json")
    kept, flushed = (json.loads(invoke(*words, "--denormals", d).out) for d in ("keep", "flush"))
    assert kept["outputs"][0]["first"] == pytest.approx([1.01] * 3) and kept["compare"][0]["agrees"]
    assert kept["compare"][0]["allowed"] < 1e-6
    assert flushed["outputs"][0]["first"] == [1.0] * 3 and flushed["compare"][0]["agrees"]


def test_profile_tells_of_them(tmp_path: Path) -> None:
    words = ("--input", "x=1e-40", "--seconds", "0", "--size", "n=100", "--denormals", "keep")
    told = invoke("profile", save_affine(tmp_path), *words)
    assert "note: 300 of the inputs' elements are subnormal: a call takes" in told.err
    assert "subnormal" not in invoke("profile", save_rows(tmp_path), "--input", "indices=[1]", "--seconds", "0").err
