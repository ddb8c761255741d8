"""Operators of ONNX Runtime that its optimizers make of several others: products with their epilogue, activations with
their bias, normalizations with the sum before."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.expr import dtypes
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.products import matrix_product
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators import activation, normalization
from tilewright.frontends.onnx.operators.convolution import conv
from tilewright.frontends.onnx.operators.matmul import gemm
from tilewright.frontends.onnx.registry import MICROSOFT, Floats, Ints, handles


@handles("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    b: Emit,
    x: Tensor,
    y: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """alpha * x @ y, of either operand the last two dimensions exchanged, or the first one moved before the last."""
    left, right = _exchanged(b, x, transBatchA, transA), _exchanged(b, y, transBatchB, transB)
    product = matrix_product(b, left, right)
    return product if alpha == 1 else product * alpha


def _exchanged(b: Emit, x: Tensor, batch: int, last: int) -> Tensor:
    order = list(range(x.rank))
    if batch and x.rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if last and x.rank > 1:
        order[-2:] = order[:-3:-1]
    return b.transpose(x, order)


Function = Callable[[Emit, Tensor, Floats], Tensor]

_FUNCTIONS: dict[str, Function] = {
    "Relu": lambda b, x, p: b.map("relu", x),
    "Tanh": lambda b, x, p: b.map("tanh", x),
    "Sigmoid": lambda b, x, p: b.map("sigmoid", x),
    "LeakyRelu": lambda b, x, p: activation.leaky_relu(b, x, alpha=p[0]),
    "Clip": lambda b, x, p: b.map("min", b.map("max", x, p[0]), p[1]),
    "HardSigmoid": lambda b, x, p: activation.hard_sigmoid(b, x, alpha=p[0], beta=p[1]),
}
_PARAMETERS = {"LeakyRelu": 1, "Clip": 2, "HardSigmoid": 2}


def _activated(b: Emit, x: Tensor, name: str, parameters: Floats) -> Tensor:
    """The activation of that name; without one, x itself."""
    if not name:
        return x
    if name not in _FUNCTIONS:
        raise Unsupported(f"the activation {name!r} is not supported")
    if len(parameters) < _PARAMETERS.get(name, 0):
        raise b.error(f"{name} takes {_PARAMETERS[name]} parameters, not {len(parameters)}")
    return _FUNCTIONS[name](b, x, parameters)


@handles("FusedConv", domain=MICROSOFT)
def fused_conv(
    b: Emit,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    added: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Floats = (),
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The activation of a convolution, to which another tensor may be added before."""
    result = conv(
        b, x, w, bias, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
        strides=strides,
    )  # fmt: skip
    return _activated(b, result if added is None else result + added, activation, activation_params)


@handles("NhwcConv", domain=MICROSOFT)
def nhwc_conv(
    b: Emit,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The convolution of x [batch, space, channel] with w [output channel, window, channel of a group]."""
    if x.rank < 3 or w.rank != x.rank:
        raise b.error(f"input and weights have {x.rank} and {w.rank} dimensions; both need a space and channels")
    first = [0, x.rank - 1, *range(1, x.rank - 1)]
    y = conv(
        b, b.transpose(x, first), b.transpose(w, first), bias, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return b.transpose(y, [0, *range(2, x.rank), 1])


@handles("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    b: Emit,
    x: Tensor,
    y: Tensor,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float = 0.0,
    activation_beta: float = 0.0,
    activation_gamma: float = 0.0,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    result = gemm(b, x, y, z, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activated(b, result, activation, (activation_alpha, activation_beta, activation_gamma))


@handles("Gelu", domain=MICROSOFT)
def gelu(b: Emit, x: Tensor) -> Tensor:
    return activation.gelu(b, x)


@handles("BiasGelu", domain=MICROSOFT)
def bias_gelu(b: Emit, x: Tensor, bias: Tensor) -> Tensor:
    return activation.gelu(b, x + bias)


@handles("FastGelu", domain=MICROSOFT)
def fast_gelu(b: Emit, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu by the tanh formula."""
    return activation.gelu(b, x if bias is None else x + bias, approximate="tanh")


@handles("QuickGelu", domain=MICROSOFT)
def quick_gelu(b: Emit, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """x * sigmoid(alpha * x)"""
    return activation.swish(b, x, alpha=alpha)


@handles("BiasAdd", domain=MICROSOFT)
def bias_add(b: Emit, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return x + bias + skip


@handles("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    b: Emit, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor | None, ...]:
    """RMSNormalization, which ONNX Runtime had under this name among ONNX's own operators."""
    if b.wants(1):
        raise Unsupported("the inverse of the deviation is not supported as an output")
    return (normalization.rms_normalization(b, x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type),)


@handles("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    b: Emit,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor | None, ...]:
    """The normalization of a sum over its last dimension, its mean and inverse deviation, and the sum."""
    total = _sum(x, skip, bias)
    normal, mean, inverse = normalization.layer_normalization(b, total, scale, shift, epsilon=epsilon)
    return normal, mean, inverse, total


@handles("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    b: Emit, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> tuple[Tensor | None, ...]:
    """A sum divided by its root mean square over the last dimension; the sum is the fourth output."""
    if b.wants(1) or b.wants(2):
        raise Unsupported("mean and deviation are not supported as outputs")
    total = _sum(x, skip, bias)
    return normalization.rms_normalization(b, total, scale, epsilon=epsilon), None, None, total


def _sum(x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    return x + skip if bias is None else x + skip + bias


@handles("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    b: Emit,
    words: Tensor,
    segments: Tensor | None,
    word_table: Tensor,
    place_table: Tensor,
    segment_table: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    mask: Tensor | None = None,
    places: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Tensor | None, ...]:
    """The normalized sum of the embeddings of words [batch, n], of their places, and of segments; how many words the
    mask lets through (0 without one); and the sum."""
    found = b.take(word_table, b.checked(words, word_table.shape[0], "a word"), 0)
    if places is None:
        b.require_at_most(words.shape[1], place_table.shape[0], "there are {0} words and embeddings of {1} places")
        along = b.narrow(place_table, 0, 0, words.shape[1])
    else:
        along = b.take(place_table, b.checked(places, place_table.shape[0], "a place"), 0)
    total = found + along
    if segments is not None and segment_table is not None:
        total = total + b.take(segment_table, b.checked(segments, segment_table.shape[0], "a segment"), 0)
    normal, *_ = normalization.layer_normalization(b, total, scale, shift, epsilon=epsilon)
    if mask is None:
        counts = b.full((words.shape[0],), 0, dtypes.i32)
    else:
        counts = b.reduce("sum", b.cast(b.map("ne", mask, 0), dtypes.i32), [1])
    return normal, counts, total
