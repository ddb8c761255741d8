"""Convolutions as Winograd's products of tiles whose factors are rounded to bf16: what they compute, how far they are
off, where they are chosen, and that their schedules can be replayed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_winograd import V3, convolution, exact, numbers, operators

from tilewright.compiler import compile_module
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import run_passes
from tilewright.core.switches import HALF, Switches
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.verify import verify
from tilewright.loops.nodes import Function
from tilewright.loops.same import same
from tilewright.lower.graph import winograd as rewriting
from tilewright.lower.graph.winograd import winograd
from tilewright.ops.accuracy import ROUNDED_GROWTH, WINDOW_ERROR, window_error, window_growth
from tilewright.plan.choose import schedule
from tilewright.plan.price.convolution import Sizes
from tilewright.plan.price.dots import pairs_of
from tilewright.plan.rewrite.winograd import Tiles, choose_tiles
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

Array = np.ndarray[Any, Any]
PAIRS = Target.parse("x86-64-v4 +avx512bf16").with_core(dots={"x86.avx512bf16.dot_bf16": 0.5})
ROUNDED = Tiles(2, 2)

LAYERS = [
    (1, 2, 3, 7, 7, 0, 1),
    (1, 6, 9, 8, 13, 1, 1),
    (2, 4, 20, 15, 18, 1, 1),
    (1, 32, 16, 14, 14, 1, 1),
    (1, 8, 33, 57, 33, 2, 1),
    (1, 2, 5, 9, 9, 0, 2),
    (2, 6, 16, 15, 13, 1, 2),
    (1, 16, 20, 28, 57, 1, 2),
]
"""Images, channels in and out, height and width, the zeros around, and the stride."""


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every convolution that tiles fit is computed by small ones of rounded factors."""
    monkeypatch.setattr(rewriting, "choose_tiles", lambda *_: ROUNDED)


def layer(n: int, c: int, o: int, height: int, width: int, pad: int, stride: int) -> tuple[Module, Array, Array]:
    x, w = numbers(n, c, height, width), numbers(o, c, 3, 3, seed=1)
    return convolution(x, w, pad, step="" if stride == 1 else f"*{stride}"), x, w


def scale_of(x: Array, w: Array) -> Array:
    sums: Array = np.abs(w.astype(np.float64)).sum((1, 2, 3))[None, :, None, None] * float(np.abs(x).max())
    return sums


@pytest.mark.parametrize("sizes", LAYERS, ids=str)
def test_within_the_bound(sizes: tuple[int, int, int, int, int, int, int], rounded: None) -> None:
    """The evaluator rounds as the graph says, and compiled code computes the same but for the order of its sums, and
    for a number now and then that another order rounds the other way."""
    module, x, w = layer(*sizes)
    pad, stride = sizes[-2:]
    made = winograd(module, PAIRS)
    verify(made)
    (product,) = (n for n in made.graph.nodes if n.op.name == "contract")
    assert [v.type.dtype.name for v in (*product.inputs, *product.outputs)] == ["bf16", "bf16", "f32"]
    wanted, bound = exact(x, w, pad, stride), window_error(w, 2, stride, rounded=True) * scale_of(x, w)
    expected = evaluate(made, [x])["y"]
    assert (np.abs(expected - wanted) <= bound).all()
    (found,) = compile_module(made)(x)
    assert found.shape == wanted.shape
    assert (np.abs(found - wanted) <= bound).all()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2.0**-9 * float(np.abs(expected).max()))


@pytest.mark.parametrize("spread", [0.0, 4.0])
@pytest.mark.parametrize("stride", [1, 2])
def test_meaning_within_the_bound(spread: float, stride: int, rounded: None) -> None:
    x, w = numbers(3, 16, 15, 18, spread=spread), numbers(7, 16, 3, 3, seed=1, spread=spread)
    (found,) = evaluate(winograd(convolution(x, w, step="" if stride == 1 else "*2"), V3), [x]).values()
    assert (np.abs(found - exact(x, w, 1, stride)) <= window_error(w, 2, stride, rounded=True) * scale_of(x, w)).all()


def test_what_bf16_holds_is_exact(rounded: None) -> None:
    """Small whole numbers and their sums round to themselves."""
    x = np.random.default_rng(0).integers(-8, 9, (1, 8, 13, 10)).astype(np.float32)
    w = 4 * np.random.default_rng(1).integers(-4, 5, (17, 8, 3, 3)).astype(np.float32)
    (found,) = compile_module(winograd(convolution(x, w), PAIRS))(x)
    np.testing.assert_array_equal(found, exact(x, w, 1))


def test_errors_are_those_of_the_rounding(rounded: None) -> None:
    """Random data is off by less than twice what factors rounded for products by windows are off by, and by more than
    a thousandth of the bound."""
    x, w = numbers(1, 64, 32, 32), numbers(8, 64, 3, 3, seed=1)
    wanted = exact(x, w, 1)
    found = evaluate(winograd(convolution(x, w), PAIRS), [x])["y"]
    half = [v.astype(ml_dtypes.bfloat16).astype(np.float32) for v in (x, w)]
    by_windows = np.sqrt(np.square(exact(*half, 1) - wanted).mean())
    by_tiles = np.sqrt(np.square(found - wanted).mean())
    assert by_windows < by_tiles < 2 * by_windows
    assert (np.abs(found - wanted) / scale_of(x, w)).max() > window_error(w, 2, rounded=True) / 1000


def test_bounds_of_rounded_factors() -> None:
    """As much larger than that of products by windows as tiles make of any error."""
    w = numbers(4, 32, 3, 3)
    assert window_error(w, 2, rounded=True) == pytest.approx(2 * 2.0**-8 * window_growth(w, 2), rel=0.01)
    assert 2 < window_growth(w, 2, 2) < window_growth(w, 2) < ROUNDED_GROWTH < window_growth(w, 4)
    assert window_error(np.full_like(w, np.nan), 2, rounded=True) == float("inf")


CHOICES = [
    (Sizes(1, 256, 256, 14, 14), ROUNDED),
    (Sizes(1, 512, 512, 7, 7), ROUNDED),
    (Sizes(1, 128, 128, 28, 28, 2), ROUNDED),
    (Sizes(1, 256, 256, 14, 14, 2), ROUNDED),
    (Sizes(1, 512, 512, 7, 7, 2), None),
    (Sizes(1, 64, 64, 56, 56), Tiles(4)),
    (Sizes(1, 128, 128, 28, 28), ROUNDED),
    (Sizes(1, 255, 256, 14, 14), Tiles(4)),
    (Sizes(1, 64, 64, 14, 14), ROUNDED),
    (Sizes(1, 64, 64, 56, 56, 2), None),
    (Sizes(1, 8, 8, 7, 7), None),
]


@pytest.mark.parametrize(("sizes", "expected"), CHOICES, ids=str)
def test_choice(sizes: Sizes, expected: Tiles | None) -> None:
    """On a machine with pairs where factors may be rounded; where they may not, tiles stay f32."""
    w = numbers(sizes.outputs, sizes.inputs, 3, 3)
    assert choose_tiles(sizes, w, PAIRS, pairs_of(PAIRS)) == expected
    plain = choose_tiles(sizes, w, PAIRS)
    assert plain is None or plain.depth == 1


def test_filters_that_make_too_much_of_roundings() -> None:
    """Where the only tap is the last, tiles would make 16 times as much of them; f32 bears that."""
    sizes, w = Sizes(1, 512, 512, 7, 7), np.zeros((512, 512, 3, 3), np.float32)
    w[:, :, 2, 2] = 1.0
    assert window_growth(w, 2) == pytest.approx(16.0)
    assert window_error(w, 2) < WINDOW_ERROR
    chosen = choose_tiles(sizes, w, PAIRS, pairs_of(PAIRS))
    assert chosen is None or chosen.depth == 1
    assert choose_tiles(sizes, np.full_like(w, np.inf), PAIRS, pairs_of(PAIRS)) is None


def kernels(module: Module, target: Target) -> dict[str, Function]:
    """The kernels of a convolution as they are planned, not scheduled yet."""
    passes = pipeline(target, None, Switches(precision=HALF))
    until = [p.name for p in passes].index("schedule")
    made = run_passes(module, passes[:until], level=GRAPH)
    return {name: f for name, f in made.functions.items() if isinstance(f, Function)}


@pytest.mark.parametrize(
    "sizes", [(1, 256, 256, 14, 14, 1, 1), (1, 512, 256, 7, 7, 1, 1), (1, 128, 128, 56, 56, 1, 2)], ids=str
)
def test_traces_replay(sizes: tuple[int, int, int, int, int, int, int]) -> None:
    """A chosen convolution is the two transforms and the products, and each trace makes its schedule again."""
    module = layer(*sizes)[0]
    assert "winograd_input" in operators(winograd(module, PAIRS, halves=True))
    found = kernels(module, PAIRS)
    templates = []
    for function in found.values():
        made, decision = schedule(function, PAIRS)
        templates.append(decision.template)
        assert not decision.refusals
        again = Schedule(function)
        again.replay(made.trace)
        assert same(again.func, made.func)
    assert templates == ["winograd input", "contraction", "winograd output"]
    first = next(f for name, f in found.items() if "input" in name)
    assert first.params[-1].dtype.name == "bf16" and len(first.params[-1].shape) == 5
