"""The pass that moves lanes, by the evaluator: its program is valid, reads back, and computes what is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler.legalise import legalise
from tilewright.core.passes import run_passes
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.wrap import wrap
from tilewright.target import Target

Array = np.ndarray[Any, Any]


def moved(function: Function, target: Target) -> Function:
    """The function as code generation gets it."""
    made = run_passes(wrap(function), legalise(target)).functions[function.name]
    assert isinstance(made, Function)
    return made


def assert_moved(
    function: Function, target: Target, inputs: Sequence[Array], outputs: Sequence[Array], wanted: Sequence[Array]
) -> None:
    """The parameters of the function are the inputs, then the outputs, which hold what is wanted afterwards."""
    made = moved(function, target)
    verify(made)
    assert same(made, parse(str(made)))
    evaluate(made, {b.name: array.reshape(-1) for b, array in zip(made.params, [*inputs, *outputs], strict=True)})
    for found, expected in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
