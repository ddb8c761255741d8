"""The cost of an expression, counted in vector instructions.

    work_of(exp(x) * y)      18 chained ones, a plain one       work_of(sigmoid(x))      16 chained ones, a quotient

Functions like exp count as their expansions (functions/expansions.py), with fused multiply-adds. The cycles of an
instruction are the machine's (`target.core`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.core.node import Node
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.functions.expansions import expand_call, expand_sum, raised_call
from tilewright.expr.functions.narrow_casts import expand_cast
from tilewright.expr.functions.power import expand_pow
from tilewright.expr.functions.real import Real
from tilewright.expr.intrinsics import FREE, Intrinsic
from tilewright.expr.nodes import Call, Cast, Const, Div, Expr, FloorDiv, Mod, Rem, Var, call, const


@dataclass(frozen=True, slots=True)
class Work:
    """Instructions for one vector of results, by what runs them.

    plain      additions, products, comparisons, choices, conversions
    chained    the same, in a dependence chain: functions
    divides    quotients
    roots      square roots
    shuffles   permutes of lanes out of two registers
    gathers    vectors filled from addresses of their own
    steps      instructions for each element, each waiting for the one before
    """

    plain: float = 0.0
    chained: float = 0.0
    divides: float = 0.0
    roots: float = 0.0
    shuffles: float = 0.0
    gathers: float = 0.0
    steps: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f) + getattr(other, f) for f in self.__slots__))


_ROUNDED = frozenset({dtypes.bf16})
_ROUNDING = Work(plain=8)
"""To nearest, ties to even, in integers: the bits that are lost, the last that stays, a carry, and NaN."""
_INTEGER_DIVISION = Work(plain=4, divides=2)
"""Rounded quotients of integers run in floats: two conversions, a quotient of each half, and corrections."""


@lru_cache(maxsize=1 << 10)
def work_of(e: Expr, given: tuple[Expr, ...] = ()) -> Work:
    """What an expression takes; a part that stands in it several times is computed once. What is `given` takes nothing,
    a load and its index, say."""
    total = Work()
    inside: set[Node] = set()  # calls that are computed with the sum that they stand in
    seen: set[Node] = set(given)
    stack: list[Node] = [e]
    while stack:
        node = stack.pop()
        if node in seen or not isinstance(node, Expr):
            continue
        seen.add(node)
        stack += node.children()[::-1]
        raised = raised_call(node)
        if node in inside:
            continue
        if raised is not None:
            inside.add(raised)
            total += _function_work(raised.fn, raised.args[0].dtype, raised=True)
        else:
            total += _call_work(node) if isinstance(node, Call) else _plain_work(node)
    return total


def _plain_work(node: Expr) -> Work:
    """What a node takes that is no call."""
    match node:
        case Const() | Var():
            return Work()
        case Div() if node.dtype.is_float:
            return Work(divides=1)
        case Div() | FloorDiv() | Mod() | Rem():
            return _INTEGER_DIVISION
        case Cast(a) if a.dtype.bits == node.dtype.bits and a.dtype.kind in "iu" and node.dtype.kind in "iu":
            return Work()
        case Cast() if node.dtype in _ROUNDED:
            return _ROUNDING
        case Cast(a) if a.dtype.code is not None or node.dtype.code is not None:
            return _narrow_work(a.dtype, node.dtype)
    return Work(plain=1)


@lru_cache(maxsize=1 << 8)
def _narrow_work(source: DType, to: DType) -> Work:
    """What a cast from or to a narrow type takes."""
    expanded = expand_cast(Cast(Var("x", source), to))
    return _expansion_work(expanded, max(source.bits, to.bits))


def _call_work(node: Call) -> Work:
    """What a call takes, its arguments being there."""
    known = tuple(a.value if isinstance(a, Const) else None for a in node.args[1:])
    return _function_work(node.fn, node.args[0].dtype, known)


@lru_cache(maxsize=1 << 8)
def _function_work(fn: Intrinsic, dtype: DType, known: tuple[float | None, ...] = (), raised: bool = False) -> Work:
    """What a function of arguments of this type takes, those behind the first being constants where they are known;
    with `raised`, what the function and 1 more take."""
    wide = dtypes.f32 if dtype.is_float and dtype.bits < 32 else dtype  # arithmetic on 16-bit floats runs in f32
    others = (Var("y", wide) if value is None else const(value, wide) for value in known)
    called = call(fn.name, Var("x", wide), *others)
    assert isinstance(called, Call)
    expanded = expand_sum(called + 1.0, fused=True) if raised else expand_call(called, fused=True)
    if expanded is called and fn.name == "pow":
        return _library_work(called)
    if expanded is called:
        return Work(roots=1) if fn.name == "sqrt" else Work(plain=0 if fn.name in FREE else 1)
    return _expansion_work(expanded, wide.bits)


def _library_work(power: Call) -> Work:
    """A power that the C library computes, element by element: about the instructions of the expansion for f32."""
    base, exponent = power.args
    work = _expansion_work(expand_pow(Real(base.dtype, True), base, exponent), base.dtype.bits)
    return Work(steps=work.chained + work.divides)


def _expansion_work(expanded: Expr, bits: int) -> Work:
    """The instructions of an expansion for a vector of numbers of so many bits; wider numbers inside it take several
    vectors. Nearly all wait for the one before."""
    chained = divides = roots = 0.0
    for node in dict.fromkeys(preorder(expanded)):
        assert isinstance(node, Expr)
        vectors = max(part.dtype.bits for part in (node, *node.children()) if isinstance(part, Expr)) / bits
        match node:
            case Const() | Var():
                pass
            case Div():
                divides += max(vectors, 1)
            case Call(fn) if fn.name == "sqrt":
                roots += max(vectors, 1)
            case Call(fn) if fn.name in FREE:
                pass
            case _:
                chained += max(vectors, 1)
    return Work(chained=chained, divides=divides, roots=roots)
