"""Operands of contractions that are read through the movement that makes them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph.nodes import GraphFunction
from tilewright.plan.fusion.planner import choose
from tilewright.target import Target

TRANSPOSED = """
graph main(x: f32[2, {m}, {k}], y: f32[2, {n}, {k}]) -> {results}:
  t: f32[2, {k}, {n}] = transpose(y, perm=(0, 2, 1))
  s: f32[2, {k}, {n}] = tanh(t)
  z: f32[2, {m}, {n}] = contract(x, {operand}, spec="bik,bkj->bij")
  r: f32[2, {m}, {n}] = relu(z)
"""
SLICED = """
graph main(x: f32[{far}, {k}], y: f32[{k}, {n}]) -> r:
  t: f32[{m}, {k}] = slice(x, starts=({start}, 0), sizes=({m}, {k}), steps=({step}, 1))
  z: f32[{m}, {n}] = contract(t, y, spec="ik,kj->ij")
  r: f32[{m}, {n}] = relu(z)
"""


def plan(text: str) -> list[str]:
    function = tw.parse(text)
    assert isinstance(function, GraphFunction)
    return str(choose(function, Target.parse("x86-64-v3"))).splitlines()


def kept(text: str) -> str:
    """The graph without the map of the transposed operand."""
    return "\n".join(line for line in text.splitlines() if "tanh" not in line) + "\n"


def test_a_transposed_operand_is_read_through() -> None:
    text = kept(TRANSPOSED.format(m=64, k=64, n=64, results="r", operand="t"))
    assert plan(text) == ["contraction: t, z, r"]


def test_an_operand_that_is_computed_is_stored() -> None:
    """A transpose before a map is not the last thing that makes the operand."""
    text = TRANSPOSED.format(m=64, k=64, n=64, results="r", operand="s")
    assert plan(text) == ["cell: t, s", "contraction: z, r"]


def test_an_operand_that_is_stored_anyway_is_read() -> None:
    text = kept(TRANSPOSED.format(m=64, k=64, n=64, results="r, t", operand="t"))
    assert plan(text) == ["cell: t", "contraction: z, r"]


def test_the_other_operand_is_read_through_a_slice_and_through_a_transpose() -> None:
    assert plan(SLICED.format(far=128, m=64, k=64, n=64, start=0, step=2)) == ["contraction: t, z, r"]
    turned = """
graph main(x: f32[64, 64], y: f32[64, 64]) -> z:
  t: f32[64, 64] = transpose(x, perm=(1, 0))
  z: f32[64, 64] = contract(t, y, spec="ik,kj->ij")
"""
    assert plan(turned) == ["contraction: t, z"]


@pytest.mark.parametrize("sizes", [(1, 3, 5), (17, 33, 40), (64, 64, 64), (5, 200, 7), (130, 48, 100)])
def test_what_a_transposed_operand_comes_to(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    exe = tw.compile(tw.parse(kept(TRANSPOSED.format(m=m, k=k, n=n, results="r", operand="t"))), threads=2)
    rng = np.random.default_rng(m)
    x, y = rng.standard_normal((2, m, k)).astype(np.float32), rng.standard_normal((2, n, k)).astype(np.float32)
    np.testing.assert_allclose(exe(x, y)[0], np.maximum(x @ y.transpose(0, 2, 1), 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(1, 3, 5), (17, 33, 40), (64, 64, 64), (5, 200, 7), (130, 48, 100)])
@pytest.mark.parametrize(("start", "step"), [(0, 2), (3, 1), (1, 3)])
def test_what_a_sliced_operand_comes_to(sizes: tuple[int, int, int], start: int, step: int) -> None:
    m, k, n = sizes
    far = start + m * step
    exe = tw.compile(tw.parse(SLICED.format(far=far, m=m, k=k, n=n, start=start, step=step)), threads=2)
    rng = np.random.default_rng(m)
    x, y = rng.standard_normal((far, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    np.testing.assert_allclose(
        exe(x, y)[0], np.maximum(x[start : start + m * step : step] @ y, 0), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("past", [1, 63, 64, 130])
@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
def test_an_operand_of_a_call_is_transposed_in_vectors(past: int, target: str) -> None:
    """Scores of queries by the keys of a dynamic number of tokens: whole panels are apart from the last one."""
    keys = tw.parse("""
graph main[n](q: f32[4, 4, 64], k: f32[4, n, 64]) -> s:
  s: f32[4, 4, n] = contract(q, k, spec="ghd,gnd->ghn")
""")
    exe = tw.compile(keys, target=target)
    (kernel,) = exe.kernels
    steps = exe.show(after="schedule")
    assert "contraction" in {d.template for d in exe.decisions.values()}, kernel
    assert "unroll d2i in 0..4" in steps
    rng = np.random.default_rng(past)
    q, k = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((4, 4, 64), (4, past, 64)))
    np.testing.assert_array_equal(exe(q, k)[0], np.einsum("ghd,gnd->ghn", q, k))


@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
@pytest.mark.parametrize("rows", [16, 64, 100])
def test_panels_of_a_transposed_operand_are_packed_one_by_one(rows: int, target: str) -> None:
    """A weight of a training step: as large a copy of it would take as long to write and to read again."""
    text = """
graph main(x: f32[{rows}, 320], w: f32[768, 320]) -> z:
  t: f32[320, 768] = transpose(w, perm=(1, 0))
  z: f32[{rows}, 768] = contract(x, t, spec="ik,kj->ij")
"""
    exe = tw.compile(tw.parse(text.format(rows=rows)), threads=2, target=target)
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, 320)).astype(np.float32), rng.standard_normal((768, 320)).astype(np.float32)
    np.testing.assert_allclose(exe(x, w)[0], x @ w.T, rtol=1e-4, atol=1e-4)
    assert exe.arena().reserved < w.nbytes // 2
