"""The handlers of ONNX operators, one file per family: all are registered in `HANDLERS` once this is imported."""

from __future__ import annotations

from tilewright.frontends.onnx.operators import (
    activation,
    control,
    convolution,
    detection,
    elementwise,
    gather,
    matmul,
    movement,
    ngrams,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    sampling,
    shape,
    signal,
    softmax,
)
from tilewright.frontends.onnx.registry import HANDLERS

__all__ = [
    "HANDLERS",
    "activation",
    "control",
    "convolution",
    "detection",
    "elementwise",
    "gather",
    "matmul",
    "movement",
    "ngrams",
    "normalization",
    "pooling",
    "quantization",
    "random",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "shape",
    "signal",
    "softmax",
]
