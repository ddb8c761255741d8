"""What native code needs to repeat a call, and the benchmark that does."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from benchmarks.alone import open_alone
from benchmarks.overhead import MODELS, programs
from benchmarks.problems import WrongResult, matmul

import tilewright as tw


def test_the_last_call_may_be_repeated() -> None:
    exe = tw.compile(
        tw.parse("graph double[n](x: f32[n]) -> y:\n  y: f32[n] = add(x, x)\n"),
        threads=1,
    )
    x = np.arange(5, dtype=np.float32)
    (y,) = exe(x)
    entry, record = exe.native_call()
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(entry)
    x += 1
    assert y.tolist() == [0, 2, 4, 6, 8]
    assert run(record) == 0
    assert y.tolist() == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("name", MODELS)
def test_the_entry_is_called_beside_the_executable(name: str) -> None:
    """What a call costs over its kernel is measured so."""
    whole, native = programs(MODELS[name])
    whole()
    assert native() == 0


def test_a_problem_is_run_without_python() -> None:
    limit = open_alone(matmul("a product", 8, 16, 4))
    assert limit.work >= 1
    _, _, (result,) = limit.call()  # type: ignore[misc]
    result[:] = 0
    limit.call()
    assert np.abs(result).max() > 0


def test_a_wrong_problem_is_refused() -> None:
    problem = matmul("a product", 8, 16, 4)
    problem.expected[0, 0] += 1
    with pytest.raises(WrongResult):
        open_alone(problem)
