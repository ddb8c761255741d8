"""The law of branches in lanes: which statements a condition with lanes may hold.

if ramp(0, 1, 8) < broadcast(m, 8):         runs in the lanes 0 … 7 that are less than m
  y[i:i + 8] = x[i:i + 8] + broadcast(1.0, 8)
"""

from __future__ import annotations

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.nodes import Expr, Shuffle
from tilewright.loops.address import address, is_inside
from tilewright.loops.edit import loads_of
from tilewright.loops.faults import Fault
from tilewright.loops.nodes import Assert, For, If, Instruct, Let, LoopKind, Seq, Stmt, Store


def check_condition(s: If, around: int) -> None:
    """A condition with lanes is a vector of truth values, of as many lanes as the one around it (1: there is none)."""
    cond = s.cond
    if not cond.dtype.is_bool:
        fix = "compare it with something"
        raise Fault(s, f"the condition is {cond.dtype}", part=cond, why=f"it must be {dtypes.bool_}", fix=fix)
    if around not in (1, cond.lanes):
        why = f"the condition around it has {around}"
        raise Fault(s, f"a condition of {cond.lanes} lanes", part=cond, why=why, fix="give both as many lanes")


def check_statement(s: Stmt, lanes: int) -> None:
    """Under a condition with lanes there are only stores of as many lanes, and sequences, `let`, `if`, `assert` and
    serial or unrolled loops around them. What is shuffled is loaded whole there, so it is inside its buffer."""
    why = f"the condition around it has {lanes} lanes"
    if isinstance(s, For) and s.kind not in (LoopKind.SERIAL, LoopKind.UNROLL):
        raise Fault(s, f"a {s.kind.value} loop in lanes", why=why, fix="make it a for loop, or put it outside")
    if not isinstance(s, Seq | Store | Let | If | For | Assert):
        word = type(s).__name__.lower().removesuffix("function")
        raise Fault(s, f"{word} does not run in lanes", why=why, fix="put it outside the condition")
    if any(isinstance(n, Instruct) for e in s.children() if isinstance(e, Expr) for n in preorder(e)):
        raise Fault(s, "an instruction does not run in lanes", why=why, fix="put it outside the condition")
    _check_shuffles(s, why)
    if isinstance(s, Assert) and s.cond.lanes not in (1, lanes):
        what = f"the condition of an assert has {s.cond.lanes} lanes"
        raise Fault(s, what, part=s.cond, why=why, fix="give both as many lanes")
    if isinstance(s, Store):
        count = max((i.lanes for i in s.indices), default=1)
        if count != lanes:
            what = f"a store to {count} element{'s' if count > 1 else ''} of {s.buffer.name}"
            raise Fault(s, what, why=why, fix=f"store to {lanes} elements, or outside the condition")


def _check_shuffles(s: Stmt, why: str) -> None:
    parts = [e for e in s.children() if isinstance(e, Expr) and e.kinds & Shuffle.bit]
    shuffles = [node for e in parts for node in preorder(e) if isinstance(node, Shuffle)]
    for shuffle, load in ((each, load) for each in shuffles for load in loads_of(each)):
        if load.lanes > 1 and not is_inside(load.buffer, address(load.buffer.shape, load.indices)):
            fix = "shuffle what is certainly inside its buffer, or outside the condition"
            raise Fault(s, f"a shuffle of lanes of {load.buffer.name} in lanes", part=shuffle, why=why, fix=fix)
