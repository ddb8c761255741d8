"""Which masks are the same all through a loop, so that they are made before it; and which masked stores to registers
may write all lanes, because nobody looks at the lanes that do not hold.

    alloc t: f32[8] in register
    t[0:8] = broadcast(0.0, 8)
    for k in 0..64:
      if MASK: t[0:8] = t[0:8] + x[k*n:k*n + 8]         may be written whole: t[0:8] is read under MASK alone
    if MASK: y[0:8] = t[0:8]

A sum under a mask so costs no more than one without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tilewright.core.walk import preorder
from tilewright.expr.nodes import Const, Expr, Ramp, Var, const
from tilewright.loops.edit import loads, statements
from tilewright.loops.nodes import Alloc, Buffer, For, If, Let, Load, Stmt, Store
from tilewright.types.scopes import Scope

Masks = tuple[tuple[Expr, bool], ...]


@dataclass(frozen=True, slots=True)
class _Access:
    """A load, or the store `store`, of a register buffer, under these masks."""

    index: Expr | None
    masks: Masks
    store: Store | None


def written_whole(body: tuple[Stmt, ...]) -> set[Stmt]:
    """The stores in a sequence to the registers that it allocates that need not keep the lanes outside their mask."""
    registers = [s.buffer for s in body if isinstance(s, Alloc) and s.buffer.scope is Scope.REGISTER]
    if not registers or not any(isinstance(s, If) and s.cond.lanes > 1 for part in body for s in statements(part)):
        return set()
    inner = {s.var for part in body for s in statements(part) if isinstance(s, For | Let)}
    found: dict[Buffer, list[_Access]] = {b: [] for b in registers}
    for part in body:
        for buffer, access in _accesses(part, ()):
            if buffer in found:
                found[buffer].append(access)
    return {s for accesses in found.values() for s in _whole(accesses, inner)}


def steady_masks(loop: For) -> list[Expr]:
    """The masks inside a loop that are the same in all its iterations."""
    found = list(statements(loop))
    masks = dict.fromkeys(s.cond for s in found if isinstance(s, If) and s.cond.lanes > 1)
    inner = {s.var for s in found if isinstance(s, For | Let)} if masks else set()
    return [m for m in masks if _is_steady(m, inner)]


def _accesses(stmt: Stmt, masks: Masks) -> Iterator[tuple[Buffer, _Access]]:
    """Every access under `stmt`, with the masks around it, outermost first."""
    for part in stmt.children():
        if isinstance(part, Expr):
            for load in loads(part):
                yield load.buffer, _Access(_only(load.indices), masks, None)
    if isinstance(stmt, Store):
        yield stmt.buffer, _Access(_only(stmt.indices), masks, stmt)
    elif isinstance(stmt, If) and stmt.cond.lanes > 1:
        yield from _accesses(stmt.then, (*masks, (stmt.cond, True)))
        if stmt.otherwise is not None:
            yield from _accesses(stmt.otherwise, (*masks, (stmt.cond, False)))
    else:
        for part in stmt.children():
            if isinstance(part, Stmt):
                yield from _accesses(part, masks)


def _only(indices: tuple[Expr, ...]) -> Expr | None:
    return indices[0] if len(indices) == 1 else None


def _whole(accesses: list[_Access], inner: set[Var]) -> Iterator[Stmt]:
    """The masked stores to places that are read under their own masks alone, which hold in the same lanes all along."""
    places: dict[Expr, list[_Access]] = {}
    for access in accesses:
        if not _is_place(access.index):
            return
        places.setdefault(access.index, []).append(access)  # type: ignore[arg-type]
    if not _are_apart(list(places)):
        return
    for group in places.values():
        masks = {a.masks for a in group if a.masks or a.store is None}
        if len(masks) == 1 and all(_is_steady(mask, inner) for mask, _ in next(iter(masks))):
            yield from (a.store for a in group if a.store is not None and a.masks)


def _is_place(index: Expr | None) -> bool:
    """Whether an index is a constant range."""
    return isinstance(index, Ramp) and isinstance(index.base, Const) and index.stride is const(1)


def _are_apart(places: list[Expr]) -> bool:
    """Whether no two ranges overlap."""
    ends = sorted((p.base.value, p.lanes) for p in places if isinstance(p, Ramp) and isinstance(p.base, Const))
    return all(a + lanes <= b for (a, lanes), (b, _) in pairwise(ends))


def _is_steady(mask: Expr, inner: set[Var]) -> bool:
    """Whether a mask is the same all along: it reads no memory, and no variable of a loop inside."""
    return not any(isinstance(n, Load) or (isinstance(n, Var) and n in inner) for n in preorder(mask))
