"""Casts between element types, with the promises of `Cast`: nearest even, saturating, NaN to 0, no trap.

Casts to 16-bit floats are spelt out in integer arithmetic where a target would call a library for them.
"""

from __future__ import annotations

from tilewright.codegen.emitter import Emitter
from tilewright.codegen.types import element_type, suffix, value_type, vector_of
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType


class Conversions(Emitter):
    """Casts. `converts_f16` says whether any is between f16 and f32, for which a target needs instructions."""

    converts_f16 = False

    def convert(self, x: str, source: DType, to: DType, lanes: int) -> str:
        """The value `x` of type `source` as type `to`."""
        if source is to:
            return x
        if to.is_bool:
            return self._to_bool(x, source, lanes)
        if source.is_float:
            change = self._float_to_float if to.is_float else self._float_to_int
            return change(x, source, to, lanes)
        if to.is_float:
            return self._int_to_float(x, source, to, lanes)
        s, t = value_type(source, lanes), value_type(to, lanes)
        source_bits = 1 if source.is_bool else source.bits
        if source_bits == to.bits:
            return x
        op = "trunc" if source_bits > to.bits else "sext" if source.kind == "i" else "zext"
        return self.fresh(f"{op} {s} {x} to {t}")

    def _to_bool(self, x: str, source: DType, lanes: int) -> str:
        t, element = value_type(source, lanes), element_type(source)
        if source in (dtypes.f16, dtypes.bf16):
            x, t, element = self._widen(x, source, lanes), value_type(dtypes.f32, lanes), "float"
        if source.is_float:
            return self.fresh(f"fcmp une {t} {x}, {self.splat_literal('0x0000000000000000', element, lanes)}")
        return self.fresh(f"icmp ne {t} {x}, {self.splat_literal('0', element, lanes)}")

    def _float_to_int(self, x: str, source: DType, to: DType, lanes: int) -> str:
        if source in (dtypes.f16, dtypes.bf16):
            x, source = self._widen(x, source, lanes), dtypes.f32
        kind = "si" if to.kind == "i" else "ui"
        s, t = value_type(source, lanes), value_type(to, lanes)
        name = f"@llvm.fpto{kind}.sat.{suffix(to, lanes)}.{suffix(source, lanes)}"
        self.declarations.add(f"declare {t} {name}({s})")
        return self.fresh(f"call {t} {name}({s} {x})")

    def _int_to_float(self, x: str, source: DType, to: DType, lanes: int) -> str:
        op = "sitofp" if source.kind == "i" else "uitofp"
        wide = dtypes.f64 if to in (dtypes.f16, dtypes.bf16) else to
        made = self.fresh(f"{op} {value_type(source, lanes)} {x} to {value_type(wide, lanes)}")
        return self.convert(made, wide, to, lanes)

    def _float_to_float(self, x: str, source: DType, to: DType, lanes: int) -> str:
        if source in (dtypes.f16, dtypes.bf16):
            return self.convert(self._widen(x, source, lanes), dtypes.f32, to, lanes)
        if to in (dtypes.f16, dtypes.bf16):
            if source is dtypes.f64:
                x = self._narrow_to_odd(x, lanes)
            return self._round_to_bf16(x, lanes) if to is dtypes.bf16 else self._truncate(x, dtypes.f32, to, lanes)
        if to is dtypes.f64:
            return self.fresh(f"fpext {value_type(source, lanes)} {x} to {value_type(to, lanes)}")
        return self._truncate(x, source, to, lanes)

    def _truncate(self, x: str, source: DType, to: DType, lanes: int) -> str:
        self.converts_f16 |= to is dtypes.f16
        return self.fresh(f"fptrunc {value_type(source, lanes)} {x} to {value_type(to, lanes)}")

    def _widen(self, x: str, source: DType, lanes: int) -> str:
        """A 16-bit float as f32; the bits of a bf16 are the upper half of it."""
        if source is dtypes.bf16:
            h, i = vector_of("i16", lanes), vector_of("i32", lanes)
            wide = self.fresh(f"zext {h} {x} to {i}")
            upper = self.fresh(f"shl {i} {wide}, {self.splat_literal('16', 'i32', lanes)}")
            return self.fresh(f"bitcast {i} {upper} to {vector_of('float', lanes)}")
        self.converts_f16 = True
        return self.fresh(f"fpext {value_type(source, lanes)} {x} to {value_type(dtypes.f32, lanes)}")

    def _narrow_to_odd(self, x: str, lanes: int) -> str:
        """f64 to f32 rounded to odd: an inexact result has its last bit set, so that rounding it once more to 16 bits
        gives what rounding the f64 at once would (Boldo and Melquiond, 2008)."""
        d, f, i = vector_of("double", lanes), vector_of("float", lanes), vector_of("i32", lanes)
        near = self.fresh(f"fptrunc {d} {x} to {f}")
        back = self.fresh(f"fpext {f} {near} to {d}")
        bits = self.fresh(f"bitcast {f} {near} to {i}")
        size, near_size = (self.intrinsic("llvm.fabs", dtypes.f64, lanes, [v]) for v in (x, back))
        over = self.fresh(f"fcmp ogt {d} {near_size}, {size}")
        step = self.fresh(f"zext {value_type(dtypes.bool_, lanes)} {over} to {i}")
        below = self.fresh(f"sub {i} {bits}, {step}")
        odd = self.fresh(f"or {i} {below}, {self.splat_literal('1', 'i32', lanes)}")
        inexact = self.fresh(f"fcmp one {d} {back}, {x}")
        chosen = self.select(inexact, odd, bits, dtypes.i32, lanes)
        return self.fresh(f"bitcast {i} {chosen} to {f}")

    def _round_to_bf16(self, x: str, lanes: int) -> str:
        """The upper half of an f32, rounded to nearest even; a NaN stays a NaN."""
        f, i, h = vector_of("float", lanes), vector_of("i32", lanes), vector_of("i16", lanes)

        def number(n: int) -> str:
            return self.splat_literal(str(n), "i32", lanes)

        bits = self.fresh(f"bitcast {f} {x} to {i}")
        upper = self.fresh(f"lshr {i} {bits}, {number(16)}")
        even = self.fresh(f"and {i} {upper}, {number(1)}")
        bias = self.fresh(f"add {i} {even}, {number(0x7FFF)}")
        rounded = self.fresh(f"lshr {i} {self.fresh(f'add {i} {bits}, {bias}')}, {number(16)}")
        quiet = self.fresh(f"or {i} {upper}, {number(0x40)}")
        nan = self.fresh(f"fcmp uno {f} {x}, {x}")
        chosen = self.select(nan, quiet, rounded, dtypes.i32, lanes)
        return self.fresh(f"trunc {i} {chosen} to {h}")
