"""Programs run on addresses of memory give what they give for arrays."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph.parse import parse_module
from tilewright.runtime.executable import Executable

TEXT = """
graph main[n](x: f32[n, 4], i: i64[2]) -> y, z:
  rows: i64[2] = checked_indices(i, limit=n, what="rows")
  y: f32[2, 4] = take(x, rows, axis=0)
  z: f32[n, 4] = add(x, x)
"""


def _program() -> Executable:
    program = tw.parse(TEXT)
    assert isinstance(program, tw.GraphFunction)
    return tw.compile(program, threads=1)


def _called(exe: Executable, x: np.ndarray, i: np.ndarray) -> list[np.ndarray]:
    made = [np.empty((2, 4), np.float32), np.empty_like(x)]
    exe.call_at([a.ctypes.data for a in (x, i, *made)], [len(x)])
    return made


@pytest.mark.parametrize("checked", ["0", "1"])
def test_addresses_are_read_and_written(checked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CHECK", checked)
    exe = _program()
    for rows in (3, 1, 50):
        x = np.arange(4.0 * rows, dtype=np.float32).reshape(rows, 4)
        i = np.array([0, -1])
        for given, wanted in zip(_called(exe, x, i), exe(x, i), strict=True):
            np.testing.assert_array_equal(given, wanted)


def test_faults_are_raised() -> None:
    with pytest.raises(tw.RuntimeFault, match="rows"):
        _called(_program(), np.zeros((3, 4), np.float32), np.array([0, 3]))


def test_a_program_runs_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CHECK", "0")
    text = (
        "graph main(x: f32[40, 40], w: f32[40, 40], v: f32[40, 40]) -> y, z:\n"
        '  a: f32[40, 40] = contract(x, w, spec="ik,kj->ij")\n'
        "  y: f32[40, 40] = relu(a)\n"
        '  z: f32[40, 40] = contract(a, v, spec="ik,kj->ij")\n'
    )
    exe = tw.compile(parse_module(text), threads=1)
    given = [np.random.default_rng(n).standard_normal((40, 40)).astype(np.float32) for n in range(3)]
    wanted, results = exe(*given), [np.zeros((40, 40), np.float32) for _ in range(2)]
    uses, kernels = exe.program.uses, len(exe.program.sites)
    assert kernels > 1
    assert len(uses) == 5
    assert all(0 <= first <= last < kernels for first, last in uses)
    call = exe.begin_at([*(a.ctypes.data for a in given), 0, 0], [])
    for n in range(kernels):
        for place, (first, _) in enumerate(uses[3:]):
            if first == n:
                call.give(3 + place, results[place].ctypes.data)
        call.run(n + 1)
        for place, (_, last) in enumerate(uses[:3]):
            if last == n:
                given[place][:] = np.nan
    call.end(given, results)
    for found, expected in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_program_of_one_kernel_has_no_parts() -> None:
    assert not tw.compile(parse_module("graph main(x: f32[8]) -> y:\n  y: f32[8] = relu(x)\n")).program.uses
