"""Complex tensors: pairs of real numbers in a last dimension, as PyTorch's memory has them.

Operators that take each part by itself (`BY_PARTS`) are read twice by their handlers for real tensors. Those that mix
the parts have handlers of their own, `PAIRS`, which take and give pairs as tensors with that last dimension. Any other
operator of complex tensors is not supported.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.handlers import Handlers
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.types import is_dense

PAIRS = Handlers()
"""Handlers of operators that mix real and imaginary parts."""

pairs = PAIRS.handles

PARTS: dict[torch.dtype, DType] = {torch.complex64: dtypes.f32, torch.complex128: dtypes.f64}
"""The type of the parts of a complex one."""

BY_PARTS = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default", "clone.default", "contiguous.default", "detach.default", "lift_fresh_copy.default",
        "view.default", "_unsafe_view.default", "reshape.default", "permute.default", "t.default", "transpose.int",
        "expand.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "slice.Tensor",
        "slice_scatter.default", "select.int", "select_scatter.default", "cat.default", "split.Tensor",
        "split_with_sizes.default", "unbind.int", "flip.default", "repeat.default", "copy.default", "unfold.default",
        "diagonal.default", "diagonal_scatter.default", "zeros.default", "new_zeros.default", "zeros_like.default",
        "add.Tensor", "sub.Tensor", "neg.default", "sum.default", "sum.dim_IntList", "mean.default", "mean.dim",
        "as_strided.default",
    )
)  # fmt: skip
"""Operators that do to the real and to the imaginary parts what they do to real tensors; a real operand has imaginary
parts of 0."""


def is_pair(value: Any) -> bool:
    """Whether a value of a graph is a dense complex tensor."""
    return is_dense(value, PARTS)


def part(b: Emit, x: Tensor, n: int) -> Tensor:
    """The real (0) or imaginary (1) parts."""
    return b.pick(x, x.rank - 1, n)


def parts(b: Emit, x: Tensor) -> tuple[Tensor, Tensor]:
    return part(b, x, 0), part(b, x, 1)


def joined(b: Emit, real: Tensor, imaginary: Tensor) -> Tensor:
    """The pairs of these parts."""
    return b.concat([b.unsqueeze(real, [real.rank]), b.unsqueeze(imaginary, [imaginary.rank])], real.rank)
