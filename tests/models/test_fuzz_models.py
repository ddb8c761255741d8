"""Models that `make fuzz` draws, and what its harness notices."""

from __future__ import annotations

from dataclasses import replace

import fuzzers
import numpy as np
import pytest
from fuzz.drawing import GROUP, Model, put_together
from fuzz.judging import wrong_results
from fuzz.outcomes import drawn
from fuzz.refusals import is_limit
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tilewright.report.errors import RuntimeFault, UserError

COUNT = 300


def test_models_give_what_the_reference_does() -> None:
    kinds = fuzzers.counts(fuzzers.run("fuzz_models.py", "--count", str(COUNT), "--processes", "2"))
    assert sum(kinds.values()) == COUNT
    assert kinds["right"] >= 0.9 * COUNT, kinds


@pytest.mark.parametrize("seed", [1, 3, 5, 8, 9, 15])
def test_another_result_is_noticed(seed: int) -> None:
    """Also where what was compiled is what this package itself reads, and the reference gives another number."""
    model = drawn(seed)
    name = next(n for n, a in model.expected.items() if a.size and a.dtype.kind == "i")
    other = model.expected[name].copy()
    other.flat[0] ^= 1
    assert not wrong_results(model, model.expected)
    assert name in wrong_results(model, {**model.expected, name: other})
    assert name in wrong_results(replace(model, expected={**model.expected, name: other}), model.expected)


def test_an_error_is_excused_where_it_names_a_limit_that_the_model_meets() -> None:
    node = helper.make_node("Expand", ["x", "sizes"], ["y"], name="Expand_m0_2")
    values = {"x": np.ones((1, 3)), "sizes": np.array([5, 3]), "y": np.ones((5, 3))}
    model = Model(0, [node], [], {}, values, {}, 21)
    what, where = "dimensions do not broadcast: 1 and 5", "Expand 'Expand_m0_2'"
    assert is_limit([model], RuntimeFault(what, where=where))
    for error in (
        RuntimeFault(what, where="Expand 'Expand_m0_3'"),
        RuntimeFault("dimensions do not broadcast: 1 and 3", where=where),
        RuntimeFault("dimensions do not broadcast: 3 and 5", where=where),
        RuntimeFault(f"the result is not {what}", where=None),
        UserError(what, where=where),
        UserError("Expand is not supported here", where=where),
    ):
        assert not is_limit([model], error), error


def test_a_model_is_the_same_each_time_and_its_results_are_those_of_the_whole() -> None:
    """Nodes are evaluated one by one when they are drawn."""
    one, two = drawn(12), drawn(12)
    assert put_together([one]) == put_together([two])
    found = ReferenceEvaluator(put_together([one])).run(None, one.feeds)
    assert one.expected
    for array, wanted in zip(found, one.expected.values(), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_models_have_most_operators() -> None:
    assert len({name for seed in range(600) for name in drawn(seed).operators}) > 130


def test_a_crash_is_a_defect_of_its_model() -> None:
    """A process that ends in a group: its models run one by one, and those of other groups still do. Where none ends
    its process by itself, the group is a defect."""
    ran = fuzzers.run(CRASHES)
    found = [line.split() for line in ran.stdout.splitlines()]
    assert sorted(int(seed) for seed, _ in found) == list(range(3 * GROUP)), ran.stderr
    assert [int(seed) for seed, kind in found if kind == "defect"] == [12, GROUP]


CRASHES = """
import os, fuzz_models
def came(seeds):
    if 12 in seeds or len(seeds) > 1 and 33 in seeds: os.abort()
    return [fuzz_models.Outcome(s, "right", "") for s in seeds]
fuzz_models.drawn = lambda seed: seed
fuzz_models.of_models = came
for o in fuzz_models.run(range(3), 2):
    print(o.seed, o.kind)
"""
