"""Programs run on addresses of memory give what they give for arrays."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
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
