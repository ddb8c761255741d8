"""Programs of a few loops as people write them: filters, statistics, distances, products and what is made of them.

Each is a file of this folder. All their arrays come with the call. `REFERENCES` has what users of PyTorch write for the
same, by the name of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.analysis.sizes import known
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse

Array = np.ndarray[Any, Any]
Reference = Callable[..., Any]


def programs() -> dict[str, Function]:
    """The programs by name."""
    return {path.stem: parse(path.read_text()) for path in sorted(Path(__file__).parent.glob("*.loops"))}


def arrays_of(function: Function) -> list[Array]:
    """Numbers between 0 and 1 for all inputs."""
    rng = np.random.default_rng(0)
    given = function.params[: len(function.params) - function.outputs]
    return [rng.random(tuple([known(extent) for extent in b.shape]), np.float32) for b in given]


def references() -> Mapping[str, Reference]:
    """What PyTorch makes of the same tensors."""
    import torch
    from torch.nn import functional as nn

    def cell(x: Any, h: Any, c: Any, w: Any, u: Any) -> Any:
        forget, made, keep, show = (x @ w + h @ u).chunk(4, 1)
        return torch.tanh(c * torch.sigmoid(forget) + torch.tanh(made) * torch.sigmoid(keep)) * torch.sigmoid(show)

    def neighbours(x: Any) -> Any:
        inner = slice(1, -1)
        along = x[:-2, inner, inner] + x[2:, inner, inner] + x[inner, :-2, inner] + x[inner, 2:, inner]
        return (along + x[inner, inner, :-2] + x[inner, inner, 2:]) * 0.16666667

    def heat(x: Any) -> Any:
        inner = x[1:-1, 1:-1]
        return inner + 0.1 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * inner)

    def centred(x: Any) -> Any:
        return x - x.mean(0)

    return {
        "attention": lambda q, k, v: torch.softmax(q @ k.T * 0.125, 1) @ v,
        "autocorrelation": lambda x: nn.conv1d(x[None, None], x[None, None, :4032])[0, 0][:64],
        "batched-product": lambda a, b: a @ b,
        "blur": lambda x: nn.avg_pool2d(x[None], 5, 1, divisor_override=1)[0],
        "causal-convolution": lambda x, w: nn.conv1d(x.mT, w.T[:, None], groups=256).mT,
        "columns-by-their-largest": lambda x: x / x.abs().amax(0),
        "columns-standardised": lambda x: nn.batch_norm(x, None, None, training=True),
        "convolution-channels-first": nn.conv2d,
        "counts": lambda a, b: (a[:, None] > b[None]).sum(2).float(),
        "covariance": lambda x: centred(x).T @ centred(x),
        "distances": lambda a, b: torch.cdist(a, b, p=1),
        "filter-of-32-taps": lambda x, w: nn.conv1d(x[None, None], w[None, None])[0, 0],
        "gaussian-kernel": lambda a, b: torch.exp(-(torch.cdist(a, b) ** 2) * 0.5),
        "gram-matrix": lambda x: x.T @ x,
        "heat": heat,
        "kernel-sums": lambda a, b, w: torch.exp(-(torch.cdist(a, b) ** 2)) @ w,
        "layer-norm": lambda x, g, b: nn.layer_norm(x, (768,), g, b),
        "least-sums": lambda a, b: (a[:, :, None] + b[None]).amin(1),
        "log-of-sums": lambda x: torch.logsumexp(x, 1),
        "matrix-by-vector": lambda a, x: a @ x,
        "max-pool-channels-last": lambda x: nn.max_pool2d(x.permute(0, 3, 1, 2), 3, 2).permute(0, 2, 3, 1),
        "mean-of-neighbours": neighbours,
        "nearest-of-others": lambda a, b: (torch.cdist(a, b) ** 2).amin(1),
        "plus-its-transpose": lambda x: x + x.T,
        "product-largest-of-rows": lambda x, w: (x @ w).amax(1),
        "product-of-three": lambda a, p: a @ p @ a.T,
        "quadratic-forms": lambda x, a: ((x @ a) * x).sum(1),
        "recurrent-cell": cell,
        "separable-filter": lambda x, w: nn.conv2d(
            nn.conv2d(x[None, None], w[None, None, None]), w[None, None, :, None]
        )[0, 0],
        "softmax-of-columns": lambda x: torch.softmax(x, 0),
        "softmax-of-rows": lambda x: torch.softmax(x, 1),
        "squared-distances": lambda a, b: torch.cdist(a, b) ** 2,
        "tensor-by-two-factors": lambda x, b, c: torch.einsum("ijk,jr,kr->ir", x, b, c),
        "tensor-contraction": lambda a, b: torch.einsum("iejf,ecfd->ijcd", a, b),
        "two-layers": lambda x, w, b, v: torch.relu(x @ w + b) @ v,
        "upsampling": lambda x: nn.interpolate(x[None], size=(129, 129), mode="bilinear", align_corners=True)[
            0, :, :128, :128
        ],
        "vector-by-matrix": lambda a, x: x @ a,
        "weighted-distances": lambda x, u, v: ((x[:, None] - u[None]) ** 2 * v[None]).sum(2),
        "weighted-gram-matrix": lambda x, w: (x * w[:, None]).T @ x,
    }
