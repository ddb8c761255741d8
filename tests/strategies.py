"""Random expressions and programs, valid and safe to run, for tests that hold for every program.

`expressions(dtype, leaves)` gives expressions of a type over the given leaves; `index_expressions(variables)` index
arithmetic without overflow; `functions()` whole loops functions over f32 and i64 buffers whose every access is in bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import hypothesis.strategies as st

from tilewright.expr import dtypes, nodes
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
    While,
)
from tilewright.types.scopes import Scope

ARITHMETIC = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.Min, nodes.Max, nodes.Mod, nodes.Rem)
INTEGERS = (*ARITHMETIC, nodes.FloorDiv, nodes.BitAnd, nodes.BitOr, nodes.BitXor, nodes.Shl, nodes.Shr)
COMPARISONS = (nodes.Eq, nodes.Ne, nodes.Lt, nodes.Le)


def constants(dtype: DType) -> st.SearchStrategy[Const]:
    """Constants of a type, with the corners: extremes, signed zeros, infinities, NaN, subnormals."""
    if dtype.is_bool:
        return st.booleans().map(lambda v: Const(v, dtype))
    if dtype.is_int:
        low, high = int(dtype.min), int(dtype.max)
        small = st.integers(max(low, -9), 9)
        return st.one_of(small, st.integers(low, high), st.sampled_from([low, high])).map(lambda v: Const(v, dtype))
    corners = st.sampled_from([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 5e-324, 1e-45, 6e-8, 0.1])
    return st.one_of(corners, st.floats(), st.floats(-4, 4)).map(lambda v: const(v, dtype))


def expressions(dtype: DType, leaves: Sequence[Expr], depth: int = 4) -> st.SearchStrategy[Expr]:
    """Expressions of `dtype` over the leaves (of any type) and constants."""
    own = [e for e in leaves if e.dtype is dtype]
    leaf = st.one_of(st.sampled_from(own), constants(dtype)) if own else constants(dtype)
    if depth == 0:
        return leaf

    def below(kind: DType) -> st.SearchStrategy[Expr]:
        return st.deferred(lambda: expressions(kind, leaves, depth - 1))

    same, truth = below(dtype), below(dtypes.bool_)
    anything = st.sampled_from(list(DTYPES.values()))
    made = [leaf, st.builds(Select, truth, same, same), anything.flatmap(below).map(lambda e: Cast(e, dtype))]
    if dtype.is_bool:
        pairs = anything.flatmap(lambda d: st.tuples(below(d), below(d)))
        made.append(st.builds(lambda cls, ab: cls(*ab), st.sampled_from(COMPARISONS), pairs))
        made += [st.builds(nodes.And, same, same), st.builds(nodes.Or, same, same), st.builds(Not, same)]
        made.append(below(dtypes.f64).map(lambda e: Call(INTRINSICS["isnan"], (e,))))
        return st.one_of(made)
    operators = ARITHMETIC if dtype.is_float else INTEGERS
    made.append(st.builds(lambda cls, a, b: cls(a, b), st.sampled_from(operators), same, same))
    names = ("neg", "abs", "floor", "sqrt") if dtype.is_float else ("neg", "invert")
    made.append(st.builds(lambda name, a: Call(INTRINSICS[name], (a,)), st.sampled_from(names), same))
    return st.one_of(made)


def index_expressions(variables: Sequence[Var], depth: int = 4) -> st.SearchStrategy[Expr]:
    """Index arithmetic as schedules make it; divisors are positive constants or variables."""
    leaf = st.one_of(st.sampled_from(list(variables)), st.integers(-8, 16).map(const))
    if depth == 0:
        return leaf
    below = st.deferred(lambda: index_expressions(variables, depth - 1))
    conditions = st.builds(lambda cls, a, b: cls(a, b), st.sampled_from(COMPARISONS), below, below)
    logic = st.one_of(conditions, st.builds(nodes.And, conditions, conditions), st.builds(Not, conditions))
    plain = st.sampled_from((nodes.Add, nodes.Sub, nodes.Min, nodes.Max))
    divisor = st.integers(1, 8).map(const)
    return st.one_of(
        leaf,
        st.builds(lambda cls, a, b: cls(a, b), plain, below, below),
        st.builds(nodes.Mul, below, st.integers(-4, 8).map(const)),
        st.builds(nodes.Mul, leaf, leaf),
        st.builds(lambda cls, a, b: cls(a, b), st.sampled_from((nodes.FloorDiv, nodes.Mod)), below, divisor),
        st.builds(lambda cls, a, b: cls(a, b), st.sampled_from((nodes.FloorDiv, nodes.Mod)), below, leaf),
        st.builds(Select, logic, below, below),
        st.builds(lambda a: Call(INTRINSICS["neg"], (a,)), below),
    )


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
    shape = draw(st.sampled_from([(n, m), (n,), (m, const(3)), (const(4),), ()]))
    x, w, k = (
        Buffer("x", dtypes.f32, (n, m)),
        Buffer("w", dtypes.f32, (const(3),)),
        Buffer("k", dtypes.i64, (n,)),
    )
    y = Buffer("y", dtypes.f32, shape)
    place = Place(values=[n, m], buffers=[x, w, k, y])
    body = [*_statements(draw, place, [n, m, const(3), const(4)], 2), _nest(draw, place, y)]
    source = draw(st.sampled_from([(), ("Conv_1",), ('a "b"', "c\n\\d")]))
    name = draw(st.sampled_from(["f", "f.body", "model/f:0"]))
    return Function(name, (n, m), (x, w, k, y), Seq(tuple(body)), draw(st.integers(0, 2)), source)


def _statements(draw: st.DrawFn, place: Place, dims: list[Expr], depth: int) -> list[Stmt]:
    found: list[Stmt] = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["alloc", "let", "nest", "if", "while", "assert", "loop", "scope"]))
        if kind == "alloc":
            size = draw(st.lists(st.sampled_from(dims), max_size=2))
            dtype = draw(st.sampled_from([dtypes.f32, dtypes.i64]))
            buffer = Buffer(draw(st.sampled_from(["t", "x", "for", "a/b"])), dtype, tuple(size), Scope.ARENA)
            place.buffers.append(buffer)
            offset = const(64) if draw(st.booleans()) else None
            found += [Alloc(buffer, offset), _nest(draw, place, buffer, const(0, dtype))]
        elif kind == "let":
            value = _value(draw, place, draw(st.sampled_from([dtypes.f32, dtypes.i64, dtypes.bool_])))
            var = Var("t", value.dtype, None if value.dtype is dtypes.index else 0)
            found.append(Let(var, value))
            place.values.append(var)
        elif kind == "nest":
            found.append(_nest(draw, place, draw(st.sampled_from(place.buffers[3:]))))
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
        return If(cond, parts[0], parts[1] if draw(st.booleans()) else None)
    if kind == "while":
        count = Buffer("count", dtypes.i64, (), Scope.STACK)
        step = Store(count, (), Load(count, ()) + 1)
        body = Seq((*_statements(draw, place.inside(), dims, depth), step))
        return Seq((Alloc(count), Store(count, (), const(0)), While(nodes.less(Load(count, ()), 2), body)))
    if kind == "loop":
        inner, var, extent = place.inside(), Var(draw(st.sampled_from("ijx"))), draw(st.sampled_from(dims))
        inner.extents[var] = extent
        kinds = [LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.UNROLL]
        body = Seq(tuple(_statements(draw, inner, dims, depth)))
        return For(var, const(0), extent, draw(st.sampled_from(kinds)), body)
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
    if init is None and not reduce and draw(st.booleans()):
        where = _value(draw, inner, dtypes.bool_)
    indices = tuple(a.var for a in axes[: len(out.shape)])
    value = init if init is not None else _value(draw, inner, out.dtype)
    start = None
    if reduce:
        value = nodes.Add(Load(out, indices), value)
        start = Store(out, indices, draw(constants(out.dtype))) if draw(st.booleans()) else None
    nest: Stmt = Block(draw(st.sampled_from(["b", "b.init", "a b"])), axes, Store(out, indices, value), start, where)
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
    return draw(expressions(dtype, leaves, 2))


def _index(draw: st.DrawFn, place: Place, extent: Expr) -> Expr | None:
    """An index below the extent: a loop variable that runs to it, or for a constant extent any value modulo it."""
    fitting: list[Expr] = [v for v, e in place.extents.items() if e is extent]
    if isinstance(extent, Const):
        fitting += [const(draw(st.integers(0, int(extent.value) - 1)))]
        fitting += [nodes.Mod(v, extent) for v in place.extents]
    return draw(st.sampled_from(fitting)) if fitting else None
