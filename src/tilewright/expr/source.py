"""Index expressions as Python source: sizes that a call must compute in microseconds."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.expr.nodes import (
    Add,
    And,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
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
    Select,
    Sub,
    Var,
)
from tilewright.report.errors import InternalError

_INFIX: dict[type[Expr], str] = {Add: "+", Sub: "-", Mul: "*", Eq: "==", Ne: "!=", Lt: "<", Le: "<="}


def python_source(e: Expr, names: Mapping[Var, str]) -> str:
    """Python source that computes an index expression from the named variables."""
    match e:
        case Const(value, _):
            return f"({value})"
        case Var():
            return names[e]
        case Min(a, b):
            return f"min({python_source(a, names)}, {python_source(b, names)})"
        case Max(a, b):
            return f"max({python_source(a, names)}, {python_source(b, names)})"
        case FloorDiv(a, b) | Mod(a, b):
            x, y = python_source(a, names), python_source(b, names)
            return f"({x} {'//' if isinstance(e, FloorDiv) else '%'} {y} if {y} else 0)"
        case And(a, b) | Or(a, b):
            word = "and" if isinstance(e, And) else "or"
            return f"({python_source(a, names)} {word} {python_source(b, names)})"
        case Not(a):
            return f"(not {python_source(a, names)})"
        case Select(c, a, b):
            return f"({python_source(a, names)} if {python_source(c, names)} else {python_source(b, names)})"
        case Binary(a, b) | Compare(a, b) if type(e) in _INFIX:
            return f"({python_source(a, names)} {_INFIX[type(e)]} {python_source(b, names)})"
        case Cast(a, dtype) if dtype.is_int:
            return f"int({python_source(a, names)})"
        case Call(fn, (a,)) if fn.name in ("neg", "abs"):
            return f"({'-' if fn.name == 'neg' else 'abs'}({python_source(a, names)}))"
    raise InternalError(f"{type(e).__name__} is no index expression")
