"""Convolutions of narrow numbers with channels along the lanes: schedules for machines that are not here, in the
evaluator; which kernels they are for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.expr.dtypes import DTYPES
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.plan.choose import schedule
from tilewright.target import Target

Array = np.ndarray[Any, Any]

PAIRS = Target.parse("x86-64-v4 +avx512bf16").with_core(dots={"x86.avx512bf16.dot_bf16": 0.5})
QUADS = Target.parse("x86-64-v4 +avx512vnni")
ARM_PAIRS = Target.parse("aarch64 +bf16")

CONSTANT = " in constant"
CONVOLUTION = """
func convolution(x: {a}[{n}, {c}, {h}, {w}], f: {b}[{o}, {c}, {k}, {k}]{place}, y: f32[{n}, {o}, {p}, {q}]):
  alloc s: {sums}[{n}, {o}, {p}, {q}] in arena
  for i in 0..{n}, o in 0..{o}, p in 0..{p}, q in 0..{q}, c in 0..{c}, a in 0..{k}, b in 0..{k}:
    block dot(vi = i, vo = o, vp = p, vq = q, reduce vc = c, reduce va = a, reduce vb = b):
      init: s[vi, vo, vp, vq] = 0
      s[vi, vo, vp, vq] += {sums}(x[vi, vc, vp*{s} + va, vq*{s} + vb]) * {sums}(f[vo, vc, va, vb])
  for i in 0..{n}, o in 0..{o}, p in 0..{p}, q in 0..{q}:
    block out(vi = i, vo = o, vp = p, vq = q):
      y[vi, vo, vp, vq] = max(f32(s[vi, vo, vp, vq]), 0.0)
"""


def convolution(
    types: tuple[str, str, str],
    n: int,
    c: int,
    o: int,
    size: tuple[int, int],
    k: int,
    stride: int,
    place: str = CONSTANT,
) -> Function:
    h, w = size
    out = [(d - k) // stride + 1 for d in size]
    a, b, sums = types
    found = parse(
        CONVOLUTION.format(a=a, b=b, sums=sums, n=n, c=c, o=o, h=h, w=w, k=k, s=stride, p=out[0], q=out[1], place=place)
    )
    assert isinstance(found, Function)
    return found


def numbers(function: Function) -> list[Array]:
    """Small integers for each parameter: all sums of them are exact."""
    random = np.random.default_rng(0)
    made = []
    for b in function.params:
        shape = [int(e.value) for e in b.shape]  # type: ignore[attr-defined]
        low = 0 if b.dtype.name.startswith("u") else -7
        made.append(random.integers(low, 8, shape).astype(DTYPES[b.dtype.name].numpy))
    return made


CASES = [(1, 4, 16, (6, 7), 3, 1), (2, 2, 21, (7, 6), 3, 2), (1, 8, 40, (5, 16), 2, 1), (1, 4, 16, (9, 9), 5, 3)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", [PAIRS, ARM_PAIRS], ids=str)
def test_pairs_of_bf16(case: tuple[int, int, int, tuple[int, int], int, int], target: Target) -> None:
    f = convolution(("bf16", "bf16", "f32"), *case)
    s, decision = schedule(f, target)
    found = s.func
    assert decision.template == "transposed" and not decision.refusals
    assert "dot_bf16" in str(found)
    verify(found)
    assert same(parse(str(found)), found)
    compare(f, found)


def compare(plain: Function, found: Function) -> None:
    arrays = numbers(plain)
    expected, got = ([a.copy() for a in arrays] for _ in range(2))
    evaluate(plain, expected)
    evaluate(found, got)
    assert expected[-1].any()
    np.testing.assert_array_equal(got[-1], expected[-1])


def test_quads_of_bytes() -> None:
    f = convolution(("u8", "i8", "i32"), 1, 8, 20, (6, 9), 3, 1)
    s, decision = schedule(f, QUADS)
    assert decision.template == "transposed" and "dot_u8i8" in str(s.func)
    compare(f, s.func)


REFUSED = [
    ((("bf16", "bf16", "f32"), 1, 3, 32, (8, 8), 3, 1), PAIRS),
    ((("bf16", "bf16", "f32"), 1, 4, 8, (8, 8), 3, 1), PAIRS),
    ((("bf16", "bf16", "f32"), 1, 4, 32, (8, 8), 3, 1, ""), PAIRS),
    ((("bf16", "bf16", "f32"), 1, 4, 32, (8, 8), 3, 1), Target.parse("x86-64-v4")),
    ((("u8", "i8", "i32"), 1, 6, 32, (8, 8), 3, 1), QUADS),
]


@pytest.mark.parametrize("given", REFUSED, ids=["odd", "few channels", "not constant", "no instruction", "not quads"])
def test_others_are_not_for_it(given: tuple[Any, Target]) -> None:
    """They run otherwise, and compute the same."""
    f = convolution(*given[0])
    s, decision = schedule(f, given[1])
    assert decision.template != "transposed" or "instruct" not in str(s.func)
    compare(f, s.func)
