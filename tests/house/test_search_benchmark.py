"""What `make bench-search` takes for right: programs of operators, and what NumPy and ONNX's evaluator compute."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.operators import (
    Operator,
    Window,
    capsule,
    convolution,
    depthwise,
    layer,
    model_of,
    module_of,
    norm,
    operators,
    product,
    transposed,
    transposed_product,
)
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.loops.nodes import Function

SMALL = (
    convolution("C1D", Window(2, (9,), 3, 5, 3, 2, 1)),
    convolution("C2D", Window(1, (7, 6), 3, 4, 3, 1, 1)),
    convolution("C3D", Window(1, (4, 5, 5), 2, 3, 3, 2, 1)),
    convolution("GRP", Window(1, (6, 6), 8, 12, 3, 1, 1, 1, 4)),
    convolution("DIL", Window(1, (8, 8), 3, 4, 3, 1, 2, 2)),
    depthwise(Window(1, (7, 7), 5, 5, 3, 2, 1, 1, 5)),
    transposed(Window(2, (3, 4), 5, 6, 4, 2, 1)),
    capsule(Window(1, (5, 5), 2, 3, 3, 2, 1)),
    product(2, 5, 6, 7),
    norm(3, 5, 7),
    layer(Window(1, (6, 6), 3, 4, 3, 1, 1)),
    transposed_product(1, 6, 2, 5),
)


@pytest.mark.parametrize("operator", SMALL, ids=lambda o: o.name)
def test_programs_and_models_compute_what_numpy_does(operator: Operator) -> None:
    feeds = operator.feeds()
    wanted = operator.reference(feeds)
    exe = tw.compile(module_of(operator, feeds), threads=1)
    (found,) = exe(*[feeds[port.name] for port in exe.inputs])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    turned = operator.peer.feeds(feeds)
    given = {n: x for n, x in turned.items() if n not in operator.weights}
    (other,) = ReferenceEvaluator(model_of(operator, turned)).run(None, given)
    np.testing.assert_allclose(operator.peer.result(other), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 16])
def test_there_are_ten_operators_and_two_subgraphs(batch: int) -> None:
    found = operators(batch)
    kinds = [operator.kind for operator in found]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(kinds, 4)
    assert len(set(kinds)) == 12
    assert len({operator.name for operator in found}) == len(found)
    for operator in found:
        function = tw.parse(operator.text)
        assert isinstance(function, Function)
        assert operator.text.count(" in 0..") >= 3 and [b.name for b in function.params[:-1]] == list(operator.shapes)


def test_flops_are_those_of_the_table() -> None:
    found = {operator.name: operator.flops / 1e6 for operator in operators(1)}
    for name, flops in {
        "C1D 1×256×64→128 k3 /2": 6.29,
        "C3D 1×16×56×56×64→64 k1": 411,
        "GRP 1×14×14×256→256 k3 g4": 57.8,
        "DEP 1×14×14×512→512 k3 /2 g512": 0.45,
        "T2D 1×32×32×64→3 k4 /2": 25.2,
        "CAP 1×16×16×8→16 k3 /2": 9.44,
        "NRM 1×4096×1024": 8.4,
        "TBG 1×64×12×128": 12.6,
    }.items():
        assert found[name] == pytest.approx(flops, rel=0.01)
