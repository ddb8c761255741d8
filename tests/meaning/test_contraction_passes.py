"""Passes around contractions: positions merged into one axis; what kernels compute from constants at compile time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import tilewright as tw
from graph_strategies import Program, agree
from tilewright.compiler.constants import run_functions
from tilewright.expr.nodes import const
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.graph.symbolic import Call
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.merge_positions import merge_positions
from tilewright.lower.graph.widen_padding import widen_padding
from tilewright.lower.kernels.hoist_constants import Array, Task, hoist_constants
from tilewright.target import Target

POINTWISE = """
graph main[n, h](x: f64[n, 3, h, 5], r: f64[n, 4, h, 5]) -> y:
  w: f64[4, 3, 1, 1] = constant(name=@w)
  b: f64[4, 1, 1] = constant(name=@b)
  c: f64[n, 4, h, 5] = contract(x, w, spec="n c i+a j+b, o c a b -> n o i j", sizes=(("i", h), ("j", 5)))
  d: f64[n, 4, h, 5] = add(c, b)
  e: f64[n, 4, h, 5] = add(r, d)
  y: f64[n, 4, h, 5] = relu(e)
"""
ROWS = """
graph main(x: f64[1, 4, 3, 6], r: f64[1, 4, 3, 5]) -> y:
  w: f64[6, 5] = constant(name=@w)
  b: f64[5] = constant(name=@b)
  c: f64[1, 4, 3, 5] = contract(x, w, spec="n i j c, c o -> n i j o")
  d: f64[1, 4, 3, 5] = add(c, b)
  e: f64[1, 4, 3, 5] = add(r, d)
  y: f64[1, 4, 3, 5] = relu(e)
"""
GROUPED = """
graph main(x: f64[2, 4, 6, 5]) -> y:
  w: f64[2, 2, 3, 3, 3] = constant(name=@w)
  b: f64[6, 1, 1] = constant(name=@b)
  s: f64[2, 2, 2, 6, 5] = reshape(x, shape=(2, 2, 2, 6, 5))
  c: f64[2, 2, 3, 4, 3] = contract(s, w, spec="n g c i+p j+q, g c p q o -> n g o i j", sizes=(("i", 4), ("j", 3)))
  d: f64[2, 6, 4, 3] = reshape(c, shape=(2, 6, 4, 3))
  y: f64[2, 6, 4, 3] = add(d, b)
"""
STRIDED = """
graph main(x: f64[1, 3, 7, 5]) -> y:
  w: f64[4, 3, 1, 1] = constant(name=@w)
  y: f64[1, 4, 4, 3] = contract(x, w, spec="n c i*2+a j*2+b, o c a b -> n o i j", sizes=(("i", 4), ("j", 3)))
"""


def program(text: str, *shapes: tuple[int, ...]) -> Program:
    """The text with random constants and inputs of these shapes."""
    rng = np.random.default_rng(5)
    module = parse_module(text)
    constants = {}
    for node in module.graph.nodes:
        if node.op.name == "constant":
            (value,) = node.outputs
            shape = value.type.static_shape()
            assert shape is not None
            constants[node.attrs.name] = rng.standard_normal(shape)
    return Program(module.with_constants(constants), [rng.standard_normal(s) for s in shapes])


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (3, 0), (0, 2)])
def test_pointwise_positions_become_one_axis(size: tuple[int, int]) -> None:
    n, h = size
    given = program(POINTWISE, (n, 3, h, 5), (n, 4, h, 5))
    after = eliminate_dead(merge_positions(given.module))
    agree(given, after, 1e-12)
    ops = [node.op.name for node in after.graph.nodes if node.op.name not in ("constant", "reshape")]
    assert ops == ["contract", "add", "add", "relu"], "the reshape stands behind what follows"
    (contract,) = [node for node in after.graph.nodes if node.op.name == "contract"]
    assert contract.outputs[0].type.rank == 3


def test_leading_positions_of_known_extents_become_rows() -> None:
    given = program(ROWS, (1, 4, 3, 6), (1, 4, 3, 5))
    after = eliminate_dead(merge_positions(given.module))
    agree(given, after, 1e-12)
    (contract,) = [node for node in after.graph.nodes if node.op.name == "contract"]
    assert contract.outputs[0].type.shape == (const(12), const(5))
    ops = [node.op.name for node in after.graph.nodes if node.op.name not in ("constant", "reshape")]
    assert ops == ["contract", "add", "add", "relu"]


@pytest.mark.parametrize("sizes", [(4, 3), (1, 7), (5, 1), (0, 3), (13, 11)])
def test_leading_positions_of_dynamic_extents_become_rows(sizes: tuple[int, int]) -> None:
    """A batch of texts is as many rows as there are words: no tile of rows ends with each text."""
    text = ROWS.replace("graph main(", "graph main[m, n](").replace("[1, 4, 3,", "[1, m, n,")
    given = program(text, (1, *sizes, 6), (1, *sizes, 5))
    after = eliminate_dead(merge_positions(given.module))
    agree(given, after, 1e-12)
    (contract,) = [node for node in after.graph.nodes if node.op.name == "contract"]
    assert [str(e) for e in contract.outputs[0].type.shape] == ["m*n", "5"]
    ops = [node.op.name for node in after.graph.nodes if node.op.name not in ("constant", "reshape")]
    assert ops == ["contract", "add", "add", "relu"]
    (found,) = tw.compile(given.module)(*given.inputs)
    (expected,) = evaluate(given.module, given.inputs).values()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


ONE_COLUMN = """
graph main(x: f64[n, 6, 1, 1], r: f64[n, 4, 1, 1]) -> y:
  w: f64[4, 6, 1, 1] = constant(name=@w)
  b: f64[1, 4, 1, 1] = constant(name=@b)
  c: f64[n, 4, 1, 1] = contract(x, w, spec="n c i+a j+b, o c a b -> n o i j", sizes=(("i", 1), ("j", 1)))
  d: f64[n, 4, 1, 1] = add(c, b)
  y: f64[n, 4, 1, 1] = mul(d, r)
""".replace("graph main(", "graph main[n](")


@pytest.mark.parametrize("n", [0, 1, 3])
def test_columns_are_axes_of_more_than_one_point(n: int) -> None:
    given = program(ONE_COLUMN, (n, 6, 1, 1), (n, 4, 1, 1))
    after = eliminate_dead(merge_positions(given.module))
    agree(given, after, 1e-12)
    (contract,) = [node for node in after.graph.nodes if node.op.name == "contract"]
    assert contract.outputs[0].type.shape[1:] == (const(4),)
    ops = [node.op.name for node in after.graph.nodes if node.op.name not in ("constant", "reshape")]
    assert ops == ["contract", "add", "mul"], "the reshape stands behind what follows"


@pytest.mark.parametrize("spec", ["i k, k j -> i j", "k j, i k -> i j"])
def test_a_result_of_one_point_stays(spec: str) -> None:
    text = f"""
graph main(x: f64[1, 6], w: f64[6, 1]) -> y:
  y: f64[1, 1] = contract({"x, w" if spec.startswith("i") else "w, x"}, spec="{spec}")
"""
    given = program(text, (1, 6), (6, 1))
    assert merge_positions(given.module) is given.module


REDUCED = """
graph main(x: f64[3, 4, 5], w: f64[5, 6]) -> y:
  c: f64[3, 4, 6] = contract(x, w, spec="i j k, k o -> i j o")
  m: f64[3, 4, 1] = reduce(c, kind=max, axes=(2,), keepdims=true)
  y: f64[3, 4, 6] = sub(c, m)
"""


def test_views_move_behind_reductions_of_whole_groups() -> None:
    given = program(REDUCED, (3, 4, 5), (5, 6))
    after = eliminate_dead(merge_positions(given.module))
    agree(given, after, 1e-12)
    (reduction,) = [node for node in after.graph.nodes if node.op.name == "reduce"]
    assert reduction.inputs[0].type.shape == (const(12), const(6))
    assert [node.op.name for node in after.graph.nodes if node.op.name != "reshape"] == ["contract", "reduce", "sub"]
    apart = program(
        REDUCED.replace("axes=(2,)", "axes=(1,)").replace("m: f64[3, 4, 1]", "m: f64[3, 1, 6]"), (3, 4, 5), (5, 6)
    )
    agree(apart, eliminate_dead(merge_positions(apart.module)), 1e-12)


@pytest.mark.parametrize("spec", ["n i j c, c o -> n j i o", "n i j c, i c o -> n i j o"])
def test_positions_that_a_contraction_tells_apart_stay(spec: str) -> None:
    text = ROWS.replace("n i j c, c o -> n i j o", spec).replace(
        "w: f64[6, 5]", "w: f64[4, 6, 5]" if "i c" in spec else "w: f64[6, 5]"
    )
    if "j i" in spec:
        text = text.replace("c: f64[1, 4, 3, 5]", "c: f64[1, 3, 4, 5]").split("  d:")[0].replace("-> y", "-> c")
    given = program(text, (1, 4, 3, 6), (1, 4, 3, 5))
    after = merge_positions(given.module)
    agree(given, after, 1e-12)
    (contract,) = [node for node in after.graph.nodes if node.op.name == "contract"]
    assert contract.outputs[0].type.rank == 4


def test_views_of_groups_move_behind_elementwise_operators() -> None:
    given = program(GROUPED, (2, 4, 6, 5))
    after = eliminate_dead(merge_positions(given.module))
    agree(given, after)
    assert after.graph.nodes[-1].op.name == "reshape"


def test_strided_positions_are_sliced_out_first() -> None:
    given = program(STRIDED, (1, 3, 7, 5))
    after = eliminate_dead(merge_positions(given.module))
    agree(given, after, 1e-12)
    assert [node.op.name for node in after.graph.nodes if node.op.name not in ("constant", "reshape")] == [
        "slice",
        "contract",
    ]


PADDED = """
graph main(x: f64[1, 6, 7, 5]) -> y:
  w: f64[6, 1, 3, 3, 1] = constant(name=@w)
  z: f64[] = full(value=f64(0.0), shape=())
  p: f64[1, 6, 9, 7] = pad(x, z, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
  s: f64[1, 6, 1, 9, 7] = reshape(p, shape=(1, 6, 1, 9, 7))
  y: f64[1, 6, 1, 7, 5] = contract(s, w, spec="n g c i+p j+q, g c p q o -> n g o i j", sizes=(("i", 7), ("j", 5)))
"""


def test_padding_goes_before_the_view_and_gets_room_for_vectors() -> None:
    given = program(PADDED, (1, 6, 7, 5))
    merged = eliminate_dead(merge_positions(given.module))
    agree(given, merged, 1e-12)
    assert [n.op.name for n in merged.graph.nodes][-3:] == ["reshape", "pad", "contract"]
    wide = eliminate_dead(widen_padding(merged, Target.parse("x86-64-v3")))
    agree(given, wide, 1e-12)
    (pad,) = [n for n in wide.graph.nodes if n.op.name == "pad"]
    assert [str(d) for d in pad.outputs[0].type.shape] == ["1", "6", "1", "9", "10"], "two vectors of 4 and two taps"


BY_TWO = """
graph main(x: f64[2, 3, 9, 13]) -> y:
  w: f64[4, 3, 3, 3] = constant(name=@w)
  y: f64[2, 4, 4, 6] = contract(x, w, spec="n c i*2+p j*2+q, o c p q -> n o i j", sizes=(("i", 4), ("j", 6)))
"""


def test_windows_that_move_by_two_get_a_padding_with_room_for_vectors() -> None:
    given = program(BY_TWO, (2, 3, 9, 13))
    wide = widen_padding(given.module, Target.parse("x86-64-v3"))
    agree(given, wide, 1e-12)
    (pad,) = [n for n in wide.graph.nodes if n.op.name == "pad"]
    assert str(pad.outputs[0].type) == "f64[2, 3, 9, 17]", "two vectors of 4, two elements apart, and two taps"


SCALARS = """
graph main(x: f64[]) -> y:
  w: f64[5] = constant(name=@w)
  y: f64[] = contract(x, w, spec=", k ->")
"""


def test_contractions_without_dimensions_stay() -> None:
    given = program(SCALARS, ())
    assert widen_padding(given.module, Target.parse("x86-64-v3")) is given.module


PACKED = """
graph main(x: f32[5, 7]) -> y:
  w: f32[7, 9] = constant(name=@w)
  v: f32[7, 9] = constant(name=@v)
  a: f32[5, 9] = call(x, w, callee="dense", symbols=())
  y: f32[5, 9] = call(x, v, callee="dense", symbols=())

func dense(x: f32[5, 7], w: f32[7, 9] in constant, y: f32[5, 9]):
  alloc packed: f32[3, 7, 4] in arena
  for a in 0..3, k in 0..7, b in 0..4:
    block pack(va = a, vk = k, vb = b):
      packed[va, vk, vb] = select(va*4 + vb < 9, w[vk, min(va*4 + vb, 8)], 0.0)
  for i in 0..5, j in 0..9, k in 0..7:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * packed[vj // 4, vk, vj % 4]
"""


def packed_module() -> Module:
    rng = np.random.default_rng(6)
    constants = {name: rng.standard_normal((7, 9), np.float32) for name in ("w", "v")}
    return parse_module(PACKED).with_constants(constants)


def test_packing_of_constants_runs_at_compile_time() -> None:
    module = packed_module()
    after = hoist_constants(module, run_functions)
    x = np.random.default_rng(7).standard_normal((5, 7), np.float32)
    (expected,), (found,) = (evaluate(m, [x]).values() for m in (module, after))
    np.testing.assert_array_equal(found, expected)
    assert {a.shape for a in after.constants.values()} == {(3, 7, 4)}, "the plain constants are gone"
    assert len(after.constants) == 2
    calls = [node for node in after.graph.nodes if isinstance(node.attrs, Call)]
    assert len({node.attrs.callee for node in calls}) == 1, "the kernel is still shared"
    assert "pack" not in str(after.functions["dense"].body)


TWO_KERNELS = """
graph main(x: f32[5, 7]) -> a, b:
  w: f32[7, 9] = constant(name=@w)
  v: f32[7, 9] = constant(name=@v)
  a: f32[5, 9] = call(x, w, callee="dense", symbols=())
  b: f32[5, 9] = call(x, w, v, callee="apart", symbols=())

func dense(x: f32[5, 7], w: f32[7, 9] in constant, y: f32[5, 9]):
  alloc packed: f32[9, 7] in arena
  for a in 0..9, k in 0..7:
    block pack(va = a, vk = k):
      packed[va, vk] = w[vk, va]
  for i in 0..5, j in 0..9, k in 0..7:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * packed[vj, vk]

func apart(x: f32[5, 7], w: f32[7, 9] in constant, v: f32[7, 9] in constant, y: f32[5, 9]):
  alloc other: f32[9, 7] in arena
  alloc more: f32[9, 7] in arena
  for c in 0..9, k in 0..7:
    block pack(vc = c, vk = k):
      other[vc, vk] = w[vk, vc]
  for c in 0..9, k in 0..7:
    block pack2(vc = c, vk = k):
      more[vc, vk] = v[vk, vc] * 2.0
  for i in 0..5, j in 0..9, k in 0..7:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * (other[vj, vk] - more[vj, vk])
"""


def test_what_two_kernels_pack_alike_is_packed_once() -> None:
    module = parse_module(TWO_KERNELS).with_constants(packed_module().constants)
    tasks = []

    def run(given: Sequence[Task]) -> Sequence[tuple[Array, ...]]:
        tasks.extend(given)
        return run_functions(given)

    after = hoist_constants(module, run)
    x = np.random.default_rng(7).standard_normal((5, 7), np.float32)
    wanted, found = (evaluate(m, [x]) for m in (module, after))
    for name in ("a", "b"):
        np.testing.assert_array_equal(found[name], wanted[name])
    assert len(tasks) == 2, "w, and v times two"
    dense, apart = (node for node in after.graph.nodes if isinstance(node.attrs, Call))
    assert dense.inputs[1] is apart.inputs[1]
    assert len(after.constants) == 2


def test_what_reads_other_parameters_stays() -> None:
    text = PACKED.replace("w: f32[7, 9] in constant", "w: f32[7, 9]")
    module = parse_module(text).with_constants(packed_module().constants)
    assert hoist_constants(module, run_functions) is module
