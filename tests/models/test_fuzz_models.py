"""Models that `make fuzz` draws, and what its harness notices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import fuzz_models
import numpy as np
import pytest
from fuzz.drawing import GROUP, put_together
from fuzz.judging import wrong_results
from fuzz.outcomes import drawn
from onnx.reference import ReferenceEvaluator

GROUPS = 3
"""Of 20 models each."""


def test_models_give_what_the_reference_does() -> None:
    found = fuzz_models.run_chunk(0, GROUPS)
    defects = [line[:3] for line in found if line[1] == "defect"]
    assert not defects, "python tests/models/fuzz_models.py --show NUMBER draws it again"
    kinds = Counter(line[1] for line in found)
    assert sum(kinds.values()) == GROUPS * GROUP
    assert kinds["right"] >= 0.9 * sum(kinds.values()), kinds


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


def test_a_crash_is_a_defect_of_its_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker that dies in a group: its models run one by one, and those of other groups still do."""
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import os, sys, fuzz_models\n"
        "from fuzz import outcomes\n"
        "def came(seed):\n"
        "    if seed == 12: os.abort()\n"
        "    return outcomes.Outcome(seed, 'right', '')\n"
        "outcomes.drawn = lambda seed: seed\n"
        "outcomes.of_models = lambda seeds: [came(s) for s in seeds]\n"
        "sys.exit(fuzz_models.main())\n"
    )
    monkeypatch.setattr(fuzz_models, "__file__", str(worker))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    found = fuzz_models.run_chunk(0, 3)
    assert sorted(line[0] for line in found) == list(range(3 * GROUP))
    assert [line[0] for line in found if line[1] == "defect"] == [12]
