"""Says what is wrong with the types of one expression node, given that its operands are right."""

from __future__ import annotations

from tilewright.expr import dtypes, nodes
from tilewright.expr.nodes import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
)
from tilewright.expr.text import INFIX, PREFIX

_INTEGERS_ONLY = (nodes.FloorDiv, nodes.Shl, nodes.Shr)
_NO_FLOATS = (nodes.BitAnd, nodes.BitOr, nodes.BitXor)
_NO_TRUTH_VALUES = (nodes.Sub, nodes.Div, nodes.Mod, nodes.Rem)


def ill_typed(e: Expr) -> str | None:
    """Why the node cannot be computed, or None. Operands of one type are the constructors' business."""
    match e:
        case Const(value, dtype):
            kind = bool if dtype.is_bool else int if dtype.is_int else float
            return None if type(value) is kind else f"the value {value!r} of a constant is no {kind.__name__}"
        case Binary(a, _):
            return _operands(e, a)
        case Compare(a, _):
            return f"{INFIX[type(e)][0]} does not take {a.dtype}" if a.dtype.code is not None else None
        case And(a, b) | Or(a, b):
            return _truth((a, b))
        case Not(a):
            return _truth((a,))
        case Select(cond, a, _):
            return _truth((cond,)) or (
                None if cond.lanes == a.lanes else f"{cond.lanes} conditions for {a.lanes} lanes"
            )
        case Cast():
            return None
        case Call(fn, args):
            first = args[0]
            if any(a.dtype is not first.dtype or a.lanes != first.lanes for a in args):
                return f"{fn.name} of " + ", ".join(f"{a.dtype}x{a.lanes}" for a in args)
            return None if fn.takes(first.dtype) else f"{fn.name} does not take {first.dtype}"
        case Ramp(base, stride, count):
            if base.dtype is not stride.dtype or not base.dtype.is_int or base.lanes != 1 or stride.lanes != 1:
                return "a ramp needs a base and a stride of one integer type"
            return None if count >= 1 else f"a ramp of {count} lanes"
        case Broadcast(a, count):
            return None if a.lanes == 1 and count >= 1 else f"broadcast of {a.lanes} lanes to {count}"
        case Shuffle(a, b, picked):
            if a.dtype is not b.dtype or a.lanes != b.lanes or a.lanes == 1:
                return f"shuffle of {a.dtype}x{a.lanes} and {b.dtype}x{b.lanes}"
            far = next((n for n in picked if not 0 <= n < 2 * a.lanes), None)
            if len(picked) < 2:
                return "shuffle to less than two lanes"
            return None if far is None else f"lane {far} of two vectors of {a.lanes}"
    return None


def _operands(e: Binary, a: Expr) -> str | None:
    symbol = INFIX[type(e)][0] if type(e) in INFIX else PREFIX[type(e)]
    wrong = (
        a.dtype.code is not None
        or (isinstance(e, _INTEGERS_ONLY) and not a.dtype.is_int)
        or (isinstance(e, _NO_FLOATS) and a.dtype.is_float)
        or (isinstance(e, _NO_TRUTH_VALUES) and a.dtype.is_bool)
    )
    return f"{symbol} does not take {a.dtype}" if wrong else None


def _truth(parts: tuple[Expr, ...]) -> str | None:
    if any(p.dtype is not dtypes.bool_ for p in parts):
        return "a condition of type " + ", ".join(str(p.dtype) for p in parts)
    return None if len({p.lanes for p in parts}) == 1 else "conditions of different lanes"
