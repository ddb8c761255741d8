"""What `make bench-plain-loops` takes for right: programs of a few loops, and what PyTorch makes of the same."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from benchmarks.plain_loops import CLOSE, report
from benchmarks.plain_programs import arrays_of, programs, references

import tilewright as tw
from tilewright.plan.choose import cheapest
from tilewright.plan.facts.kernel import Facts
from tilewright.target import Target

PROGRAMS = programs()

CONTRACTIONS = (
    "autocorrelation",
    "batched-product",
    "convolution-channels-first",
    "counts",
    "distances",
    "filter-of-32-taps",
    "gaussian-kernel",
    "gram-matrix",
    "least-sums",
    "squared-distances",
    "tensor-contraction",
    "vector-by-matrix",
    "weighted-gram-matrix",
)
PIECES = (
    "covariance",
    "kernel-sums",
    "nearest-of-others",
    "product-largest-of-rows",
    "product-of-three",
    "recurrent-cell",
    "separable-filter",
    "two-layers",
)
TEMPLATES = dict.fromkeys(CONTRACTIONS, "contraction") | dict.fromkeys(PIECES, "pieces")
TEMPLATES |= {"attention": "attention", "causal-convolution": "windows, channels last"}


def test_each_program_has_a_reference() -> None:
    assert list(references()) == list(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_what_pytorch_does(name: str) -> None:
    function = PROGRAMS[name]
    arrays = arrays_of(function)
    wanted = references()[name](*map(torch.from_numpy, arrays)).numpy()
    made, decision = cheapest(Facts(function), Target.parse("x86-64-v3"))
    assert decision.template == TEMPLATES.get(name, "nests") and not decision.refusals
    found = np.full(wanted.shape, np.nan, np.float32)
    tw.build(made.func, target="x86-64-v3", threads=1)(*arrays, found)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=CLOSE * max(float(np.abs(wanted).max()), 1.0))


def test_a_report_of_nothing_has_no_rows() -> None:
    assert not report([]).rows
