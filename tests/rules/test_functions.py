"""Expansions of functions: their coefficients are the fitted ones, and `work_of` counts what they are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.build import cast
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.functions.expansions import IN_DOUBLE, NATIVE
from tilewright.expr.functions.nearest import expand_nearest, expand_nearest_number
from tilewright.expr.nodes import Call, Const, Div, Expr, Var, call, const
from tilewright.expr.work import Work, work_of
from tilewright.loops.nodes import Buffer, Function, Load, Store
from tilewright.lower.loops.expand_math import expand_math

TOOLS = Path(__file__).parents[2] / "tools"
FILES = ("real", "exponential", "logarithm", "error_function", "circular", "inverse_circular")
X, Y = Var("x", dtypes.f32), Var("y", dtypes.f32)


def test_the_coefficients_are_what_the_tool_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpmath")
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.delitem(sys.modules, "fit_polynomials", raising=False)
    fitted = {name: tuple(numbers) for name, _, numbers in importlib.import_module("fit_polynomials").tables()}
    found: dict[str, tuple[float, ...]] = {}
    for file in FILES:
        module = importlib.import_module(f"tilewright.expr.functions.{file}")
        found |= {name: value for name, value in vars(module).items() if name in fitted and isinstance(value, tuple)}
    assert found.keys() == fitted.keys()
    for name, numbers in fitted.items():
        assert found[name] == numbers, name


def expanded(change: Callable[[Expr], Expr], dtype: DType) -> Expr:
    """The value that is stored once `expand_math` is done with it."""
    x, y = (Buffer(name, dtype, (const(1),)) for name in "xy")
    body = Store(y, (const(0),), change(Load(x, (const(0),))))
    made = expand_math(Function("f", (), (x, y), body)).body
    assert isinstance(made, Store)
    return made.value


def instructions(value: Expr, bits: int) -> Work:
    """The instructions of an expansion for vectors of numbers of so many bits, counted by another way."""
    total = {"chained": 0.0, "divides": 0.0, "roots": 0.0}
    for node in set(preorder(value)):
        assert isinstance(node, Expr)
        if isinstance(node, Const | Load) or (isinstance(node, Call) and node.fn.name in ("bits", "from_bits")):
            continue
        kind = "divides" if isinstance(node, Div) else "chained"
        if isinstance(node, Call) and node.fn.name == "sqrt":
            kind = "roots"
        wide = node.dtype.bits > bits or any(isinstance(a, Expr) and a.dtype.bits > bits for a in node.children())
        total[kind] += 2 if wide else 1
    return Work(**total)


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("name", [*NATIVE, *IN_DOUBLE])
def test_work_is_that_of_the_expansion(name: str, dtype: DType) -> None:
    work = work_of(call(name, Var("x", dtype)))
    assert work == instructions(expanded(lambda v: call(name, v), dtype), dtype.bits)
    assert work.chained > 10


def test_work_of_powers_is_that_of_their_expansions() -> None:
    assert work_of(call("pow", X, Y)) == instructions(
        expanded(lambda v: call("pow", v, v + 1.0), dtypes.f32), 32
    ) + Work(chained=-1)
    assert [work_of(call("pow", X, n)) for n in (2.0, 3.0, 4.0)] == [Work(chained=n) for n in (1, 2, 2)]


def test_work_of_a_power_of_the_library_is_done_element_by_element() -> None:
    x = Var("x", dtypes.f64)
    work = work_of(call("pow", x, x + 1.0))
    assert work.steps > 80 and work == Work(plain=1, steps=work.steps)


def test_work_of_erf_plus_one_is_that_of_its_own_expansion() -> None:
    plus_one = work_of(call("erf", X) + 1.0)
    assert plus_one == instructions(expanded(lambda v: call("erf", v) + 1.0, dtypes.f32), 32)
    assert plus_one.chained < work_of(call("erf", X)).chained + 1


def test_work_of_16_bit_floats_is_that_of_f32() -> None:
    assert work_of(call("exp", Var("x", dtypes.bf16))) == work_of(call("exp", X))


def test_shared_parts_are_counted_once() -> None:
    e = call("exp", X)
    assert work_of(e * e + e) == work_of(e) + Work(plain=2)


NUMBERS = (
    *(0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.5, 2.5, -2.5, 126.5, 127.5, -128.5, 254.5, 255.5, 65535.5, -32768.5),
    *(8388609.0, -8388611.0, 1e9, -1e9, 3e38, -3e38, np.inf, -np.inf, np.nan),
)


@pytest.mark.parametrize("zero", [0, 1, 110, -128, 127, 300])
@pytest.mark.parametrize("dtype", [dtypes.u8, dtypes.i8, dtypes.u16, dtypes.i16], ids=str)
def test_rounded_integers(dtype: DType, zero: int) -> None:
    """round(x) + z as an integer, and that less z as a float: the same, and so is the sign of zeros."""
    rounded = call("round", X) if zero == 0 else call("round", X) + float(zero)
    integer = cast(rounded, dtype)
    number = cast(cast(integer, dtypes.i32) - zero, dtypes.f32)
    made = expand_nearest(integer), expand_nearest_number(number)
    assert not any(isinstance(n, Call) and n.fn.name == "round" for n in preorder(made))
    draw = np.random.default_rng(0)
    more = [*draw.normal(0, 100, 200), *draw.integers(-70000, 70000, 100) / 2]
    for x in (*NUMBERS, *more):
        for e, other in zip((integer, number), made, strict=True):
            want, found = (evaluate(part, {X: np.float32(x)}) for part in (e, other))
            assert want == found and np.signbit(want) == np.signbit(found), (x, str(e), want, found)


def test_what_rounded_integers_are_not() -> None:
    """Numbers that are not rounded, wide integers, another zero point, one that is no integer or too large; f64."""
    byte = cast(call("round", X) + 3.0, dtypes.u8)
    for e in (
        cast(X + 3.0, dtypes.u8),
        cast(call("round", X), dtypes.i32),
        cast(call("round", X) + 0.5, dtypes.u8),
        cast(call("round", X) + 1e6, dtypes.u8),
        cast(call("round", Var("y", dtypes.f64)), dtypes.u8),
    ):
        assert expand_nearest(e) is e
    for e in (cast(cast(byte, dtypes.i32) - 2, dtypes.f32), cast(cast(byte, dtypes.i32), dtypes.f32)):
        assert expand_nearest_number(e) is e
