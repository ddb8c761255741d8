"""Whether what a compiled model gives is what it should give: equal, or as far apart as rounding explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper

from fuzz.drawing import Model, put_together
from tilewright.analysis.rounding import Rounding, computed, unit_roundoff
from tilewright.cli.agreement import judge
from tilewright.expr import dtypes
from tilewright.expr.meaning import widened
from tilewright.frontends.onnx.importer import read
from tilewright.graph.widen import widen
from tilewright.report.errors import RuntimeFault, UserError

Array = np.ndarray[Any, Any]

NEAR = 4.0
"""Results so many units in the last place apart are not looked at further."""
OF_LARGEST = {"Resize": 64.0}
"""In models with these operators, results so many units of the largest are not, either: the evaluator rounds scales to
single precision, and weights of samples follow from them."""
SAMPLES = 16, 400
"""How many evaluations with random rounding errors say what rounding may do: at first, and where those few do not turn
a decision as it was found or wanted."""


def wrong_results(model: Model, found: Mapping[str, Array]) -> str:
    """What is wrong with results; empty if nothing is."""
    far = []
    units = max((OF_LARGEST.get(name, 0.0) for name in model.operators), default=0.0)
    for name, wanted in model.expected.items():
        got = found[name]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            return f"{name} is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        if not is_near(got, wanted, units):
            far.append(name)
    return unexplained(model, found, far) if far else ""


def is_near(got: Array, wanted: Array, of_largest: float = 0.0) -> bool:
    """Whether results are equal, floating-point numbers but for a few units in the last place, or `of_largest` units in
    that of the largest."""
    dtype = dtypes.from_numpy(wanted.dtype)
    if dtype is None or dtype.kind != "f":
        return bool(np.array_equal(widened(got), widened(wanted), equal_nan=got.dtype.kind not in "iub"))
    ours, theirs = got.astype(np.float64), wanted.astype(np.float64)
    least = 1.0 if dtype.bits == 16 else 0.0  # attributes, which are of the magnitude of 1, are rounded to the type
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))
        bound = np.maximum(NEAR * (np.abs(theirs) + least), of_largest * largest)
        near = np.isfinite(theirs) & (np.abs(ours - theirs) <= bound * unit_roundoff(dtype))
    return bool((near | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))).all())


def unexplained(model: Model, found: Mapping[str, Array], far: list[str]) -> str:
    """The first of these results that rounding errors do not explain: what they do to the model is sampled."""
    return unexplained_by(SAMPLES[0], model, found, far) and unexplained_by(SAMPLES[1], model, found, far)


def unexplained_by(count: int, model: Model, found: Mapping[str, Array], far: list[str]) -> str:
    """The first of these results that so many samples do not explain."""
    model = with_floats_given(model)
    module = read(put_together([model]))
    made = module.constants.keys() - model.constants.keys()
    widened = widen(module)
    exact = computed(widened)(model.feeds)
    samples = []
    for seed in range(count):
        try:
            samples.append(computed(widened, Rounding(seed, made))(model.feeds))
        except RuntimeFault:  # rounding led to an index or a size that the program refuses
            continue
    for name in far:
        got, wanted = found[name], model.expected[name]
        evaluated = [exact[name], *(s[name] for s in samples)]
        if not np.issubdtype(exact[name].dtype, np.floating) and not reached(got, wanted, evaluated):
            return difference(name, got, wanted)
        target = wanted.astype(np.float64) if np.issubdtype(exact[name].dtype, np.floating) else wanted
        verdict = judge(name, got, wanted, target, exact[name], [s[name] for s in samples])
        if not verdict.agrees:
            return difference(name, got, wanted)
    return ""


def with_floats_given(model: Model) -> Model:
    """The model with its floating-point constants as inputs, as far as it may be: what depends on constants alone would
    be computed, and rounded, where the model is read."""
    floats = {
        n: a for n, a in model.constants.items() if (t := dtypes.from_numpy(a.dtype)) is not None and t.kind == "f"
    }
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in floats.items()
    ]
    kept = {n: a for n, a in model.constants.items() if n not in floats}
    given = replace(model, inputs=[*model.inputs, *infos], constants=kept, feeds={**model.feeds, **floats})
    try:
        read(put_together([given]))
    except UserError:  # an operator wants one of them as a constant
        return model
    return given


def reached(got: Array, wanted: Array, evaluated: list[Array]) -> bool:
    """Whether some evaluation gives what is wanted, wherever a result is not that: else no rounding decides there, and
    the model was read as another one."""
    same = np.zeros(wanted.shape, bool) | (widened(got) == widened(wanted))
    for array in evaluated:
        if array.shape == wanted.shape:
            same |= widened(array) == widened(wanted)
    return bool(same.all())


def difference(name: str, got: Array, wanted: Array) -> str:
    """Where results differ, in words."""
    ours, theirs = np.asarray(widened(got)), np.asarray(widened(wanted))
    equal = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    with np.errstate(all="ignore"):
        gap = np.nan_to_num(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)), nan=np.inf)
    places = np.argwhere(~equal)
    places = places[np.argsort(-gap[~equal], kind="stable")]
    shown = ", ".join(f"[{','.join(map(str, at))}] {got[tuple(at)]} not {wanted[tuple(at)]}" for at in places[:4])
    return f"{name}: {got.dtype}{list(got.shape)} differs in {len(places)} elements: {shown}"
