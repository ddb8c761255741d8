"""Operators: arithmetic, comparisons, shifts and divisions that cannot trap."""

from __future__ import annotations

from tilewright.codegen import tables
from tilewright.codegen.emitter import Emitter
from tilewright.codegen.types import element_type, value_type
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Binary, Broadcast, Compare, Const, Expr


def binary(out: Emitter, node: Binary, a: Expr, b: Expr) -> str:
    name, t, dtype = type(node).__name__, value_type(node.dtype, node.lanes), node.dtype
    x, y = out.value(a), out.value(b)
    if name in ("Min", "Max"):
        return _extremum(out, node, a, b, x, y)
    if dtype.is_bool:
        op = {"Add": "or", "Mul": "and", "BitAnd": "and", "BitOr": "or", "BitXor": "xor", "Sub": "xor"}[name]
        return out.fresh(f"{op} {t} {x}, {y}")
    if dtype.is_float:
        if name == "Mod":
            return _float_mod(out, node, x, y)
        return out.fresh(f"{tables.FLOAT_BINARY[name]} {t} {x}, {y}")
    if name in tables.INT_BINARY:
        return out.fresh(f"{tables.INT_BINARY[name]} {t} {x}, {y}")
    if name in ("Shl", "Shr"):
        return _shift(out, name, dtype, node.lanes, x, y)
    return _int_division(out, name, node, b, x, y)


def _extremum(out: Emitter, node: Binary, a: Expr, b: Expr, x: str, y: str) -> str:
    """The lesser or greater; NaN if either is. One instruction if an operand is a constant that is not NaN. For
    other scalars LLVM's own intrinsic, which does not branch where zeros may have either sign: on x86 it would ask for
    the sign of the first. For other vectors one instruction, which keeps a NaN
    of the first operand, under the mask of lanes where the second is not NaN. An accumulator is the first operand,
    so it does not wait for the mask. (LLVM would merge both tests into one mask if this one tested for NaN.)
    """
    t, lanes = value_type(node.dtype, node.lanes), node.lanes
    less = type(node).__name__ == "Min"
    if not node.dtype.is_float:
        if node.dtype.is_bool:
            return out.fresh(f"{'and' if less else 'or'} {t} {x}, {y}")
        kind = ("s" if node.dtype.kind == "i" else "u") + ("min" if less else "max")
        return out.intrinsic(f"llvm.{kind}", node.dtype, lanes, [x, y])
    if _is_number(a):
        a, b, x, y = b, a, y, x
    if lanes == 1 and not _is_number(b):
        return out.intrinsic("llvm.minimum" if less else "llvm.maximum", node.dtype, 1, [x, y], flags="nsz ")
    order = out.fresh(f"fcmp {'olt' if less else 'ogt'} {t} {y}, {x}")
    chosen = out.select(order, y, x, node.dtype, lanes)
    if _is_number(b):
        return chosen
    ordered = out.fresh(f"fcmp ord {t} {y}, {y}")
    return out.select(ordered, chosen, y, node.dtype, lanes)


def _float_mod(out: Emitter, node: Binary, x: str, y: str) -> str:
    """The remainder with the sign of the divisor: C's fmod, moved by one divisor where the signs differ."""
    t, dtype, lanes = value_type(node.dtype, node.lanes), node.dtype, node.lanes
    rest = out.fresh(f"frem {t} {x}, {y}")
    zero = out.splat_literal("0x0000000000000000", element_type(dtype), lanes)
    nonzero = out.fresh(f"fcmp une {t} {rest}, {zero}")
    negative = out.fresh(f"fcmp olt {t} {rest}, {zero}")
    divisor_negative = out.fresh(f"fcmp olt {t} {y}, {zero}")
    i1 = value_type(dtypes.bool_, lanes)
    differ = out.fresh(f"xor {i1} {negative}, {divisor_negative}")
    move = out.fresh(f"and {i1} {nonzero}, {differ}")
    moved = out.fresh(f"fadd {t} {rest}, {y}")
    signed_zero = out.intrinsic("llvm.copysign", dtype, lanes, [zero, y])
    exact = out.select(nonzero, rest, signed_zero, dtype, lanes)
    nan = out.fresh(f"fcmp uno {t} {rest}, {rest}")
    return out.select(move, moved, out.select(nan, rest, exact, dtype, lanes), dtype, lanes)


def _shift(out: Emitter, name: str, dtype: DType, lanes: int, x: str, y: str) -> str:
    """A shift whose amount may be anything: past the width it gives 0, or the sign."""
    t, element = value_type(dtype, lanes), element_type(dtype)
    width = out.splat_literal(str(dtype.bits), element, lanes)
    inside = out.fresh(f"icmp ult {t} {y}, {width}")
    last = out.splat_literal(str(dtype.bits - 1), element, lanes)
    amount = out.select(inside, y, last, dtype, lanes)
    if name == "Shr" and dtype.kind == "i":
        return out.fresh(f"ashr {t} {x}, {amount}")
    shifted = out.fresh(f"{'shl' if name == 'Shl' else 'lshr'} {t} {x}, {amount}")
    return out.select(inside, shifted, out.splat_literal("0", element, lanes), dtype, lanes)


def _int_division(out: Emitter, name: str, node: Binary, divisor: Expr, x: str, y: str) -> str:
    """/, //, %, rem of integers, guarded so that nothing traps: x/0 = 0, and MIN / -1 = MIN."""
    dtype, lanes, t = node.dtype, node.lanes, value_type(node.dtype, node.lanes)
    signed = dtype.kind == "i"
    safe, zero_test = y, ""
    if not (isinstance(divisor, Const) and int(divisor.value) > 0):
        safe, zero_test = _safe_divisor(out, dtype, lanes, x, y)
    prefix = "s" if signed else "u"
    floor = signed and name in ("FloorDiv", "Mod")
    if name in ("Div", "FloorDiv"):
        result = out.fresh(f"{prefix}div {t} {x}, {safe}")
        if floor:
            step = _below_zero(out, dtype, lanes, x, safe)
            result = out.fresh(
                f"add {t} {result}, {out.fresh(f'sext {value_type(dtypes.bool_, lanes)} {step} to {t}')}"
            )
    else:
        result = out.fresh(f"{prefix}rem {t} {x}, {safe}")
        if floor:
            step = _below_zero(out, dtype, lanes, x, safe)
            zero = out.splat_literal("0", element_type(dtype), lanes)
            result = out.fresh(f"add {t} {result}, {out.select(step, safe, zero, dtype, lanes)}")
    if zero_test:
        zero = out.splat_literal("0", element_type(dtype), lanes)
        result = out.select(zero_test, zero, result, dtype, lanes)
    return result


def _safe_divisor(out: Emitter, dtype: DType, lanes: int, x: str, y: str) -> tuple[str, str]:
    """(a divisor that cannot trap, the test for division by zero)."""
    t, element = value_type(dtype, lanes), element_type(dtype)
    zero_test = out.fresh(f"icmp eq {t} {y}, {out.splat_literal('0', element, lanes)}")
    bad = zero_test
    if dtype.kind == "i":
        i1 = value_type(dtypes.bool_, lanes)
        least = out.fresh(f"icmp eq {t} {x}, {out.splat_literal(str(dtype.min), element, lanes)}")
        minus = out.fresh(f"icmp eq {t} {y}, {out.splat_literal('-1', element, lanes)}")
        bad = out.fresh(f"or {i1} {zero_test}, {out.fresh(f'and {i1} {least}, {minus}')}")
    return out.select(bad, out.splat_literal("1", element, lanes), y, dtype, lanes), zero_test


def _below_zero(out: Emitter, dtype: DType, lanes: int, x: str, y: str) -> str:
    """Where the quotient x/y rounds the wrong way for a floor: the remainder and the divisor differ in sign."""
    t = value_type(dtype, lanes)
    zero = out.splat_literal("0", element_type(dtype), lanes)
    rest = out.fresh(f"srem {t} {x}, {y}")
    differs = out.fresh(f"icmp slt {t} {out.fresh(f'xor {t} {rest}, {y}')}, {zero}")
    nonzero = out.fresh(f"icmp ne {t} {rest}, {zero}")
    return out.fresh(f"and {value_type(dtypes.bool_, lanes)} {differs}, {nonzero}")


def compare(out: Emitter, node: Compare, a: Expr, b: Expr) -> str:
    name, dtype = type(node).__name__, a.dtype
    t = value_type(dtype, node.lanes)
    if dtype.is_float:
        return out.fresh(f"fcmp {tables.FLOAT_COMPARE[name]} {t} {out.value(a)}, {out.value(b)}")
    table = tables.SIGNED_COMPARE if dtype.kind == "i" else tables.UNSIGNED_COMPARE
    return out.fresh(f"icmp {table[name]} {t} {out.value(a)}, {out.value(b)}")


def _is_number(e: Expr) -> bool:
    """Whether an operand is a constant that is no NaN."""
    inner = e.a if isinstance(e, Broadcast) else e
    return isinstance(inner, Const) and inner.value == inner.value
