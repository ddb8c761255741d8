"""Every stage of a compilation, run and read back: what the differential tests of the pipeline share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler import compile_module
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import Level, Record, run_passes
from tilewright.expr import dtypes
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.loops.nodes import Function
from tilewright.loops.same import same
from tilewright.target import Target, native

Array = np.ndarray[Any, Any]
TOLERANCE = {dtypes.f64: 1e-11, dtypes.f32: 2e-5, dtypes.f16: 4e-3, dtypes.bf16: 3e-2}
"""How far results may lie apart, relative to the largest of them: sums are added up in another order."""


def stages_of(module: Module, target: Target | None = None) -> Record[Module]:
    """Each pass of the compiler over a module, verified after each."""
    record: Record[Module] = Record()
    run_passes(module, pipeline(target or native()), level=GRAPH, record=record, verify=True)
    return record


def check(module: Module, calls: Sequence[Sequence[Array]]) -> None:
    """After every pass the text of the module is read back as the same program, and it gives the same results for each
    of these inputs as before; so does native code. A pass that returns the program it was given has nothing to show."""
    wanted = [list(evaluate(module, inputs).values()) for inputs in calls]
    seen: tuple[Module, Level[Module]] | None = None
    for stage in stages_of(module):
        before, seen = seen, (stage.program, stage.level)
        if before is not None and before[0] is stage.program and before[1] is stage.level:
            continue
        read_back(stage.program, stage.text())
        for inputs, expected in zip(calls, wanted, strict=True):
            found = evaluate(stage.program, [x.copy() for x in inputs])
            close(list(found.values()), expected, stage.name)
    exe = compile_module(module)
    for inputs, expected in zip(calls, wanted, strict=True):
        close(exe(*inputs), expected, "native")


def read_back(module: Module, text: str) -> None:
    """The text is that of the module: read, it prints the same, and its loops functions are the same but for names."""
    read = parse_module(text, module.constants)
    assert str(read) == text
    for name, function in module.functions.items():
        if isinstance(function, Function):
            again = read.functions[name]
            assert isinstance(again, Function)
            assert same(function, again), f"{name} is another program when it is read back:\n{text}"


def close(found: Sequence[Array], expected: Sequence[Array], after: str, tolerance: float | None = None) -> None:
    """The same types and shapes, the same integers, and floats as near as another order of additions allows."""
    assert len(found) == len(expected)
    for result, wanted in zip(found, expected, strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape), after
        dtype = dtypes.from_numpy(wanted.dtype)
        assert dtype is not None
        if not dtype.is_float:
            np.testing.assert_array_equal(result, wanted, err_msg=after)
            continue
        limit = TOLERANCE[dtype] if tolerance is None else tolerance
        a, b = result.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=after)
        scale = float(np.abs(b[finite]).max(initial=0.0))
        np.testing.assert_allclose(a[finite], b[finite], rtol=limit, atol=limit * scale, err_msg=after)
