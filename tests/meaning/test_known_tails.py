"""The pass that cuts masked stores of a known number of lanes: the same elements are written, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from stages import close
from tilewright.compiler import compile_module
from tilewright.core.node import Node
from tilewright.expr.nodes import Add
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import statements, transform_statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function, If, Store
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.known_tails import known_tails
from tilewright.target import Target
from tilewright.target.host import current_host

V2, V3, V4, NEON = (Target.parse(name) for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"))


def masked(mask: str, value: str = "max(x[ramp(i*8, 1, 8)] * broadcast(w[i], 8), t[0:8])") -> Function:
    made = parse(f"""
func f(x: f32[64], w: f32[8], y: f32[64]):
  alloc t: f32[8] in register
  t[0:8] = x[0:8] + x[8:16]
  for i in 0..8:
    if {mask}:
      y[i*8:i*8 + 8] = {value}
""")
    assert isinstance(made, Function)
    return made


def results(function: Function) -> np.ndarray:
    rng = np.random.default_rng(0)
    arrays = {p.name: rng.standard_normal(int(p.shape[0].value)).astype(np.float32) for p in function.params}  # type: ignore[attr-defined]
    evaluate(function, arrays)
    return arrays["y"]


@pytest.mark.parametrize("lanes", range(1, 8))
@pytest.mark.parametrize("target", [V2, V3, NEON], ids=str)
def test_so_many_lanes_are_stored_in_parts(lanes: int, target: Target) -> None:
    function = masked(f"ramp(i32(0), 1, 8) < broadcast({lanes}, 8)")
    made = known_tails(function, target)
    verify(made)
    assert same(made, parse(str(made)))
    stores = [s for s in statements(made.body) if type(s) is Store and s.buffer.name == "y"]
    assert sorted(s.value.lanes for s in stores) == [1 << n for n in range(3) if lanes >> n & 1]
    assert not any(type(s) is If for s in statements(made.body))
    np.testing.assert_array_equal(results(made), results(function))


@pytest.mark.parametrize(
    ("mask", "value"),
    [
        ("ramp(i32(0), 1, 8) < broadcast(i32(i), 8)", "x[i*8:i*8 + 8]"),  # as many as a loop says
        ("broadcast(3, 8) <= ramp(i32(0), 1, 8)", "x[i*8:i*8 + 8]"),  # the last lanes
        ("i < 3", "x[i*8:i*8 + 8]"),
        ("ramp(i32(0), 1, 8) < broadcast(3, 8)", "y[ramp(i*8 + 7, -1, 8)]"),  # its own buffer, elsewhere
    ],
)
def test_what_is_not_known_stays(mask: str, value: str) -> None:
    function = masked(mask, value)
    assert known_tails(function, V3) is function


@pytest.mark.parametrize(("lanes", "cut"), [(4, True), (6, False), (7, False)])
def test_many_operations_are_done_once(lanes: int, cut: bool) -> None:
    """One part computes as much as the whole vector, two parts twice as much."""
    value = "x[i*8:i*8 + 8]"
    for _ in range(40):
        value = f"max({value}, t[0:8]) + t[0:8]"
    function = masked(f"ramp(i32(0), 1, 8) < broadcast({lanes}, 8)", value)
    assert (known_tails(function, V3) is not function) == cut


def test_parts_that_a_value_has_often_are_cut_once() -> None:
    """A value doubled again and again has few parts, and as many paths to them as no walk ends."""

    def doubled(node: Node) -> Node:
        if type(node) is not Store or node.buffer.name != "y":
            return node
        value = node.value
        for _ in range(64):
            value = Add(value, value)
        return node.replace(value=value)

    function = masked("ramp(i32(0), 1, 8) < broadcast(4, 8)")
    function = function.replace(body=transform_statements(function.body, doubled))
    assert known_tails(function, V3) is not function


def test_a_buffer_may_be_changed_in_place() -> None:
    function = masked("ramp(i32(0), 1, 8) < broadcast(5, 8)", "y[i*8:i*8 + 8] * broadcast(2.0, 8)")
    made = known_tails(function, V3)
    assert made is not function
    np.testing.assert_array_equal(results(made), results(function))


def test_registers_of_masks_need_no_parts() -> None:
    function = masked("ramp(i32(0), 1, 8) < broadcast(5, 8)")
    assert known_tails(function, V4) is function


@pytest.mark.parametrize("columns", [1, 3, 4, 6, 7, 12, 15])
@pytest.mark.parametrize("target", [V2, V3], ids=str)
def test_products_of_few_columns(columns: int, target: Target) -> None:
    if not target.is_runnable_on(current_host()):
        pytest.skip(f"this machine does not run {target}")
    rng = np.random.default_rng(columns)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((37, 20), (20, columns)))
    model = parse_module(
        f"graph main(x: f32[37, 20], w: f32[20, {columns}]) -> y:\n"
        f'  y: f32[37, {columns}] = contract(x, w, spec="ik,kj->ij")\n'
    )
    (made,) = compile_module(model, target, threads=1)(x, w)
    close(made, x @ w, "product", 1e-5)
