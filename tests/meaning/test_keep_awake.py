"""The pass that keeps awake what multiplies and stores tiles: long loops use one, which changes no result."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_tile_windows import SAPPHIRE

from tilewright.codegen.assemble import assembly
from tilewright.compiler.pipeline import lower_function
from tilewright.loops.edit import allocations, statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function, Instruct, Store
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.keep_awake import keep_awake
from tilewright.types.scopes import Scope


def sums(terms: int, taps: int = 1, rows: int = 16) -> Function:
    """A tile of sums of so many steps of 32 terms, which is stored."""
    lanes, step = rows * 16, f"(a*{terms} + k)"
    made = parse(f"""
func f(x: bf16[{taps * terms * rows * 32}], w: bf16[{taps * terms * 512}], y: f32[{lanes}]):
  alloc t: f32[{lanes}] in register
  t[0:{lanes}] = x86.amx.zero_f32{suffix(rows)}(t[0:{lanes}])
  for a in 0..{taps}, k in 0..{terms}:
    t[0:{lanes}] = x86.amx.dot_bf16{suffix(rows)}({ramp("x", step, rows * 32)}, {ramp("w", step, 512)}, t[0:{lanes}])
  y[0:{lanes}] = x86.amx.move_f32{suffix(rows)}(t[0:{lanes}], y[0:{lanes}])
""")
    assert isinstance(made, Function)
    return made


def suffix(rows: int) -> str:
    return "" if rows == 16 else f".rows{rows}"


def ramp(buffer: str, step: str, lanes: int) -> str:
    return f"{buffer}[{step}*{lanes}:{step}*{lanes} + {lanes}]"


def idle_stores(function: Function) -> list[Store]:
    idle = [b for b in allocations(function.body) if b.scope is Scope.STACK and b.name.startswith("idle")]
    return [s for s in statements(function.body) if isinstance(s, Store) and s.buffer in idle]


@pytest.mark.parametrize(("terms", "taps", "rows"), [(96, 1, 16), (8, 12, 7), (200, 1, 1)])
def test_a_long_sum_stores_a_tile_in_each_iteration(terms: int, taps: int, rows: int) -> None:
    function = sums(terms, taps, rows)
    made = keep_awake(function)
    verify(made)
    assert same(made, parse(str(made)))
    (store,) = idle_stores(made)
    assert isinstance(store.value, Instruct)
    assert store.value.instruction.name == "x86.amx.zero_f32", "a whole tile, as the factor of columns is"
    rng = np.random.default_rng(0)
    found = []
    for f in (function, made):
        arrays = [rng.standard_normal(int(p.shape[0].value)).astype(ml_dtypes.bfloat16) for p in f.params[:2]]  # type: ignore[attr-defined]
        rng = np.random.default_rng(0)
        arrays.append(np.zeros(rows * 16, np.float32))
        evaluate(f, arrays)
        found.append(arrays[-1])
    np.testing.assert_array_equal(*found)


def test_its_code_stores_to_the_stack_and_holds_no_tile_longer() -> None:
    listing = assembly(lower_function(sums(96), SAPPHIRE).llvm, SAPPHIRE)
    assert listing.count("\ttilestored\t") == 2
    assert listing.count("\ttilezero\t") == 2


@pytest.mark.parametrize(("terms", "taps"), [(70, 1), (5, 9), (1, 1)])
def test_a_short_sum_stays(terms: int, taps: int) -> None:
    function = sums(terms, taps)
    assert keep_awake(function) is function


def followed_by(turns: int, value: str, rows: int = 14) -> Function:
    """A short sum that is stored to the stack, and read there by a nest of so many iterations of two vectors."""
    lanes = rows * 16
    made = parse(f"""
func f(x: bf16[{rows * 32}], w: bf16[512], z: f32[{turns * 32}]):
  alloc y: f32[{lanes}] in stack
  alloc t: f32[{lanes}] in register
  for j in 0..4:
    t[0:{lanes}] = x86.amx.zero_f32{suffix(rows)}(t[0:{lanes}])
    t[0:{lanes}] = x86.amx.dot_bf16{suffix(rows)}(x[0:{rows * 32}], w[0:512], t[0:{lanes}])
    y[0:{lanes}] = x86.amx.move_f32{suffix(rows)}(t[0:{lanes}], y[0:{lanes}])
    for i in 0..{turns}, v in 0..2:
      z[i*32 + v*16:i*32 + v*16 + 16] = {value}
""")
    assert isinstance(made, Function)
    return made


def polynomial(terms: int) -> str:
    made = "y[0:16]"
    for n in range(terms):
        made = f"{made}*y[0:16] + broadcast(f32({n}.0), 16)"
    return made


@pytest.mark.parametrize("rows", [16, 14])
def test_a_long_nest_behind_sums_multiplies_zeros_now_and_then(rows: int) -> None:
    function = followed_by(60, polynomial(20), rows)
    made = keep_awake(function)
    verify(made)
    assert same(made, parse(str(made)))
    products = [s for s in statements(made.body) if type(s) is Store and "dot_bf16" in str(s.value)]
    assert len(products) == 2
    assert str(made).count("if ") == 1, "in one of many iterations"
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(int(str(p.shape[0]))).astype(p.dtype.numpy) for p in function.params]
    found = []
    for f in (function, made):
        given = [a.copy() for a in arrays]
        evaluate(f, given)
        found.append(given[-1])
    np.testing.assert_array_equal(*found)
    listing = assembly(lower_function(made, SAPPHIRE).llvm, SAPPHIRE)
    assert listing.count("\ttdpbf16ps\t") == 2


@pytest.mark.parametrize(("turns", "terms"), [(60, 2), (8, 20)])
def test_a_short_nest_behind_sums_stays(turns: int, terms: int) -> None:
    function = followed_by(turns, polynomial(terms))
    assert keep_awake(function) is function


def test_a_long_nest_without_tiles_stays() -> None:
    made = parse(f"""
func f(y: f32[16], z: f32[1600]):
  for i in 0..100:
    z[i*16:i*16 + 16] = {polynomial(40)}
""")
    assert isinstance(made, Function)
    assert keep_awake(made) is made


def test_what_stores_tiles_itself_stays() -> None:
    made = parse("""
func f(x: bf16[65536], w: bf16[512], y: f32[32768]):
  alloc t: f32[256] in register
  for k in 0..128:
    t[0:256] = x86.amx.zero_f32(t[0:256])
    t[0:256] = x86.amx.dot_bf16(x[k*512:k*512 + 512], w[0:512], t[0:256])
    y[k*256:k*256 + 256] = x86.amx.move_f32(t[0:256], y[k*256:k*256 + 256])
""")
    assert isinstance(made, Function)
    assert keep_awake(made) is made
