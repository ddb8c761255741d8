"""Runs expressions in machine code: one loop over arrays, in scalars or in lanes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.codegen.abi import CALL, ENTRY
from tilewright.codegen.assemble import assemble, assembly
from tilewright.codegen.link import link_code
from tilewright.codegen.module import generate
from tilewright.expr.dtypes import DType, from_numpy
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.loops.nodes import Buffer, For, Function, Load, LoopKind, Store
from tilewright.lower.loops.expand_math import expand_math
from tilewright.lower.loops.narrow_casts import expand_narrow_casts
from tilewright.lower.loops.promote_f16 import promote_f16
from tilewright.lower.loops.simplify_indices import simplify_indices
from tilewright.lower.loops.unroll import unroll
from tilewright.lower.loops.vectorize import vectorize
from tilewright.runtime.native import NativeCode
from tilewright.target import native

Array = np.ndarray[Any, Any]
Value = Callable[..., Expr]

PASSES = (partial(vectorize, registers=32), unroll, simplify_indices, expand_narrow_casts, promote_f16)


def elementwise(value: Value, operands: Sequence[DType], result: DType, count: int, lanes: int) -> Function:
    """y[i] = value(x0[i], …) over `count` elements, in vectors of `lanes` where that is more than 1."""
    xs = [Buffer(f"x{n}", dtype, (const(count),)) for n, dtype in enumerate(operands)]
    y = Buffer("y", result, (const(count),))
    i, j = Var("i"), Var("j")
    place: tuple[Expr, ...] = (i * lanes + j,) if lanes > 1 else (i,)
    body: Any = Store(y, place, value(*(Load(x, place) for x in xs)))
    if lanes > 1:
        body = For(j, const(0), const(lanes), LoopKind.VECTORIZE, body)
    return Function("f", (), (*xs, y), For(i, const(0), const(count // lanes), LoopKind.SERIAL, body))


def legal(function: Function, expand: bool = True) -> Function:
    """The function as code generation takes it."""
    if expand:
        function = expand_math(function, fused=native().has_fma)
    for change in PASSES:
        function = change(function)
    return function


def llvm_text(function: Function) -> str:
    return generate({function.name: function}, function.name, native()).text


def listing(function: Function) -> str:
    return assembly(llvm_text(function), native())


class Machine:
    """A function as machine code, called on arrays in the order of its parameters."""

    def __init__(self, function: Function) -> None:
        self.code = NativeCode(link_code([assemble(llvm_text(function), native())], native(), (ENTRY,)), native())

    def __call__(self, *arrays: Array) -> None:
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        fault = (ctypes.c_int64 * 8)()
        words = {"arguments": ctypes.addressof(pointers), "fault": ctypes.addressof(fault), "threads": 1}
        call = (ctypes.c_int64 * len(CALL))(*(words.get(name, 0) for name in CALL))
        assert self.code.entry(ctypes.addressof(call)) == 0


def compute(value: Value, arrays: Sequence[Array], result: DType, lanes: int, expand: bool = True) -> Array:
    """value(…) of the arrays, element by element, in machine code."""
    count = len(arrays[0])
    padded = -(-count // lanes) * lanes
    given = [np.concatenate([a, np.ones(padded - count, a.dtype)]) for a in arrays]
    types = [from_numpy(a.dtype) for a in arrays]
    assert all(t is not None for t in types)
    function = elementwise(value, [t for t in types if t is not None], result, padded, lanes)
    out = np.zeros(padded, result.numpy)
    Machine(legal(function, expand))(*given, out)
    return out[:count]


__all__ = ["Array", "Const", "Machine", "Value", "compute", "elementwise", "legal", "listing", "llvm_text"]
