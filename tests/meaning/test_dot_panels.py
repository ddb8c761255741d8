"""Panels of constants in contractions of narrow numbers: they are packed when the program is compiled, and brought near
while others are used, where they come from beyond the second cache."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilewright.expr.nodes import Add, const
from tilewright.loops.edit import loops_around, statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function, Prefetch
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.lower.kernels.hoist_constants import split_head
from tilewright.plan.choose import schedule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

PAIRS = Target.parse("x86-64-v4 +avx512bf16").with_core(dots={"x86.avx512bf16.dot_bf16": 0.5})
ARM_PAIRS = Target.parse("aarch64 +bf16")

BATCHED = """
func batched(v: bf16[{b}, {k}, {m}, 2], u: bf16[{b}, {k}, 2, {n}] in constant, y: f32[{b}, {m}, {n}]):
  for b in 0..{b}, i in 0..{m}, j in 0..{n}, k in 0..{k}, p in 0..2:
    block dot(vb = b, vi = i, vj = j, reduce vk = k, reduce vp = p):
      init: y[vb, vi, vj] = 0
      y[vb, vi, vj] += f32(v[vb, vk, vi, vp]) * f32(u[vb, vk, vp, vj])
"""
WINDOWS = """
func windows(x: bf16[1, {k}, {m}, {m}], f: bf16[{n}, {k}, 1, 1] in constant, y: f32[1, {n}, {m}, {m}]):
  for i in 0..1, o in 0..{n}, p in 0..{m}, q in 0..{m}, c in 0..{k}, a in 0..1, b in 0..1:
    block dot(vi = i, vo = o, vp = p, vq = q, reduce vc = c, reduce va = a, reduce vb = b):
      init: y[vi, vo, vp, vq] = 0
      y[vi, vo, vp, vq] += f32(x[vi, vc, vp + va, vq + vb]) * f32(f[vo, vc, va, vb])
"""


def function(text: str, **sizes: int) -> Function:
    found = parse(text.format(**sizes))
    assert isinstance(found, Function)
    return found


def small(target: Target, times: int) -> Target:
    """The machine with caches that hold so many times less."""
    return dataclasses.replace(
        target, caches=tuple(dataclasses.replace(c, bytes=c.bytes // times) for c in target.caches)
    )


def made(f: Function, target: Target, template: str) -> Schedule:
    """The default schedule, by this template, which its trace makes again."""
    s, decision = schedule(f, target)
    assert decision.template == template and not decision.refusals
    verify(s.func)
    again = Schedule(f)
    again.replay(s.trace)
    assert str(again.func) == str(s.func)
    return s


def prefetches(f: Function) -> list[Prefetch]:
    """Those of operands: rows of the result are asked for, too, where there is a next tile."""
    return [s for s in statements(f.body) if isinstance(s, Prefetch) and s.place.buffer is not f.params[-1]]


def compare(plain: Function, found: Function) -> None:
    """Both compute the same of small integers, all sums of which are exact."""
    random = np.random.default_rng(0)
    shapes = [[int(e.value) for e in b.shape] for b in plain.params]  # type: ignore[attr-defined]
    arrays = [
        random.integers(-7, 8, shape).astype(b.dtype.numpy) for shape, b in zip(shapes, plain.params, strict=True)
    ]
    expected, got = ([a.copy() for a in arrays] for _ in range(2))
    evaluate(plain, expected)
    evaluate(found, got)
    assert expected[-1].any()
    np.testing.assert_array_equal(got[-1], expected[-1])


@pytest.mark.parametrize("target", [PAIRS, ARM_PAIRS], ids=str)
@pytest.mark.parametrize("sizes", [(1, 2, 5, 20), (9, 3, 17, 33), (16, 2, 49, 40)], ids=str)
def test_panels_of_batches_are_packed_beforehand(sizes: tuple[int, int, int, int], target: Target) -> None:
    """However many batches the threads share: packing is no part of what they do."""
    b, k, m, n = sizes
    f = function(BATCHED, b=b, k=k, m=m, n=n)
    s = made(f, target, "contraction")
    hoisted = split_head(s.func)
    assert hoisted is not None
    assert [p.name for p in hoisted.kernel.params] == ["v", "u.cache", "y"]
    compare(f, s.func)


@pytest.mark.parametrize(
    ("template", "text"), [("contraction", BATCHED), ("transposed", WINDOWS)], ids=["products", "windows"]
)
def test_panels_from_afar_are_brought_near(template: str, text: str) -> None:
    """All of the next panel is asked for while one is used. Filters of a window that stay in the second cache while
    tiles use them are not asked for; panels of a product are, for others have been read since the last call."""
    f = function(text, b=9, k=4, m=3 if text is WINDOWS else 21, n=400 if text is WINDOWS else 96)
    assert bool(prefetches(made(f, PAIRS, template).func)) == (text is BATCHED)
    s = made(f, PAIRS if text is BATCHED else small(PAIRS, 4096), template)
    asked = prefetches(s.func)
    assert asked
    for each in asked:
        loops = [loop.var for loop in loops_around(s.func.body, each)]
        later = [i.a for i in each.place.indices if isinstance(i, Add) and i.b is const(1)]
        assert len(later) == 1 and later[0] in loops[:-1], "the panel after the one in use"
    compare(f, s.func)


def test_a_single_tile_of_rows_asks_for_nothing() -> None:
    """It reads each panel once, and could only ask for what it reads next itself."""
    f = function(BATCHED, b=3, k=8, m=5, n=96)
    assert not any(isinstance(s, Prefetch) for s in statements(made(f, small(PAIRS, 4096), "contraction").func.body))
