"""What type rules ask of their inputs: how many, of which types, which dimensions; and NumPy's broadcasting.

Each question returns nothing (or the answer) when the input is fine, and raises `context.error` in the user's terms
when it is not. What cannot be decided before sizes are known becomes a requirement of the context.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Le, Var, const
from tilewright.expr.simplify import simplify
from tilewright.graph.op import TypeContext
from tilewright.types.tensor import TensorType

ONE = const(1)
ZERO = const(0)

_WORDS = {"b": "truth values", "i": "signed integers", "u": "unsigned integers", "f": "floats"}


def check_count(context: TypeContext, inputs: Sequence[TensorType], count: int) -> None:
    """There are `count` inputs."""
    if len(inputs) != count:
        raise context.error(f"{context.op} takes {counted(count, 'input')}, not {len(inputs)}")


def check_kind(context: TypeContext, type: TensorType, kinds: str, name: str = "") -> None:
    """The element type is one of `kinds` (letters of b, i, u, f). `name` says which input it is, if there are
    several."""
    if type.dtype.code is not None:
        what = (
            f"{context.op} does not compute with {type}: {type.dtype} is a narrow type, which is stored and cast only"
        )
        raise context.error(what, f"cast the input: cast(dtype={_example(kinds)})")
    if type.dtype.kind not in kinds:
        fix = f"cast the input: cast(dtype={_example(kinds)})"
        raise context.error(f"{context.op} takes {words(kinds)}{name and ' for ' + name}, not {type}", fix)


def check_index_type(context: TypeContext, type: TensorType, name: str) -> None:
    """The element type is i64, that of indices."""
    if type.dtype is not dtypes.index:
        raise context.error(f"{name} of {context.op} are i64, not {type}", "cast them: cast(dtype=i64)")


def check_same_dtype(context: TypeContext, inputs: Sequence[TensorType]) -> None:
    """All inputs have the element type of the first."""
    dtype = inputs[0].dtype
    for type in inputs:
        if type.dtype is not dtype:
            shown = " and ".join(str(t) for t in inputs)
            raise context.error(f"the element types of {shown} differ", f"cast one of them: cast(dtype={dtype})")


def check_axis(context: TypeContext, type: TensorType, axis: int) -> None:
    """0 <= axis < rank."""
    if not 0 <= axis < type.rank:
        raise context.error(f"there is no axis {axis} in {type}", _axes_of(type))


def check_axes(context: TypeContext, type: TensorType, axes: Sequence[int]) -> None:
    """Every axis is one of the tensor's, none is named twice."""
    for axis in axes:
        check_axis(context, type, axis)
    if len(set(axes)) != len(axes):
        raise context.error(f"the axes {_list(axes)} name one twice", "name each axis once")


def check_rank(context: TypeContext, type: TensorType, rank: int, name: str) -> None:
    """The tensor has `rank` dimensions, which is what `name` calls for."""
    if type.rank != rank:
        raise context.error(f"{name} has {counted(rank, 'dimension')}, but {type} has {type.rank}")


def check_length(context: TypeContext, type: TensorType, values: Sequence[object], name: str) -> None:
    """There is one entry of the attribute `name` for each dimension."""
    if len(values) != type.rank:
        why = f"{name} has {len(values)} for {counted(type.rank, 'dimension')} of {type}"
        raise context.error(why, "give one for each dimension")


def check_sizes(context: TypeContext, type: TensorType) -> None:
    """No dimension is negative, which only an expression that subtracts can be."""
    for d, extent in enumerate(type.shape):
        if isinstance(extent, Var) or (isinstance(extent, Const) and extent.value >= 0):
            continue
        verdict = simplify(Le(ZERO, extent))
        if not (isinstance(verdict, Const) and verdict.value):
            context.require(verdict, f"dimension {d} of {type} is negative")


def number(e: Expr) -> int | None:
    """The value of a constant size, None of any other."""
    return int(e.value) if isinstance(e, Const) else None


def broadcast_shapes(context: TypeContext, inputs: Sequence[TensorType]) -> tuple[Expr, ...]:
    """The shape that NumPy's broadcasting gives. Trailing dimensions are aligned and a constant size of 1 is repeated;
    sizes that differ and are not both known must be equal when the program runs."""
    first = inputs[0].shape
    if all(t.shape == first for t in inputs):
        return first
    rank = max(t.rank for t in inputs)
    return tuple([_broadcast_dimension(context, inputs, d - rank) for d in range(rank)])


def _broadcast_dimension(context: TypeContext, inputs: Sequence[TensorType], d: int) -> Expr:
    """The common size of dimension `d`, counted from the end: a constant where one of the inputs has one."""
    picked: Expr = ONE
    for type in inputs:
        extent = type.shape[d] if -d <= type.rank else ONE
        if extent is picked or extent is ONE:
            continue
        if picked is not ONE:
            shown = " and ".join(str(t) for t in inputs)
            context.require_equal(picked, extent, f"the sizes of dimension {d} of {shown}")
        if picked is ONE or isinstance(extent, Const):
            picked = extent
    return picked


def words(kinds: str) -> str:
    """What people call the element types of these kinds."""
    if kinds == "biuf":
        return "any element type"
    parts = [_WORDS[k] for k in kinds.replace("iu", "i")]
    if "iu" in kinds:
        parts = ["integers" if p == _WORDS["i"] else p for p in parts]
    return " and ".join(parts)


def counted(count: int, noun: str) -> str:
    """`1 input`, `2 inputs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def wide(dtype: DType) -> DType:
    """The type that sums and products of many elements are kept in: f32 for the 16-bit floats, else the type itself."""
    return dtypes.f32 if dtype.is_float and dtype.bits == 16 else dtype


def _example(kinds: str) -> DType:
    """An element type of one of the kinds, for the fix of an error."""
    return dtypes.f32 if "f" in kinds else dtypes.i64 if "i" in kinds else dtypes.bool_


def _axes_of(type: TensorType) -> str | None:
    return f"take an axis from 0 to {type.rank - 1}" if type.rank else None


def _list(axes: Sequence[int]) -> str:
    return ", ".join(str(a) for a in axes)
