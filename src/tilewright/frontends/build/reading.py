"""What handlers ask of the node being read and of its integer inputs: axes, sizes, conditions, errors."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from tilewright.expr import dtypes
from tilewright.expr.build import equal, less_equal, select
from tilewright.expr.nodes import And, Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build import contents
from tilewright.frontends.build.names import symbol_name
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.graph.build import GraphBuilder
from tilewright.report.errors import UserError

Size = Expr | int

LEAST = int(dtypes.i64.min)
MOST = int(dtypes.i64.max)

MOST_DIMENSIONS = 32
"""Of a tensor."""


class Reading:
    """The graph being built, and the node being read: which of its outputs are wanted."""

    def __init__(self, graph: GraphBuilder) -> None:
        self.graph = graph
        self.wanted: tuple[bool, ...] = (True,)

    def within(self, graph: GraphBuilder) -> Self:
        """The builder of another function, of the same node of the same model."""
        inner = copy.copy(self)
        inner.graph = graph
        return inner

    def wants(self, output: int) -> bool:
        """Whether the node being read has a use for its output number `output`."""
        return output < len(self.wanted) and self.wanted[output]

    @contextmanager
    def at(self, source: str, wanted: tuple[bool, ...] = (True,)) -> Iterator[None]:
        """Operators added inside come from the model's node `source`, whose `wanted` outputs have a use."""
        before, self.wanted = self.wanted, wanted
        try:
            with self.graph.at(source):
                yield
        finally:
            self.wanted = before

    def error(self, why: str, fix: str | None = None) -> UserError:
        """The error for a node that contradicts itself or its inputs."""
        return UserError("cannot read a node of the model", where=self.graph.source, why=why, fix=fix)

    def sizes(self, x: Tensor, what: str, low: Size = LEAST, high: Size = MOST) -> list[Expr]:
        """The elements of an integer tensor as expressions; those not known are bound as symbols, in [low, high]."""
        if x.dtype.is_float:
            raise self.error(f"{what} must be integers, not {x.dtype}")
        if x.content is None:
            self._bind(x, what, low, high)
        assert x.content is not None
        found = [simplify(select(e, 1, 0) if e.dtype.is_bool else e) for e in x.content.reshape(-1)]
        for e in found:
            self._check_known(e, what, low, high)
        return found

    def shape(self, x: Tensor, what: str, low: Size = LEAST, high: Size = MOST) -> list[Expr]:
        """The elements of an integer tensor as the dimensions of another: no more than a tensor may have."""
        count = math.prod(x.static_shape() or ())
        self.require_few(count, f"{what} has {count} elements")
        return self.sizes(x, what, low, high)

    def require_few(self, count: int, found: str) -> None:
        """What there is for each dimension is no more often `found` than a tensor may have dimensions."""
        if count > MOST_DIMENSIONS:
            raise self.error(f"{found}; a tensor has at most {MOST_DIMENSIONS} dimensions")

    def _check_known(self, e: Expr, what: str, low: Size, high: Size) -> None:
        """A number must be in [low, high]; a size must, too, where that is a bound of its own and not just a large
        number."""
        inside = simplify(And(less_equal(low, e), less_equal(e, high)))
        if isinstance(inside, Const):
            if not inside.value:
                raise self.error(f"{what} is {e}, outside {low} to {high}")
        elif isinstance(e, Const) or isinstance(high, Expr):
            self.require(inside, f"{what} is outside {low} to {high}")

    def _bind(self, x: Tensor, what: str, low: Size, high: Size) -> None:
        static = x.static_shape()
        if static is None:
            shape = ", ".join(str(d) for d in x.shape)
            raise Unsupported(f"{what} must have a constant number of elements, not the shape [{shape}]")
        count = math.prod(static)
        if count > contents.MOST_INTEGERS:
            raise Unsupported(f"{what} has {count} elements; at most {contents.MOST_INTEGERS} sizes can come from data")
        wide = self.graph.op("reshape", x.value, shape=(count,))
        if x.dtype is not dtypes.i64:
            wide = self.graph.op("cast", wide, dtype=dtypes.i64)
        name = symbol_name(x.name or what.split()[-1])
        elements: list[Expr] = []
        for position in range(count):
            one = self.graph.op("slice", wide, starts=(const(position),), sizes=(const(1),), steps=(const(1),))
            scalar = self.graph.op("reshape", one, shape=())
            label = name if count == 1 else f"{name}{position}"
            elements.append(self.graph.size(scalar, label, low, high, what))
        x.content = contents.of_elements(elements, static)

    def size(self, x: Tensor, what: str, low: Size = LEAST, high: Size = MOST) -> Expr:
        """The one element of an integer tensor as an expression."""
        elements = self.sizes(x, what, low, high)
        if len(elements) != 1:
            raise self.error(f"{what} must have one element, not {len(elements)}")
        return elements[0]

    def integers(self, x: Tensor, what: str) -> list[int] | None:
        """The elements of an integer tensor as numbers, or None when they are not constants of the model."""
        if x.array is not None:
            return [int(v) for v in x.array.reshape(-1)]
        return None

    def require_equal(self, a: Expr, b: Size, message: str) -> None:
        """`a` and `b` must be equal; the message shows them as {0} and {1}."""
        self._require(equal(a, b), a, b, message)

    def require_at_most(self, a: Expr, b: Size, message: str) -> None:
        """`a` must not exceed `b`; the message shows them as {0} and {1}."""
        self._require(less_equal(a, b), a, b, message)

    def _require(self, cond: Expr, a: Expr, b: Size, message: str) -> None:
        verdict = simplify(cond)
        if not self._decided(verdict, message.format(a, b)):
            self.graph.require(verdict, message)

    def require(self, cond: Expr, message: str) -> None:
        """The call fails with `message` unless `cond` holds; an error at once when it never does."""
        verdict = simplify(cond)
        if not self._decided(verdict, message):
            self.graph.require(verdict, message)

    def _decided(self, verdict: Expr, message: str) -> bool:
        """Whether a condition holds for every call; an error with the message where it holds for none. Numbers alone
        that decide nothing are beyond 64 bits."""
        if verdict.variables:
            return False
        if not (isinstance(verdict, Const) and verdict.value):
            raise self.error(message)
        return True

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """An axis in [0, rank), counted from the end when negative."""
        if not -rank <= axis < rank:
            raise self.error(f"{what} {axis} is outside {-rank}..{rank} for a tensor of {rank} dimensions")
        return axis % rank

    def entries(self, name: str, values: Sequence[int], count: int, least: int = LEAST) -> tuple[int, ...]:
        """The entries of an attribute over the spatial dimensions: `count` of them, none below `least`."""
        if len(values) != count:
            raise self.error(f"{name} has {len(values)} entries, and the spatial dimensions take {count}")
        if any(v < least for v in values):
            raise self.error(f"{name} {list(values)} has an entry below {least}")
        return tuple(values)

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes in [0, rank), all different."""
        found = [self.axis(a, rank) for a in axes]
        if len(set(found)) != len(found):
            raise self.error(f"the axes {list(axes)} name a dimension twice")
        return found


def static_of(shape: Sequence[Expr]) -> tuple[int, ...] | None:
    """The shape as numbers, or None when a dimension is not constant."""
    numbers = tuple(int(d.value) for d in shape if isinstance(d, Const))
    return numbers if len(numbers) == len(shape) else None
