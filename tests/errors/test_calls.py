"""Executables and kernels called wrongly: the whole message; and unusual arrays that must give the right result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_models import FLOAT, INT64, model
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.report.errors import RuntimeFault, TilewrightError, UserError
from tilewright.runtime.executable import Executable
from tilewright.runtime.kernel import Kernel

ADD = """\
func add[n](a: f32[n], b: f32[n], out c: f32[n]):
  for i in 0..n:
    block c(vi = i):
      c[vi] = a[vi] + b[vi]
"""


@pytest.fixture(scope="module")
def add() -> Executable:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    return tw.compile(model([node], {"a": (FLOAT, ["n", 3]), "b": (FLOAT, ["n", 3])}))


def negate(dtype: int, shape: list[int | str]) -> Executable:
    return tw.compile(model([helper.make_node("Neg", ["x"], ["y"])], {"x": (dtype, shape)}))


@pytest.fixture(scope="module")
def integers() -> Executable:
    return negate(INT64, ["k"])


@pytest.fixture(scope="module")
def square() -> Executable:
    return negate(FLOAT, ["n", "n"])


@pytest.fixture(scope="module")
def scalar() -> Executable:
    return negate(FLOAT, [])


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return tw.build(tw.parse(ADD))  # type: ignore[arg-type]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


def message(call: Callable[[], object], family: type[TilewrightError] = UserError) -> str:
    with pytest.raises(family) as caught:
        call()
    return str(caught.value)


def test_names(add: Executable) -> None:
    x = floats(1, 3)
    assert message(lambda: add(a=x, c=x)) == "no input is called c\nfix:  the inputs are a, b"
    assert message(lambda: add.run({1: x})) == "no input is called 1\nfix:  the inputs are a, b"  # type: ignore[dict-item]
    assert message(lambda: add(x)) == "missing input: b: f32[n, 3]"
    assert message(lambda: add()) == "missing inputs: a: f32[n, 3], b: f32[n, 3]"
    twice = "input a is given twice\nwhy:  once by position and once by name"
    assert message(lambda: add(x, a=x)) == message(lambda: add(x, x, a=x)) == twice
    assert message(lambda: add(x, x, x)) == (
        "3 inputs were given, and the program takes 2\nfix:  its inputs are a: f32[n, 3], b: f32[n, 3]"
    )
    assert message(lambda: add.run([x, x])) == (  # type: ignore[arg-type]
        "run takes its inputs by name\nwhy:  a list came instead of a mapping from names to arrays\n"
        "fix:  the inputs are a, b; without names, call the executable itself"
    )


def test_shapes(add: Executable, square: Executable, scalar: Executable) -> None:
    assert message(lambda: add(floats(1, 4), floats(1, 3))) == (
        "input a has the wrong shape\n"
        "why:  dimension 1 of its shape (1, 4) is 4, and a: f32[n, 3] expects 3\n"
        "fix:  give a the shape (n, 3)"
    )
    assert message(lambda: add(floats(1, 3), floats(2, 3))) == (
        "input b has the wrong shape\n"
        "why:  dimension 0 of its shape (2, 3) is 2, and b: f32[n, 3] expects n = 1, as the other inputs have it\n"
        "fix:  give b the shape (n, 3)"
    )
    assert message(lambda: square(floats(2, 3))) == (
        "input x has the wrong shape\n"
        "why:  dimension 1 of its shape (2, 3) is 3, and x: f32[n, n] expects n = 2, as the other inputs have it\n"
        "fix:  give x the shape (n, n)"
    )
    assert message(lambda: add(floats(3), floats(1, 3))) == (
        "input a has 1 dimension\nwhy:  its shape is (3,), and a: f32[n, 3] has 2 dimensions\n"
        "fix:  give a the shape (n, 3)"
    )
    assert message(lambda: scalar(floats(1))) == (
        "input x has 1 dimension\nwhy:  its shape is (1,), and x: f32[] has 0 dimensions\nfix:  give x the shape ()"
    )


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (np.ones((1, 3)), "f64"),
        (np.ones((1, 3), ">f4"), "f32 in the byte order of another machine"),
        (floats(1, 3).astype(object), "Python objects"),
        ([[1.0, None, 2.0]], "Python objects"),
        (None, "Python objects"),
        ("text", "<U4"),
        (b"bytes", "|S5"),
        (1j, "complex128"),
        (np.float64(3), "f64"),
        (np.zeros((1, 3), "M8[s]"), "datetime64[s]"),
        (np.zeros((1, 3), [("f", "<f4")]), "[('f', '<f4')]"),
        ([[2**70, 0, 0]], "Python objects"),
    ],
)
def test_element_types(add: Executable, value: Any, came: str) -> None:
    assert message(lambda: add(value, floats(1, 3))) == (
        "input a has the wrong element type\n"
        f"why:  an array of {came} came, and a: f32[n, 3] was expected\n"
        "fix:  convert it: np.asarray(…, 'float32')"
    )


def test_a_mapping_in_place_of_an_array(add: Executable) -> None:
    assert message(lambda: add({}, floats(1, 3))) == (
        "a call takes arrays, in order or by keyword\n"
        "why:  a dict came, of 0 names\n"
        'fix:  write exe.run({"x": …}), which takes inputs and returns outputs by name'
    )


@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        ([1.5], "1.5", "1"),
        ([float("nan")], "nan", "-9223372036854775808"),
        ([1, 2, float("inf")], "inf", "-9223372036854775808"),
        ([1e30], "1e+30", "-9223372036854775808"),
    ],
)
def test_numbers_that_would_change(integers: Executable, value: list[float], old: str, new: str) -> None:
    assert message(lambda: integers(value)) == (
        f"input x has numbers that i64 does not hold\nwhy:  {old} would become {new}\n"
        "fix:  round them: np.asarray(…).astype('int64')"
    )


def test_integers_that_a_float_rounds(scalar: Executable) -> None:
    assert message(lambda: scalar(2**24 + 1)).startswith("input x has numbers that f32 does not hold\nwhy:  16777217 ")
    assert scalar(2**24)[0] == -(2.0**24)
    assert np.isnan(scalar(float("nan"))[0])


def test_what_is_no_array(add: Executable) -> None:
    class Broken:
        def __array__(self, *arguments: object) -> None:
            raise RuntimeError("it lies on another device")

    assert message(lambda: add(Broken(), floats(1, 3))) == (
        "input a is no array\nwhy:  a Broken came, of which NumPy makes none: it lies on another device\n"
        "fix:  pass an array for a: f32[n, 3]"
    )
    text = message(lambda: add([[1, 2], [3]], floats(1, 3)))
    assert text.startswith("input a is no array\nwhy:  a list came, of which NumPy makes none: ")
    masked = np.ma.array(floats(1, 3), mask=[[0, 1, 0]])
    assert message(lambda: add(masked, floats(1, 3))) == (
        "input a is an array with masked elements\nwhy:  compiled code would read the masked elements too\n"
        "fix:  choose the values to read there: array.filled(0)"
    )


class Subclass(np.ndarray[Any, Any]):
    """A subclass of arrays, as libraries have them."""


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.setflags(write=False)
    return array


def unaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    moved = np.frombuffer(b"\0" + array.tobytes(), array.dtype, offset=1)
    assert not moved.flags.aligned
    return moved


@pytest.mark.parametrize(
    "value",
    [
        [0, 1, 2],
        (0.0, 1.0, 2.0),
        range(3),
        np.array([0, 9, 1, 9, 2])[::2],
        np.arange(2, -1, -1)[::-1],
        np.ma.array([0, 1, 2]),
        np.arange(3).view(Subclass),
        memoryview(np.arange(3)),
        read_only(np.arange(3)),
        unaligned(np.arange(3)),
    ],
)
def test_unusual_arrays_are_read_right(integers: Executable, value: Any) -> None:
    (result,) = integers(value)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, [0, -1, -2])


def test_strided_and_empty_arrays(add: Executable, scalar: Executable) -> None:
    wide = np.arange(12, dtype=np.float32).reshape(2, 6)
    (result,) = add(wide[:, ::2], floats(3, 2).T)
    np.testing.assert_array_equal(result, wide[:, ::2] + 1)
    (result,) = add(np.broadcast_to(np.float32(2), (2, 3)), floats(2, 3))
    np.testing.assert_array_equal(result, np.full((2, 3), 3.0))
    assert add(floats(0, 3), floats(0, 3))[0].shape == (0, 3)
    for value in (3, 3.0, np.float32(3), np.array(3, np.float32)):
        assert scalar(value)[0].shape == () and scalar(value)[0] == -3


def test_results_that_nobody_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    outer = tw.compile(model([node], {"a": (FLOAT, ["n", "k"]), "b": (FLOAT, ["k", "m"])}))
    monkeypatch.setenv("TILEWRIGHT_MEMORY_LIMIT", "1M")
    assert outer(floats(3, 2), floats(2, 4))[0].shape == (3, 4)
    assert message(lambda: outer(floats(2**20, 0), floats(0, 2**20)), RuntimeFault) == (
        "the call needs more memory than it may take\n"
        "why:  its results take 4,398,046,511,104 bytes, and the limit is 1,048,576\n"
        "fix:  call it with smaller inputs, or set TILEWRIGHT_MEMORY_LIMIT"
    )
    huge = np.empty((2**40, 0), np.float32)
    assert "take more bytes than can be counted" in message(lambda: outer(huge, huge.T), RuntimeFault)
    concat = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
    joined = tw.compile(model([concat], {"a": (FLOAT, ["n", "m"]), "b": (FLOAT, ["n", "m"])}))
    huge = np.empty((2**60, 0), np.float32)
    assert message(lambda: joined(huge, huge), RuntimeFault) == (
        f"there is no room for the results of the call\nwhy:  they are y of shape ({2**61}, 0)"
    )


def test_kernels_take_only_arrays_they_can_write(kernel: Kernel) -> None:
    a, c = floats(8), np.zeros(8, np.float32)
    assert message(lambda: kernel(floats(16)[::2], a, c)) == (
        "parameter a is not contiguous\nwhy:  a kernel works in place, so a copy would be written instead of it\n"
        "fix:  pass np.ascontiguousarray(a), or an array made by np.empty"
    )
    assert message(lambda: kernel([1] * 8, a, c)) == (
        "parameter a is no array\nwhy:  a list came, and a kernel works in place\nfix:  pass an array for a: f32[n]"
    )
    assert message(lambda: kernel(a, a, read_only(floats(8)))) == (
        "parameter c is read-only\nwhy:  the function writes it\nfix:  pass an array you may write"
    )
    assert message(lambda: kernel(a, floats(8), a)) == (
        "parameters c and a share memory\nwhy:  the function writes c while it reads the other\n"
        "fix:  pass a copy of one of them"
    )
    both = floats(12)
    assert message(lambda: kernel(a, both[:8], both[4:])).startswith("parameters c and b share memory\n")
    assert message(lambda: kernel(a, a, np.ma.array(c))).startswith("parameter c is a masked array\n")
    assert message(lambda: kernel(a, a, unaligned(c))).startswith("parameter c is not contiguous and aligned\n")
    assert message(lambda: kernel(a, a.astype(">f4"), c)).startswith("input b has the wrong element type\n")
    assert message(lambda: kernel(a, floats(7), c)).startswith("input b has the wrong shape\n")
    assert message(lambda: kernel(a, a)) == "missing input: c: f32[n]"
    np.testing.assert_array_equal(c, 0)


def test_kernels_write_what_they_are_given(kernel: Kernel) -> None:
    a, c = read_only(floats(8)), np.zeros(8, np.float32)
    kernel(a, a, c.view(Subclass))
    np.testing.assert_array_equal(c, 2)
    kernel(floats(0), floats(0), floats(0))
    kernel(b=a, a=a, c=(d := np.zeros(8, np.float32)))
    np.testing.assert_array_equal(d, 2)


@pytest.mark.parametrize("name", ["a\nb", "{0}", "x @ y", "名", "'", "1 + 1", "exp", "main", "free", "None", "for"])
def test_names_of_any_kind(name: str) -> None:
    """Values, symbols and nodes may be called anything; messages stay in one piece."""
    nodes = [
        helper.make_node("Relu", [name], ["h"], name=name),
        helper.make_node("Gather", ["h", "i"], [f"{name} out"], name=name),
    ]
    inputs = {name: (FLOAT, [name, 3]), "i": (INT64, [f"{name} k"])}
    exe = tw.compile(model(nodes, inputs, [f"{name} out"]))
    assert exe.run({name: floats(2, 3), "i": np.array([1])})[f"{name} out"].shape == (1, 3)
    text = message(lambda: exe(floats(2, 3), np.array([2])), RuntimeFault)
    assert text.startswith("Gather ") and text.endswith(" along axis 0: index 2 is outside [-2, 2)")
    assert "\n" not in text
    assert len(message(lambda: exe(floats(3), np.array([2]))).split("\n")) == 3


@pytest.mark.parametrize("name", ["exp", "main", "free", "malloc", "tilewright_entry", "main.body"])
def test_kernels_may_be_called_like_library_functions(name: str) -> None:
    text = (
        f"func {name}[n](x: f32[n], out y: f32[n]):\n  for i in 0..n:\n    block y(vi = i):\n      y[vi] = exp(x[vi])\n"
    )
    x, y = floats(5), np.zeros(5, np.float32)
    tw.build(tw.parse(text))(x, y)  # type: ignore[arg-type]
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_bool_inputs_take_zeros_and_ones() -> None:
    exe = tw.compile(model([helper.make_node("Not", ["x"], ["y"])], {"x": (TensorProto.BOOL, ["n"])}))
    np.testing.assert_array_equal(exe([1, 0])[0], [False, True])
    assert message(lambda: exe([2, 0])).startswith("input x has numbers that bool does not hold\nwhy:  2 would become")
