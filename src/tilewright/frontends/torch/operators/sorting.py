"""Sorted elements and their places; equal elements keep their order."""

from __future__ import annotations

from tilewright.expr.nodes import Const, Expr
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import handles


def _first(b: TorchEmit, x: Tensor, dim: int, count: Expr | None, largest: bool) -> tuple[Tensor, ...]:
    if not x.rank or x.dtype.is_bool:
        raise Unsupported(f"sorting {x.dtype}{list(x.shape)} is not supported")
    axis = b.axis(dim, x.rank)
    return b.ops("top_k", x, axis=axis, k=x.shape[axis] if count is None else count, largest=largest)


@handles("aten.sort.default", "aten.sort.stable")
def sort(
    b: TorchEmit, x: Tensor, *, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[Tensor, ...]:
    return _first(b, x, dim, None, descending)


@handles("aten.topk.default")
def topk(
    b: TorchEmit, x: Tensor, *, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, ...]:
    axis = b.axis(dim, max(x.rank, 1))
    count = b.extents[axis] if x.rank else None
    if isinstance(count, Const) and count.value == 0:
        raise Unsupported("no element at all is asked for")
    return _first(b, x, dim, count, largest)
