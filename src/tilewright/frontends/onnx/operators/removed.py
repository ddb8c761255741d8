"""Experimental operators that ONNX had until 2019 and ONNX Runtime still reads: converters of Core ML and of Caffe
wrote them. Definitions are those of ONNX Runtime's contributed operators, which took them over.
"""

from __future__ import annotations

from tilewright.frontends.build.composed import moments
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.activation import softplus
from tilewright.frontends.onnx.operators.normalization import mean_variance_normalization
from tilewright.frontends.onnx.registry import Floats, Ints, handles


@handles("Affine")
def affine(b: Emit, x: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    return x * alpha + beta


@handles("Scale")
def scale_by(b: Emit, x: Tensor, *, scale: float = 1.0) -> Tensor:
    return x * scale


@handles("ScaledTanh")
def scaled_tanh(b: Emit, x: Tensor, *, alpha: float, beta: float) -> Tensor:
    return b.map("tanh", x * beta) * alpha


@handles("ParametricSoftplus")
def parametric_softplus(b: Emit, x: Tensor, *, alpha: float, beta: float) -> Tensor:
    """alpha · ln(exp(beta · x) + 1)"""
    return softplus(b, x * beta) * alpha


@handles("ImageScaler")
def image_scaler(b: Emit, x: Tensor, *, bias: Floats, scale: float = 1.0) -> Tensor:
    """The image scaled, and a number added to each channel."""
    _check_image(b, x)
    added = b.concat([b.full((1,), value, x.dtype) for value in bias], 0)
    b.require_equal(x.shape[1], len(bias), "ImageScaler has {1} numbers for {0} channels")
    return x * scale + b.align(added, 1, x.rank)


@handles("Crop")
def crop(b: Emit, x: Tensor, *, border: Ints, scale: Ints | None = None) -> Tensor:
    """The image without a border (left, top, right, bottom), or of height and width `scale` from its left and top."""
    _check_image(b, x)
    if len(border) != 4 or min(border) < 0 or (scale is not None and len(scale) != 2):
        raise b.error("Crop needs a border of four sizes, and a scale of two, if any")
    left, top, right, bottom = border
    height, width = scale or (x.shape[2] - (top + bottom), x.shape[3] - (left + right))
    return b.narrow(b.narrow(x, 2, top, height), 3, left, width)


@handles("MeanVarianceNormalization", until=8)
def mean_variance_by_channels(b: Emit, x: Tensor, *, across_channels: int = 0, normalize_variance: int = 1) -> Tensor:
    """As that of operator set 9, over batch and space, or over channels, too; or the mean alone is subtracted."""
    _check_image(b, x)
    axes = (0, 1, 2, 3) if across_channels else (0, 2, 3)
    return mean_variance_normalization(b, x, axes=axes) if normalize_variance else moments(b, x, axes)[1]


def _check_image(b: Emit, x: Tensor) -> None:
    if x.rank != 4:
        raise b.error(f"it takes images of 4 dimensions, not {x.rank}")
