"""Transposed convolutions against their definition: every input adds its products with the kernel to the result."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from drawn import in_turn

Array = np.ndarray[Any, Any]

SETTINGS = [
    # kernel, stride, pads, output padding, dilation, groups
    ((4, 4), (2, 2), (1, 1, 1, 1), (0, 0), (1, 1), 1),
    ((2, 2), (2, 2), (0, 0, 0, 0), (0, 0), (1, 1), 1),
    ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (1, 1), 1),
    ((3, 2), (1, 3), (0, 1, 2, 0), (0, 2), (1, 1), 1),
    ((1, 2), (2, 5), (0, 0, 0, 0), (1, 3), (1, 1), 1),
    ((3, 3), (1, 1), (1, 0, 2, 1), (0, 0), (2, 1), 1),
    ((2, 3), (2, 2), (1, 0, 0, 1), (0, 1), (3, 1), 1),
    ((5, 4), (3, 2), (4, 3, 1, 0), (2, 1), (1, 1), 2),
    ((4, 4), (2, 2), (1, 1, 1, 1), (0, 0), (1, 1), 4),
]


def definition(x: Array, w: Array, setting: Any) -> Array:
    (kernel, stride, pads, extra, dilation, groups), n = setting, x.ndim - 2
    inputs, outputs = w.shape[0] // groups, w.shape[1]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = [(e - 1) * s + k + o for e, s, k, o in zip(x.shape[2:], stride, spans, extra, strict=True)]
    y = np.zeros((x.shape[0], groups, outputs, *sizes))
    x = x.reshape(x.shape[0], groups, inputs, *x.shape[2:]).astype(np.float64)
    w = w.reshape(groups, inputs, *w.shape[1:])
    for tap in product(*map(range, kernel)):
        at = tuple(
            slice(t * d, t * d + (e - 1) * s + 1, s)
            for t, d, e, s in zip(tap, dilation, x.shape[3:], stride, strict=True)
        )
        y[(..., *at)] += np.einsum("ngi...,gio->ngo...", x, w[(..., *tap)])
    whole = y.reshape(x.shape[0], groups * outputs, *sizes)
    return whole[(..., *(slice(low, size - high) for low, high, size in zip(pads[:n], pads[n:], sizes, strict=True)))]


def model(x: Array, w: Array, setting: Any, dynamic: bool, **more: Any) -> bytes:
    kernel, stride, pads, extra, dilation, groups = setting
    words = {"strides": stride, "pads": pads, "output_padding": extra, "dilations": dilation, "group": groups}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], kernel_shape=kernel, **{**words, **more})
    shape = ["N", x.shape[1], *(f"S{n}" for n in range(x.ndim - 2))] if dynamic else x.shape
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.ravel())],
    )
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    return content


def close(found: Array, wanted: Array) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def drawn(setting: Any, images: int, size: tuple[int, ...]) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    groups = setting[5]
    x = rng.normal(size=(images, 4, *size)).astype(np.float32)
    return x, rng.normal(size=(4, 6 // (2 if groups == 2 else 1), *setting[0])).astype(np.float32)


@pytest.mark.parametrize(("setting", "dynamic"), in_turn(SETTINGS, [False, True]), ids=str)
def test_result_is_that_of_the_definition(setting: Any, dynamic: bool) -> None:
    x, w = drawn(setting, 2, (5, 6))
    program = tw.compile(model(x, w, setting, dynamic))
    close(program(x)[0], definition(x, w, setting))


def test_automatic_padding_of_a_dynamic_size_cuts_the_full_result() -> None:
    setting = ((3, 4), (2, 2), (0, 0, 0, 0), (0, 0), (1, 1), 1)
    x, w = drawn(setting, 1, (5, 6))
    content = model(x, w, setting, True, auto_pad="SAME_LOWER")
    whole = definition(x, w, setting)
    close(tw.compile(content)(x)[0], whole[:, :, 1:, 1:13])


def test_an_infinite_input_spoils_what_it_reaches_alone() -> None:
    setting = ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (1, 1), 1)
    x, w = drawn(setting, 1, (5, 6))
    x[0, 0, 2, 3] = np.inf
    found = tw.compile(model(x, w, setting, False))(x)[0]
    assert (np.isfinite(found) == np.isfinite(definition(x, w, setting))).all()


def test_a_stride_beyond_the_kernel_takes_no_longer_than_its_result() -> None:
    setting = ((2, 2), (1 << 20, 3), (0, 0, 0, 0), (0, 0), (1, 1), 1)
    x, w = drawn(setting, 1, (1, 2))
    close(tw.compile(model(x, w, setting, False))(x)[0], definition(x, w, setting))
