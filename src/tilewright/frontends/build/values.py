"""What is known of one value of a model: its type, its content where that is small and known, and its graph value.

A `Tensor` whose content is known enters the graph only when it is used as data. Python's operators on tensors add
element-wise operators to the graph (`(x - mean) * scale`); numbers take the type of the tensor beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr
from tilewright.frontends.build.contents import Content
from tilewright.graph.nodes import Value

Number = int | float | bool


class Arithmetic(Protocol):
    """What tensors need to be computed with: the builder that they are of."""

    def map(self, name: str, *inputs: Tensor | Number) -> Tensor:
        """An element-wise operator; numbers take the type of the first tensor among the inputs."""
        ...


class Tensor:
    """A value of the model. `content` holds its elements as expressions, `array` as numbers; either may be None."""

    __slots__ = ("_make", "_value", "array", "content", "dtype", "emit", "name", "shape")

    def __init__(
        self,
        emit: Arithmetic,
        dtype: DType,
        shape: tuple[Expr, ...],
        *,
        value: Value | None = None,
        make: Callable[[], Value] | None = None,
        content: Content | None = None,
        array: np.ndarray[Any, Any] | None = None,
        name: str = "",
    ) -> None:
        assert value is not None or make is not None
        self.emit = emit
        self.dtype = dtype
        self.shape = shape
        self.content = content
        self.array = array
        self.name = name
        self._value = value
        self._make = make

    @property
    def value(self) -> Value:
        """The graph value; made when first asked for."""
        if self._value is None:
            assert self._make is not None
            self._value = self._make()
            self._make = None
        return self._value

    @property
    def rank(self) -> int:
        return len(self.shape)

    def extent(self, axis: int) -> Expr:
        return self.shape[axis]

    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as numbers, or None when a dimension is not constant."""
        if all(isinstance(d, Const) for d in self.shape):
            return tuple(int(d.value) for d in self.shape if isinstance(d, Const))
        return None

    def __add__(self, other: Tensor | Number) -> Tensor:
        return self.emit.map("add", self, other)

    def __radd__(self, other: Number) -> Tensor:
        return self.emit.map("add", other, self)

    def __sub__(self, other: Tensor | Number) -> Tensor:
        return self.emit.map("sub", self, other)

    def __rsub__(self, other: Number) -> Tensor:
        return self.emit.map("sub", other, self)

    def __mul__(self, other: Tensor | Number) -> Tensor:
        return self.emit.map("mul", self, other)

    def __rmul__(self, other: Number) -> Tensor:
        return self.emit.map("mul", other, self)

    def __truediv__(self, other: Tensor | Number) -> Tensor:
        return self.emit.map("div", self, other)

    def __rtruediv__(self, other: Number) -> Tensor:
        return self.emit.map("div", other, self)

    def __neg__(self) -> Tensor:
        return self.emit.map("neg", self)
