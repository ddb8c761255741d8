"""Blocks that `Builder.compute` and `accumulate` do not make: several statements to a point, and wide accumulators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.expr.build import cast
from tilewright.expr.nodes import Expr, Number, Var, as_expr, const
from tilewright.loops.build import Builder, Index, load
from tilewright.loops.nodes import Alloc, Axis, AxisKind, Block, Buffer, For, Load, LoopKind, Seq, Stmt, Store
from tilewright.ops.checks import wide
from tilewright.types.scopes import Scope

Body = Callable[..., Stmt]


def add_block(build: Builder, name: str, spatial: Sequence[Index], body: Body, ordered: Sequence[Index] = ()) -> None:
    """Adds a block with the statement body(o, …, i, …): `ordered` extents outermost, which run in ascending order
    (reduce axes: their points may touch the same element), then the `spatial` ones."""
    kinds = [AxisKind.REDUCE] * len(ordered) + [AxisKind.SPATIAL] * len(spatial)
    loops = [Var(f"k{n}") for n in range(len(ordered))] + [Var(f"i{n}") for n in range(len(spatial))]
    axes = tuple(Axis(Var("v" + v.name), kind, v) for v, kind in zip(loops, kinds, strict=True))
    nest: Stmt = Block(name, axes, body(*[a.var for a in axes]))
    for var, extent in zip(reversed(loops), reversed((*ordered, *spatial)), strict=True):
        nest = loop(var, 0, extent, nest)
    build.add(nest)


def loop(var: Var, begin: Index, end: Index, body: Stmt) -> Stmt:
    """`body` for var = begin … end - 1, in order."""
    return For(var, as_expr(begin), as_expr(end), LoopKind.SERIAL, body)


def loops(names: str, extents: Sequence[Index], body: Body) -> Stmt:
    """body(i, …) for every point of the extents in row-major order."""
    variables = [Var(f"{names}{n}") for n in range(len(extents))]
    nest = body(*variables)
    for var, extent in zip(reversed(variables), reversed(extents), strict=True):
        nest = loop(var, 0, extent, nest)
    return nest


class Cell:
    """A mutable number on the stack of the block that is being written: `alloc` declares it, `value` reads it."""

    def __init__(self, name: str, like: Expr | None = None) -> None:
        self.buffer = Buffer(name, like.dtype if like is not None else const(0).dtype, (), Scope.STACK)
        self.alloc = Alloc(self.buffer)
        self.value = Load(self.buffer, ())

    def set(self, value: Expr | Number) -> Stmt:
        return Store(self.buffer, (), as_expr(value, self.buffer.dtype))


def then(*statements: Stmt) -> Stmt:
    """The statements in order, as a scope of their own: what they declare ends with them."""
    return Seq(statements)


def accumulate_wide(
    build: Builder,
    name: str,
    out: Buffer,
    reduce: Sequence[Index],
    *,
    init: Expr | Number,
    update: Callable[..., Expr],
) -> None:
    """`Builder.accumulate` in the wide type of `out` (f32 for 16-bit floats, rounded once by a block of its own)."""
    dtype = wide(out.dtype)
    if dtype is out.dtype:
        build.accumulate(name, out, reduce, init=init, update=update)
        return
    total = build.temporary(f"{name}_wide", dtype=dtype, shape=out.shape)
    build.accumulate(name, total, reduce, init=init, update=update)
    build.compute(f"{name}_round", out, lambda *at: cast(load(total, *at), out.dtype))
