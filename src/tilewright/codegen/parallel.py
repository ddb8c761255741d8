"""Parallel loops that fork: what outline-parallel makes of them becomes two functions of LLVM IR.

    parallel i in a..b grain g: call body[n, i](x, y)

    i64 @r.body(ptr x, ptr y, i64 n, i64 begin, i64 end, ptr fault, ptr team)      the iterations begin..end, one by one
    void @s.body(ptr env, i64 begin, i64 end)                                      the same, x, y and n being in env

A body whose loop may run backward has one more symbol behind the others, which is 1 where it does:

    i64 @r.body(ptr x, ptr y, i64 n, i64 backward, i64 begin, i64 end, ptr fault, ptr team)

The loop itself fills `env` on its stack and calls the pool with the second function; see pool.py.
"""

from __future__ import annotations

from tilewright.codegen.names import range_symbol, share_symbol
from tilewright.codegen.statements import Statements, pointers
from tilewright.expr import dtypes
from tilewright.expr.build import equal, select
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.nodes import For, Function, Let, LoopKind, Stmt, seq


def emit_range(function: Function, body: Statements, turns: bool) -> str:
    """The function that runs the iterations of a body from `begin` to `end`; its last symbol is the loop's variable.
    Where its loop `turns`, it may run them from the last to the first."""
    *symbols, var = function.symbols
    for n, buffer in enumerate(function.params):
        body.memory.pointers[buffer] = f"%b{n}"
    for n, symbol in enumerate(symbols):
        body.out.define(symbol, f"%s{n}")
    begin, end = Var("begin"), Var("end")
    body.out.define(begin, _known_positive(var, body, "%begin"))
    body.out.define(end, "%end")
    body.statement(_turning(var, begin, end, function.body, body) if turns else serial(var, begin, end, function.body))
    given = [*pointers(function), *(f"i64 %s{n}" for n in range(len(symbols))), *["i64 %backward"] * turns]
    given += ["i64 %begin", "i64 %end", "ptr %fault", "ptr %team"]
    signature = f"define internal i64 @{range_symbol(function.name)}({', '.join(given)}) #0"
    return "\n".join([f"{signature} {{", "entry:", *body.out.allocas, *body.out.lines, "  ret i64 0", "}", ""])


def _known_positive(var: Var, body: Statements, bound: str) -> str:
    """The begin of a variable that is never negative, such that LLVM knows it, too: divisions become shifts. Where the
    loop does not run, the begin may be anything that is not before the end."""
    if var.least is None or var.least < 0:
        return bound
    return body.out.fresh(f"and i64 {bound}, {dtypes.i64.max}")


def serial(var: Var, begin: Expr, end: Expr, body: Stmt) -> For:
    return For(var, begin, end, LoopKind.SERIAL, body)


def _turning(var: Var, begin: Expr, end: Expr, body: Stmt, state: Statements) -> For:
    """The loop over a body in either order."""
    backward, count = Var("backward"), Var(var.name, least=var.least)
    state.out.define(backward, "%backward")
    place = select(equal(backward, 1), begin + end - 1 - count, count)
    return serial(count, begin, end, seq(Let(var, place), body))


def emit_share(function: Function, turns: bool) -> str:
    """The function that takes what the body needs out of `env` and runs a part of the iterations. It has no record for
    faults: a body that could fail is never outlined."""
    types = ["ptr"] * len(function.params) + ["i64"] * (len(function.symbols) - 1 + turns)
    lines = [f"define internal void @{share_symbol(function.name)}(ptr %env, i64 %begin, i64 %end) #1 {{"]
    for n, type_ in enumerate(types):
        lines.append(f"  %p{n} = getelementptr inbounds i64, ptr %env, i64 {n}")
        lines.append(f"  %e{n} = load {type_}, ptr %p{n}, align 8")
    given = [f"{type_} %e{n}" for n, type_ in enumerate(types)]
    given += ["i64 %begin", "i64 %end", "ptr null", "ptr null"]
    lines.append(f"  %status = call i64 @{range_symbol(function.name)}({', '.join(given)})")
    return "\n".join([*lines, "  ret void", "}", ""])
