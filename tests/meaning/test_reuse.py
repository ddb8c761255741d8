"""Large results lie where results that nobody refers to any more lay, and nowhere else."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.report.errors import RuntimeFault, UserError
from tilewright.runtime.reuse import BESIDE, LEAST, LINE, MOST, PAGE

Array = np.ndarray[Any, Any]
COLUMNS = 1024
ROWS = 64
TWICE = f"""
graph main[n](x: f32[n, {COLUMNS}]) -> y, z:
  y: f32[n, {COLUMNS}] = add(x, x)
  z: f32[n, {COLUMNS}] = mul(x, x)
"""
FOUND = """
graph main[n](x: f32[n]) -> y:
  zero: f32[] = full(value=f32(0.0), shape=())
  mask: bool[n] = lt(zero, x)
  ones: i64[n] = cast(mask, dtype=i64)
  count: i64[] = reduce(ones, kind=sum, axes=(0,))
  k = size(count, low=0, high=n, what="positive elements")
  places: i64[k, 1] = compact(mask, size=k)
  line: i64[k] = reshape(places, shape=(k,))
  y: f32[k] = take(x, line, axis=0)
"""


def compiled(text: str, request: pytest.FixtureRequest) -> tw.Executable:
    """A program for a test that collects garbage. Compiled first, since a compilation counts frozen objects."""
    made = tw.compile(tw.parse(text), threads=1)
    request.getfixturevalue("own_garbage")
    return made


@pytest.fixture
def exe(request: pytest.FixtureRequest) -> tw.Executable:
    """Its own: what it keeps is no other test's."""
    return compiled(TWICE, request)


def filled(value: float, rows: int = ROWS) -> Array:
    return np.full((rows, COLUMNS), value, np.float32)


def place(array: Array) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("apart", [0, 16, 1000, 4092])
def test_a_result_begins_where_its_stores_meet_no_loads_of_the_input(exe: tw.Executable, apart: int) -> None:
    memory = np.zeros(ROWS * COLUMNS + PAGE, np.float32)
    given = memory[apart // 4 : apart // 4 + ROWS * COLUMNS].reshape(ROWS, COLUMNS)
    for result in exe(given):
        assert (place(result) - place(given) // LINE * LINE) % PAGE == BESIDE


def test_results_are_ordinary_arrays(exe: tw.Executable) -> None:
    for result in (*exe(filled(3)), *exe(filled(3))):
        flags = result.flags
        assert type(result) is np.ndarray and result.dtype == np.float32 and result.shape == (ROWS, COLUMNS)
        assert flags.c_contiguous and flags.writeable and flags.aligned and place(result) % 64 == 0
        result += 1
        assert result.copy().flags.owndata and pickle.loads(pickle.dumps(result)).tobytes() == result.tobytes()


def test_memory_is_used_again_for_another_shape() -> None:
    exe = tw.compile(tw.parse("graph main[n, m](x: f32[n, m]) -> y:\n  y: f32[n, m] = add(x, x)\n"), threads=1)
    places = set()
    for shape in ((256, 512), (512, 256), (512, 256), (256, 512), (511, 256)):
        x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        (y,) = exe(x)
        np.testing.assert_array_equal(y, x + x)
        places.add(place(y))
        del y
    assert len(places) == 1


def test_memory_of_dropped_results_is_used_again(exe: tw.Executable) -> None:
    first = [place(result) for result in exe(filled(1))]
    assert [place(result) for result in exe(filled(2))] == first
    # A name that is bound to each call's results holds the last ones during a call: two pieces take turns.
    places = set()
    results = exe(filled(0))
    for n in range(6):
        results = exe(filled(n))
        places.add(place(results[0]))
        np.testing.assert_array_equal(results[0], filled(2 * n))
    assert len(places) == 2


def as_tensor(array: Array) -> object:
    return pytest.importorskip("torch").from_numpy(array)


HOLD: dict[str, Callable[[Array], Any]] = {
    "result": lambda a: a,
    "view": lambda a: a[1:2],
    "view of a view": lambda a: a.reshape(-1)[::2][5:].view(np.int32),
    "subclass": lambda a: a.view(np.recarray),
    "its base": lambda a: a.base,
    "base of a view": lambda a: a[1:2].base,
    "memoryview": memoryview,
    "slice of a memoryview": lambda a: memoryview(a)[3:5],
    "buffer": lambda a: (ctypes.c_char * a.nbytes).from_buffer(a),
    "iterator": lambda a: a.flat,
    "capsule": lambda a: a.__dlpack__(),
    "through a capsule": lambda a: np.from_dlpack(a),
    "interface": lambda a: np.asarray(type("Wrapped", (), {"__array_interface__": a.__array_interface__, "of": a})()),
    "tensor": as_tensor,
}


@pytest.mark.parametrize("hold", HOLD.values(), ids=HOLD)
def test_what_somebody_refers_to_is_never_overwritten(exe: tw.Executable, hold: Callable[[Array], Any]) -> None:
    result = exe(filled(1))[0]
    at, held = place(result), hold(result)
    del result
    for _ in range(3):
        later = exe(filled(7))[0]
        assert abs(place(later) - at) >= later.nbytes
    seen = (ctypes.c_float * (ROWS * COLUMNS)).from_address(at)
    assert np.all(np.frombuffer(seen, np.float32) == 2)
    del later, seen
    del held
    gc.collect()
    assert place(exe(filled(0))[0]) == at


def test_results_in_a_circle_are_free_once_it_is_collected(exe: tw.Executable) -> None:
    circle: list[Any] = [exe(filled(1))[0]]
    at = place(circle[0])
    circle.append(circle)
    del circle
    gc.collect()
    assert place(exe(filled(2))[0]) == at


def test_no_more_is_kept_than_one_result_of_an_output(exe: tw.Executable) -> None:
    many = [exe(filled(n))[0] for n in range(5)]
    for n, result in enumerate(many):
        np.testing.assert_array_equal(result, filled(2 * n))
    last = place(many[-1])
    del many, result
    first, second = exe(filled(0))[0], exe(filled(1))[0]
    assert place(first) == last
    np.testing.assert_array_equal(first, filled(0))
    np.testing.assert_array_equal(second, filled(2))


def test_sizes_that_grow_by_little_share_memory(exe: tw.Executable) -> None:
    at = place(exe(filled(1, 65))[0])
    for rows in range(66, 73):
        (result, _) = exe(filled(rows, rows))
        assert place(result) == at and result.shape == (rows, COLUMNS)
        np.testing.assert_array_equal(result, filled(2 * rows, rows))
        del result


@pytest.mark.parametrize("rows", [0, 1, ROWS, 2 * ROWS, 100 * ROWS, MOST // (4 * COLUMNS) + 1])
def test_any_sizes_one_after_the_other(exe: tw.Executable, rows: int) -> None:
    kept = exe(filled(1))
    for value, n in ((2, rows), (3, ROWS), (4, rows)):
        y, z = exe(filled(value, n))
        assert y.shape == z.shape == (n, COLUMNS)
        assert np.all(y == 2 * value) and np.all(z == value * value)
    assert all(np.all(result == expected) for result, expected in zip(kept, (2, 1), strict=True))


def test_small_and_huge_results_own_their_memory(exe: tw.Executable) -> None:
    row = 4 * COLUMNS
    for size, is_own in ((LEAST - row, True), (LEAST, False), (MOST, False), (MOST + row, True)):
        assert all(result.flags.owndata is is_own for result in exe(filled(1, size // row)))


def test_results_of_the_caller_are_no_part_of_it(exe: tw.Executable) -> None:
    y, z = exe(filled(1))
    own, at = np.empty_like(y), place(z)
    given = exe(filled(5), out=(own, None))
    assert given[0] is own and place(given[1]) != at
    assert np.all(own == 10) and np.all(given[1] == 25) and np.all(y == 2) and np.all(z == 1)
    # A result that is the caller's own may be what the next call writes into.
    exe(filled(6), out=(y, z))
    assert np.all(y == 12) and np.all(z == 36)


def test_results_of_one_call_may_be_inputs_of_the_next(exe: tw.Executable) -> None:
    state = filled(1)
    for n in range(1, 7):
        state, _ = exe(state)
        assert np.all(state == 2**n)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "bool", "i8", "f64"])
def test_any_element_type(dtype: str) -> None:
    exe = tw.compile(
        tw.parse(f"graph main(x: {dtype}[512, 512]) -> y:\n  y: {dtype}[512, 512] = transpose(x, perm=(1, 0))\n")
    )
    x = np.arange(512 * 512).reshape(512, 512) % 2
    for array in (x, 1 - x):
        typed = array.astype(exe.inputs[0].dtype.numpy)
        (y,) = exe(typed)
        assert y.dtype == typed.dtype and y.tobytes() == typed.T.tobytes() and not y.flags.owndata


def test_results_that_the_call_sizes() -> None:
    exe = tw.compile(tw.parse(FOUND))
    x = np.arange(1, LEAST, dtype=np.float32)
    some = np.where(x % 2 == 0, x, -x)
    (first,), (second,) = exe(x), exe(some)
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, x[1::2])
    at = place(first)
    del first
    (third,) = exe(x[::-1].copy())
    assert place(third) == at
    np.testing.assert_array_equal(third, x[::-1])
    np.testing.assert_array_equal(second, x[1::2])


def test_calls_that_fail_give_memory_back(request: pytest.FixtureRequest) -> None:
    text = FOUND.replace("low=0", "low=1").replace("-> y:", "-> y, z:") + "  z: f32[n] = add(x, x)\n"
    exe = compiled(text, request)
    x = np.ones(LEAST, np.float32)
    at = place(exe(x)[1])
    with pytest.raises(UserError):
        exe(x[None])
    with pytest.raises(RuntimeFault, match="positive elements"):
        exe(-x)
    gc.collect()
    result = exe(x)[1]
    assert place(result) == at and np.all(result == 2)


def test_a_call_within_a_call_takes_other_memory(exe: tw.Executable) -> None:
    inner: list[Array] = []

    class Calling:
        def __array__(self, dtype: object = None, copy: object = None) -> Array:
            inner.extend(exe(filled(3)))
            return filled(1)

    exe(filled(9))
    outer = exe(Calling())
    assert len({place(result) for result in (*inner, *outer)}) == 4
    assert [result[0, 0] for result in (*inner, *outer)] == [6, 9, 2, 1]


def test_threads_have_memory_of_their_own(exe: tw.Executable) -> None:
    """Results travel between threads: dropped by another one, memory goes back to the thread that made it."""
    handed: list[tuple[float, Array]] = []
    wrong: list[float] = []

    def work(first: int) -> None:
        for n in range(first, first + 60):
            result = exe(filled(n))[0]
            handed.append((2.0 * n, result))
            del result
            if len(handed) > 4:
                value, seen = handed.pop(0)
                if not np.all(seen == value):
                    wrong.append(value)
                del seen

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(np.all(result == value) for value, result in handed)


def test_results_outlive_thread_and_executable(request: pytest.FixtureRequest) -> None:
    results: list[Array] = []
    exe = compiled(TWICE, request)

    def work(exe: tw.Executable) -> None:
        results.extend(exe(filled(n))[0] for n in range(4))

    thread = threading.Thread(target=work, args=(exe,))
    thread.start()
    thread.join()
    del thread, exe
    gc.collect()
    assert [float(result[-1, -1]) for result in results] == [0, 2, 4, 6]
    results.clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_child_process_has_its_own(exe: tw.Executable) -> None:
    kept, _ = exe(filled(1))
    at = place(exe(filled(2))[0])
    child = os.fork()
    if not child:
        status = 1
        try:
            (result, _) = exe(filled(3))
            status = 0 if np.all(result == 6) and np.all(kept == 2) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.all(kept == 2) and place(exe(filled(4))[0]) == at
