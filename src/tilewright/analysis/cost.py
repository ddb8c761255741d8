"""Floating-point operations and bytes of a program, as expressions over its symbols.

    func dense[n](x: f32[n, 64], w: f32[64, 10], y: f32[n, 10])       1280*n flops
                                                                      256*n + 2560 bytes read, 40*n written

Bytes are counted once, however often they are touched: compulsory traffic, which no cache avoids. Flops count each
arithmetic operation on floats once and a fused multiply-add twice; a function counts as FUNCTION_FLOPS.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tilewright.analysis.accesses import accesses
from tilewright.analysis.intervals import Range, Ranges, interval
from tilewright.analysis.regions import Region, access_region, cover
from tilewright.core.walk import preorder
from tilewright.expr.build import maximum, minimum
from tilewright.expr.intrinsics import FREE
from tilewright.expr.nodes import Add, Call, Const, Div, Expr, Max, Min, Mod, Mul, Rem, Sub, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import decompose
from tilewright.loops.edit import allocations
from tilewright.loops.nodes import Block, Buffer, For, Function, If, Let, Seq, Stmt, Store, While

FUNCTION_FLOPS = 10
"""What a function like exp counts, about what its expansion computes."""

_ARITHMETIC = (Add, Sub, Mul, Div, Min, Max, Mod, Rem)
_UNCOUNTED = FREE | {"isnan", "isinf", "copysign", "neg", "abs", "sign"}
_PLAIN = {"fma": 2, "sqrt": 1, "floor": 1, "ceil": 1, "trunc": 1, "round": 1}


@dataclass(frozen=True, slots=True)
class Cost:
    """Upper bounds where loops are not rectangular or accesses are guarded; else exact."""

    flops: Expr
    bytes_read: Expr
    bytes_written: Expr


def count_flops(function: Function) -> Expr:
    """The floating-point operations of one call of a function."""
    return simplify(_flops(function.body, {}, ()))


def count(function: Function) -> Cost:
    """The cost of one call of a function; only its parameters count as memory. Calls of others count nothing."""
    return count_statement(decompose(function).body)


def count_statement(root: Stmt, fixed: Collection[Var] = ()) -> Cost:
    """The cost of a statement without `init` for given values of the variables in `fixed`. Buffers that it allocates
    do not count as memory, nor do loads of a buffer that it stores to first."""
    flops = simplify(_flops(root, {}, fixed))
    own = set(allocations(root))
    first: dict[Buffer, bool] = {}
    boxes: dict[tuple[Buffer, bool], Region] = {}
    for access in accesses(root):
        if access.buffer in own:
            continue
        first.setdefault(access.buffer, access.is_store)
        key, box = (access.buffer, access.is_store), access_region(access, fixed)
        boxes[key] = cover(boxes[key], box) if key in boxes else box
    read = [_bytes(b, r) for (b, is_store), r in boxes.items() if not is_store and not first[b]]
    written = [_bytes(b, r) for (b, is_store), r in boxes.items() if is_store]
    return Cost(flops, total_of(read), total_of(written))


def total_of(terms: Iterable[Expr]) -> Expr:
    """The sum of expressions, simplified."""
    total: Expr = const(0)
    for term in terms:
        total = total + term
    return simplify(total)


def _bytes(buffer: Buffer, box: Region) -> Expr:
    """The bytes of a box; where it may reach over the buffer's end, no more than the buffer has."""
    total: Expr = const(buffer.dtype.bytes)
    for r, extent in zip(box.ranges, buffer.shape, strict=True):
        total = total * (r.extent if box.exact else simplify(minimum(r.extent, extent)))
    return total


def value_flops(*roots: Expr) -> int:
    """The floating-point operations of expressions, each distinct node once for each of its lanes."""
    total = 0
    for node in preorder(roots):
        if isinstance(node, Expr) and node.dtype.is_float:
            total += _weight(node) * node.lanes
    return total


def _weight(node: Expr) -> int:
    if isinstance(node, Call):
        return 0 if node.fn.name in _UNCOUNTED else _PLAIN.get(node.fn.name, FUNCTION_FLOPS)
    return int(isinstance(node, _ARITHMETIC))


def _flops(stmt: Stmt, around: Ranges, fixed: Collection[Var]) -> Expr:
    """The operations of a statement; of two branches the dearer one, of `while` one turn."""
    match stmt:
        case Seq(body):
            return total_of([_flops(s, around, fixed) for s in body])
        case For() if stmt.var in fixed:
            return _flops(stmt.body, around, fixed)
        case For():
            extent = stmt.extent
            inner = _flops(stmt.body, {**around, stmt.var: Range(stmt.begin, extent)}, fixed)
            if isinstance(extent, Const):
                return inner * max(int(extent.value), 0)
            bounds = interval(extent, around)
            return inner * simplify(maximum(extent if bounds is None else bounds.high, 0))
        case Block():
            return _flops(stmt.body, around, fixed) + value_flops(*(() if stmt.where is None else (stmt.where,)))
        case If(cond, then, otherwise):
            parts = [_flops(s, around, fixed) for s in (then, otherwise) if s is not None]
            return value_flops(cond) + (parts[0] if len(parts) == 1 else simplify(maximum(*parts)))
        case While(cond, body):
            return value_flops(cond) + _flops(body, around, fixed)
        case Store(_, _, value) | Let(_, value):
            return const(value_flops(value))
    return const(0)
