"""Index expressions as Python source: sizes that a call must compute in microseconds."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.walk import postorder
from tilewright.expr.nodes import (
    Add,
    And,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Div,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Mul,
    Ne,
    Not,
    Or,
    Rem,
    Select,
    Sub,
    Var,
)
from tilewright.expr.sharing import LARGE, shared_parts, tree_size
from tilewright.report.errors import InternalError

_INFIX: dict[type[Expr], str] = {Add: "+", Sub: "-", Mul: "*", Eq: "==", Ne: "!=", Lt: "<", Le: "<="}


HIGHEST_DEGREE = 63
"""Products of a higher degree are beyond 64 bits unless each symbol is 1 at most; beyond 65 bits they stay as they are:
of a number squared sixty times not even the digits have room."""

LONGEST = 400
"""From how many characters on a part stands by itself: Python limits how deeply brackets nest."""


def python_source(root: Expr, names: Mapping[Var, str]) -> str:
    """Python source that computes an index expression from the named variables. Names with an underscore before them
    are its own: the parts of a large expression, each computed once."""
    shared = shared_parts((root,)) if tree_size(root, {}) >= LARGE else {}
    made: dict[Expr, str] = {}
    degrees: dict[Expr, int] = {}
    parts: list[str] = []
    for node in postorder(root):
        assert isinstance(node, Expr)
        text = _source(node, made, names)
        degrees[node] = _degree(node, degrees)
        if type(node) is Mul and degrees[node] > HIGHEST_DEGREE:
            text = f"max(min({text}, {1 << 65}), {-1 << 65})"
        if node in shared or len(text) >= LONGEST:
            parts.append(f"_t{len(parts)} := {text}")
            text = f"_t{len(parts) - 1}"
        made[node] = text
    return f"[{', '.join(parts)}, {made[root]}][-1]" if parts else made[root]


def _degree(e: Expr, degrees: Mapping[Expr, int]) -> int:
    """The degree of an expression in its symbols, at most."""
    parts = [degrees[c] for c in e.children() if isinstance(c, Expr)]
    if isinstance(e, Mul):
        return sum(parts)
    return max(parts, default=int(isinstance(e, Var)))


def _source(e: Expr, made: Mapping[Expr, str], names: Mapping[Var, str]) -> str:
    """The source of one node, given that of its operands."""
    match e:
        case Const(value, _):
            return f"({value})"
        case Var():
            return names[e]
        case Min(a, b) | Max(a, b):
            return f"{'min' if isinstance(e, Min) else 'max'}({made[a]}, {made[b]})"
        case FloorDiv(a, b) | Mod(a, b):
            symbol = "//" if isinstance(e, FloorDiv) else "%"
            if isinstance(b, Const | Var):
                return f"({made[a]} {symbol} {made[b]} if {made[b]} else 0)"
            return f"({made[a]} {symbol} _d{len(made)} if (_d{len(made)} := {made[b]}) else 0)"
        case Div(a, b) | Rem(a, b):
            n, d = f"_n{len(made)}", f"_d{len(made)}"
            whole = f"({n} // {d} if ({n} < 0) == ({d} < 0) else -(-{n} // {d}))"
            result = whole if isinstance(e, Div) else f"{n} - {d}*{whole}"
            return f"({result} if ({d} := {made[b]}, {n} := {made[a]})[0] else 0)"
        case And(a, b) | Or(a, b):
            return f"({made[a]} {'and' if isinstance(e, And) else 'or'} {made[b]})"
        case Not(a):
            return f"(not {made[a]})"
        case Select(c, a, b):
            return f"({made[a]} if {made[c]} else {made[b]})"
        case Binary(a, b) | Compare(a, b) if type(e) in _INFIX:
            return f"({made[a]} {_INFIX[type(e)]} {made[b]})"
        case Cast(a, dtype) if dtype.is_int:
            return f"int({made[a]})"
        case Call(fn, (a,)) if fn.name in ("neg", "abs"):
            return f"({'-' if fn.name == 'neg' else 'abs'}({made[a]}))"
    raise InternalError(f"{type(e).__name__} is no index expression")
