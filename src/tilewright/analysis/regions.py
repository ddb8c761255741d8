"""Which part of each buffer a statement reads and writes: a box of begin + extent in each dimension.

    for i in 0..n, j in 0..4:          with i fixed:    x[i, 2..6], y[i, 0..4]
      y[i, j] = x[i, j + 2]            with none:       x[0..n, 2..6], y[0..n, 0..4]

A box is *exact* when every element of it is touched (if no loop is empty and nothing guards); else it covers what is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.analysis.accesses import Access, accesses
from tilewright.analysis.intervals import Interval, Range, Ranges, facts_of, interval
from tilewright.expr.build import maximum, minimum
from tilewright.expr.linear import plus, polynomial
from tilewright.expr.nodes import Const, Expr, FloorDiv, Max, Min, Mod, Ramp, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import bits_of, variables_of
from tilewright.loops.edit import allocations
from tilewright.loops.nodes import Buffer, For, Stmt


@dataclass(frozen=True, slots=True)
class Region:
    """A box in a buffer. Without `exact`, some elements of it may not be touched."""

    ranges: tuple[Range, ...]
    exact: bool

    @property
    def size(self) -> Expr:
        """The number of elements."""
        total: Expr = const(1)
        for r in self.ranges:
            total = total * r.extent
        return simplify(total)

    def is_contiguous_in(self, shape: Sequence[Expr]) -> bool:
        """Whether the box is contiguous in a row-major buffer of this shape, and of known size: extents of 1, then a
        part of one dimension, then whole dimensions."""
        whole = [simplify(r.extent - extent) is const(0) for r, extent in zip(self.ranges, shape, strict=True)]
        first = next((n for n, r in enumerate(self.ranges) if r.extent is not const(1)), len(whole))
        return isinstance(self.size, Const) and all(whole[first + 1 :])

    def __str__(self) -> str:
        return f"[{', '.join(str(r) for r in self.ranges)}]"


def region(indices: Sequence[Expr], shape: Sequence[Expr], ranges: Ranges, fixed: Collection[Var] = ()) -> Region:
    """The box that the indices reach while the variables in `ranges` take their values, those in `fixed` excepted,
    which stay as they are. Where no bound is known, the whole dimension."""
    moving = {v: r for v, r in ranges.items() if v not in fixed}
    boxes: list[Range] = []
    exact = True
    seen: set[Var] = set()
    for index, extent in zip(indices, shape, strict=True):
        bounds = _lanes(index, moving) if isinstance(index, Ramp) else interval(index, moving)
        if index.lanes != 1 and not isinstance(index, Ramp):
            bounds = None
        if bounds is None:
            boxes.append(Range(const(0), extent))
            exact = False
            continue
        used = variables_of(index) & moving.keys()
        exact = exact and bounds.dense and not (used & seen)
        seen |= used
        boxes.append(Range(simplify(bounds.low), simplify(bounds.high - bounds.low + 1)))
    return Region(tuple(boxes), exact)


def _lanes(index: Ramp, moving: Ranges) -> Interval | None:
    """A ramp is one more variable."""
    lane = Var("lane")
    return interval(index.base + lane * index.stride, {**moving, lane: Range(const(0), const(index.count))})


def ranges_of(loops: Sequence[For]) -> dict[Var, Range]:
    """The ranges of loop variables, outermost first."""
    return {loop.var: span(loop.begin, loop.end) for loop in loops}


@lru_cache(maxsize=1 << 12)
def span(begin: Expr, end: Expr) -> Range:
    """The integers from begin to before end."""
    return Range(begin, simplify(end - begin))


def whole(shape: Sequence[Expr]) -> tuple[Range, ...]:
    """The box of all elements of a buffer of this shape."""
    return tuple(Range(const(0), simplify(extent)) for extent in shape)


def clipped(box: Sequence[Range], shape: Sequence[Expr]) -> Region:
    """The part of a box inside a buffer of this shape, where both are known numbers."""
    ranges: list[Range] = []
    for r, extent in zip(box, shape, strict=True):
        fixed = all(isinstance(e, Const) for e in (r.begin, r.extent, extent))
        ranges.append(span(simplify(maximum(r.begin, 0)), simplify(minimum(r.end, extent))) if fixed else r)
    return Region(tuple(ranges), False)


_DECIDED = bits_of(FloorDiv, Mod, Min, Max)


def settled(access: Access, outer: Ranges) -> Access:
    """The access with the divisions and minima in its indices decided, as far as the ranges of the loops around it say:
    (jo*16 + ji) // 16 with ji in 0..16 is jo. `outer` are the ranges of loops around what was asked about."""
    if not any(i.kinds & _DECIDED for i in access.indices):
        return access
    facts = facts_of({**outer, **ranges_of(access.loops)})
    return replace(access, indices=tuple(i if i.lanes != 1 else simplify(i, facts) for i in access.indices))


def access_region(access: Access, fixed: Collection[Var] = ()) -> Region:
    """The box of one access over the loops around it in the statement that was asked about."""
    box = region(access.indices, access.buffer.shape, ranges_of(access.loops), fixed)
    return Region(box.ranges, box.exact and not access.guarded)


def reads(root: Stmt, fixed: Collection[Var] = ()) -> dict[Buffer, Region]:
    """The box of each buffer that `root` loads from; buffers it allocates are left out."""
    return _regions(root, fixed, is_store=False)


def writes(root: Stmt, fixed: Collection[Var] = ()) -> dict[Buffer, Region]:
    """The box of each buffer that `root` stores to; buffers it allocates are left out."""
    return _regions(root, fixed, is_store=True)


def _regions(root: Stmt, fixed: Collection[Var], is_store: bool) -> dict[Buffer, Region]:
    own = set(allocations(root))
    found: dict[Buffer, Region] = {}
    for access in accesses(root):
        if access.is_store is is_store and access.buffer not in own:
            box = access_region(access, fixed)
            known = found.get(access.buffer)
            found[access.buffer] = box if known is None else cover(known, box)
    return found


def cover(a: Region, b: Region) -> Region:
    """The least box that holds both; exact only if one holds the other."""
    if contains(a, b):
        return a
    if contains(b, a):
        return b
    boxes = []
    for r, s in zip(a.ranges, b.ranges, strict=True):
        begin = simplify(minimum(r.begin, s.begin))
        boxes.append(span(begin, simplify(maximum(r.begin + r.extent, s.begin + s.extent))))
    return Region(tuple(boxes), False)


def contains(a: Region, b: Region) -> bool:
    """Whether it can be proved that `a` holds all of `b`."""
    facts = facts_of({})
    for r, s in zip(a.ranges, b.ranges, strict=True):
        before = plus(polynomial(s.begin), polynomial(r.begin), -1)
        after = plus(polynomial(r.begin + r.extent), polynomial(s.begin + s.extent), -1)
        if not (facts.at_least_zero(before) and facts.at_least_zero(after)):
            return False
    return True
