"""The handlers of ATen operators, one file per family: all are registered in `HANDLERS` once this is imported."""

from __future__ import annotations

from tilewright.frontends.torch.operators import (
    adaptive_pooling,
    attention,
    bits,
    complex,
    convolution,
    creation,
    elementwise,
    indexing,
    linear_algebra,
    matmul,
    movement,
    normalization,
    pooling,
    recurrent,
    reduction,
    sorting,
    special,
)
from tilewright.frontends.torch.registry import HANDLERS

__all__ = [
    "HANDLERS",
    "adaptive_pooling",
    "attention",
    "bits",
    "complex",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "linear_algebra",
    "matmul",
    "movement",
    "normalization",
    "pooling",
    "recurrent",
    "reduction",
    "sorting",
    "special",
]
