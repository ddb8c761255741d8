"""What operator handlers build with: the graph's operators over tensors of the model.

Every method computes on contents while the model is read when all of its inputs have one, and otherwise adds a node to
the graph. Handlers therefore never ask which of the two happens: `Shape → Gather → Mul → Reshape` is the same code for
sizes and for data. Sizes that only the data tells are bound as symbols by `sizes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import less, less_equal, maximum, minimum, select
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import And, Const, Expr, Or, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build import contents
from tilewright.frontends.build.contents import Content
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Reading, Size, static_of
from tilewright.frontends.build.values import Number, Tensor
from tilewright.graph.nodes import Value
from tilewright.ops.movement import MOST_JOINED
from tilewright.ops.pad import PadMode
from tilewright.ops.reduce import ReduceKind
from tilewright.types.tensor import dim, shape_of

Shape = Sequence[Expr]

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "isnan", "isinf"))


class Emit(Reading):
    """The builder of one graph function."""

    # Making tensors

    def of_value(self, value: Value, name: str = "") -> Tensor:
        return Tensor(self, value.type.dtype, value.type.shape, value=value, name=name)

    def of_array(self, array: np.ndarray[Any, Any], name: str = "constant") -> Tensor:
        """A constant of the model: held without a copy, entering the graph when it is used as data."""
        dtype = dtypes.from_numpy(array.dtype)
        if dtype is None:
            raise Unsupported(f"constants of element type {array.dtype} are not supported")
        make = (
            (lambda: self._full(array.item(), dtype)) if array.ndim == 0 else (lambda: self.graph.constant(name, array))
        )
        content = contents.of_array(array, dtype)
        return Tensor(self, dtype, shape_of(array.shape), make=make, content=content, array=array, name=name)

    def of_content(self, content: Content, dtype: DType, make: Callable[[], Value] | None = None) -> Tensor:
        """A tensor whose elements are expressions. `make` says how to compute it as data, where that is not obvious."""
        array = contents.to_array(content, dtype)
        if array is not None:
            return self.of_array(array)
        return Tensor(
            self,
            dtype,
            shape_of(content.shape),
            make=make or (lambda: self._index_values(content, dtype)),
            content=content,
        )

    def of_sizes(self, sizes: Sequence[Size], dtype: DType = dtypes.i64) -> Tensor:
        """The one-dimensional tensor of these sizes."""
        return self.cast(
            self.of_content(contents.of_elements([dim(s) for s in sizes], (len(sizes),)), dtypes.i64), dtype
        )

    def of_size(self, size: Size, dtype: DType = dtypes.i64) -> Tensor:
        """The scalar with this size's value."""
        return self.cast(self.of_content(contents.of_elements([dim(size)], ()), dtypes.i64), dtype)

    def scalar(self, value: Number, dtype: DType) -> Tensor:
        with np.errstate(all="ignore"):
            return self.of_array(np.array(value).astype(dtype.numpy))

    def of_condition(self, cond: Expr) -> Tensor:
        """The bool scalar that says whether a condition on sizes holds."""
        return self.of_content(contents.of_elements([simplify(cond)], ()), dtypes.bool_)

    def full(self, shape: Sequence[Size], value: Number, dtype: DType) -> Tensor:
        """A tensor of one number."""
        dims = shape_of(shape)
        static = static_of(dims)
        if static is not None and math.prod(static) <= contents.most_elements(dtype):
            held = contents.held_type(dtype) or dtype
            content = contents.of_elements([const(value, held)] * math.prod(static), static)
            return self.of_content(content, dtype, lambda: self._full(value, dtype, dims))
        return self.of_value(self._full(value, dtype, dims))

    def iota(self, shape: Sequence[Size], axis: int, dtype: DType = dtypes.i64) -> Tensor:
        """The index along `axis`, as a tensor."""
        dims = shape_of(shape)
        static = static_of(dims)
        make = partial(self._node, "iota", shape=dims, axis=axis, dtype=dtype)
        if static is not None and math.prod(static) <= contents.most_elements(dtype):
            held = contents.held_type(dtype) or dtype
            elements = [const(int(i), held) for i in np.indices(static)[axis].reshape(-1)]
            return Tensor(self, dtype, dims, make=make, content=contents.of_elements(elements, static))
        return self.of_value(make())

    def _node(self, name: str, *inputs: Tensor, **attrs: Any) -> Value:
        """The value of a new node of one result."""
        return self.graph.op(name, *(t.value for t in inputs), **attrs)

    def _full(self, value: Number, dtype: DType, shape: tuple[Expr, ...] = ()) -> Value:
        return self.graph.op("full", value=const(value, dtype), shape=shape)

    def _index_values(self, content: Content, dtype: DType) -> Value:
        flat = content.reshape(-1)
        values = tuple(select(e, 1, 0) if e.dtype.is_bool else e for e in flat)
        value = self.graph.op("index_values", values=values, shape=content.shape)
        return value if dtype is dtypes.i64 else self.graph.op("cast", value, dtype=dtype)

    # Element-wise

    def map(self, name: str, *inputs: Tensor | Number) -> Tensor:
        """An element-wise operator; numbers take the type of the first tensor among the inputs."""
        dtype = next(t.dtype for t in inputs[1 if name == "select" else 0 :] if isinstance(t, Tensor))
        tensors = [t if isinstance(t, Tensor) else self.scalar(t, dtype) for t in inputs]
        result = dtypes.bool_ if name in _COMPARISONS else dtype
        content = None
        data = tensors[1:] if name == "select" else tensors
        if all(t.content is not None for t in tensors) and len({t.dtype for t in data}) == 1:
            content = contents.apply(name, [t.content for t in tensors if t.content is not None], result)
        make = partial(self._node, name, *tensors)
        if content is None:
            return self.of_value(make())
        return self.of_content(content, result, make if result.is_float else None)

    def select(self, cond: Tensor, a: Tensor | Number, b: Tensor | Number) -> Tensor:
        return self.map("select", cond, a, b)

    def cast(self, x: Tensor, dtype: DType) -> Tensor:
        if x.dtype is dtype:
            return x
        make = partial(self._node, "cast", x, dtype=dtype)
        content = None if x.content is None else contents.convert(x.content, x.dtype, dtype)
        if content is None:
            return self.of_value(make())
        return self.of_content(content, dtype, make if dtype.is_float else None)

    # Movement

    def _move(self, x: Tensor, move: Callable[[Content], Content], make: Callable[[], Value]) -> Tensor:
        """An operator that only moves elements: done on the content where there is one."""
        if x.content is None:
            return self.of_value(make())
        moved = move(x.content)
        if not isinstance(moved, np.ndarray):  # NumPy unpacks what has no dimensions
            moved = contents.of_elements([moved], ())
        if moved.size > contents.most_elements(x.dtype):
            return self.of_value(make())
        return self.of_content(moved, x.dtype, make if x.dtype.is_float else None)

    def reshape(self, x: Tensor, shape: Sequence[Size]) -> Tensor:
        """The same elements in row-major order under another shape; the numbers of elements must agree."""
        dims = shape_of(shape)
        if dims == x.shape:
            return x
        static = static_of(dims)
        make = partial(self._node, "reshape", x, shape=dims)
        if static is None or x.content is None or math.prod(static) != x.content.size:
            return self.of_value(make())
        return self._move(x, lambda c: c.reshape(static), make)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        order = tuple(perm)
        if order == tuple(range(x.rank)):
            return x
        return self._move(x, lambda c: np.transpose(c, order), lambda: self.graph.op("transpose", x.value, perm=order))

    def broadcast(self, x: Tensor, shape: Sequence[Size]) -> Tensor:
        """`x` repeated along dimensions of extent one, and along new leading ones, to `shape`."""
        dims = shape_of(shape)
        if dims == x.shape:
            return x
        static = static_of(dims)
        make = partial(self._node, "broadcast", x, shape=dims)
        if static is None or x.content is None or math.prod(static) > contents.most_elements(x.dtype):
            return self.of_value(make())
        return self._move(x, lambda c: np.broadcast_to(c, static), make)

    def slice(
        self,
        x: Tensor,
        starts: Sequence[Size],
        sizes: Sequence[Size],
        steps: Sequence[Size] | None = None,
        *,
        clamped: bool = False,
    ) -> Tensor:
        """`x[start + i*step]` for i below size, per dimension. The call fails where that is outside the bounds, unless
        the caller has `clamped` them."""
        s, n = shape_of(starts), shape_of(sizes)
        d = shape_of(steps) if steps is not None else (const(1),) * x.rank
        if n == x.shape and all(e is const(0) for e in s) and all(e is const(1) for e in d):
            return x
        if not clamped:
            self._require_inside(x, s, n, d)
        make = partial(self._node, "slice", x, starts=s, sizes=n, steps=d)
        ranges = [static_of(part) for part in (s, n, d)]
        if x.content is None or any(r is None for r in ranges):
            return self.of_value(make())
        rows = np.ix_(*([a + i * b for i in range(c)] for a, c, b in zip(*ranges, strict=True)))
        return self._move(x, lambda c: c[tuple(r.astype(np.int64) for r in rows)], make)

    def _require_inside(self, x: Tensor, starts: Shape, sizes: Shape, steps: Shape) -> None:
        for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
            last = start + (size - 1) * step
            low, high = (start, last) if step is const(1) else (minimum(start, last), maximum(start, last))
            empty, inside = less_equal(size, 0), And(less_equal(0, low), less(high, x.shape[axis]))
            self.require(Or(empty, inside), f"a part of dimension {axis} is outside it")

    def narrow(self, x: Tensor, axis: int, start: Size, size: Size) -> Tensor:
        """The part of `x` from `start`, `size` long, along one axis."""
        starts: list[Size] = [0] * x.rank
        sizes: list[Size] = list(x.shape)
        starts[axis], sizes[axis] = start, size
        return self.slice(x, starts, sizes)

    def pick(self, x: Tensor, axis: int, place: Size) -> Tensor:
        """`x` at one place of an axis, without that axis."""
        return self.squeeze(self.narrow(x, axis, place, 1), [axis])

    def flip(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """`x` in reverse order along the axes."""
        starts = [x.shape[a] - 1 if a in axes else const(0) for a in range(x.rank)]
        return self.slice(x, starts, x.shape, [-1 if a in axes else 1 for a in range(x.rank)], clamped=True)

    def pad(
        self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Tensor | Number = 0, mode: str = "constant"
    ) -> Tensor:
        """`x` with elements added (or, for negative numbers, taken away) before and behind each dimension."""
        a, b = shape_of(low), shape_of(high)
        if all(e is const(0) for e in (*a, *b)):
            return x
        fill = value if isinstance(value, Tensor) else self.scalar(value, x.dtype)
        return self.of_value(self.graph.op("pad", x.value, fill.value, low=a, high=b, mode=PadMode(mode)))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """The tensors behind each other along `axis`."""
        if len(tensors) == 1:
            return tensors[0]
        if len(tensors) > MOST_JOINED:
            groups = [tensors[n : n + MOST_JOINED] for n in range(0, len(tensors), MOST_JOINED)]
            return self.concat([self.concat(group, axis) for group in groups], axis)
        first = tensors[0]
        make = partial(self._node, "concat", *tensors, axis=axis)
        if any(t.content is None for t in tensors):
            return self.of_value(make())
        try:
            joined = np.concatenate([t.content for t in tensors if t.content is not None], axis)
        except ValueError:
            return self.of_value(make())
        return self._move(first, lambda _: joined, make)

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Without the dimensions `axes`, whose extent is one."""
        return self.reshape(x, [d for a, d in enumerate(x.shape) if a not in axes])

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """With dimensions of extent one at the places `axes` of the result."""
        rest = iter(x.shape)
        return self.reshape(x, [1 if a in axes else next(rest) for a in range(x.rank + len(axes))])

    def align(self, x: Tensor, axis: int, rank: int) -> Tensor:
        """A one-dimensional tensor laid along `axis` of a result of `rank` dimensions."""
        return self.unsqueeze(x, [a for a in range(rank) if a != axis])

    # Gathering

    def checked(self, index: Tensor, limit: Size, what: str = "", *, from_end: bool = True) -> Tensor:
        """i64 indices in [0, limit) from indices in [-limit, limit), or, where those below zero do not count from the
        end, in [0, limit); others fail, constants while the model is read."""
        bound, what = dim(limit), f"{self.graph.source} {what}".strip()
        if index.array is not None and isinstance(bound, Const):
            return self._checked_constant(index, int(bound.value), what, from_end)
        wide = self.cast(index, dtypes.i64)
        make = partial(self.graph.op, "checked_indices", wide.value, limit=bound, what=what)
        return self.of_value(make() if from_end else make(from_end=False))

    def _checked_constant(self, index: Tensor, limit: int, what: str, from_end: bool) -> Tensor:
        assert index.array is not None
        array, least = index.array, -limit if from_end else 0
        wrong = array[(array < least) | (array >= limit)]
        if wrong.size:
            shown = f"index {int(wrong[0])}" if from_end else str(int(wrong[0]))
            raise self.error(f"{what}: {shown} is outside [{least}, {limit})")
        return self.of_array(np.where(array < 0, array + limit, array).astype(np.int64), index.name or "indices")

    def take(self, x: Tensor, index: Tensor, axis: int) -> Tensor:
        """`x` with `axis` replaced by the shape of `index`, whose elements are inside the bounds."""
        make = partial(self._node, "take", x, index, axis=axis)
        if index.array is None:
            return self.of_value(make())
        rows = index.array
        return self._move(x, lambda c: np.take(c, rows, axis), make)

    def gather_elements(self, x: Tensor, index: Tensor, axis: int) -> Tensor:
        """Along `axis` the element that the index at each place names; indices are inside the bounds."""
        return self.op("gather_elements", x, index, axis=axis)

    # Reductions and the rest

    def reduce(self, kind: str, x: Tensor, axes: Sequence[int], keepdims: bool = False) -> Tensor:
        """sum, prod, max, min, any or all over the axes."""
        over = tuple(sorted(axes))
        if not over:
            return x
        attrs = {"kind": ReduceKind(kind), "axes": over, "keepdims": keepdims}
        make = partial(self._node, "reduce", x, **attrs)
        content = None if x.content is None else contents.fold(kind, x.content, over, keepdims, x.dtype)
        if content is None:
            return self.of_value(make())
        return self.of_content(content, x.dtype, make if x.dtype.is_float else None)

    def arg_reduce(self, kind: str, x: Tensor, axis: int, keepdims: bool = False, last: bool = False) -> Tensor:
        """The i64 index of the greatest or least element along an axis: the first of equal ones, or the last."""
        return self.op("arg_reduce", x, kind=ReduceKind(kind), axis=axis, keepdims=keepdims, last=last)

    def cumulative(self, kind: str, x: Tensor, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
        """Sums, products, maxima or minima of all elements up to each one along an axis."""
        return self.op("cumulative", x, kind=ReduceKind(kind), axis=axis, exclusive=exclusive, reverse=reverse)

    def window(
        self, kind: str, x: Tensor, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Tensor:
        """The sum, maximum or minimum of each whole window over the last dimensions, as many as the lists name."""
        ones = (1,) * (x.rank - len(window))
        return self.op(
            "window_reduce",
            x,
            kind=ReduceKind(kind),
            window=(*ones, *window),
            strides=(*ones, *strides),
            dilations=(*ones, *dilations),
        )

    def contract(
        self, spec: str, *inputs: Tensor, sizes: Sequence[tuple[str, Size]] = (), dtype: DType | None = None
    ) -> Tensor:
        """Products summed over the axes that the result does not have (see the operator `contract`)."""
        extents = tuple((axis, dim(size)) for axis, size in sizes)
        return self.op("contract", *inputs, spec=spec, sizes=extents, dtype=dtype)

    def op(self, name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """Any operator of one result."""
        return self.of_value(self._node(name, *inputs, **attrs))

    def ops(self, name: str, *inputs: Tensor, **attrs: Any) -> tuple[Tensor, ...]:
        """Any operator."""
        return tuple(self.of_value(v) for v in self.graph.ops(name, *(t.value for t in inputs), **attrs))
