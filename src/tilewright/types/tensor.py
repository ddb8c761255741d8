"""The type of a tensor: element type and shape, a shape being expressions over symbols.

Two shapes are the same when their simplified dimensions are the same objects: expressions are interned.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tilewright.core.node import Interned, derived
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify


class TensorType(Interned):
    """`dtype[shape]`: dense, row-major. Dimensions are simplified when the type is built with `TensorType.of`."""

    dtype: DType
    shape: tuple[Expr, ...]
    rank: int = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", len(self.shape))

    @staticmethod
    def of(dtype: DType, shape: Iterable[Expr | int]) -> TensorType:
        """The type with this shape, every dimension simplified."""
        return TensorType(dtype, shape_of(shape))

    @property
    def size(self) -> Expr:
        """The number of elements."""
        return _size(self.shape)

    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as numbers when every dimension is constant, else None."""
        if all(isinstance(d, Const) for d in self.shape):
            return tuple(int(d.value) for d in self.shape if isinstance(d, Const))
        return None

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(d) for d in self.shape)}]"


@lru_cache(maxsize=1 << 10)
def _size(shape: tuple[Expr, ...]) -> Expr:
    total: Expr = const(1)
    for extent in shape:
        total = total * extent
    return simplify(total)


def dim(value: Expr | int) -> Expr:
    """A dimension: an expression, simplified, or a number."""
    return simplify(value) if isinstance(value, Expr) else const(value)


def shape_of(dims: Iterable[Expr | int]) -> tuple[Expr, ...]:
    """A shape from expressions and numbers, each simplified."""
    return tuple(dim(d) for d in dims)
