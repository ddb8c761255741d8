"""The weights of recurrent layers, as they are or quantized: what multiplies the input and the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.expr.nodes import Expr
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.quantization import QuantizedMatrix

Quantized = tuple[Tensor, Tensor, Tensor | None]
"""Integers, their scale and their zero point."""


class Matrix(Protocol):
    """The weights of all gates, for products with the input of all steps or the state of one, rows last."""

    def inside(self, seen: Callable[[Tensor], Tensor]) -> Matrix:
        """The weights where `seen` says how tensors are seen there: in the steps of a scan."""
        ...

    def after(self, b: Emit, x: Tensor) -> Tensor:
        """The product [..., gate row] of x [..., column] with the weights."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """Weights [gate row, column] as they are."""

    whole: Tensor

    def inside(self, seen: Callable[[Tensor], Tensor]) -> Rows:
        return Rows(seen(self.whole))

    def part(self, b: Emit, start: int, size: int) -> Rows:
        """Those of some rows alone."""
        return Rows(b.narrow(self.whole, 0, start, size))

    def after(self, b: Emit, x: Tensor) -> Tensor:
        """x @ whole.T"""
        along = "sb"[3 - x.rank :]
        return b.contract(f"{along}i,gi->{along}g", x, self.whole)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of input and state for each direction, and the size of the state; `input_size`, `input_rows` and
    `state_rows` are how many columns and gate rows they have."""

    of_input: Sequence[Matrix]
    of_state: Sequence[Matrix]
    hidden: int
    input_size: Expr
    input_rows: Expr
    state_rows: Expr


def directions(b: Emit, direction: str, w: Tensor, r: Tensor) -> tuple[int, tuple[int, ...]]:
    """How many directions there are, and the shape of the state's weights, which lie [direction, …, …]."""
    if direction not in ("forward", "reverse", "bidirectional"):
        raise b.error(f"the direction is {direction!r}")
    count, shape = 1 + (direction == "bidirectional"), r.static_shape()
    if shape is None or w.rank != 3 or len(shape) != 3 or shape[0] != count:
        shapes = " and ".join(f"{name} is [{', '.join(map(str, t.shape))}]" for name, t in (("W", w), ("R", r)))
        takes = f"direction {direction!r} takes weights [{count}, gate rows, columns] of constant shape"
        raise b.error(f"{takes}, and {shapes}")
    return count, shape


def plain(b: Emit, direction: str, w: Tensor, r: Tensor) -> Weights:
    """Weights [direction, gate row, column]."""
    count, shape = directions(b, direction, w, r)
    of_input, of_state = ([Rows(b.pick(t, 0, d)) for d in range(count)] for t in (w, r))
    return Weights(of_input, of_state, shape[2], w.shape[2], w.shape[1], r.shape[1])


def _of_direction(b: Emit, x: Tensor, number: int) -> Tensor:
    """The part of a direction; of a constant a constant, which tells whether a zero point is 0."""
    return b.pick(x, 0, number) if x.array is None else b.of_array(x.array[number], x.name)


def quantized(b: Emit, direction: str, w: Quantized, r: Quantized) -> Weights:
    """Weights of integers [direction, column, gate row] with their scales and zero points, [direction] or
    [direction, gate row]."""
    count, shape = directions(b, direction, w[0], r[0])

    def matrix(of: Quantized, d: int) -> QuantizedMatrix:
        whole, scale, zero = (None if t is None else _of_direction(b, t, d) for t in of)
        assert whole is not None
        assert scale is not None
        return QuantizedMatrix.of(b, whole, scale, zero)

    of_input, of_state = ([matrix(of, d) for d in range(count)] for of in (w, r))
    return Weights(of_input, of_state, shape[1], w[0].shape[1], w[0].shape[2], r[0].shape[2])
