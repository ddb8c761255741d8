"""PyTorch's database of operators: what compiles agrees with eager, forward and backward; the rest is in a list that
has to be right (torch_expected.txt). A seeded part of it is always run; `make suite-torch` runs all."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torch_operators as database  # noqa: E402

FEW, SEED = 64, 27
"""How many operators are always run, and which."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """PyTorch's own warnings about its operators do not count."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _some() -> list[object]:
    return random.Random(SEED).sample(database.operators(), FEW)


def _names(operators: list[object]) -> list[str]:
    return [database.name_of(op) for op in operators]


@pytest.mark.parametrize("op", _some(), ids=_names(_some()))
def test_two_samples_agree_with_eager(op: Any) -> None:
    outcome = database.run(op, torch.float32, 2)
    assert not outcome.failures, outcome.failures
    row = database.expected().get((False, database.name_of(op)), "")
    assert all(name in row for name in outcome.eager), f"not in the list of expectations: {sorted(outcome.eager)}"


@pytest.mark.parametrize(
    "name",
    ["softmax", "log_softmax", "nn.functional.cross_entropy", "nn.functional.layer_norm", "_softmax_backward_data"],
)
def test_gradients_of_bf16_agree_with_eager(name: str) -> None:
    (op,) = [op for op in database.operators(torch.bfloat16) if database.name_of(op) == name]
    outcome = database.run(op, torch.bfloat16, database.SAMPLES, backward=True)
    assert (outcome.word, outcome.failures) == ("compiles", [])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All operators, for every type and direction, where they are asked for."""
    if "case" in metafunc.fixturenames:
        asked = database.CASES if metafunc.config.getoption("torch_operators") else ()
        cases = [(backward, dtype, op) for backward, dtype in asked for op in database.operators(dtype)]
        ids = [f"{'backward' if back else 'forward'}-{database.listed(op, dtype)}" for back, dtype, op in cases]
        metafunc.parametrize("case", cases, ids=ids)


def test_all_operators(case: tuple[bool, Any, Any]) -> None:
    backward, dtype, op = case
    outcome = database.run(op, dtype, database.SAMPLES, backward)
    assert not outcome.failures, outcome.failures
    name = database.listed(op, dtype)
    assert outcome.row(name, backward) == database.expected().get((backward, name), ""), "update the list"
