"""Integers of models and programs that sizes cannot be computed with: whole messages; and the largest that can."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.report.errors import RuntimeFault, UserError

MOST = 2**63 - 1
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(op: str, shapes: dict[str, list[Any]], integers: dict[str, Any] | None = None, **attributes: Any) -> bytes:
    """One node called `it`; integer inputs are constants of the model."""
    infos = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in shapes.items()]
    constants = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (integers or {}).items()]
    names = [*shapes, *(integers or {})]
    node = helper.make_node(op, names, ["y"], name="it", **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(proto.SerializeToString())


def message(source: bytes | str) -> str:
    """What compiling a model, or a program, says."""
    with pytest.raises(UserError) as raised:
        tw.compile(tw.parse(source) if isinstance(source, str) else source)
    return str(raised.value)


IMAGE = {"x": [1, 1, 5, 5]}
WEIGHTS = {"x": [1, 1, 5, 5], "w": [1, 1, 3, 3]}
RANGE = "sizes are computed with numbers from -1099511627776 to 1099511627776"
FIX = "fix:  give the attribute a number that the model's sizes call for"

CASES = {
    "a shape of more entries than a tensor has dimensions": (
        model("Reshape", {"x": [3, 4, 5, 6]}, {"s": [1] * 360}),
        "cannot read a node of the model\nat:   Reshape 'it'\n"
        "why:  the shape of Reshape has 360 elements; a tensor has at most 32 dimensions",
    ),
    "the padding of a transposed convolution": (
        model("ConvTranspose", WEIGHTS, pads=[MOST, 0, MOST, 0]),
        "cannot read a node of the model\nat:   ConvTranspose 'it'\n"
        f"why:  entry 0 of its attribute 'pads' is {MOST}; {RANGE}\n{FIX}",
    ),
    "the padding of a pool": (
        model("MaxPool", IMAGE, kernel_shape=[3, 3], pads=[MOST, 0, MOST, 0]),
        "cannot read a node of the model\nat:   MaxPool 'it'\n"
        f"why:  entry 0 of its attribute 'pads' is {MOST}; {RANGE}\n{FIX}",
    ),
    "one number": (
        model("DepthToSpace", {"x": [1, 4, 2, 2]}, blocksize=2**62),
        "cannot read a node of the model\nat:   DepthToSpace 'it'\n"
        f"why:  its attribute 'blocksize' is {2**62}; {RANGE}\n{FIX}",
    ),
    "padding that is no wrapped sum": (
        model("Conv", WEIGHTS, pads=[2**40, 0, 2**40, 0]),
        "cannot type pad\nat:   Conv 'it'\n"
        "why:  f32[1, 1, 2199023255557, 5] has 10,995,116,277,785 elements or a multiple of it; the most is "
        "68,719,476,736",
    ),
    "a window that is a product": (
        model("MaxPool", IMAGE, kernel_shape=[2**40, 3], dilations=[2**40, 1]),
        "a size or an index is too large to compute with\nat:   MaxPool 'it'\n"
        f"why:  it is {(2**40 - 1) * 2**40 + 1}, and 64 bits hold {-(2**63)} to {MOST}\n"
        "fix:  make the sizes, or the attributes that they follow from, smaller",
    ),
    "dilations of 0 places": (
        model("Col2Im", {"x": [1, 4, 9]}, {"s": [4, 4], "b": [2, 2]}, dilations=[-1, 1]),
        "cannot read a node of the model\nat:   Col2Im 'it'\nwhy:  dilations [-1, 1] has an entry below 1",
    ),
    "sizes of a shape that multiply to nothing in 64 bits": (
        model("Tile", {"x": [2, 2]}, {"r": [2**40, 2**40]}),
        "cannot type broadcast\nat:   Tile 'it'\n"
        f"why:  f32[1099511627776, 2, 1099511627776, 2] has {4 * 2**80:,} elements or a multiple of it; the most is "
        "68,719,476,736",
    ),
    "a field of a program": (
        "graph main(x: f32[2, 3]) -> y:\n"
        "  y: f32[2, 3] = slice(x, starts=(0, 0), sizes=(2, 3), steps=(4611686018427387904, 1))\n",
        "cannot verify main\n"
        "   1 | graph main(x: f32[2, 3]) -> y:\n"
        "   2 |   y: f32[2, 3] = slice(x, starts=(0, 0), sizes=(2, 3), steps=(4611686018427387904, 1))\n"
        f"     |   {'^' * 84}\n"
        "why:  steps of slice has the number 4611686018427387904; the largest that sizes and places are computed with "
        "is 1,099,511,627,776\nfix:  take a smaller number",
    ),
    "a sum in a program": (
        "graph main(x: f32[2, 3]) -> y:\n"
        "  z: f32[] = full(value=f32(0.0), shape=())\n"
        "  y: f32[2, 3] = pad(x, z, low=(4611686018427387904 * 4, 0), high=(0, 0))\n",
        "cannot verify main\n"
        "   2 |   z: f32[] = full(value=0.0, shape=())\n"
        "   3 |   y: f32[2, 3] = pad(x, z, low=(4*4611686018427387904, 0), high=(0, 0))\n"
        f"     |   {'^' * 69}\n"
        "why:  low of pad has the number 4611686018427387904; the largest that sizes and places are computed with is "
        "1,099,511,627,776\nfix:  take a smaller number",
    ),
    "a stride in a specification": (
        "graph main(x: f32[2, 3], w: f32[3]) -> y:\n"
        '  y: f32[2] = contract(x, w, spec="i a+b*18446744073709551616, a -> i", sizes=(("b", 2),))\n',
        "cannot verify main\n"
        "   1 | graph main(x: f32[2, 3], w: f32[3]) -> y:\n"
        '   2 |   y: f32[2] = contract(x, w, spec="i a+b*18446744073709551616, a -> i", sizes=(("b", 2),))\n'
        f"     |   {'^' * 88}\n"
        'why:  "a+b*18446744073709551616" in "i a+b*18446744073709551616, a -> i" has the stride '
        "18446744073709551616; the largest is 1,099,511,627,776\n"
        'fix:  write operands and output as in "ik,kj->ij", or with blanks between axes: "i k, k j -> i j"',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_messages(case: str) -> None:
    source, expected = CASES[case]
    assert message(source) == expected


def test_inputs_of_programs_have_sizes_of_tensors() -> None:
    many = 2**36 + 1
    text = message(f"graph main(x: f32[{many}]) -> y:\n  y: f32[{many}] = relu(x)\n")
    assert "this module is not valid: 2 errors" in text
    assert f"f32[{many}] has {many:,} elements or a multiple of it; the most is 68,719,476,736" in text


def test_buffers_of_loops_functions_have_addresses() -> None:
    function = tw.parse("func main(x: f32[4611686018427387904, 4], y: f32[1]):\n  y[0] = x[0, 0]\n")
    with pytest.raises(UserError) as raised:
        tw.build(function)  # type: ignore[arg-type]
    assert str(raised.value) == (
        "invalid program: x is too large\n"
        "   1 | func main(x: f32[4611686018427387904, 4], y: f32[1]):\n"
        "     |                  ^^^^^^^^^^^^^^^^^^^\n"
        "why:  its dimensions take 4,611,686,018,427,387,904, alone or multiplied, and the most is 1,099,511,627,776\n"
        "fix:  take a smaller size"
    )


def test_an_array_without_elements_has_no_huge_dimensions() -> None:
    exe = tw.compile(model("Softmax", {"x": ["n", "m"]}))
    with pytest.raises(UserError) as raised:
        exe(np.empty((2**31, 0), np.float32))
    assert str(raised.value) == (
        "input x has no elements, and dimensions that are too large\n"
        "why:  those of its shape (2147483648, 0) that are not 0 multiply to 2,147,483,648; the most is 1,073,741,824\n"
        "fix:  give x smaller dimensions"
    )
    (y,) = exe(np.empty((5, 0), np.float32))
    assert y.shape == (5, 0)


def test_loops_around_loops_that_never_run_do_not_run() -> None:
    """2^30 rows of no columns, repeated: one after the other, they would take seconds for nothing."""
    exe = tw.compile(model("Tile", {"x": ["n", "m"]}, {"r": [3, 2]}))
    began = time.process_time()
    (y,) = exe(np.empty((2**30, 0), np.float32))
    assert time.process_time() - began < 0.5
    assert y.shape == (3 * 2**30, 0)
    assert exe.profile({"x": np.empty((2**30, 0), np.float32)}, seconds=0.01) is not None
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(exe(x)[0], np.tile(x, (3, 2)))


@pytest.mark.parametrize("repeats", [(2**40, 2**40), (2**31, 2**33)])
def test_repeats_of_a_call_are_counted_exactly(repeats: tuple[int, int]) -> None:
    shapes = {
        "x": helper.make_tensor_value_info("x", FLOAT, [2, 2]),
        "r": helper.make_tensor_value_info("r", INT64, [2]),
    }
    node = helper.make_node("Tile", ["x", "r"], ["y"], name="it")
    graph = helper.make_graph([node], "g", list(shapes.values()), [helper.make_empty_tensor_value_info("y")])
    exe = tw.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    x = np.ones((2, 2), np.float32)
    with pytest.raises(RuntimeFault) as raised:
        exe(x, np.array(repeats))
    assert str(raised.value) == "a tensor of a size from data has more than 4,294,967,296 elements\nat:   Tile 'it'"
    assert exe(x, np.array([2**40, 0]))[0].shape == (2**41, 0)


def test_diagonals_beyond_every_matrix() -> None:
    """The number of a diagonal may be any: nothing is added to it."""
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    for k, keeps in ((MOST, False), (-(2**63), True), (2**40, False)):
        (y,) = tw.compile(model("Trilu", {"x": [4, 5]}, {"k": k}))(x)
        np.testing.assert_array_equal(y, x * keeps)
        (y,) = tw.compile(model("EyeLike", {"x": [4, 5]}, k=k))(x)
        np.testing.assert_array_equal(y, np.zeros((4, 5), np.float32))


def test_whole_ranges_of_a_slice_are_no_sizes() -> None:
    """ "To the end" is written as the largest integer."""
    node = helper.make_node("Slice", ["x"], ["y"], starts=[-(2**63), 1], ends=[MOST, MOST])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", FLOAT, [2, 3])], [helper.make_empty_tensor_value_info("y")]
    )
    exe = tw.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=8))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(exe(x)[0], x[:, 1:])
