"""Cases of the ONNX project's suite as libraries: each gives what its executable gives, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import settings
from test_onnx_backend import load_cases, read_list

import tilewright as tw
from libraries import linux, same_bits
from tilewright.runtime.library import load

pytestmark = linux

STEP = 4 if settings.get_current_profile_name() == "long" else 60
PYTHON = "O"
"""The kind of arrays that hold Python objects, of which NumPy itself has no type."""


def test_cases_of_the_suite(tmp_path: Path) -> None:
    refused, compared = read_list(), 0
    for case in load_cases()[::STEP]:
        if case.name in refused or case.data_sets is None:
            continue
        given = [np.asarray(value) for value in case.data_sets[0][0] if isinstance(value, np.ndarray | np.generic)]
        exe = tw.compile(case.model, threads=1)
        if len(given) != len(exe.inputs) or any(array.dtype.kind == PYTHON for array in given):
            continue
        place = tmp_path / f"{compared}.so"
        exe.save_library(place)
        assert same_bits(load(place)(*given), exe(*given)), case.name
        place.unlink()
        compared += 1
    assert compared > 15
