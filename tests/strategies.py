"""Random expressions and programs, valid and safe to run, for tests that hold for every program.

`expressions(dtype, leaves)` gives expressions of a type over the given leaves, `index_expressions(variables)` index
arithmetic without overflow, `functions()` whole loops functions over f32 and i64 buffers, every access in bounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import hypothesis.strategies as st

from tilewright.expr import dtypes, nodes
from tilewright.expr.build import less
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.expr.intrinsics import INTRINSICS
from tilewright.expr.nodes import Call, Cast, Const, Expr, Not, Select, Var, const
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Axis,
    AxisKind,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Load,
    LoopKind,
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.types.scopes import Scope

ARITHMETIC = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.Min, nodes.Max, nodes.Mod, nodes.Rem)
INTEGERS = (*ARITHMETIC, nodes.FloorDiv, nodes.BitAnd, nodes.BitOr, nodes.BitXor, nodes.Shl, nodes.Shr)
COMPARISONS = (nodes.Eq, nodes.Ne, nodes.Lt, nodes.Le)
TYPES = tuple(DTYPES.values())
COMPUTED = tuple(d for d in TYPES if d.code is None)
"""The types that have arithmetic."""


T = TypeVar("T")


@functools.cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


def pick(draw: st.DrawFn, options: Sequence[T]) -> T:
    """One of the options. (Drawing a number from a shared strategy is far cheaper than a strategy for each choice.)"""
    return options[draw(_below(len(options)))]


@functools.cache
def constants(dtype: DType) -> st.SearchStrategy[Const]:
    """Constants of a type, with the corners: extremes, signed zeros, infinities, NaN, subnormals."""
    if dtype.is_bool:
        return st.booleans().map(lambda v: Const(v, dtype))
    if dtype.is_int:
        low, high = int(dtype.min), int(dtype.max)
        small = st.integers(max(low, -9), min(high, 9))
        return st.one_of(small, st.integers(low, high), st.sampled_from([low, high])).map(lambda v: Const(v, dtype))
    corners = st.sampled_from([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 5e-324, 1e-45, 6e-8, 0.1])
    return st.one_of(corners, st.floats(), st.floats(-4, 4)).map(lambda v: const(v, dtype))


@st.composite
def expressions(draw: st.DrawFn, dtype: DType, leaves: Sequence[Expr], depth: int = 4) -> Expr:
    """Expressions of `dtype` over the leaves (of any type) and constants."""
    return _expression(draw, dtype, leaves, depth)


def _expression(draw: st.DrawFn, dtype: DType, leaves: Sequence[Expr], depth: int) -> Expr:
    def below(kind: DType) -> Expr:
        return _expression(draw, kind, leaves, depth - 1)

    forms = ("operator", "leaf", "operator", "select", "cast", "call", "operator")
    form = pick(draw, forms if dtype.code is None else ("leaf", "select", "cast")) if depth else "leaf"
    if form == "leaf":
        own = [e for e in leaves if e.dtype is dtype]
        return pick(draw, own) if own and pick(draw, (True, True, False)) else draw(constants(dtype))
    if form == "select":
        return Select(below(dtypes.bool_), below(dtype), below(dtype))
    if form == "cast":
        return Cast(below(pick(draw, TYPES)), dtype)
    if form == "call":
        if dtype.is_bool:
            return Call(INTRINSICS["isnan"], (below(dtypes.f64),))
        names = ("neg", "abs", "floor", "sqrt") if dtype.is_float else ("neg", "invert")
        return Call(INTRINSICS[pick(draw, names)], (below(dtype),))
    if not dtype.is_bool:
        return pick(draw, ARITHMETIC if dtype.is_float else INTEGERS)(below(dtype), below(dtype))
    cls = pick(draw, (*COMPARISONS, nodes.And, nodes.Or, nodes.Not))
    if cls is nodes.Not:
        return Not(below(dtype))
    kind = pick(draw, COMPUTED) if cls in COMPARISONS else dtype
    return cls(below(kind), below(kind))  # type: ignore[call-arg]


@st.composite
def index_expressions(draw: st.DrawFn, variables: Sequence[Var], depth: int = 4) -> Expr:
    """Index arithmetic as schedules make it; divisors are positive constants, variables or small numbers."""
    return _index_expression(draw, variables, depth)


def _index_expression(draw: st.DrawFn, variables: Sequence[Var], depth: int) -> Expr:
    def below() -> Expr:
        return _index_expression(draw, variables, depth - 1)

    def condition() -> Expr:
        return pick(draw, COMPARISONS)(below(), below())

    forms = ("leaf", "plain", "plain", "scale", "product", "divide", "divide", "select", "neg")
    form = pick(draw, forms) if depth else "leaf"
    if form == "plain":
        return pick(draw, (nodes.Add, nodes.Sub, nodes.Min, nodes.Max))(below(), below())
    if form == "scale":
        return nodes.Mul(below(), const(draw(_below(13)) - 4))
    if form == "product":
        return nodes.Mul(pick(draw, variables), pick(draw, variables))
    if form == "divide":
        divisor = pick(draw, variables) if pick(draw, (False, True)) else const(draw(_below(8)) + 1)
        return pick(draw, (nodes.FloorDiv, nodes.Mod))(below(), divisor)
    if form == "select":
        kind = pick(draw, ("plain", "and", "not"))
        cond = condition()
        cond = nodes.And(cond, condition()) if kind == "and" else Not(cond) if kind == "not" else cond
        return Select(cond, below(), below())
    if form == "neg":
        return Call(INTRINSICS["neg"], (below(),))
    return pick(draw, variables) if pick(draw, (True, False)) else const(draw(_below(25)) - 8)


@dataclass
class Place:
    """What is visible while a program is made: loop variables with the extents they run to, values, buffers."""

    extents: dict[Var, Expr] = field(default_factory=dict)
    values: list[Expr] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    def inside(self) -> Place:
        return Place(dict(self.extents), list(self.values), list(self.buffers))


@st.composite
def functions(draw: st.DrawFn) -> Function:
    """A valid function `f[n, m](x: f32[n, m], w: f32[3], k: i64[n], y: f32[…])` that writes y."""
    n, m = Var("n"), Var("m")
    shape = pick(draw, [(n, m), (n,), (m, const(3)), (const(4),), ()])
    x, w, k = (
        Buffer("x", dtypes.f32, (n, m)),
        Buffer("w", dtypes.f32, (const(3),)),
        Buffer("k", dtypes.i64, (n,)),
    )
    y = Buffer("y", dtypes.f32, shape)
    place = Place(values=[n, m], buffers=[x, w, k, y])
    body = [*_statements(draw, place, [n, m, const(3), const(4)], 2), _nest(draw, place, y)]
    source = pick(draw, [(), ("Conv_1",), ('a "b"', "c\n\\d")])
    name = pick(draw, ["f", "f.body", "model/f:0"])
    return Function(name, (n, m), (x, w, k, y), Seq(tuple(body)), draw(_below(3)), source)


def _statements(draw: st.DrawFn, place: Place, dims: list[Expr], depth: int) -> list[Stmt]:
    found: list[Stmt] = []
    for _ in range(draw(_below(4))):
        kind = pick(draw, ["alloc", "let", "nest", "if", "while", "assert", "loop", "scope", "view"])
        if kind == "alloc":
            size = draw(st.lists(st.sampled_from(dims), max_size=2))
            dtype = pick(draw, [dtypes.f32, dtypes.i64])
            buffer = Buffer(pick(draw, ["t", "x", "for", "a/b"]), dtype, tuple(size), Scope.ARENA)
            place.buffers.append(buffer)
            offset = const(64) if pick(draw, (False, True)) else None
            found += [Alloc(buffer, offset), _nest(draw, place, buffer, const(0, dtype))]
        elif kind == "view":
            source = pick(draw, place.buffers)
            size = functools.reduce(nodes.Mul, source.shape, const(1)) if source.shape else const(1)
            shape = pick(draw, [(*source.shape, const(1)), (const(1), *source.shape), (size,)])
            begin = pick(draw, [None, None, nodes.FloorDiv(size, const(2))])
            shape = shape if begin is None else (nodes.Sub(size, begin),)
            place.buffers.append(source.replace(name=pick(draw, ["v", "x"]), shape=shape))
            found.append(View(place.buffers[-1], source, begin))
        elif kind == "let":
            value = _value(draw, place, pick(draw, [dtypes.f32, dtypes.i64, dtypes.bool_]))
            var = Var("t", value.dtype, None if value.dtype is dtypes.index else 0)
            found.append(Let(var, value))
            place.values.append(var)
        elif kind == "nest":
            found.append(_nest(draw, place, pick(draw, place.buffers[3:])))
        elif kind == "assert":
            values = (_value(draw, place, dtypes.f32),)
            cond = nodes.Or(Const(True, dtypes.bool_), _value(draw, place, dtypes.bool_))
            found.append(Assert(cond, "never: {0}\t§", values))
        elif depth:
            found.append(_compound(draw, place, dims, depth - 1, kind))
    return found


def _compound(draw: st.DrawFn, place: Place, dims: list[Expr], depth: int, kind: str) -> Stmt:
    """A statement with bodies."""
    if kind == "if":
        cond = _value(draw, place, dtypes.bool_)
        parts = [Seq(tuple(_statements(draw, place.inside(), dims, depth))) for _ in range(2)]
        return If(cond, parts[0], parts[1] if pick(draw, (False, True)) else None)
    if kind == "while":
        count = Buffer("count", dtypes.i64, (), Scope.STACK)
        step = Store(count, (), Load(count, ()) + 1)
        body = Seq((*_statements(draw, place.inside(), dims, depth), step))
        return Seq((Alloc(count), Store(count, (), const(0)), While(less(Load(count, ()), 2), body)))
    if kind == "loop":
        inner, var, extent = place.inside(), Var(pick(draw, "ijx")), pick(draw, dims)
        inner.extents[var] = extent
        kinds = [LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.UNROLL]
        body = Seq(tuple(_statements(draw, inner, dims, depth)))
        return For(var, const(0), extent, pick(draw, kinds), body)
    return Seq(tuple(_statements(draw, place.inside(), dims, depth)))


def _nest(draw: st.DrawFn, place: Place, out: Buffer, init: Expr | None = None) -> Stmt:
    """Loops over a buffer with a block that stores to it; with reduce axes it accumulates."""
    reduce = [] if init is not None else draw(st.lists(st.sampled_from([const(2), place.values[0]]), max_size=2))
    inner = place.inside()
    loops = [(Var("i"), e) for e in out.shape] + [(Var("k"), e) for e in reduce]
    kinds = [AxisKind.SPATIAL] * len(out.shape) + [AxisKind.REDUCE] * len(reduce)
    axes = tuple(Axis(Var("v" + v.name), kind, v) for (v, _), kind in zip(loops, kinds, strict=True))
    inner.extents.update({a.var: e for a, (_, e) in zip(axes, loops, strict=True)})
    where = None
    if init is None and not reduce and pick(draw, (False, True)):
        where = _value(draw, inner, dtypes.bool_)
    indices = tuple(a.var for a in axes[: len(out.shape)])
    value = init if init is not None else _value(draw, inner, out.dtype)
    start = None
    if reduce:
        value = nodes.Add(Load(out, indices), value)
        start = Store(out, indices, draw(constants(out.dtype))) if pick(draw, (False, True)) else None
    nest: Stmt = Block(pick(draw, ["b", "b.init", "a b"]), axes, Store(out, indices, value), start, where)
    for var, extent in reversed(loops):
        nest = For(var, const(0), extent, LoopKind.SERIAL, nest)
    return nest


def _value(draw: st.DrawFn, place: Place, dtype: DType) -> Expr:
    """A value over what is visible, with loads in bounds."""
    leaves: list[Expr] = [*place.values, *place.extents]
    for buffer in place.buffers:
        indices = [_index(draw, place, extent) for extent in buffer.shape]
        if all(i is not None for i in indices):
            leaves.append(Load(buffer, tuple(i for i in indices if i is not None)))
    return _expression(draw, dtype, leaves, 2)


def _index(draw: st.DrawFn, place: Place, extent: Expr) -> Expr | None:
    """An index below the extent: a loop variable that runs to it, or for a constant extent any value modulo it."""
    fitting: list[Expr] = [v for v, e in place.extents.items() if e is extent]
    if isinstance(extent, Const):
        fitting += [const(draw(_below(int(extent.value))))]
        fitting += [nodes.Mod(v, extent) for v in place.extents]
    return pick(draw, fitting) if fitting else None
