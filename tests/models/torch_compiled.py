"""Models compiled by the backend, each in a PyTorch that has compiled nothing yet."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tilewright.api.torch_backend import tilewright
from tilewright.frontends.torch.backend import TorchWarning


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing compiled is left from other tests, and what falls back is an error where a test does not expect it."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TorchWarning)
        yield
    torch._dynamo.reset()


def compiled(model: Any, **options: Any) -> Any:
    """The model compiled for one thread, with these options."""
    dynamic = options.pop("dynamic", None)
    return torch.compile(model, backend=tilewright, dynamic=dynamic, options={"threads": 1, **options})
