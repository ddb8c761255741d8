"""Winograd's tiles of images of any size, channels last: what compiled programs compute, where tiles are chosen, and
their text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_winograd import exact, numbers, operators, require_bound

import tilewright as tw
from drawn import LONG
from tilewright.compiler import compile_module
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Expr, const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.lower.graph import winograd as rewriting
from tilewright.lower.graph.winograd import winograd
from tilewright.plan.price.convolution import Sizes
from tilewright.plan.rewrite.winograd import Tiles, choose_tiles
from tilewright.target import Target
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
V3, V4 = Target.parse("x86-64-v3"), Target.parse("x86-64-v4")
SHAPES = [(1, 1, 1), (1, 4, 4), (1, 7, 13), (2, 5, 3), (1, 8, 31), (3, 17, 2), (1, 2, 40), (2, 12, 9), (1, 29, 16)]
"""Images, height and width: single points, sides that tiles fill and that they do not, primes."""


def image(graph: GraphBuilder, channels: int, factor: int = 1) -> Any:
    """A parameter for images of any number and size, each point of which is a square of so many."""
    n, h, w = map(graph.symbol, "nhw")
    x = graph.param("x", TensorType.of(f32, (n, channels, h, w)))
    if factor == 1:
        return x
    parts = graph.op("reshape", x, shape=(n, channels, h, 1, w, 1))
    parts = graph.op("broadcast", parts, shape=(n, channels, h, factor, w, factor))
    return graph.op("reshape", parts, shape=(n, channels, h * factor, w * factor))


def convolved(graph: GraphBuilder, x: Any, w: Array, step: str = "", pad: int = 1) -> Any:
    """x by 3x3 filters, as large as x for a step of 1."""
    zero = graph.op("full", value=const(0.0, f32), shape=())
    padded = graph.op("pad", x, zero, low=(0, 0, pad, pad), high=(0, 0, pad, pad))
    sides: list[Expr] = [e - 2 + 2 * pad if not step else (e - 3 + 2 * pad) // 2 + 1 for e in x.type.shape[2:]]
    spec = f"n c i{step}+a j{step}+b, o c a b -> n o i j"
    filters = graph.constant("w", w)
    return graph.op("contract", padded, filters, spec=spec, sizes=(("i", sides[0]), ("j", sides[1])))


@pytest.fixture(params=[2, 4])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every convolution that tiles fit is computed by tiles of this size."""
    monkeypatch.setattr(rewriting, "choose_tiles", lambda *_: Tiles(request.param))
    return int(request.param)


CHANNELS = [(3, 16), (16, 5), (1, 1), (20, 33)]
SIZED = [(size, channels) for k, channels in enumerate(CHANNELS) for size in (2, 4) if LONG or size == (2, 4)[k % 2]]
"""Tiles of both sizes by turns: of few channels, of no whole vectors of them, and of one more than vectors."""


@pytest.mark.parametrize(("size", "channels"), SIZED, indirect=["size"])
def test_compiled_within_the_bound_for_any_size(channels: tuple[int, int], size: int) -> None:
    inputs, outputs = channels
    w = numbers(outputs, inputs, 3, 3, seed=1)
    graph = GraphBuilder()
    module = graph.module({"y": convolved(graph, image(graph, inputs), w)})
    rewritten = winograd(module, V3)
    assert "winograd_input" in operators(rewritten)
    verify(rewritten)
    executable = compile_module(module)
    for images, height, width in SHAPES:
        x = numbers(images, inputs, height, width)
        require_bound(evaluate(rewritten, [x])["y"], x, w, 1, size)
        (found,) = executable(x)
        require_bound(found, x, w, 1, size)


def test_no_images_and_images_without_points(size: int) -> None:
    graph = GraphBuilder()
    module = graph.module({"y": convolved(graph, image(graph, 8), numbers(16, 8, 3, 3))})
    executable = compile_module(module)
    for shape in ((0, 8, 5, 5), (1, 8, 0, 5), (1, 8, 5, 0)):
        (found,) = executable(np.zeros(shape, np.float32))
        assert found.shape == (shape[0], 16, *shape[2:])


@pytest.mark.parametrize(
    ("size", "factor"),
    [(size, f) for size in (2, 4) for f in (1, 2, 4) if LONG or f in (size, size // 2)],
    indirect=["size"],
)
def test_a_residual_block(factor: int, size: int) -> None:
    """Two convolutions with their epilogues, and what they are added to; sides that tiles are known to fill, too."""
    first, second = numbers(16, 16, 3, 3, seed=1) / 8, numbers(16, 16, 3, 3, seed=2) / 8
    bias = numbers(16, 1, 1, seed=3)
    graph = GraphBuilder()
    x = image(graph, 16, factor)
    h = graph.op("relu", graph.op("add", convolved(graph, x, first), graph.constant("b", bias)))
    y = graph.op("add", convolved(graph, h, second), x)
    module = graph.module({"y": graph.op("mul", y, graph.op("sigmoid", y))})
    executable = compile_module(module)
    templates = {d.template for name, d in executable.decisions.items() if "winograd" in name}
    assert templates == {"winograd input, channels last", "winograd output, channels last"}
    assert any("winograd_output_add_relu" in name for name in executable.kernels)
    for images, height, width in SHAPES[:6]:
        data = numbers(images, 16, height, width)
        points = data.repeat(factor, 2).repeat(factor, 3)
        wanted = exact(np.maximum(exact(points, first, 1) + bias, 0), second, 1) + points
        wanted /= 1 + np.exp(-wanted)
        (found,) = executable(data)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("factor", [1, 4])
def test_every_second_place_within_the_bound(factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "choose_tiles", lambda *_: Tiles(2))
    w = numbers(9, 20, 3, 3, seed=1)
    graph = GraphBuilder()
    module = graph.module({"y": convolved(graph, image(graph, 20, factor), w, "*2")})
    rewritten = winograd(module, V3)
    assert "winograd_input" in operators(rewritten)
    verify(rewritten)
    executable = compile_module(module)
    for images, height, width in SHAPES:
        x = numbers(images, 20, height, width)
        points = x.repeat(factor, 2).repeat(factor, 3)
        require_bound(evaluate(rewritten, [x])["y"], points, w, 1, 2, 2)
        require_bound(executable(x)[0], points, w, 1, 2, 2)
    templates = {d.template for name, d in executable.decisions.items() if "winograd" in name}
    assert templates == {"winograd input, channels last", "winograd output, channels last"}


@pytest.mark.parametrize(("step", "pad"), [("*2", 0), ("", 0), ("", 2)])
def test_other_convolutions_of_any_size_stay(step: str, pad: int, size: int) -> None:
    """Where the result has not a place for each of the image, or for every second one."""
    graph = GraphBuilder()
    module = graph.module({"y": convolved(graph, image(graph, 8), numbers(8, 8, 3, 3), step, pad)})
    assert winograd(module, V3) is module


def test_a_program_for_one_size_is_as_before(size: int) -> None:
    graph = GraphBuilder()
    module = graph.module({"y": convolved(graph, image(graph, 8), numbers(8, 8, 3, 3))})
    fixed = tw.compile(module, dims={"n": 1, "h": 9, "w": 8})
    made = next(n for n in fixed.after("winograd").graph.nodes if n.op.name == "winograd_input")
    assert not made.attrs.last  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (Sizes(1, 64, 64, 56, 56, dynamic=True), 4),
        (Sizes(1, 64, 64, 2, 2, dynamic=True), None),
        (Sizes(1, 3, 8, 64, 64, dynamic=True), None),
    ],
)
def test_choice(sizes: Sizes, expected: int | None) -> None:
    chosen = choose_tiles(sizes, numbers(sizes.outputs, sizes.inputs, 3, 3), V4)
    assert chosen == (None if expected is None else Tiles(expected))


@pytest.mark.parametrize(("channels", "lanes"), [(32, 16), (24, 8), (8, 8)])
def test_channels_go_by_whole_lines_of_a_cache_where_they_fill_them(channels: int, lanes: int) -> None:
    graph = GraphBuilder("main")
    x = graph.op("transpose", image(graph, channels), perm=(0, 2, 3, 1))
    h, w = x.type.shape[1:3]
    tiles = graph.op("winograd_input", x, size=4, shape=(h, w), low=(1, 1), last=True)
    module = graph.module({"y": graph.op("winograd_output", tiles, size=4, shape=(h, w), last=True)})
    made = tw.compile(module, target="x86-64-v3").decisions.values()
    taken = [d.taken.choice for d in made if d.taken is not None and "channels last" in d.template]
    assert taken == [{"lanes": lanes}] * 2


@pytest.mark.parametrize("channels", [32, 24])
def test_outputs_of_a_known_size_read_whole_lines_and_are_right(channels: int) -> None:
    graph = GraphBuilder("main")
    x, w = graph.param("x", TensorType.of(f32, (1, 32, 13, 16))), numbers(channels, 32, 3, 3)
    module = graph.module({"y": convolved(graph, x, w)})
    made = tw.compile(module, target="x86-64-v3").decisions.values()
    (taken,) = [d.taken.choice for d in made if d.taken is not None and d.template == "winograd output"]
    assert taken == {"lanes": 16 if channels == 32 else 8}
    image = numbers(1, 32, 13, 16)
    (found,) = compile_module(module)(image)
    require_bound(found, image, w, 1, 4)


def test_the_text_of_tiles_of_any_size() -> None:
    text = """graph main[n, h, w](x: f32[n, h, w, 8]) -> y:
  v: f32[n, 36, (h + 3) // 4 * ((w + 3) // 4), 8] = winograd_input(x, size=4, shape=(h, w), low=(1, 1), last=true)
  y: f32[n, h, w, 8] = winograd_output(v, size=4, shape=(h, w), last=true)
"""
    module = parse_module(text)
    verify(module)
    assert str(module.graph).strip() == text.strip()


@pytest.mark.parametrize("shape", [(1, 3, 9, 8), (2, 1, 1, 8), (1, 4, 8, 2)])
def test_tiles_of_a_known_size_with_channels_last(shape: tuple[int, ...]) -> None:
    n, h, w, c = shape
    tiles = -(-h // 4) * -(-w // 4)
    function = tw.parse(f"""
graph main(x: f32[{n}, {h}, {w}, {c}]) -> y:
  v: f32[{n}, 36, {tiles}, {c}] = winograd_input(x, size=4, shape=({h}, {w}), low=(1, 1), last=true)
  y: f32[{n}, {h}, {w}, {c}] = winograd_output(v, size=4, shape=({h}, {w}), last=true)
""")
    assert isinstance(function, GraphFunction)
    module, x = Module({"main": function}), numbers(*shape)
    (wanted,) = evaluate(module, [x]).values()
    np.testing.assert_allclose(compile_module(module)(x)[0], wanted, rtol=0, atol=1e-4 * float(np.abs(wanted).max()))
