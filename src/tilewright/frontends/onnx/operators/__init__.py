"""The handlers of ONNX operators, one file per family: `find_handler` finds one, all of them being registered."""

from __future__ import annotations

from tilewright.frontends.onnx.operators import (
    activation,
    control,
    convolution,
    elementwise,
    gather,
    matmul,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    sampling,
    shape,
    signal,
    softmax,
)
from tilewright.frontends.onnx.registry import find_handler

__all__ = [
    "activation",
    "control",
    "convolution",
    "elementwise",
    "find_handler",
    "gather",
    "matmul",
    "movement",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "shape",
    "signal",
    "softmax",
]
