"""Results written into the caller's arrays: the same values, no array made, and what does not fit is not written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw

GRAPH = """
graph main[n](x: f32[n, 4]) -> s, e:
  s: f32[n, 4] = mul(x, x)
  e: f32[n] = reduce(s, kind=sum, axes=(1,), keepdims=false)
"""
X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def exe() -> tw.Executable:
    return tw.compile(tw.parse(GRAPH))


def test_constants_that_are_views(tmp_path: Path) -> None:
    """A module's constants may be transposed, strided and reversed arrays."""
    text = """
graph main(x: f32[4, 3]) -> y:
  w: f32[4, 3] = constant(name=@w)
  y: f32[4, 3] = add(x, w)
"""
    whole = np.arange(72, dtype=np.float32).reshape(6, 12)
    graph = tw.parse(text)
    for w in (whole[:3, :4].T, whole[::2, ::4][:, :3].repeat(2, 0)[:4], whole[4:0:-1, 5::-2], whole[1:5, 2:5]):
        exe = tw.compile(tw.Module({"main": graph}, {"w": w}, "main"))
        np.testing.assert_array_equal(exe(np.zeros((4, 3), np.float32))[0], w)
        tw.save(tmp_path / "m.tw", exe)
        np.testing.assert_array_equal(tw.load(tmp_path / "m.tw")(np.zeros((4, 3), np.float32))[0], w)


def test_results_are_written_where_out_says(exe: tw.Executable) -> None:
    s, e = np.full((3, 4), -1, np.float32), np.full(3, -1, np.float32)
    given = exe(X, out=(s, e))
    assert given[0] is s and given[1] is e
    np.testing.assert_array_equal(s, X * X)
    np.testing.assert_array_equal(e, (X * X).sum(1))


def test_some_results_may_be_fresh(exe: tw.Executable) -> None:
    s = np.empty((3, 4), np.float32)
    first, second = exe(X, out=(s, None))
    assert first is s
    np.testing.assert_array_equal(second, (X * X).sum(1))
    named = exe.run({"x": X}, out={"e": (e := np.empty(3, np.float32))})
    assert named["e"] is e and named["s"] is not s
    np.testing.assert_array_equal(named["s"], X * X)
    assert exe(X, out=None)[0].shape == (3, 4)


def test_a_single_result_takes_a_single_array() -> None:
    exe = tw.compile(tw.parse("graph main(x: f32[3]) -> y:\n  y: f32[3] = exp(x)\n"))
    y = np.empty(3, np.float32)
    assert exe(np.zeros(3, np.float32), out=y)[0] is y and y.tolist() == [1, 1, 1]


def test_an_input_may_be_called_out() -> None:
    exe = tw.compile(tw.parse("graph main(out: f32[3]) -> y:\n  y: f32[3] = exp(out)\n"))
    assert exe(out=np.zeros(3, np.float32))[0].tolist() == [1, 1, 1]


WRONG = {
    "type": (lambda: (np.empty((3, 4)), None), "it has elements of float64"),
    "shape": (lambda: (np.empty((4, 4), np.float32), None), r"it has the shape \(4, 4\), and the result of this call"),
    "strides": (lambda: (np.empty((4, 3), np.float32).T, None), "it is not contiguous and aligned"),
    "read-only": (lambda: (np.broadcast_to(np.float32(0), (3, 4)), None), "it is read-only"),
    "input": (lambda: (X, None), "it shares memory with an input or another output"),
    "list": (lambda: ([0.0], None), "a list came"),
    "mapping": (lambda: {"s": 3.0}, "a float came"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_array_that_does_not_fit_is_refused(exe: tw.Executable, case: str) -> None:
    make, why = WRONG[case]
    before = X.copy()
    with pytest.raises(tw.UserError, match=f"^cannot write output s: f32.n, 4. into what out gives\nwhy:  {why}"):
        exe(X, out=make())
    np.testing.assert_array_equal(X, before)


def test_outputs_that_share_memory_are_refused() -> None:
    exe = tw.compile(tw.parse("graph main(x: f32[4]) -> a, b:\n  a: f32[4] = exp(x)\n  b: f32[4] = neg(x)\n"))
    both = np.empty(4, np.float32)
    with pytest.raises(tw.UserError, match="shares memory"):
        exe(np.zeros(4, np.float32), out=(both, both))


def test_wrong_numbers_and_names_are_refused(exe: tw.Executable) -> None:
    with pytest.raises(tw.UserError, match=r"^out gives 1 arrays, and the program returns 2\nfix:  its outputs are s:"):
        exe(X, out=(np.empty((3, 4), np.float32),))
    with pytest.raises(tw.UserError, match=r"^no output is called t\nfix:  the outputs are s, e"):
        exe(X, out={"t": np.empty(3, np.float32)})


def test_inputs_of_any_stride_are_read_as_they_are(exe: tw.Executable) -> None:
    wide = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    for view in (wide[::2, ::2], wide[::-1, 3:7], wide.T[:, 1:5], np.asfortranarray(wide[:, :4])):
        before = wide.copy()
        np.testing.assert_allclose(exe(view)[0], view * view)
        np.testing.assert_array_equal(wide, before)


def test_a_result_that_only_the_call_can_size_is_copied_where_it_fits() -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "places",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, "k"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    exe = tw.compile(model.SerializeToString())
    x, y = np.array([0, 1, 0, 2, 3], np.float32), np.empty((1, 3), np.int64)
    assert exe(x, out=y)[0] is y and y.tolist() == [[1, 3, 4]]
    with pytest.raises(tw.UserError, match=r"it has the shape \(1, 3\), and the result of this call has \(1, 5\)"):
        exe(np.ones(5, np.float32), out=y)
