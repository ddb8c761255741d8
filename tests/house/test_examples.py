"""The examples' files hold what their pages say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import tilewright as tw
from tilewright.runtime.subnormals import count_subnormals

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def test_the_digits_network_has_no_subnormal_weights_nor_any_that_make_some() -> None:
    weights = [numpy_helper.to_array(t) for t in onnx.load(DIGITS / "digits.onnx").graph.initializer]
    assert sum(w.size for w in weights) == 71_754 and count_subnormals(weights) == 0
    assert min(float(np.abs(w[w != 0]).min()) for w in weights) >= 1e-30


def test_a_call_of_the_digits_network_meets_none() -> None:
    exe = tw.compile(DIGITS / "digits.onnx")
    images = np.load(DIGITS / "held_out.npz")["pixels"][:32, None].astype(np.float32) / 16
    found = exe.profile({"image": images}, seconds=0.0).subnormals
    assert found is not None and not found.any


def test_the_digits_network_is_as_accurate_as_its_page_says() -> None:
    held_out = np.load(DIGITS / "held_out.npz")
    (probability,) = tw.compile(DIGITS / "digits.onnx")(held_out["pixels"][:, None].astype(np.float32) / 16)
    assert int((probability.argmax(axis=1) == held_out["labels"]).sum()) == 359
