"""Calling compiled programs wrongly: an error that names the input, what came and what was expected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw

GRAPH = """
graph main[n](x: f32[n, 3], b: f32[n]) -> y:
  s: f32[n] = reduce(x, kind=sum, axes=(1,), keepdims=false)
  y: f32[n] = add(s, b)
"""

KERNEL = """
func double[n](a: f32[n], b: f32[n]):
  for i in 0..n:
    block double(vi = i):
      b[vi] = a[vi] * 2.0
"""

X = np.ones((2, 3), np.float32)
B = np.ones(2, np.float32)


@pytest.fixture(scope="module")
def exe() -> tw.Executable:
    return tw.compile(tw.parse(GRAPH))


@pytest.fixture(scope="module")
def kernel() -> tw.Kernel:
    return tw.build(tw.parse(KERNEL))


WRONG: dict[str, tuple[Callable[[tw.Executable], object], str]] = {
    "missing": (lambda e: e(X), "missing input: b: f32[n]"),
    "unknown": (lambda e: e(X, c=B), "no input is called c\nfix:  the inputs are x, b"),
    "misspelt": (lambda e: e(X, B=B), "no input is called B\nfix:  did you mean b? the inputs are x, b"),
    "by name": (
        lambda e: e({"x": X, "b": B}),
        "a call takes arrays, in order or by keyword\nwhy:  a dict came, of 2 names\n"
        'fix:  write exe.run({"x": …}), which takes inputs and returns outputs by name',
    ),
    "one by name": (
        lambda e: e({"x": X}, B),
        "a call takes arrays, in order or by keyword\nwhy:  a dict came, of 1 name\n"
        'fix:  write exe.run({"x": …}), which takes inputs and returns outputs by name',
    ),
    "outputs first": (
        lambda e: e.run(None, {"x": X, "b": B}),
        "run takes one mapping of inputs by name, and nothing else by position\n"
        "why:  2 arguments came; outputs are not asked for by name, since all are returned\n"
        "fix:  write exe.run({...}), and pick from the mapping of outputs that it returns",
    ),
    "unknown output": (
        lambda e: e(X, B, out={"Y": B}),
        "no output is called Y\nfix:  did you mean y? the outputs are y",
    ),
    "twice": (lambda e: e(X, B, b=B), "input b is given twice\nwhy:  once by position and once by name"),
    "too many": (
        lambda e: e(X, B, B),
        "3 inputs were given, and the program takes 2\nfix:  its inputs are x: f32[n, 3], b: f32[n]",
    ),
    "size": (
        lambda e: e(np.ones((2, 4), np.float32), B),
        "input x has the wrong shape\nwhy:  dimension 1 of its shape (2, 4) is 4, and x: f32[n, 3] expects 3\n"
        "fix:  give x the shape (n, 3)",
    ),
    "disagreement": (
        lambda e: e(X, np.ones(5, np.float32)),
        "input b has the wrong shape\nwhy:  dimension 0 of its shape (5,) is 5, and b: f32[n] expects n = 2, "
        "as the other inputs have it\nfix:  give b the shape (n,)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_whole_message(exe: tw.Executable, case: str) -> None:
    call, message = WRONG[case]
    with pytest.raises(tw.UserError) as raised:
        call(exe)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "array",
    [X.astype(np.float64), X.astype(">f4"), X.astype(object), X.astype("U4"), np.ones((2, 3), np.int32)],
    ids=["f64", "big-endian", "objects", "text", "i32"],
)
def test_a_wrong_element_type_is_named(exe: tw.Executable, array: np.ndarray) -> None:
    with pytest.raises(tw.UserError, match="input x has the wrong element type"):
        exe(array, B)


def test_arrays_of_any_layout_are_taken(exe: tw.Executable) -> None:
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    view = wide[::2, ::2]
    (got,) = exe(view, B)
    np.testing.assert_array_equal(got, view.sum(axis=1) + 1)
    (got,) = exe(np.asfortranarray(X), B)
    np.testing.assert_array_equal(got, [4, 4])


def test_numbers_in_lists_are_taken_where_they_fit(exe: tw.Executable) -> None:
    (got,) = exe([[1, 2, 3]], [0.5])
    np.testing.assert_array_equal(got, np.float32([6.5]))


def test_an_empty_batch_is_taken(exe: tw.Executable) -> None:
    (got,) = exe(np.empty((0, 3), np.float32), np.empty(0, np.float32))
    assert got.shape == (0,)


def test_a_failed_call_leaves_the_program_usable(exe: tw.Executable) -> None:
    with pytest.raises(tw.UserError):
        exe(X)
    (got,) = exe(X, B)
    np.testing.assert_array_equal(got, [4, 4])


def test_a_kernel_works_in_place_only(kernel: tw.Kernel) -> None:
    a = np.arange(10, dtype=np.float32)
    with pytest.raises(tw.UserError, match="parameter b is not contiguous"):
        kernel(a[:5], np.zeros(10, np.float32)[::2])
    frozen = np.zeros(10, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(tw.UserError, match="parameter b is read-only"):
        kernel(a, frozen)
    with pytest.raises(tw.UserError, match="parameters b and a share memory"):
        kernel(a[:5], a[2:7])
    out = np.zeros(10, np.float32)
    kernel(a, out)
    np.testing.assert_array_equal(out, a * 2)
