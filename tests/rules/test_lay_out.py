"""lay_out: images stored with channels innermost are the same images, wherever islands begin and end."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.lay_out import lay_out, store_last
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.plan.rewrite.layout import Images
from tilewright.target import Target

BLOCK = """
graph main(x: f32[1, 6, 5, 4], m: f32[1, 1, 5, 4], o: f32[5, 4]) -> y, g, s:
  w: f32[9, 6] = constant(name=@w)
  b: f32[9, 1, 1] = constant(name=@b)
  v: f32[9, 3, 3] = constant(name=@v)
  u: f32[6, 9] = constant(name=@u)
  z: f32[] = full(value=0.0, shape=())
  h: f32[1, 9, 5, 4] = contract(x, w, spec="n c i j, o c -> n o i j")
  a: f32[1, 9, 5, 4] = add(h, b)
  r: f32[1, 9, 5, 4] = relu(a)
  p: f32[1, 9, 7, 6] = pad(r, z, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
  d: f32[1, 9, 5, 4] = contract(p, v, spec="n c i+k j+l, c k l -> n c i j", sizes=(("i", 5), ("j", 4)))
  e: f32[1, 9, 5, 4] = mul(d, m)
  f: f32[1, 9, 5, 4] = add(e, o)
  t: f32[1, 9, 1, 1] = reduce(f, kind=sum, axes=(2, 3), keepdims=true)
  q: f32[1, 9, 5, 4] = mul(f, t)
  l: f32[1, 9, 4] = reduce(q, kind=max, axes=(2,), keepdims=false)
  k: f32[1, 9, 20] = reshape(q, shape=(1, 9, 20))
  c: f32[1, 6, 20] = contract(k, u, spec="n c p, o c -> n o p")
  i: f32[1, 6, 5, 4] = reshape(c, shape=(1, 6, 5, 4))
  y: f32[1, 6, 5, 4] = add(i, x)
  g: f32[1, 5, 4, 9] = transpose(q, perm=(0, 2, 3, 1))
  s: f32[1, 3, 4] = slice(l, starts=(0, 1, 0), sizes=(1, 3, 4), steps=(1, 2, 1))
"""
"""An expanding block: bias, windows of each channel, a mask and an offset of positions, a squeeze; its islands end at a
result, a transposition, a slice and an image that the caller gives."""

MANY = BLOCK.replace("main(", "main[n](").replace("f32[1, 6", "f32[n, 6").replace("f32[1, 9", "f32[n, 9")
MANY = re.sub(r"shape=\(1, ", "shape=(n, ", MANY.replace("f32[1, 5, 4, 9]", "f32[n, 5, 4, 9]"))
MANY = MANY.replace("s: f32[1,", "s: f32[n,").replace("sizes=(1, 3, 4)", "sizes=(n, 3, 4)")
"""The same for any number of images."""

CHAIN = """
graph main(x: f32[1, 8, {points}]) -> y:
  a: f32[96, 8] = constant(name=@a)
  b: f32[160, 96] = constant(name=@b)
  z: f32[] = full(value=0.0, shape=())
  v: f32[96, 3, 3] = constant(name=@v)
  h: f32[1, 96, {points}] = contract(x, a, spec="n c p, o c -> n o p")
  r: f32[1, 96, {points}] = relu(h)
  i: f32[1, 96, {wide}, {wide}] = reshape(r, shape=(1, 96, {wide}, {wide}))
  p: f32[1, 96, {wide} + 2, {wide} + 2] = pad(i, z, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
  d: f32[1, 96, {out}, {out}] = contract(p, v, spec="n c i*2+k j*2+l, c k l -> n c i j", sizes=(("i", {out}), ("j", {out})))
  e: f32[1, 96, {left}] = reshape(d, shape=(1, 96, {left}))
  f: f32[1, 160, {left}] = contract(e, b, spec="n c p, o c -> n o p")
  g: f32[1, 160] = reduce(f, kind=sum, axes=(2,), keepdims=false)
  y: f32[1, 160] = relu(g)
"""  # noqa: E501
"""Windows that move by two, between products at each point."""


def module_of(text: str) -> Module:
    """The program with random constants of the types that it says."""
    rng = np.random.default_rng(0)
    graph = tw.parse(text)
    assert isinstance(graph, GraphFunction)
    found = re.findall(r"f32\[([\d, ]+)\] = constant\(name=@(\w+)\)", text)
    return Module(
        {"main": graph}, {n: rng.standard_normal([int(d) for d in s.split(",")], np.float32) for s, n in found}
    )


def inputs_of(module: Module) -> list[np.ndarray]:
    """Random images, three where a symbol stands for their number."""
    rng = np.random.default_rng(1)
    sizes = [[int(str(e).replace("n", "3")) for e in v.type.shape] for v in module.graph.params]
    return [rng.standard_normal(s, np.float32) for s in sizes]


def assert_same(module: Module, made: Module) -> None:
    """Both compute the same; sums may be added in another order."""
    x = inputs_of(module)
    for one, other in zip(evaluate(module, x).values(), evaluate(made, x).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def operators(module: Module, name: str) -> list[str]:
    return [str(n.outputs[0].type) for n in module.graph.nodes if n.op.name == name]


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 5)), st.booleans())
def test_any_choice_computes_the_same(numbers: set[int], many: bool) -> None:
    module = module_of(MANY if many else BLOCK)
    images = Images(module.graph)
    chosen = [island for n, island in enumerate(images.islands()) if n in numbers]
    made = store_last(module, module.graph, images, chosen)
    verify(made)
    assert_same(module, made)


def test_islands_end_where_channels_are_summed() -> None:
    images = Images(module_of(BLOCK).graph)
    names = [{v.name for v in island.axes} for island in images.islands()]
    assert names == [{"x", "y", "i", "c"}, {"h", "a", "r", "p", "d", "e", "f", "q", "l", "k"}]


def test_a_transposition_to_where_channels_are_innermost_vanishes() -> None:
    module = module_of(BLOCK)
    images = Images(module.graph)
    (block,) = [i for i in images.islands() if len(i.axes) > 4]
    made = eliminate_dead(simplify_graph(store_last(module, module.graph, images, [block])))
    (maker,) = [n for n in made.graph.nodes if made.graph.results[1] in n.outputs]
    assert maker.op.name == "mul"
    assert "f32[1, 5, 4, 9]" not in operators(made, "transpose")


@pytest.mark.parametrize(("width", "last"), [(14, True), (32, False)])
def test_images_whose_rows_leave_lanes_empty_are_stored_so(width: int, last: bool) -> None:
    module = module_of(CHAIN.format(wide=2 * width, points=4 * width * width, out=width, left=width * width))
    made = lay_out(module, Target.parse("x86-64-v4"))
    types = operators(made, "contract")
    assert (f"f32[1, {width * width}, 160]" in types) == last
    assert_same(module, made)


def test_products_whose_channels_are_innermost_stay() -> None:
    text = """
graph main(x: f32[7, 12]) -> y:
  w: f32[12, 9] = constant(name=@w)
  h: f32[7, 9] = contract(x, w, spec="ik,kj->ij")
  y: f32[7, 9] = relu(h)
"""
    module = module_of(text)
    assert not Images(module.graph).islands()
    assert lay_out(module, Target.parse("x86-64-v4")) is module


def test_an_island_ends_where_another_axis_is_summed() -> None:
    text = """
graph main(x: f32[1, 6, 20]) -> y:
  w: f32[9, 6] = constant(name=@w)
  u: f32[4, 20] = constant(name=@u)
  h: f32[1, 9, 20] = contract(x, w, spec="n c p, o c -> n o p")
  y: f32[1, 9, 4] = contract(h, u, spec="n c p, o p -> n c o")
"""
    module = module_of(text)
    images = Images(module.graph)
    assert [{v.name for v in island.axes} for island in images.islands()] == [{"x"}, {"h"}]
    for island in images.islands():
        assert_same(module, store_last(module, module.graph, images, [island]))


@pytest.mark.parametrize("size", [(0, 6, 3, 3), (1, 6, 0, 3), (1, 6, 3, 3)])
def test_images_without_elements_and_windows_as_large_as_an_image(size: tuple[int, ...]) -> None:
    shape = ", ".join(map(str, size))
    positions = size[2] * size[3]
    text = f"""
graph main(x: f32[{shape}]) -> y, g:
  w: f32[9, 6] = constant(name=@w)
  v: f32[6, 3, 3] = constant(name=@v)
  h: f32[{size[0]}, 9, {size[2]}, {size[3]}] = contract(x, w, spec="n c i j, o c -> n o i j")
  r: f32[{size[0]}, 9, {positions}] = reshape(h, shape=({size[0]}, 9, {positions}))
  y: f32[{size[0]}, 9, {positions}] = relu(r)
  z: f32[] = full(value=0.0, shape=())
  p: f32[{size[0]}, 6, 3, 3] = pad(x, z, low=(0, 0, {3 - size[2]}, 0), high=(0, 0, 0, 0))
  g: f32[{size[0]}, 6, 1, 1] = contract(p, v, spec="n c i+k j+l, c k l -> n c i j", sizes=(("i", 1), ("j", 1)))
"""
    module = module_of(text)
    images = Images(module.graph)
    assert_same(module, lay_out(module, Target.parse("x86-64-v4")))
    assert_same(module, store_last(module, module.graph, images, images.islands()))


DYNAMIC = """
graph main[n, H, W](x: f32[n, 6, H, W], i: i64[5]) -> y:
  v: f32[9, 6, 3, 3] = constant(name=@v)
  u: f32[4, 21] = constant(name=@u)
  b: f32[1, 3, 1, 1] = constant(name=@b)
  z: f32[] = full(value=0.0, shape=())
  p: f32[n, 6, H + 2, W + 2] = pad(x, z, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
  c: f32[n, 9, H, W] = contract(p, v, spec="n c i+k j+l, o c k l -> n o i j", sizes=(("i", H), ("j", W)))
  r: f32[n, 9, H, W] = relu(c)
  require(3 <= H + 2, message="rows")
  require(3 <= W + 2, message="columns")
  q: f32[n, 11, H + 2, W + 2] = pad(r, z, low=(0, 2, 1, 1), high=(0, 0, 1, 1))
  m: f32[n, 11, H, W] = window_reduce(q, kind=max, window=(1, 1, 3, 3), strides=(1, 1, 1, 1), dilations=(1, 1, 1, 1))
  k: f32[n, 20, H, W] = concat(r, m, axis=1)
  s: f32[n, 18, H, W] = slice(k, starts=(0, 1, 0, 0), sizes=(n, 18, H, W), steps=(1, 1, 1, 1))
  e: f32[n, 3, H, W] = broadcast(b, shape=(n, 3, H, W))
  g: f32[n, 21, H, W] = concat(e, s, axis=1)
  t: f32[n, 21, 5, W] = take(g, i, axis=2)
  y: f32[n, 4, 5, W] = contract(t, u, spec="n c i j, o c -> n o i j")
"""
"""Images of any size: windows over all channels, a pool, and operators that move elements."""


def test_images_of_any_size_are_one_island_from_sum_to_sum_over_channels() -> None:
    images = Images(module_of(DYNAMIC).graph)
    assert [{v.name for v in i.axes} for i in images.islands()] == [{"p", "x"}, set("crqmksgt"), {"y"}]


@pytest.mark.parametrize("size", [(1, 5, 7), (2, 1, 1), (3, 13, 2), (0, 4, 4)])
@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_images_of_any_size_are_the_same_in_any_layout(size: tuple[int, ...], chosen: tuple[int, ...]) -> None:
    module, (n, h, w) = module_of(DYNAMIC), size
    images = Images(module.graph)
    made = store_last(module, module.graph, images, [images.islands()[k] for k in chosen])
    verify(made)
    assert 1 in chosen or operators(made, "window_reduce") == ["f32[n, 11, H, W]"]
    assert 1 not in chosen or operators(made, "window_reduce") == ["f32[n, H, W, 11]"]
    rng = np.random.default_rng(2)
    x = [rng.standard_normal((n, 6, h, w), np.float32), rng.integers(0, h, 5)]
    (wanted,), (found,) = evaluate(module, x).values(), evaluate(made, x).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_windows_over_all_channels_join_islands_of_any_size_alone() -> None:
    """Of known sizes, they are as fast in either layout."""
    text = DYNAMIC.replace("main[n, H, W]", "main[n]").replace("H", "16").replace("W", "16")
    names = [{v.name for v in island.axes} for island in Images(module_of(text).graph).islands()]
    assert names == [{"t"}, {"y"}]


VIDEO = """
graph main(x: f32[{images}, 64, {depth}, {side}, {side}]) -> y:
  w: f32[64, 64, 3, 3, 3] = constant(name=@w)
  z: f32[] = full(value=0.0, shape=())
  p: f32[{images}, 64, {depth} + 2, {side} + 2, {side} + 2] = pad(x, z, low=(0, 0, 1, 1, 1), high=(0, 0, 1, 1, 1))
  y: f32[{images}, 64, {depth}, {side}, {side}] = contract(p, w, spec="n c i+a j+b k+d, o c a b d -> n o i j k", \
sizes=(("i", {depth}), ("j", {side}), ("k", {side})))
"""


@pytest.mark.parametrize(
    ("images", "depth", "side", "last"), [(1, 16, 7, True), (16, 7, 7, True), (1, 7, 7, False), (1, 16, 64, False)]
)
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_videos_longer_than_wide_are_stored_so(images: int, depth: int, side: int, last: bool, target: str) -> None:
    """Rows of seven leave half of a tile empty; frames, or images, fill it."""
    module = module_of(VIDEO.format(images=images, depth=depth, side=side))
    made = lay_out(module, Target.parse(target))
    assert (made is not module) == last
    if last and target == "x86-64-v3" and images == 1:
        verify(made)
        assert_same(module, made)


@pytest.mark.parametrize(("read", "made"), [(480, 80), (80, 480), (256, 1024)])
def test_what_callers_give_and_take_is_not_transposed_for_one_product(read: int, made: int) -> None:
    text = f"""
graph main(x: f32[1, {read}, 196]) -> y:
  w: f32[{made}, {read}] = constant(name=@w)
  y: f32[1, {made}, 196] = contract(x, w, spec="n c p, o c -> n o p")
"""
    module = module_of(text)
    assert lay_out(module, Target.parse("x86-64-v4")) is module
