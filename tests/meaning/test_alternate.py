"""Loops that run to and fro: the order of iterations is the one that is asked for, and no result depends on it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tilewright as tw
from stages import close, stages_of
from tilewright.compiler import compile_module
from tilewright.graph.parse import parse_module
from tilewright.loops.evaluate import evaluate
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.report.errors import InternalError
from tilewright.target import Target, native

LAST = """
func last[n, turn](x: i64[n, 1], y: i64[1]):
  parallel i in 0..n backward turn == 1:
    y[0] = x[i, 0]
"""
"""The one program whose result tells the order: it breaks the law that iterations are independent."""


@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_last_iteration_is_the_first_backward(n: int) -> None:
    text = LAST.replace("[n, turn]", "[n]").replace("x: i64[n, 1]", "x: i64[n, 1], turn: i64[1]")
    function = parse(text.replace("turn == 1", "turn[0] == 1"))
    verify(function)
    assert str(parse(str(function))) == str(function)
    kernel = tw.build(function, threads=1)
    for turn, expected in ((0, n - 1), (1, 0), (2, n - 1)):
        x = np.arange(n).reshape(n, 1)
        for run in (lambda *a: evaluate(function, list(a)), kernel):
            y = np.full(1, -1)
            run(x, np.array([turn]), y)
            assert y[0] == expected


def test_only_parallel_loops_turn_round() -> None:
    with pytest.raises(InternalError, match="the for loop i runs backward"):
        verify(parse(LAST.replace("parallel", "for").replace("[n, turn]", "[n]").replace("turn == 1", "n == 1")))


MODEL = """
graph main[s](x: f32[s, 1, 1024], h: f32[1, 256]) -> last, all:
  w: f32[256, 1024] = constant(name=@w)
  last: f32[1, 256], all: f32[s, 1, 256] = scan(h, x, w, body="cell", steps=s, states=1,
    scanned=(forward,), stacked=(forward,))

graph cell(h: f32[1, 256], x: f32[1, 1024], w: f32[256, 1024]) -> t, t as row:
  p: f32[1, 1024] = contract(h, w, spec="ij,jk->ik")
  q: f32[1, 1024] = add(p, x)
  r: f32[1, 256] = slice(q, starts=(0, 128), sizes=(1, 256), steps=(1, 1))
  t: f32[1, 256] = tanh(r)
"""


def model() -> tw.Module:
    w = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
    return parse_module(MODEL.strip(), {"w": w})


def inputs(steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(steps)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((steps, 1, 1024), (1, 256))]


def with_second_cache(size: int) -> Target:
    """This machine with a second cache of so many bytes; the weights are 1 MiB."""
    first, second, *others = native().caches
    return dataclasses.replace(native(), caches=(first, dataclasses.replace(second, bytes=size), *others))


def test_steps_alternate_where_weights_do_not_stay_in_cache() -> None:
    text = str(stages_of(model(), with_second_cache(1 << 20)).after("alternate").program)
    assert "call contract_add.turning[step%2](" in text
    assert "func contract_add.turning[turn](" in text
    assert " backward turn == 1:" in text


def test_weights_that_stay_in_cache_are_left_alone() -> None:
    record = stages_of(model(), with_second_cache(2 << 20))
    assert record.after("alternate").program is record.after("bufferize").program


def test_no_result_depends_on_the_direction() -> None:
    plain = compile_module(model(), with_second_cache(2 << 20))
    for threads in (1, 2, 3):
        turning = compile_module(model(), with_second_cache(1 << 20), threads=threads)
        for steps in (0, 1, 5):
            close(turning(*inputs(steps)), plain(*inputs(steps)), "turning", 0.0)
