"""Passes over graphs keep results: random graphs give the same before and after each of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from graph_strategies import Program, agree, programs
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.lower.graph.eliminate_common import eliminate_common
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.fold_constants import fold_constants
from tilewright.lower.graph.multiply_reciprocals import multiply_reciprocals
from tilewright.lower.graph.orient_constants import orient_constants
from tilewright.lower.graph.read_in_place import read_in_place
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.target import native
from tilewright.types.tensor import TensorType

ordinary = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
PASSES: tuple[Callable[[Module], Module], ...] = (fold_constants, simplify_graph, eliminate_common, eliminate_dead)


@pytest.mark.parametrize("step", PASSES, ids=lambda p: p.__name__)
@given(program=programs())
@ordinary
def test_pass_keeps_results(step: Callable[[Module], Module], program: Program) -> None:
    after = step(program.module)
    agree(program, after)
    assert len(after.graph.nodes) <= len(program.module.graph.nodes) * 3


@given(program=programs())
@ordinary
def test_orientation_keeps_results_up_to_rounding(program: Program) -> None:
    agree(program, orient_constants(program.module), tolerance=1e-12)


@given(program=programs())
@ordinary
def test_reading_in_place_keeps_results_up_to_rounding(program: Program) -> None:
    agree(program, read_in_place(program.module, native()), tolerance=1e-12)


@given(program=programs())
@ordinary
def test_reciprocals_keep_results_up_to_rounding(program: Program) -> None:
    agree(program, multiply_reciprocals(program.module), tolerance=1e-6)


def quotient(divisor: float, dtype: DType = dtypes.f32, shape: tuple[int, ...] = (3,)) -> Module:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtype, shape))
    return g.module({"y": g.op("div", x, g.scalar(divisor, dtype))})


@pytest.mark.parametrize(("divisor", "factor"), [(3.0, 1 / 3), (-8.0, -0.125), (2.0**126, 2.0**-126)])
def test_quotients_by_numbers_become_products(divisor: float, factor: float) -> None:
    after = eliminate_dead(multiply_reciprocals(quotient(divisor)))
    assert [node.op.name for node in after.graph.nodes][-1] == "mul"
    x = np.array([1.0, -0.0, 5.0], np.float32)
    (y,) = evaluate(after, {"x": x}).values()
    np.testing.assert_array_equal(y, x * np.float32(factor))


@pytest.mark.parametrize("divisor", [0.0, float("inf"), float("nan"), 2.0**127, 1e-39])
def test_quotients_without_a_normal_reciprocal_stay(divisor: float) -> None:
    module = quotient(divisor)
    assert multiply_reciprocals(module) is module


def test_one_number_is_divided() -> None:
    """It may be a scale, by which all of a tensor is quantized."""
    module = quotient(255.0, shape=())
    assert multiply_reciprocals(module) is module


def test_quotients_of_few_digits_stay() -> None:
    module = quotient(3.0, dtypes.bf16)
    assert multiply_reciprocals(module) is module


@given(program=programs())
@ordinary
def test_all_passes_settle(program: Program) -> None:
    """After a few rounds no pass changes anything, and results are still the same."""
    module = program.module
    for _ in range(6):
        before = module
        for step in PASSES:
            module = step(module)
        if module is before:
            break
    else:
        pytest.fail(f"still changing:\n{before}\n{module}")
    agree(program, module)


@given(program=programs())
@ordinary
def test_text_is_the_same_program(program: Program) -> None:
    verify(program.module)
    text = str(program.module)
    read = parse_module(text, program.module.constants)
    assert str(read) == text
    agree(program, read)


def test_nothing_to_do_is_the_same_object() -> None:
    g = GraphBuilder()
    n = g.symbol("n")
    x = g.param("x", TensorType.of(dtypes.f32, (n, 3)))
    w = g.constant("w", np.arange(12, dtype=np.float32).reshape(3, 4))
    module = g.module({"y": g.op("relu", g.op("contract", x, w, spec="ik,kj->ij"))})
    for step in (*PASSES, orient_constants):
        assert step(module) is module, step.__name__


def test_large_results_are_not_folded() -> None:
    g = GraphBuilder()
    row = g.constant("row", np.arange(100, dtype=np.float32))
    module = g.module({"y": g.op("broadcast", row, shape=(100, 100))})
    assert fold_constants(module) is module
    folded = fold_constants(module, limit=10_000).graph
    assert [node.op.name for node in folded.nodes] == ["constant", "constant"]


def test_a_failing_node_is_not_folded() -> None:
    g = GraphBuilder()
    rows = g.constant("rows", np.array([7], np.int64))
    module = g.module({"y": g.op("checked_indices", rows, limit=3, what="rows")})
    assert fold_constants(module) is module


def test_what_several_nodes_compute_of_one_constant_is_folded_once() -> None:
    """Also where the second of a chain of nodes reads what the first one became."""
    g = GraphBuilder()
    x, w = g.param("x", TensorType.of(dtypes.f32, (3, 2))), g.constant("w", np.arange(6, dtype=np.float32))
    sides = [g.op("transpose", g.op("reshape", w, shape=(2, 3)), perm=(1, 0)) for _ in range(2)]
    module = g.module({"y": g.op("mul", g.op("mul", x, sides[0]), sides[1])})
    folded = eliminate_dead(fold_constants(module))
    assert [node.op.name for node in folded.graph.nodes] == ["constant", "mul", "mul"]
    assert len(folded.constants) == 1
    given = {"x": np.ones((3, 2), np.float32)}
    expected = np.arange(6, dtype=np.float32).reshape(2, 3).T ** 2
    assert np.array_equal(evaluate(folded, given)["y"], expected)


def test_folded_scalars_become_numbers_in_the_program() -> None:
    g = GraphBuilder()
    two = g.scalar(2.0, dtypes.f32)
    module = fold_constants(g.module({"y": g.op("mul", two, two)}))
    assert "value=4.0" in str(module)
    assert not module.constants


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_single_elements_become_numbers_whatever_their_dimensions(shape: tuple[int, ...]) -> None:
    g = GraphBuilder()
    two = g.op("reshape", g.scalar(2.0, dtypes.f32), shape=shape)
    module = fold_constants(g.module({"y": g.op("mul", two, two)}))
    assert "value=4.0" in str(module)
    assert not module.constants


def test_guards_are_alive_and_unused_constants_are_not() -> None:
    g = GraphBuilder()
    n, m = g.symbol("n"), g.symbol("m")
    x = g.param("x", TensorType.of(dtypes.i64, (n,)))
    g.param("z", TensorType.of(dtypes.i64, (m,)))
    g.constant("unused", np.zeros(3, np.float32))
    g.op("neg", x)
    total = g.op("reduce", x, kind="sum", axes=(0,))
    g.size(total, "k", 0, n, "ones")
    g.op("add", x, g.params[1])
    module = eliminate_dead(g.module({"y": x}))
    assert [node.op.name for node in module.graph.nodes] == ["reduce", "size", "require"]
    assert not module.constants


def test_two_sizes_of_one_number_stay_two_symbols() -> None:
    g = GraphBuilder()
    count = g.param("count", TensorType.of(dtypes.i64, ()))
    sizes = [g.size(count, name, 0, 9, "ones") for name in ("k", "l")]
    made = {s.name: g.op("full", value=const(1, dtypes.u8), shape=(s,)) for s in sizes}
    module = g.module(made)
    agree(Program(module, [np.array(4, np.int64)]), eliminate_common(module))


def test_repeated_nodes_and_requirements_become_one() -> None:
    g = GraphBuilder()
    n, m = g.symbol("n"), g.symbol("m")
    x, y = (g.param(name, TensorType.of(dtypes.f32, (s,))) for name, s in (("x", n), ("y", m)))
    twice = [g.op("exp", g.op("add", x, y)) for _ in range(2)]
    g.nodes.insert(3, g.nodes[0].replace(source="again"))
    module = eliminate_common(g.module({"y": g.op("add", *twice)}))
    assert [node.op.name for node in module.graph.nodes] == ["require", "add", "exp", "add"]


def test_a_constant_against_the_access_is_turned_once() -> None:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.f32, (2, 3)))
    w = g.constant("w", np.arange(12, dtype=np.float32).reshape(4, 3))
    turned = orient_constants(g.module({"y": g.op("contract", x, w, spec="ik,jk->ij")}))
    assert 'spec="ik,kj->ij"' in str(turned)
    assert orient_constants(turned) is turned
    folded = eliminate_dead(fold_constants(turned))
    assert [node.op.name for node in folded.graph.nodes] == ["constant", "contract"]
    (array,) = folded.constants.values()
    assert array.shape == (3, 4)
    assert array.flags.c_contiguous
