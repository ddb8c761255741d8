"""Sorted elements and their places; equal elements keep their order."""

from __future__ import annotations

from tilewright.expr import dtypes
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
    k = x.shape[axis] if count is None else count
    if not (largest and x.dtype.is_float):
        return b.ops("top_k", x, axis=axis, k=k, largest=largest)
    _, places = b.ops("top_k", _keys(b, x), axis=axis, k=k, largest=True)
    return b.gather_elements(x, places, axis), places


def _keys(b: TorchEmit, x: Tensor) -> Tensor:
    """Integers in the order of floats, as PyTorch has it: NaN is greater than all, and zeros are equal."""
    x = b.wide(x)
    integer = {32: dtypes.i32, 64: dtypes.i64}[x.dtype.bits]
    bits = b.op("bitcast", b.select(b.map("eq", x, 0), b.scalar(0, x.dtype), x), dtype=integer)
    below = b.map("bit_and", b.map("shr", bits, integer.bits - 1), int(integer.max))
    return b.select(b.map("isnan", x), b.scalar(int(integer.max), integer), b.map("bit_xor", bits, below))


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
