"""Expansions of functions: their coefficients are the fitted ones, and `work_of` counts what they are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.functions.expansions import IN_DOUBLE, NATIVE
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
