"""Named functions: intrinsics of LLVM, functions of the C library lane by lane, and those of a few instructions."""

from __future__ import annotations

from tilewright.codegen import tables
from tilewright.codegen.emitter import Emitter
from tilewright.codegen.types import element_type, literal, value_type, vector_of
from tilewright.expr import dtypes
from tilewright.expr.intrinsics import FAR
from tilewright.expr.nodes import Call, const
from tilewright.report.errors import InternalError

RARELY = "!3"
"""The metadata of a branch that is hardly ever taken: see module.py."""


class Functions(Emitter):
    """Calls of named functions."""

    def function(self, node: Call) -> str:
        """The value of a call whose arguments have been computed."""
        name, dtype, lanes = node.fn.name, node.args[0].dtype, node.args[0].lanes
        arguments = [self.value(a) for a in node.args]
        if name in tables.INTRINSICS:
            return self.intrinsic(tables.INTRINSICS[name], dtype, lanes, arguments)
        if name in tables.LIBRARY:
            return self._library(tables.LIBRARY[name] + ("f" if dtype is dtypes.f32 else ""), node, arguments)
        if name in tables.FAR:
            return self._far(tables.INTRINSICS[tables.FAR[name]], node, arguments)
        composed = getattr(self, f"_{name}", None)
        if name not in tables.COMPOSED or composed is None:
            raise InternalError(f"no instructions for the function {name}")
        result: str = composed(node, arguments)
        return result

    def _library(self, symbol: str, node: Call, arguments: list[str]) -> str:
        """One call for each lane."""
        element, lanes = element_type(node.dtype), node.lanes
        self.declarations.add(f"declare {element} @{symbol}({', '.join([element] * len(arguments))})")
        if lanes == 1:
            return self.fresh(f"call {element} @{symbol}({', '.join(f'{element} {a}' for a in arguments)})")
        vector, result = vector_of(element, lanes), "poison"
        for lane in range(lanes):
            parts = [self.fresh(f"extractelement {vector} {a}, i32 {lane}") for a in arguments]
            one = self.fresh(f"call {element} @{symbol}({', '.join(f'{element} {p}' for p in parts)})")
            result = self.fresh(f"insertelement {vector} {result}, {element} {one}, i32 {lane}")
        return result

    def _far(self, function: str, node: Call, arguments: list[str]) -> str:
        """The second argument, except in lanes whose first is beyond FAR; a branch passes the calls by if none is."""
        (x, near), dtype, lanes = arguments, node.dtype, node.lanes
        t, element = value_type(dtype, lanes), element_type(dtype)
        size = self.intrinsic("llvm.fabs", dtype, lanes, [x])
        bound = self.splat_literal(literal(const(FAR, dtype)), element, lanes)
        far = self.fresh(f"fcmp ogt {t} {size}, {bound}")
        some = far
        if lanes > 1:
            i1 = vector_of("i1", lanes)
            name = f"@llvm.vector.reduce.or.v{lanes}i1"
            self.declarations.add(f"declare i1 {name}({i1})")
            some = self.fresh(f"call i1 {name}({i1} {far})")
        n = self.names()
        before = self.label
        self.lines.append(f"  br i1 {some}, label %far{n}, label %near{n}, !prof {RARELY}")
        self.start(f"far{n}")
        called = self.intrinsic(function, dtype, lanes, [x])
        chosen = self.select(far, called, near, dtype, lanes)
        self.lines.append(f"  br label %near{n}")
        self.start(f"near{n}")
        return self.fresh(f"phi {t} [ {near}, %{before} ], [ {chosen}, %far{n} ]")

    def _bits(self, node: Call, arguments: list[str]) -> str:
        source = value_type(node.args[0].dtype, node.lanes)
        return self.fresh(f"bitcast {source} {arguments[0]} to {value_type(node.dtype, node.lanes)}")

    _from_bits = _bits

    def _neg(self, node: Call, arguments: list[str]) -> str:
        t = value_type(node.dtype, node.lanes)
        if node.dtype.is_float:
            return self.fresh(f"fneg {t} {arguments[0]}")
        return self.fresh(f"sub {t} {self.splat_literal('0', element_type(node.dtype), node.lanes)}, {arguments[0]}")

    def _abs(self, node: Call, arguments: list[str]) -> str:
        if node.dtype.is_float:
            return self.intrinsic("llvm.fabs", node.dtype, node.lanes, arguments)
        if node.dtype.kind == "u":
            return arguments[0]
        return self.intrinsic("llvm.abs", node.dtype, node.lanes, arguments, "i1 false")

    def _sign(self, node: Call, arguments: list[str]) -> str:
        """-1, 0 or 1; a NaN stays."""
        dtype, lanes, x = node.dtype, node.lanes, arguments[0]
        t, element = value_type(dtype, lanes), element_type(dtype)
        if dtype.is_float:
            zero, one = (self.splat_literal(v, element, lanes) for v in ("0x0000000000000000", "0x3FF0000000000000"))
            above = self.fresh(f"fcmp une {t} {x}, {zero}")
            number = self.fresh(f"fcmp ord {t} {x}, {x}")
            signed = self.intrinsic("llvm.copysign", dtype, lanes, [one, x])
            return self.select(number, self.select(above, signed, zero, dtype, lanes), x, dtype, lanes)
        zero, one, minus = (self.splat_literal(v, element, lanes) for v in ("0", "1", "-1"))
        nonzero = self.fresh(f"icmp ne {t} {x}, {zero}")
        size = self.select(nonzero, one, zero, dtype, lanes)
        if dtype.kind == "u":
            return size
        return self.select(self.fresh(f"icmp slt {t} {x}, {zero}"), minus, size, dtype, lanes)

    def _invert(self, node: Call, arguments: list[str]) -> str:
        minus = self.splat_literal("-1", element_type(node.dtype), node.lanes)
        return self.fresh(f"xor {value_type(node.dtype, node.lanes)} {arguments[0]}, {minus}")

    def _popcount(self, node: Call, arguments: list[str]) -> str:
        return self.intrinsic("llvm.ctpop", node.dtype, node.lanes, [self._abs(node, arguments)])

    def _isnan(self, node: Call, arguments: list[str]) -> str:
        t = value_type(node.args[0].dtype, node.args[0].lanes)
        return self.fresh(f"fcmp uno {t} {arguments[0]}, {arguments[0]}")

    def _isinf(self, node: Call, arguments: list[str]) -> str:
        dtype, lanes = node.args[0].dtype, node.args[0].lanes
        size = self.intrinsic("llvm.fabs", dtype, lanes, arguments)
        infinity = self.splat_literal("0x7FF0000000000000", element_type(dtype), lanes)
        return self.fresh(f"fcmp oeq {value_type(dtype, lanes)} {size}, {infinity}")
