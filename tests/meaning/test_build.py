"""Loops functions as machine code: what `tilewright.build` makes of a random function does what the evaluator does."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright as tw
from stages import close
from strategies import functions
from tilewright.expr.evaluate import evaluate as number_of
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=3000 if LONG else 30, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)


@given(f=functions(), n=st.sampled_from((0, 1, 2, 3, 7)), m=st.sampled_from((0, 1, 2, 5)), seed=st.integers(0, 99))
@some
def test_built_functions_do_what_the_evaluator_does(f: Function, n: int, m: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = dict(zip(f.symbols, (n, m), strict=True))
    shapes = [tuple(int(number_of(d, sizes)) for d in p.shape) for p in f.params]
    arrays = [np.asarray(random.integers(-4, 5, s), p.dtype.numpy) for p, s in zip(f.params, shapes, strict=True)]
    expected = [a.copy() for a in arrays]
    evaluate(f, expected)
    tw.build(f)(*arrays)
    close(arrays, expected, "native")
