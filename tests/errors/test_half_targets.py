"""16-bit floats on targets without instructions for them, and the library functions that compiled code calls."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

import numpy as np
import pytest
from compiled_models import model
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.codegen import tables
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.intrinsics import INTRINSICS
from tilewright.expr.nodes import Call, const
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer, Function
from tilewright.report.errors import UserError
from tilewright.target import Target, native

x86 = pytest.mark.skipif(native().architecture != "x86_64", reason="a test of x86's levels")


def halves(dtype: int) -> Any:
    return model([helper.make_node("Exp", ["x"], ["y"], name="e")], {"x": (dtype, ["n", 4])})


@x86
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v2", "x86-64-v3 -f16c"])
def test_f16_needs_conversions(target: str) -> None:
    with pytest.raises(UserError) as caught:
        tw.compile(halves(TensorProto.FLOAT16), target=target)
    assert str(caught.value) == (
        f"cannot compile f16 for the target {target}\n"
        "at:   Exp 'e'\n"
        "why:  it has no instructions that convert between f16 and f32 (F16C)\n"
        "fix:  compile for x86-64-v3 or later, or keep the data in bf16 or f32"
    )


@x86
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v2", "x86-64-v3 -f16c"])
def test_bf16_needs_none(target: str) -> None:
    exe = tw.compile(halves(TensorProto.BFLOAT16), target=target)
    x = np.array([[0, 1, -2, 3]]).astype(dtypes.bf16.numpy)
    found = exe(x)[0].astype(np.float32)
    np.testing.assert_allclose(found, np.exp(x.astype(np.float32)), rtol=2**-8)


def calls(name: str, dtype: DType) -> Function | None:
    """A function that calls an intrinsic of every argument; None where it has no such type."""
    fn = INTRINSICS[name]
    build = Builder()
    try:
        probe = Buffer("x", dtype, ())
        result = Call(fn, (load(probe),) * fn.arity)
        x, y = Buffer("x", dtype, (const(5),)), Buffer("y", result.dtype, (const(5),))
        build.compute("y", y, lambda i: Call(fn, (load(x, i),) * fn.arity))
    except Exception:
        return None
    return Function("f", (), (x, y), build.body(), 1)


@pytest.mark.parametrize("target", ["native", "x86-64" if native().architecture == "x86_64" else "aarch64"])
def test_every_function_resolves_and_runs(target: str) -> None:
    """A library function that the process lacks would be called at address 0."""
    tried = 0
    for name in sorted(INTRINSICS):
        for dtype in (dtypes.f32, dtypes.f64, dtypes.i32):
            function = calls(name, dtype)
            if function is None:
                continue
            x, y = np.full(5, 0.5).astype(dtype.numpy), np.zeros(5, function.params[1].dtype.numpy)
            try:
                kernel = tw.build(function, target=Target.parse(target))
            except UserError:
                continue
            kernel(x, y)
            tried += 1
            expected = np.asarray(INTRINSICS[name].meaning(*[x] * INTRINSICS[name].arity))
            if dtype.is_float and y.dtype.kind == "f":
                np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6, err_msg=name)
            else:
                np.testing.assert_array_equal(y, expected.astype(y.dtype), err_msg=name)
    assert tried >= 2 * len(tables.INTRINSICS)


def test_the_library_has_every_symbol() -> None:
    path = ctypes.util.find_library("m")
    if path is None:
        pytest.skip("no C library of mathematics by itself here")
    library = ctypes.CDLL(path)
    symbols = [*tables.LIBRARY.values(), *(v.removeprefix("llvm.") for v in tables.INTRINSICS.values()), "fmod"]
    renamed = {"roundeven": "rint", "copysign": "copysign"}
    missing = [f"{s}{f}" for s in symbols for f in ("", "f") if not hasattr(library, f"{renamed.get(s, s)}{f}")]
    assert not missing
