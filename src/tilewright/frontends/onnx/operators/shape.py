"""Shapes as values, and what is made from sizes: Reshape and its relatives, Range, ConstantOfShape, Expand, EyeLike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.core.walk import postorder
from tilewright.expr import dtypes
from tilewright.expr.build import equal, less_equal, maximum, select
from tilewright.expr.nodes import Const, Expr, Not, Or, Var, const
from tilewright.expr.simplify import Facts, simplify
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.operators.dynamic_axes import count_of, named_dimensions
from tilewright.frontends.onnx.operators.elementwise import dtype_of
from tilewright.frontends.onnx.registry import AnyInt, Ints, handles
from tilewright.graph.op import LARGEST

if TYPE_CHECKING:
    from onnx import TensorProto


@handles("Shape", until=14)
def shape(b: Emit, x: Tensor) -> Tensor:
    return b.of_sizes(x.shape)


@handles("Shape", since=15)
def shape_part(b: Emit, x: Tensor, *, start: AnyInt = 0, end: AnyInt | None = None) -> Tensor:
    last = x.rank if end is None else end
    first, last = (min(max(i + x.rank if i < 0 else i, 0), x.rank) for i in (start, last))
    return b.of_sizes(x.shape[first:last])


@handles("Size")
def size(b: Emit, x: Tensor) -> Tensor:
    return b.of_size(product(x.shape))


@handles("Reshape", until=4)
def reshape_by_attribute(b: Emit, x: Tensor, *, shape: Ints) -> Tensor:
    return b.reshape(x, _target(b, x, [const(d) for d in shape], False))


@handles("Reshape", since=5)
def reshape(b: Emit, x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    wanted = b.shape(shape, "the shape of Reshape", -1, LARGEST)
    return b.reshape(x, _target(b, x, wanted, bool(allowzero)))


def _target(b: Emit, x: Tensor, wanted: Sequence[Expr], allowzero: bool) -> list[Expr]:
    """The shape of the result: 0 keeps the input's dimension there, -1 is what remains."""
    if not allowzero:
        wanted = [_kept(b, x, n, d) for n, d in enumerate(wanted)]
    total = product(x.shape)
    if sum(isinstance(d, Const) and d.value == -1 for d in wanted) > 1:
        raise b.error(f"the shape {[str(d) for d in wanted]} has more than one -1")
    open_ends = [_may_be_negative(d) for d in wanted]
    if not any(open_ends):
        return list(wanted)
    rest: Expr = const(1)
    for d, is_open in zip(wanted, open_ends, strict=True):
        rest = rest * (select(equal(d, -1), 1, d) if is_open else d)
    remaining = simplify(total // rest)
    return [select(equal(d, -1), remaining, d) if is_open else d for d, is_open in zip(wanted, open_ends, strict=True)]


def _kept(b: Emit, x: Tensor, place: int, wanted: Expr) -> Expr:
    """The dimension for an entry of the shape that may be 0. A size computed from other sizes is taken as it is."""
    if isinstance(wanted, Const):
        if wanted.value != 0:
            return wanted
        if place >= x.rank:
            raise b.error(f"entry {place} of the shape is 0, but the input has only {x.rank} dimensions")
        return x.shape[place]
    if not from_data(wanted) or place >= x.rank:
        return wanted
    return select(equal(wanted, 0), x.shape[place], wanted)


def from_data(e: Expr) -> bool:
    """Whether the expression has a symbol that stands for a number in data, which may be negative."""
    return any(isinstance(v, Var) and v.least is None for v in postorder((e,)))


def _may_be_negative(d: Expr) -> bool:
    return d.value == -1 if isinstance(d, Const) else from_data(d) and not Facts().nonnegative(d)


@handles("Flatten")
def flatten(b: Emit, x: Tensor, *, axis: int = 1) -> Tensor:
    split = x.rank if axis == x.rank else b.axis(axis, x.rank) if x.rank else 0
    return b.reshape(x, (product(x.shape[:split]), product(x.shape[split:])))


@handles("Squeeze", until=12)
def squeeze_by_attribute(b: Emit, x: Tensor, *, axes: Ints | None = None) -> Tensor:
    return _squeezed(b, x, None if axes is None else b.axes(axes, x.rank))


@handles("Squeeze", since=13)
def squeeze(b: Emit, x: Tensor, axes: Tensor | None = None) -> Tensor:
    if axes is None:
        return _squeezed(b, x, None)
    known = b.integers(axes, "the axes")
    if known is not None:
        return _squeezed(b, x, b.axes(known, x.rank))
    number = count_of(b, axes)
    if number > x.rank:
        raise b.error(f"{number} of {x.rank} dimensions are left out")
    named = named_dimensions(b, axes, x.rank)
    for mark, extent in zip(named, x.shape, strict=True):
        b.require(Or(equal(mark, 0), equal(extent, 1)), "Squeeze of a dimension whose extent is not 1")
    kept = _positions([1 - m for m in named])
    places = [_unnamed_at(kept, named, x.shape, p) for p in range(x.rank - number)]
    return b.reshape(x, places)


def _squeezed(b: Emit, x: Tensor, axes: Sequence[int] | None) -> Tensor:
    if axes is None:
        axes = [n for n, d in enumerate(x.shape) if isinstance(d, Const) and d.value == 1]
        for n, d in enumerate(x.shape):
            if n not in axes:
                message = f"Squeeze without axes of dimension {n}, whose extent, known only at run time, is 1"
                b.require(Not(equal(d, 1)), message)
    for axis in axes:
        b.require_equal(x.shape[axis], 1, f"Squeeze of dimension {axis}, whose extent is {{0}}, not {{1}}")
    return b.squeeze(x, axes)


@handles("Unsqueeze", until=12)
def unsqueeze_by_attribute(b: Emit, x: Tensor, *, axes: Ints) -> Tensor:
    return b.unsqueeze(x, b.axes(axes, x.rank + len(axes)))


@handles("Unsqueeze", since=13)
def unsqueeze(b: Emit, x: Tensor, axes: Tensor) -> Tensor:
    known = b.integers(axes, "the axes")
    if known is not None:
        return b.unsqueeze(x, b.axes(known, x.rank + len(known)))
    rank = x.rank + count_of(b, axes)
    b.require_few(rank, f"the result has {rank} dimensions")
    named = named_dimensions(b, axes, rank)
    before = _positions([1 - m for m in named])
    dims = [select(equal(m, 1), 1, _pick(x.shape, before[n])) for n, m in enumerate(named)]
    return b.reshape(x, dims)


def _positions(counts: Sequence[Expr]) -> list[Expr]:
    """The sums of the counts before each place."""
    total: Expr = const(0)
    found = []
    for count in counts:
        found.append(total)
        total = total + count
    return found


def _pick(values: Sequence[Expr], at: Expr) -> Expr:
    chosen: Expr = const(1)
    for n, value in enumerate(values):
        chosen = select(equal(at, n), value, chosen)
    return chosen


def _unnamed_at(positions: Sequence[Expr], named: Sequence[Expr], values: Sequence[Expr], place: int) -> Expr:
    """The value of the dimension that is not named and has `place` others like it before."""
    chosen: Expr = const(1)
    for position, mark, value in zip(positions, named, values, strict=True):
        chosen = select(equal(position, place), select(equal(mark, 1), chosen, value), chosen)
    return chosen


@handles("ConstantOfShape")
def constant_of_shape(b: OnnxEmit, shape: Tensor, *, value: TensorProto | None = None) -> Tensor:
    dims = b.shape(shape, "the shape of ConstantOfShape", 0, LARGEST)
    if value is None:
        return b.full(dims, 0.0, dtypes.f32)
    data = b.of_array(b.model.tensor_data(value))
    if data.array is None or data.array.size != 1:
        raise b.error("the value of ConstantOfShape must have one element")
    return b.full(dims, data.array.reshape(-1)[0].item(), data.dtype)


@handles("Expand")
def expand(b: Emit, x: Tensor, shape: Tensor) -> Tensor:
    """Both sides broadcast: an extent of one in either takes the other's."""
    wanted = b.shape(shape, "the shape of Expand", 0, LARGEST)
    return b.broadcast(x, merged_shape(b, x.shape, wanted))


def merged_shape(b: Emit, have: Sequence[Expr], wanted: Sequence[Expr]) -> list[Expr]:
    """The shape that both broadcast to."""
    rank = max(len(have), len(wanted))
    ones = [const(1)] * rank
    pairs = zip([*ones[len(have) :], *have], [*ones[len(wanted) :], *wanted], strict=True)
    return [_merged(b, h, w) for h, w in pairs]


def _merged(b: Emit, have: Expr, wanted: Expr) -> Expr:
    one = const(1)
    if have is wanted or wanted is one:
        return have
    if have is one:
        return wanted
    if isinstance(have, Const) and isinstance(wanted, Const):
        raise b.error(f"dimensions {have} and {wanted} do not broadcast")
    if isinstance(have, Const):
        b.require(Or(equal(wanted, have), equal(wanted, 1)), f"a dimension of {have} cannot be expanded")
        return have
    b.require_equal(wanted, have, "dimensions do not broadcast: {0} and {1}")
    return wanted


@handles("Range")
def range_(b: Emit, start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    """start, start + delta, … below limit (above it for a negative delta); elements of 16 bits are rounded once, from
    sums in a wider type than `stash_type` asks for."""
    dtype = start.dtype
    first, last, step = (b.reshape(t, ()) for t in (start, limit, delta))
    if dtype in (dtypes.i64, dtypes.i32) and first.content is not None and last.content is not None:
        s, e = b.size(first, "the start of Range"), b.size(last, "the limit of Range")
        d = b.size(step, "the delta of Range")
        if isinstance(d, Const) and d.value == 0:
            raise b.error("the delta of Range is 0")
        count = _count(s, e, d)
        return b.cast(b.iota((count,), 0) * b.of_size(d) + b.of_size(s), dtype)
    wide = dtypes.f64 if dtype.is_float else dtypes.i64
    distance = b.cast(last, wide) - b.cast(first, wide)
    if dtype.is_float:
        steps = b.map("ceil", distance / b.cast(step, wide))
    else:
        steps = -b.map("floordiv", -distance, b.cast(step, wide))
    number = b.select(_is_absurd(b, first, last, step), -1, b.cast(b.map("max", steps, 0), dtypes.i64))
    count = b.size(number, "the length of Range (-1 for a delta of 0 or an endless range)", 0, LARGEST)
    index = b.iota((count,), 0, dtypes.f64 if dtype.is_float else dtypes.i64)
    if dtype.is_float and dtype.bits < 32:
        return b.cast(index * b.cast(step, wide) + b.cast(first, wide), dtype)
    return b.cast(index, dtype) * step + first


def _count(start: Expr, end: Expr, step: Expr) -> Expr:
    """The length of a range of sizes; of numbers in Python's arithmetic, which has no largest one."""
    if isinstance(start, Const) and isinstance(end, Const) and isinstance(step, Const):
        distance = int(end.value) - int(start.value)
        return const(min(max(-(-distance // int(step.value)), 0), int(dtypes.i64.max)))
    return steps_between(start, end, step)


def _is_absurd(b: Emit, first: Tensor, last: Tensor, step: Tensor) -> Tensor:
    """Whether a range has no end: its delta is 0, or the distance is beyond what integers hold."""
    far = b.map("abs", b.cast(last, dtypes.f64) - b.cast(first, dtypes.f64))
    return b.map("or", b.map("eq", step, 0), b.map("le", b.scalar(2.0**62, dtypes.f64), far))


def steps_between(start: Expr, end: Expr, step: Expr) -> Expr:
    """How many steps from `start` stay before `end`: max(0, ceil((end - start) / step)); for a step of unknown sign,
    both cases."""
    if isinstance(step, Const):
        distance = end - start if step.value > 0 else start - end
        size = abs(int(step.value))
        return simplify(maximum((distance + (size - 1)) // size, 0))
    upwards = maximum((end - start + step - 1) // maximum(step, 1), 0)
    downwards = maximum((start - end - step - 1) // maximum(-step, 1), 0)
    return simplify(select(less_equal(1, step), upwards, downwards))


@handles("EyeLike")
def eye_like(b: Emit, x: Tensor, *, dtype: int | None = None, k: AnyInt = 0) -> Tensor:
    if x.rank != 2:
        raise b.error(f"EyeLike takes a matrix, not a tensor of {x.rank} dimensions")
    rows, columns = (b.align(b.iota((x.shape[a],), 0), a, 2) for a in (0, 1))
    return b.cast(b.map("eq", columns - rows, k), x.dtype if dtype is None else dtype_of(dtype))
