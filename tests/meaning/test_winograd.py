"""Convolutions as Winograd's products of tiles: what they compute, how far they are off, where they are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.compiler import compile_module
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.verify import verify
from tilewright.lower.graph import winograd as rewriting
from tilewright.lower.graph.winograd import winograd
from tilewright.ops.accuracy import WINDOW_ERROR, window_error
from tilewright.plan.price.convolution import Sizes
from tilewright.plan.rewrite.winograd import Tiles, choose_tiles
from tilewright.target import Target
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
V3 = Target.parse("x86-64-v3")


def numbers(*shape: int, seed: int = 0, spread: float = 0.0) -> Array:
    """Normal numbers, times factors whose logarithms have this deviation."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp(spread * rng.standard_normal(shape))).astype(np.float32)


def convolution(
    x: Array, w: Array, pad: int = 1, *, step: str = "", gap: str = "", bias: Array | None = None
) -> Module:
    """A graph: the convolution of x by w; with a bias, a relu behind it. `step` and `gap` are factors such as "*2"."""
    graph = GraphBuilder()
    value = graph.param("x", TensorType.of(f32, x.shape))
    if pad:
        zero = graph.op("full", value=const(0.0, f32), shape=())
        value = graph.op("pad", value, zero, low=(0, 0, pad, pad), high=(0, 0, pad, pad))
    stride, dilation = (int(text[1:] or 1) for text in (step, gap))
    sides = zip(x.shape[2:], w.shape[2:], strict=True)
    extents = [(e + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for e, k in sides]
    spec = f"n c i{step}+a{gap} j{step}+b{gap}, o c a b -> n o i j"
    y = graph.op("contract", value, graph.constant("w", w), spec=spec, sizes=(("i", extents[0]), ("j", extents[1])))
    if bias is not None:
        y = graph.op("relu", graph.op("add", y, graph.constant("b", bias)))
    return graph.module({"y": y})


def exact(x: Array, w: Array, pad: int, stride: int = 1) -> Array:
    """The convolution in f64."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("ncijab,ocab->noij", windows, w.astype(np.float64), optimize=True)


def operators(module: Module) -> list[str]:
    return [node.op.name for node in module.graph.nodes]


@pytest.fixture(params=[2, 4])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every convolution that tiles fit is computed by tiles of this size."""
    monkeypatch.setattr(rewriting, "choose_tiles", lambda *_: Tiles(request.param))
    return int(request.param)


def require_bound(found: Array, x: Array, w: Array, pad: int, size: int, stride: int = 1) -> None:
    """Each output is as close to the exact one as the bound says."""
    wanted = exact(x, w, pad, stride)
    scale = np.abs(w.astype(np.float64)).sum((1, 2, 3))[None, :, None, None] * float(np.abs(x).max())
    off = np.abs(found - wanted)
    assert found.shape == wanted.shape
    assert (off <= window_error(w, size, stride) * scale).all()


@pytest.mark.parametrize(
    ("height", "width", "pad"), [(7, 7, 0), (7, 7, 1), (8, 13, 1), (14, 9, 0), (23, 28, 1), (33, 57, 0)]
)
def test_compiled_within_the_bound(height: int, width: int, pad: int, size: int) -> None:
    x, w = numbers(1, 5, height, width), numbers(9, 5, 3, 3, seed=1)
    module = convolution(x, w, pad)
    rewritten = winograd(module, V3)
    assert "winograd_input" in operators(rewritten)
    verify(rewritten)
    (found,) = compile_module(module)(x)
    require_bound(found, x, w, pad, size)


@pytest.mark.parametrize(
    ("images", "height", "width", "pad"), [(1, 9, 9, 0), (1, 14, 14, 1), (2, 15, 13, 1), (1, 24, 31, 2), (1, 57, 56, 1)]
)
def test_stride_within_the_bound(
    images: int, height: int, width: int, pad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "choose_tiles", lambda *_: Tiles(2))
    x, w = numbers(images, 5, height, width), numbers(9, 5, 3, 3, seed=1)
    module = convolution(x, w, pad, step="*2")
    rewritten = winograd(module, V3)
    assert "winograd_input" in operators(rewritten)
    verify(rewritten)
    require_bound(evaluate(rewritten, [x])["y"], x, w, pad, 2, 2)
    (found,) = compile_module(module)(x)
    require_bound(found, x, w, pad, 2, 2)


@pytest.mark.parametrize("spread", [0.0, 4.0])
def test_meaning_within_the_bound(spread: float, size: int) -> None:
    x, w = numbers(3, 16, 15, 18, spread=spread), numbers(7, 16, 3, 3, seed=1, spread=spread)
    (found,) = evaluate(winograd(convolution(x, w), V3), [x]).values()
    require_bound(found, x, w, 1, size)


def test_images_with_bias_and_relu(size: int) -> None:
    x, w, bias = numbers(3, 8, 14, 17), numbers(10, 8, 3, 3, seed=1), numbers(10, 1, 1, seed=2)
    executable = compile_module(convolution(x, w, bias=bias))
    (found,) = executable(x)
    wanted = np.maximum(exact(x, w, 1) + bias, 0.0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))
    assert any("relu" in name and "winograd_output" in name for name in executable.kernels)


def test_images_added_to_the_result(size: int) -> None:
    """What is added to the result lies as images do, while products have the channels last."""
    x, w, more = numbers(2, 8, 15, 14), numbers(20, 8, 3, 3, seed=1), numbers(2, 20, 15, 14, seed=2)
    graph = GraphBuilder()
    image, other = (graph.param(name, TensorType.of(f32, value.shape)) for name, value in (("x", x), ("more", more)))
    zero = graph.op("full", value=const(0.0, f32), shape=())
    padded = graph.op("pad", image, zero, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
    spec, sizes = "n c i+a j+b, o c a b -> n o i j", (("i", 15), ("j", 14))
    y = graph.op("contract", padded, graph.constant("w", w), spec=spec, sizes=sizes)
    executable = compile_module(graph.module({"y": graph.op("relu", graph.op("add", y, other))}))
    made = {d.template for name, d in executable.decisions.items() if "winograd" in name}
    assert made == {"winograd input", "winograd output"}
    wanted = np.maximum(exact(x, w, 1) + more, 0.0)
    np.testing.assert_allclose(executable(x, more)[0], wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


def test_zeros_move_into_the_transform(size: int) -> None:
    x, w = numbers(1, 2, 9, 9), numbers(3, 2, 3, 3)
    made = winograd(convolution(x, w, 2), V3)
    node = next(n for n in made.graph.nodes if n.op.name == "winograd_input")
    assert node.inputs == made.graph.params
    assert node.attrs.low == (2, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kernel", "step", "gap"), [((5, 5), "", ""), ((3, 1), "", ""), ((3, 3), "*3", ""), ((3, 3), "", "*2")]
)
def test_other_windows_stay(kernel: tuple[int, int], step: str, gap: str, size: int) -> None:
    x, w = numbers(1, 4, 17, 17), numbers(4, 4, *kernel)
    module = convolution(x, w, step=step, gap=gap)
    assert winograd(module, V3) is module


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = numbers(1, 64, 28, 28), numbers(64, 64, 3, 3)
    module = convolution(x, w)
    assert "winograd_input" in operators(winograd(module, V3))
    monkeypatch.setenv("TILEWRIGHT_WINOGRAD", "0")
    assert winograd(module, V3) is module


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (Sizes(1, 64, 64, 56, 56), 4),
        (Sizes(1, 128, 128, 28, 28), 4),
        (Sizes(1, 256, 256, 14, 14), 4),
        (Sizes(8, 64, 64, 56, 56), 4),
        (Sizes(1, 64, 64, 4, 4), None),
        (Sizes(1, 3, 64, 224, 224), None),
        (Sizes(1, 8, 8, 28, 28), 4),
        (Sizes(1, 4, 4, 28, 28), None),
        (Sizes(1, 512, 512, 3, 3), None),
        (Sizes(1, 512, 512, 7, 7), 2),
        (Sizes(1, 128, 128, 28, 28, 2), 2),
        (Sizes(1, 256, 256, 14, 14, 2), 2),
        (Sizes(1, 512, 512, 7, 7, 2), 2),
        (Sizes(1, 3, 32, 112, 112, 2), None),
    ],
)
def test_choice(sizes: Sizes, expected: int | None) -> None:
    chosen = choose_tiles(sizes, numbers(sizes.outputs, sizes.inputs, 3, 3), V3)
    assert chosen == (None if expected is None else Tiles(expected))


def test_filters_are_read_while_products_are_computed() -> None:
    """Where memory is so slow that reading the filters takes longest, tiles of which there are more do not pay."""
    sizes, w = Sizes(1, 512, 512, 7, 7), numbers(512, 512, 3, 3)
    target = Target.parse("x86-64-v4")
    slow = target.with_peaks(memory_gbs=4.0)
    assert (choose_tiles(sizes, w, target), choose_tiles(sizes, w, slow)) == (Tiles(2), None)


def test_products_of_a_tile_lie_together() -> None:
    """Where many tiles of 64 channels would put each product a whole number of pages behind the one before."""
    x, w = numbers(1, 64, 112, 112), numbers(64, 64, 3, 3)
    made = winograd(convolution(x, w), V3)
    (node,) = (n for n in made.graph.nodes if n.op.name == "winograd_output")
    (products,) = node.inputs
    assert products.type.static_shape() == (1, 784, 36, 64)


def test_inaccurate_filters_are_left_alone() -> None:
    """Filters whose only tap is the last make the errors of large tiles grow most: small ones are taken."""
    sizes, w = Sizes(1, 256, 64, 56, 56), np.zeros((64, 256, 3, 3), np.float32)
    w[:, :, 2, 2] = 1.0
    assert window_error(w, 4) > WINDOW_ERROR > window_error(w, 2)
    assert choose_tiles(sizes, w, V3) == Tiles(2)
    assert choose_tiles(sizes, np.full_like(w, np.inf), V3) is None


def test_bound_does_not_depend_on_the_scale() -> None:
    w = numbers(4, 32, 3, 3)
    assert window_error(w * np.float32(1024), 4) == pytest.approx(window_error(w, 4))
    assert window_error(w, 4) > 20 * window_error(w, 2)
    assert window_error(np.zeros_like(w), 4) == 0.0


def test_errors_come_near_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is no empty promise: random data is off by more than a two-thousandth of it."""
    monkeypatch.setattr(rewriting, "choose_tiles", lambda *_: Tiles(4))
    x, w = numbers(1, 64, 32, 32), numbers(8, 64, 3, 3, seed=1)
    (found,) = compile_module(convolution(x, w))(x)
    scale = np.abs(w.astype(np.float64)).sum((1, 2, 3))[None, :, None, None] * float(np.abs(x).max())
    assert (np.abs(found - exact(x, w, 1)) / scale).max() > window_error(w, 4) / 2000


@pytest.mark.parametrize(
    ("channels", "extent", "together"), [(64, 14, True), (20, 29, True), (48, 14, True), (60, 14, False)]
)
def test_planes_that_meet(channels: int, extent: int, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where planes begin in few sets of the first cache, several channels write a few of them together."""
    monkeypatch.setattr(rewriting, "choose_tiles", lambda *_: Tiles(4))
    x, w = numbers(2, channels, extent, extent), numbers(3, channels, 3, 3, seed=1)
    module = convolution(x, w)
    executable = compile_module(module, V3)
    (taken,) = (d.taken for d in executable.decisions.values() if d.template == "winograd input")
    assert taken is not None and (taken.choice["together"] > 1) == together
    scheduled = executable.show(after="schedule", kernel="winograd_input")
    assert f"half: f32[1, {taken.choice['together']}, " in scheduled
    require_bound(executable(x)[0], x, w, 1, 4)
