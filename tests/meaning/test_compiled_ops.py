"""Every operator as machine code: a graph of one node compiles to what the operator means, sizes 0, 1 and primes
included, with constant sizes and with symbols."""

from __future__ import annotations

import numpy as np
import pytest
import test_ops_registry  # with it come the cases of every operator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_cases import CASES, Case, typed

from stages import close
from tilewright.compiler import compile_module
from tilewright.expr import dtypes
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.op import REGISTRY

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=80 if LONG else 2, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)
ULPS = 4


def one_node(name: str, case: Case, symbolic: bool) -> Module:
    """A graph of this use of the operator alone."""
    types, attrs, symbols = typed(REGISTRY[name], case, symbolic)
    graph = GraphBuilder()
    graph.symbols += symbols
    inputs = [graph.param(f"x{n}", type) for n, type in enumerate(types)]
    results = graph.ops(name, *inputs, **attrs)
    return graph.module({f"y{n}": value for n, value in enumerate(results)})


@pytest.mark.parametrize("name", test_ops_registry.COMPUTING)
@given(data=st.data(), symbolic=st.booleans())
@some
def test_operator(name: str, data: st.DataObject, symbolic: bool) -> None:
    case = CASES[name](data.draw)
    module = one_node(name, case, symbolic and case.symbolic)
    expected = list(evaluate(module, case.inputs).values())
    found = compile_module(module)(*case.inputs)
    if case.tolerance:
        close(found, expected, name)
    else:
        near(found, expected)


def near(found: tuple[np.ndarray, ...], expected: list[np.ndarray]) -> None:
    """Equal but for the last bits of functions that the C library and NumPy round differently."""
    for result, wanted in zip(found, expected, strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        dtype = dtypes.from_numpy(wanted.dtype)
        assert dtype is not None
        if not dtype.is_float:
            np.testing.assert_array_equal(result, wanted)
            continue
        limit = ULPS * {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[dtype.name]
        least = {"f64": 5e-324, "f32": 1.4e-45, "f16": 6e-8, "bf16": 9.2e-41}[dtype.name]
        a, b = result.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite])
        np.testing.assert_allclose(a[finite], b[finite], rtol=limit, atol=ULPS * least)
