"""Casts between element types, with the promises of `Cast`: nearest even, saturating, NaN to 0, no trap.

Casts to 16-bit floats are spelt out in integer arithmetic where a target would call a library for them.
"""

from __future__ import annotations

from tilewright.codegen.emitter import Emitter
from tilewright.codegen.types import element_type, suffix, value_type, vector_of
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType


def convert(out: Emitter, x: str, source: DType, to: DType, lanes: int) -> str:
    """The value `x` of type `source` as type `to`."""
    if source is to:
        return x
    if to.is_bool:
        return _to_bool(out, x, source, lanes)
    if source.is_float:
        change = _float_to_float if to.is_float else _float_to_int
        return change(out, x, source, to, lanes)
    if to.is_float:
        return _int_to_float(out, x, source, to, lanes)
    s, t = value_type(source, lanes), value_type(to, lanes)
    source_bits = 1 if source.is_bool else source.bits
    if source_bits == to.bits:
        return x
    op = "trunc" if source_bits > to.bits else "sext" if source.kind == "i" else "zext"
    return out.fresh(f"{op} {s} {x} to {t}")


def _to_bool(out: Emitter, x: str, source: DType, lanes: int) -> str:
    t, element = value_type(source, lanes), element_type(source)
    if source in (dtypes.f16, dtypes.bf16):
        x, t, element = _widen(out, x, source, lanes), value_type(dtypes.f32, lanes), "float"
    if source.is_float:
        return out.fresh(f"fcmp une {t} {x}, {out.splat_literal('0x0000000000000000', element, lanes)}")
    return out.fresh(f"icmp ne {t} {x}, {out.splat_literal('0', element, lanes)}")


def _float_to_int(out: Emitter, x: str, source: DType, to: DType, lanes: int) -> str:
    if source in (dtypes.f16, dtypes.bf16):
        x, source = _widen(out, x, source, lanes), dtypes.f32
    if to.bits < dtypes.i32.bits:
        return _clamped_to_int(out, x, source, to, lanes)
    if lanes > 1 and not out.casts_saturate:
        return _chosen_int(out, x, source, to, lanes)
    kind = "si" if to.kind == "i" else "ui"
    s, t = value_type(source, lanes), value_type(to, lanes)
    name = f"@llvm.fpto{kind}.sat.{suffix(to, lanes)}.{suffix(source, lanes)}"
    out.declarations.add(f"declare {t} {name}({s})")
    return out.fresh(f"call {t} {name}({s} {x})")


def _clamped_to_int(out: Emitter, x: str, source: DType, to: DType, lanes: int) -> str:
    """f32 or f64 to an integer of less than 32 bits: LLVM's saturating conversion is a call for each lane where the
    target has no vectors of the result, so numbers are clamped to its range, whose ends a float has, and then converted
    to i32."""
    s, i, t = value_type(source, lanes), vector_of("i32", lanes), value_type(to, lanes)
    x = _from_least(out, x, source, to, lanes)
    most = _whole(out, to.max, source, lanes)
    x = out.select(out.fresh(f"fcmp olt {s} {x}, {most}"), x, most, source, lanes)
    return out.fresh(f"trunc {i} {out.fresh(f'fptosi {s} {x} to {i}')} to {t}")


def _chosen_int(out: Emitter, x: str, source: DType, to: DType, lanes: int) -> str:
    """f32 or f64 to an integer of 32 or 64 bits where the target's conversions of vectors do not saturate, for which
    LLVM's saturating one takes lane by lane: numbers below the range, whose end a float has, are that end, and those
    above it are left out of the conversion."""
    s, t = value_type(source, lanes), value_type(to, lanes)
    kind, end = ("si", 2.0 ** (to.bits - 1)) if to.min else ("ui", 2.0**to.bits)
    x = _from_least(out, x, source, to, lanes)
    below = out.fresh(f"fcmp olt {s} {x}, {_whole(out, end, source, lanes)}")
    x = out.select(below, x, _whole(out, 0, source, lanes), source, lanes)
    made = out.fresh(f"fpto{kind} {s} {x} to {t}")
    return out.select(below, made, out.splat_literal(str(to.max), element_type(to), lanes), to, lanes)


def _from_least(out: Emitter, x: str, source: DType, to: DType, lanes: int) -> str:
    """A float, or the least number of an integer's type in place of what is below it; 0 for NaN."""
    s, least = value_type(source, lanes), _whole(out, to.min, source, lanes)
    if to.min:  # otherwise a NaN becomes the lower end, 0, since it is not above it
        x = out.select(out.fresh(f"fcmp ord {s} {x}, {x}"), x, _whole(out, 0, source, lanes), source, lanes)
    return out.select(out.fresh(f"fcmp ogt {s} {x}, {least}"), x, least, source, lanes)


def _whole(out: Emitter, number: float, dtype: DType, lanes: int) -> str:
    """A whole number as a literal of a type of floats."""
    return out.splat_literal(f"{number:.1f}", element_type(dtype), lanes)


def _int_to_float(out: Emitter, x: str, source: DType, to: DType, lanes: int) -> str:
    if source.is_bool:
        # As a conversion, LLVM 22 has no instructions for it where vectors of SVE have 256 bits or more.
        wide = dtypes.f32 if to in (dtypes.f16, dtypes.bf16) else to
        made = out.select(x, _whole(out, 1, wide, lanes), _whole(out, 0, wide, lanes), wide, lanes)
        return convert(out, made, wide, to, lanes)
    op = "sitofp" if source.kind == "i" else "uitofp"
    wide = dtypes.f64 if to in (dtypes.f16, dtypes.bf16) else to
    made = out.fresh(f"{op} {value_type(source, lanes)} {x} to {value_type(wide, lanes)}")
    return convert(out, made, wide, to, lanes)


def _float_to_float(out: Emitter, x: str, source: DType, to: DType, lanes: int) -> str:
    if source in (dtypes.f16, dtypes.bf16):
        return convert(out, _widen(out, x, source, lanes), dtypes.f32, to, lanes)
    if to in (dtypes.f16, dtypes.bf16):
        if source is dtypes.f64:
            x = _narrow_to_odd(out, x, lanes)
        return _round_to_bf16(out, x, lanes) if to is dtypes.bf16 else _truncate(out, x, dtypes.f32, to, lanes)
    if to is dtypes.f64:
        return out.fresh(f"fpext {value_type(source, lanes)} {x} to {value_type(to, lanes)}")
    return _truncate(out, x, source, to, lanes)


def _truncate(out: Emitter, x: str, source: DType, to: DType, lanes: int) -> str:
    out.converts_f16 |= to is dtypes.f16
    return out.fresh(f"fptrunc {value_type(source, lanes)} {x} to {value_type(to, lanes)}")


def _widen(out: Emitter, x: str, source: DType, lanes: int) -> str:
    """A 16-bit float as f32; the bits of a bf16 are the upper half of it."""
    if source is dtypes.bf16:
        h, i = vector_of("i16", lanes), vector_of("i32", lanes)
        wide = out.fresh(f"zext {h} {x} to {i}")
        upper = out.fresh(f"shl {i} {wide}, {out.splat_literal('16', 'i32', lanes)}")
        return out.fresh(f"bitcast {i} {upper} to {vector_of('float', lanes)}")
    out.converts_f16 = True
    return out.fresh(f"fpext {value_type(source, lanes)} {x} to {value_type(dtypes.f32, lanes)}")


def _narrow_to_odd(out: Emitter, x: str, lanes: int) -> str:
    """f64 to f32 rounded to odd: an inexact result has its last bit set, so that rounding it once more to 16 bits
    gives what rounding the f64 at once would (Boldo and Melquiond, 2008)."""
    d, f, i = vector_of("double", lanes), vector_of("float", lanes), vector_of("i32", lanes)
    near = out.fresh(f"fptrunc {d} {x} to {f}")
    back = out.fresh(f"fpext {f} {near} to {d}")
    bits = out.fresh(f"bitcast {f} {near} to {i}")
    size, near_size = (out.intrinsic("llvm.fabs", dtypes.f64, lanes, [v]) for v in (x, back))
    over = out.fresh(f"fcmp ogt {d} {near_size}, {size}")
    step = out.fresh(f"zext {value_type(dtypes.bool_, lanes)} {over} to {i}")
    below = out.fresh(f"sub {i} {bits}, {step}")
    odd = out.fresh(f"or {i} {below}, {out.splat_literal('1', 'i32', lanes)}")
    inexact = out.fresh(f"fcmp one {d} {back}, {x}")
    chosen = out.select(inexact, odd, bits, dtypes.i32, lanes)
    return out.fresh(f"bitcast {i} {chosen} to {f}")


def _round_to_bf16(out: Emitter, x: str, lanes: int) -> str:
    """The upper half of an f32, rounded to nearest even; a NaN stays a NaN."""
    f, i, h = vector_of("float", lanes), vector_of("i32", lanes), vector_of("i16", lanes)

    def number(n: int) -> str:
        return out.splat_literal(str(n), "i32", lanes)

    bits = out.fresh(f"bitcast {f} {x} to {i}")
    upper = out.fresh(f"lshr {i} {bits}, {number(16)}")
    even = out.fresh(f"and {i} {upper}, {number(1)}")
    bias = out.fresh(f"add {i} {even}, {number(0x7FFF)}")
    rounded = out.fresh(f"lshr {i} {out.fresh(f'add {i} {bits}, {bias}')}, {number(16)}")
    quiet = out.fresh(f"or {i} {upper}, {number(0x40)}")
    nan = out.fresh(f"fcmp uno {f} {x}, {x}")
    chosen = out.select(nan, quiet, rounded, dtypes.i32, lanes)
    return out.fresh(f"trunc {i} {chosen} to {h}")
