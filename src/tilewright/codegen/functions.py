"""Named functions: intrinsics of LLVM, functions of the C library lane by lane, and those of a few instructions."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen import tables
from tilewright.codegen.emitter import Emitter
from tilewright.codegen.instructions import issue
from tilewright.codegen.types import element_type, literal, value_type, vector_of
from tilewright.expr import dtypes
from tilewright.expr.intrinsics import FAR, FREE
from tilewright.expr.nodes import Call, const
from tilewright.report.errors import InternalError

RARELY = "!3"
"""The metadata of a branch that is hardly ever taken: see module.py."""


def function(out: Emitter, node: Call) -> str:
    """The value of a call whose arguments have been computed."""
    name, dtype, lanes = node.fn.name, node.args[0].dtype, node.args[0].lanes
    arguments = [out.value(a) for a in node.args]
    if name in tables.INTRINSICS:
        return out.intrinsic(tables.INTRINSICS[name], dtype, lanes, arguments)
    if name in tables.LIBRARY:
        return _library(out, tables.LIBRARY[name] + ("f" if dtype is dtypes.f32 else ""), node, arguments)
    if name in tables.FAR:
        return _far(out, tables.INTRINSICS[tables.FAR[name]], node, arguments)
    if name not in _COMPOSED:
        raise InternalError(f"no instructions for the function {name}")
    return _COMPOSED[name](out, node, arguments)


def _library(out: Emitter, symbol: str, node: Call, arguments: list[str]) -> str:
    """One call for each lane."""
    element, lanes = element_type(node.dtype), node.lanes
    out.declarations.add(f"declare {element} @{symbol}({', '.join([element] * len(arguments))})")
    if lanes == 1:
        return out.fresh(f"call {element} @{symbol}({', '.join(f'{element} {a}' for a in arguments)})")
    vector, result = vector_of(element, lanes), "poison"
    for lane in range(lanes):
        parts = [out.fresh(f"extractelement {vector} {a}, i32 {lane}") for a in arguments]
        one = out.fresh(f"call {element} @{symbol}({', '.join(f'{element} {p}' for p in parts)})")
        result = out.fresh(f"insertelement {vector} {result}, {element} {one}, i32 {lane}")
    return result


def _far(out: Emitter, function: str, node: Call, arguments: list[str]) -> str:
    """The second argument, except in lanes whose first is beyond FAR; a branch passes the calls by if none is."""
    (x, near), dtype, lanes = arguments, node.dtype, node.lanes
    t, element = value_type(dtype, lanes), element_type(dtype)
    size = out.intrinsic("llvm.fabs", dtype, lanes, [x])
    bound = out.splat_literal(literal(const(FAR, dtype)), element, lanes)
    far = out.fresh(f"fcmp ogt {t} {size}, {bound}")
    some = far
    if lanes > 1:
        i1 = vector_of("i1", lanes)
        name = f"@llvm.vector.reduce.or.v{lanes}i1"
        out.declarations.add(f"declare i1 {name}({i1})")
        some = out.fresh(f"call i1 {name}({i1} {far})")
    n = out.names()
    before = out.label
    out.lines.append(f"  br i1 {some}, label %far{n}, label %near{n}, !prof {RARELY}")
    out.start(f"far{n}")
    called = out.intrinsic(function, dtype, lanes, [x])
    chosen = out.select(far, called, near, dtype, lanes)
    out.lines.append(f"  br label %near{n}")
    out.start(f"near{n}")
    return out.fresh(f"phi {t} [ {near}, %{before} ], [ {chosen}, %far{n} ]")


def _bits(out: Emitter, node: Call, arguments: list[str]) -> str:
    source = value_type(node.args[0].dtype, node.lanes)
    return out.fresh(f"bitcast {source} {arguments[0]} to {value_type(node.dtype, node.lanes)}")


def _neg(out: Emitter, node: Call, arguments: list[str]) -> str:
    t = value_type(node.dtype, node.lanes)
    if node.dtype.is_float:
        return out.fresh(f"fneg {t} {arguments[0]}")
    return out.fresh(f"sub {t} {out.splat_literal('0', element_type(node.dtype), node.lanes)}, {arguments[0]}")


def _abs(out: Emitter, node: Call, arguments: list[str]) -> str:
    if node.dtype.is_float:
        return out.intrinsic("llvm.fabs", node.dtype, node.lanes, arguments)
    if node.dtype.kind == "u":
        return arguments[0]
    return out.intrinsic("llvm.abs", node.dtype, node.lanes, arguments, "i1 false")


def _sign(out: Emitter, node: Call, arguments: list[str]) -> str:
    """-1, 0 or 1; a NaN stays."""
    dtype, lanes, x = node.dtype, node.lanes, arguments[0]
    t, element = value_type(dtype, lanes), element_type(dtype)
    if dtype.is_float:
        zero, one = (out.splat_literal(v, element, lanes) for v in ("0x0000000000000000", "0x3FF0000000000000"))
        above = out.fresh(f"fcmp une {t} {x}, {zero}")
        number = out.fresh(f"fcmp ord {t} {x}, {x}")
        signed = out.intrinsic("llvm.copysign", dtype, lanes, [one, x])
        return out.select(number, out.select(above, signed, zero, dtype, lanes), x, dtype, lanes)
    zero, one, minus = (out.splat_literal(v, element, lanes) for v in ("0", "1", "-1"))
    nonzero = out.fresh(f"icmp ne {t} {x}, {zero}")
    size = out.select(nonzero, one, zero, dtype, lanes)
    if dtype.kind == "u":
        return size
    return out.select(out.fresh(f"icmp slt {t} {x}, {zero}"), minus, size, dtype, lanes)


def _invert(out: Emitter, node: Call, arguments: list[str]) -> str:
    minus = out.splat_literal("-1", element_type(node.dtype), node.lanes)
    return out.fresh(f"xor {value_type(node.dtype, node.lanes)} {arguments[0]}, {minus}")


def _popcount(out: Emitter, node: Call, arguments: list[str]) -> str:
    return out.intrinsic("llvm.ctpop", node.dtype, node.lanes, [_abs(out, node, arguments)])


def _isnan(out: Emitter, node: Call, arguments: list[str]) -> str:
    t = value_type(node.args[0].dtype, node.args[0].lanes)
    return out.fresh(f"fcmp uno {t} {arguments[0]}, {arguments[0]}")


def _isinf(out: Emitter, node: Call, arguments: list[str]) -> str:
    dtype, lanes = node.args[0].dtype, node.args[0].lanes
    size = out.intrinsic("llvm.fabs", dtype, lanes, arguments)
    infinity = out.splat_literal("0x7FF0000000000000", element_type(dtype), lanes)
    return out.fresh(f"fcmp oeq {value_type(dtype, lanes)} {size}, {infinity}")


def _dot_bytes(out: Emitter, node: Call, arguments: list[str]) -> str:
    """One instruction on vectors for which the target has it; elsewhere the sum of four products."""
    lanes, (total, a, b) = node.lanes, arguments
    t = value_type(node.dtype, lanes)
    row = out.byte_dots.get(lanes)
    if row is not None:
        quads = vector_of("i8", 4 * lanes)
        given = [out.fresh(f"bitcast {t} {v} to {quads}") for v in (a, b)]
        return issue(out, row, dict(zip([r.name for r in row.registers], [*given, total], strict=True)))

    def number(value: int) -> str:
        return out.splat_literal(str(value), element_type(node.dtype), lanes)

    for place in (0, 8, 16, 24):
        unsigned = out.fresh(f"and {t} {out.fresh(f'lshr {t} {a}, {number(place)}')}, {number(255)}")
        signed = out.fresh(f"ashr {t} {out.fresh(f'shl {t} {b}, {number(24 - place)}')}, {number(24)}")
        total = out.fresh(f"add {t} {total}, {out.fresh(f'mul {t} {unsigned}, {signed}')}")
    return total


_COMPOSED: dict[str, Callable[[Emitter, Call, list[str]], str]] = {
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "invert": _invert,
    "popcount": _popcount,
    "dot_bytes": _dot_bytes,
    "isnan": _isnan,
    "isinf": _isinf,
    **dict.fromkeys(FREE, _bits),
}
"""Functions that are a few instructions."""
