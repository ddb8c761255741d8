"""The handlers of ONNX operators, one file per family; importing the package registers all of them."""

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

__all__ = [
    "activation",
    "control",
    "convolution",
    "elementwise",
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
