"""Gives masked vectors an unmasked version for the case that all lanes are active.

    unroll v in 0..3:                                  if 0 <= n - jo*24 - 24:
      if MASK(n - jo*24 - v*8):                          unroll v in 0..3:
        y[jo*24 + v*8 …] = t[v*8 …]               =>       y[jo*24 + v*8 …] = t[v*8 …]
                                                       else:
                                                         unroll v in 0..3:
                                                           if MASK(n - jo*24 - v*8):
                                                             y[jo*24 + v*8 …] = t[v*8 …]

Most tiles of a loop are inside the bounds, so that all their lanes are active, and a masked store takes some machines
ten times as long as a plain one. A branch is made only around stores to memory whose masks compare lane numbers. It is
placed around all neighbours with such masks, outside the `unroll` loops that their masks depend on and the other loops
that they do not depend on, so that a tile has at most one branch. No statement is copied more than once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.node import Node
from tilewright.core.walk import preorder
from tilewright.expr.build import conjunction
from tilewright.expr.linear import Polynomial, affine_in, are_moderate, expression, substitute
from tilewright.expr.nodes import Const, Le, Var, const
from tilewright.loops.edit import defines, fresh_copy, statements, transform_statements
from tilewright.loops.nodes import Alloc, For, Function, If, Let, Load, LoopKind, Prefetch, Seq, Stmt, Store, seq
from tilewright.lower.loops.masks import all_lanes
from tilewright.types.scopes import Scope


def full_masks(function: Function) -> Function:
    """The function with a branch around masked stores to memory: plain ones where every mask holds in all lanes."""
    if not any(_writes(s) for s in statements(function.body)):
        return function
    body = _rewritten(function.body)
    return function if body is function.body else function.replace(body=body)


def _rewritten(root: Stmt) -> Stmt:
    """The statement with runs of neighbours that have masks, outermost first, under a branch each."""
    made: list[Stmt] = []
    run: list[tuple[Stmt, list[Polynomial]]] = []
    body = root.body if isinstance(root, Seq) else (root,)
    for n, s in enumerate(body):
        needed = _needed(s, masked=False)
        if needed is not None:
            run.append((s, needed))
            continue
        made += _branched(run, body[n:])
        run = []
        made.append(_inside(s))
    made += _branched(run, ())
    same = len(made) == len(body) and all(a is b for a, b in zip(made, body, strict=True))
    return root if same else seq(*made)


def _inside(stmt: Stmt) -> Stmt:
    """The statement with what it holds rewritten. Under a mask there is no branch without lanes."""
    if isinstance(stmt, If) and stmt.cond.lanes > 1:
        return stmt
    return stmt.rebuild(tuple(_rewritten(c) if isinstance(c, Stmt) else c for c in stmt.children()))


def _branched(run: Sequence[tuple[Stmt, list[Polynomial]]], after: Sequence[Stmt]) -> list[Stmt]:
    """The statements of a run; those from the first to the last with a mask under a branch, with their registers."""
    plain = [s for s, _ in run]
    places = [n for n, (s, needed) in enumerate(run) if needed or isinstance(s, Alloc)]
    if not any(_writes(inner) for s in plain for inner in statements(s)):
        return plain
    before, inside, behind = plain[: places[0]], plain[places[0] : places[-1] + 1], plain[places[-1] + 1 :]
    least = _strongest([p for _, needed in run for p in needed])
    if least is None or _is_used(inside, [*behind, *after]):
        return plain
    masked = seq(*inside)
    full = transform_statements(masked, _without_mask)
    if least:
        condition = conjunction([Le(const(0), expression(p)) for p in least])
        assert condition is not None
        full = If(condition, fresh_copy(full) if defines(full) else full, masked)
    return [*before, full, *behind]


def _without_mask(node: Node) -> Node:
    if isinstance(node, Seq):
        return seq(*node.body)
    return node.then if isinstance(node, If) and node.cond.lanes > 1 else node


def _writes(stmt: Stmt) -> bool:
    """Whether it is a mask over stores to memory."""
    if not isinstance(stmt, If) or stmt.cond.lanes == 1:
        return False
    return any(isinstance(s, Store) and s.buffer.scope is not Scope.REGISTER for s in statements(stmt))


def _needed(stmt: Stmt, masked: bool) -> list[Polynomial] | None:
    """What must be at least zero for every mask in a statement to hold in all lanes. None where that cannot be said in
    front of it, or where it is a loop without masks: it is not written twice, unless it stands under one (`masked`)."""
    match stmt:
        case Store() | Let() | Prefetch():
            return []
        case Alloc(buffer):
            return [] if buffer.scope is Scope.REGISTER else None
        case Seq(body):
            return _without({s.var for s in body if isinstance(s, Let)}, _of_all(body, masked))
        case If(cond, then, None) if cond.lanes > 1:
            own, inner = all_lanes(cond), _needed(then, masked=True)
            return None if own is None or inner is None else own + inner
        case If(cond, then, otherwise) if cond.lanes == 1:
            return _of_all([then] if otherwise is None else [then, otherwise], masked)
        case For(var, Const(begin), Const(end), LoopKind.UNROLL, body) if begin < end:
            return _over(var, int(begin), int(end) - 1, _needed(body, masked))
        case For(var, _, _, LoopKind.SERIAL, body):
            needed = _needed(body, masked)
            return _without({var}, needed) if needed or masked else None
    return None


def _of_all(parts: Sequence[Stmt], masked: bool) -> list[Polynomial] | None:
    found: list[Polynomial] = []
    for s in parts:
        needed = _needed(s, masked)
        if needed is None:
            return None
        found += needed
    return found


def _without(variables: set[Var], needed: list[Polynomial] | None) -> list[Polynomial] | None:
    """The same, unless it depends on one of the variables."""
    return None if needed is None or any(_mentions(p, variables) for p in needed) else needed


def _over(var: Var, first: int, last: int, needed: list[Polynomial] | None) -> list[Polynomial] | None:
    """What must be at least zero for all values of a variable: each at the end where it is least."""
    if needed is None:
        return None
    made = []
    for p in needed:
        parts = affine_in(p, var)
        if parts is None or set(parts[0]) - {()} or _mentions(parts[1], {var}):
            return None
        at = first if parts[0].get((), 0) >= 0 else last
        made.append(substitute(p, {var: {(): at} if at else {}}))
    return made


def _strongest(needed: Sequence[Polynomial]) -> list[Polynomial] | None:
    """Those that imply the others, without what is certain; None where they cannot all hold, or might wrap around."""
    found: dict[frozenset[tuple[object, int]], Polynomial] = {}
    for p in needed:
        if not are_moderate(p):
            return None
        key = frozenset((m, c) for m, c in p.items() if m)
        if not key and p.get((), 0) < 0:
            return None
        if key and (key not in found or p.get((), 0) < found[key].get((), 0)):
            found[key] = p
    return list(found.values())


def _mentions(p: Polynomial, variables: set[Var]) -> bool:
    return any(n in variables for monomial in p for atom in monomial for n in preorder(atom))


def _is_used(inside: Sequence[Stmt], later: Sequence[Stmt]) -> bool:
    """Whether a value or a buffer that some statements name is used by later ones."""
    named: set[Node] = {s.var for s in inside if isinstance(s, Let)}
    named |= {s.buffer for s in inside if isinstance(s, Alloc)}
    if not named:
        return False
    nodes = [n for s in later for n in preorder(s)]
    return any(n in named or (isinstance(n, Load | Store) and n.buffer in named) for n in nodes)
