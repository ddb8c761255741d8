"""The text of a small model after every pass, for one machine: a change of any pass shows here as a difference.

`make snapshots` writes the files anew.
"""

from __future__ import annotations

import numpy as np
import pytest
from golden_files import check, check_folder

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import Record, run_passes
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.target import Target

MODEL = """
graph main[n](image: f32[n, 2, 6, 6]) -> probability:
  w: f32[8, 2, 3, 3] = constant(name=@conv.weight)
  b: f32[8, 1, 1] = constant(name=@conv.bias)
  d: f32[3, 128] = constant(name=@dense.weight)
  c: f32[n, 8, 4, 4] = contract(image, w, spec="n c i+a j+b, o c a b -> n o i j", sizes=(("i", 4), ("j", 4)))
  biased: f32[n, 8, 4, 4] = add(c, b) from "Conv"
  h: f32[n, 8, 4, 4] = relu(biased) from "Relu"
  flat: f32[n, 128] = reshape(h, shape=(n, 128)) from "Flatten"
  z: f32[n, 3] = contract(flat, d, spec="ik,jk->ij") from "Gemm"
  top: f32[n, 1] = reduce(z, kind=max, axes=(1,), keepdims=true) from "Softmax"
  low: f32[n, 3] = sub(z, top) from "Softmax"
  e: f32[n, 3] = exp(low) from "Softmax"
  total: f32[n, 1] = reduce(e, kind=sum, axes=(1,), keepdims=true) from "Softmax"
  probability: f32[n, 3] = div(e, total) from "Softmax"
"""
MACHINE = "x86-64-v3"


@pytest.fixture(scope="module")
def record() -> Record[Module]:
    constants = {
        "conv.weight": np.ones((8, 2, 3, 3), np.float32),
        "conv.bias": np.ones((8, 1, 1), np.float32),
        "dense.weight": np.ones((3, 128), np.float32),
    }
    found: Record[Module] = Record()
    target = Target.parse(MACHINE)
    run_passes(parse_module(MODEL, constants), pipeline(target), level=GRAPH, record=found, verify=True)
    return found


FILES = [f"{step.name}.{step.level.suffix}" for step in pipeline(Target.parse(MACHINE))]


@pytest.mark.parametrize("number", range(len(FILES)), ids=FILES)
def test_stage(request: pytest.FixtureRequest, record: Record[Module], number: int) -> None:
    check(request, f"stages/{FILES[number]}", record.stages[number].text())


def test_every_stage_has_its_file_and_no_other(request: pytest.FixtureRequest) -> None:
    check_folder(request, "stages", FILES)
