"""Factors of products in bf16: which are rounded for which machine, what the rounded graph computes, how far networks
are off, and that the machine's own products are what runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from benchmarks.network_models import NETWORKS, Network, images, transformers
from benchmarks.network_models.builder import Graph
from hypothesis import given, settings
from hypothesis import strategies as st
from inner_loops import inner_loops

import tilewright as tw
from cli_models import save_product, save_slow_memory
from tilewright.codegen.assemble import assembly
from tilewright.compiler.apart import produce
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import lower, pipeline
from tilewright.compiler.processes import is_large
from tilewright.core.passes import run_passes
from tilewright.core.switches import HALF, Switches
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module, Node
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.lower.graph.reduce_precision import reduce_precision
from tilewright.lower.graph.winograd import winograd
from tilewright.plan.rewrite import precision as precision_choice
from tilewright.runtime.plan_report import Choices
from tilewright.target import Target, native

Array = np.ndarray[Any, Any]

PAIRS = Target.parse("x86-64-v4 +avx512bf16").with_core(dots={"x86.avx512bf16.dot_bf16": 0.5})
"""A machine with products of bf16 pairs."""

PLAIN = Target.parse("x86-64-v3")
"""A machine without."""

ARM_PAIRS = Target.parse("aarch64 +bf16")
COSINE = 0.999

LAYERS = """
graph main(x: f32[{rows}, {width}]) -> y, h:
  w: f32[{width}, {inner}] = constant(name=@w)
  b: f32[{inner}] = constant(name=@b)
  v: f32[{inner}, {width}] = constant(name=@v)
  p: f32[{rows}, {inner}] = contract(x, w, spec="ik,kj->ij")
  q: f32[{rows}, {inner}] = add(p, b)
  r: f32[{rows}, {inner}] = relu(q)
  s: f32[{rows}, {width}] = contract(r, v, spec="ik,kj->ij")
  h: f32[{rows}, {width}] = add(s, x)
  y: f32[{rows}, {rows}] = contract(h, x, spec="ik,jk->ij")
"""


def filled(text: str, seed: int = 0) -> Module:
    """The module with random constants of order 1 / sqrt(terms)."""
    random = np.random.default_rng(seed)
    module = parse_module(text)
    constants = {}
    for node in module.graph.nodes:
        if node.op.name == "constant":
            shape = node.outputs[0].type.static_shape()
            assert shape is not None
            array = random.standard_normal(shape) / np.sqrt(shape[0])
            constants[node.attrs.name] = array.astype(node.outputs[0].type.dtype.numpy)
    return module.with_constants(constants)


def numbers(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def cosine(a: Array, b: Array) -> float:
    a, b = (x.astype(np.float64).ravel() for x in (a, b))
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size else 1.0


def products(module: Module) -> list[Node]:
    return [node for node in module.graph.nodes if node.op.name == "contract"]


def types(node: Node) -> tuple[str, ...]:
    return tuple(v.type.dtype.name for v in node.inputs)


def half(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that may be rounded is, however little it gains."""
    monkeypatch.setattr(precision_choice, "pays", lambda plain, rounded: True)


# What the pass makes


def test_the_rounded_graph_says_what_is_computed() -> None:
    module = filled(LAYERS.format(rows=128, width=256, inner=512))
    after = reduce_precision(module, PAIRS)
    verify(after)
    assert [types(n) for n in products(after)] == [("bf16", "bf16")] * 3
    assert all(n.outputs[0].type.dtype.name == "f32" for n in products(after))
    assert after.constants["w.1"].dtype == ml_dtypes.bfloat16
    assert len([n for n in after.graph.nodes if n.op.name == "cast"]) == 3, "x is rounded once for both that read it"
    x = numbers(128, 256)
    w, b, v = (module.constants[name] for name in "wbv")
    hidden = np.maximum(half(x) @ half(w) + b, 0)
    h = half(hidden) @ half(v) + x
    found = evaluate(after, {"x": x})
    np.testing.assert_allclose(found["h"], h, atol=1e-4)
    np.testing.assert_allclose(found["y"], half(h) @ half(x).T, atol=5e-2)


def test_other_machines_round_constants_that_are_read_for_few_rows() -> None:
    one, many = (reduce_precision(filled(LAYERS.format(rows=n, width=2048, inner=4096)), PLAIN) for n in (1, 128))
    assert [types(n) for n in products(one)] == [("f32", "bf16"), ("f32", "bf16"), ("f32", "f32")]
    assert {types(n) for n in products(many)} == {("f32", "f32")}
    assert not [n for n in one.graph.nodes if n.op.name == "cast"]


@pytest.mark.parametrize("kind", ["f64", "f16", "bf16", "i32"])
@pytest.mark.parametrize("target", [PAIRS, PLAIN, ARM_PAIRS], ids=str)
def test_products_of_other_types_stay(kind: str, target: Target) -> None:
    for rows in (1, 128):
        module = filled(LAYERS.replace("f32", kind).format(rows=rows, width=1024, inner=1024))
        assert reduce_precision(module, target) is module


@pytest.mark.parametrize("target", [PAIRS, PLAIN, ARM_PAIRS], ids=str)
def test_small_products_stay(target: Target) -> None:
    module = filled(LAYERS.format(rows=8, width=16, inner=8))
    assert reduce_precision(module, target) is module


MOVED = """
graph main(x: f32[64, 4, 64]) -> {results}:
  w: f32[256, 256] = constant(name=@w)
  e: f32[64, 4, 64] = exp(x)
  t: f32[4, 64, 64] = transpose(e, perm=(1, 0, 2))
  r: f32[64, 256] = reshape(t, shape=(64, 256))
  zero: f32[] = full(value=0.0, shape=())
  p: f32[64, 256] = pad(r, zero, low=(1, 0), high=(-1, 0))
  y: f32[64, 256] = contract(p, w, spec="ik,kj->ij")
"""


def test_elements_are_rounded_where_they_are_computed_not_where_they_have_been_moved_to() -> None:
    module = filled(MOVED.format(results="y"))
    after = reduce_precision(module, PAIRS)
    (cast,) = (n for n in after.graph.nodes if n.op.name == "cast")
    assert cast.inputs[0].name == "e"
    moved = [n for n in after.graph.nodes if n.op.name in ("transpose", "reshape", "pad")]
    assert sorted(n.op.name for n in moved if n.outputs[0].type.dtype.name == "bf16") == ["pad", "reshape", "transpose"]
    x = numbers(64, 4, 64)
    late = half(evaluate(filled(MOVED.format(results="p")), {"x": x})["p"])
    found = evaluate(after, {"x": x})["y"]
    np.testing.assert_allclose(found, late @ half(module.constants["w"]), rtol=1e-5, atol=1e-5)


def test_a_cast_stays_behind_what_others_read() -> None:
    module = filled(MOVED.format(results="y, r"))
    (cast,) = (n for n in reduce_precision(module, PAIRS).graph.nodes if n.op.name == "cast")
    assert cast.inputs[0].name == "r"


CONCAT = """
graph main(x: f32[128, 64], u: f32[128, 128]) -> {results}:
  w: f32[256, 256] = constant(name=@w)
  a: f32[128, 64] = tanh(x)
  b: f32[128, 128] = exp(u)
  c: f32[128, 192] = concat(a, b, axis=1)
  d: f32[128, 256] = concat(c, a, axis=1)
  y: f32[128, 256] = contract(d, w, spec="ik,kj->ij")
"""


def test_what_is_concatenated_is_rounded_before() -> None:
    module = filled(CONCAT.format(results="y"))
    after = reduce_precision(module, PAIRS)
    verify(after)
    assert [n.outputs[0].type.dtype.name for n in after.graph.nodes if n.op.name == "concat"].count("bf16") == 2
    assert {n.inputs[0].name for n in after.graph.nodes if n.op.name == "cast"} == {"a", "b"}
    feeds = {"x": numbers(128, 64), "u": numbers(128, 128, seed=2)}
    late = half(evaluate(filled(CONCAT.format(results="d")), feeds)["d"])
    np.testing.assert_allclose(evaluate(after, feeds)["y"], late @ half(module.constants["w"]), rtol=1e-5, atol=1e-4)


def test_what_is_concatenated_for_others_too_is_rounded_behind() -> None:
    after = reduce_precision(filled(CONCAT.format(results="y, c")), PAIRS)
    assert "c" in {n.inputs[0].name for n in after.graph.nodes if n.op.name == "cast"}


POOLED = """
graph main(x: f32[1, 32, 32, 64]) -> {results}:
  w: f32[64, 64] = constant(name=@w)
  e: f32[1, 32, 32, 64] = add(x, x)
  f: f32[] = full(value={fill}, shape=())
  p: f32[1, 34, 34, 64] = pad(e, f, low=(0, 1, 1, 0), high=(0, 1, 1, 0))
  m: f32[1, 16, 16, 64] = window_reduce(p, kind={kind}, window=(1, 3, 3, 1), strides=(1, 2, 2, 1), dilations={ones})
  r: f32[256, 64] = reshape(m, shape=(256, 64))
  y: f32[256, 64] = contract(r, w, spec="ik,kj->ij")
"""


def pooled(results: str, kind: str, fill: str) -> Module:
    return filled(POOLED.format(results=results, kind=kind, fill=fill, ones="(1, 1, 1, 1)"))


@pytest.mark.parametrize(("kind", "fill"), [("max", "-inf"), ("min", "inf"), ("max", "0.5")])
def test_the_greatest_of_rounded_numbers_is_the_rounded_greatest(kind: str, fill: str) -> None:
    """Rounding keeps the order of numbers: it may come before a pool, which then moves half as many bytes."""
    after = reduce_precision(pooled("y", kind, fill), PAIRS)
    verify(after)
    (cast,) = (n for n in after.graph.nodes if n.op.name == "cast" and n.inputs[0].name == "e")
    assert cast.outputs[0].type.dtype.name == "bf16"
    x = numbers(1, 32, 32, 64)
    x[0, ::5, ::3, ::7], x[0, 1::6, ::4, ::5], x[0, 2::7, ::5, ::6] = np.inf, -np.inf, 1e-40
    x[0, 3, 3, 3] = np.nan
    late = half(evaluate(pooled("r", kind, fill), {"x": x})["r"])
    text = str(after)
    (pool,) = re.findall(r"^  (\w+): bf16.* = window_reduce\(", text, re.MULTILINE)
    made = parse_module(re.sub(r"-> \w+( as y)?:", f"-> {pool}:", text, count=1)).with_constants(after.constants)
    (found,) = evaluate(made, {"x": x}).values()
    np.testing.assert_array_equal(found.astype(np.float32).reshape(256, 64), late)


def test_sums_of_windows_are_rounded_behind() -> None:
    after = reduce_precision(pooled("y", "sum", "0.0"), PAIRS)
    assert [n.outputs[0].type.dtype.name for n in after.graph.nodes if n.op.name == "window_reduce"] == ["f32"]


ATTENTION = """
graph main(q: f32[1, 4, 128, 64], k: f32[1, 4, 128, 64], v: f32[1, 4, 128, 64]) -> y:
  w: f32[256, 256] = constant(name=@w)
  s: f32[1, 4, 128, 128] = contract(q, k, spec="b h i d, b h j d -> b h i j")
  m: f32[1, 4, 128, 1] = reduce(s, kind=max, axes=(3,), keepdims=true)
  c: f32[1, 4, 128, 128] = sub(s, m)
  e: f32[1, 4, 128, 128] = exp(c)
  t: f32[1, 4, 128, 1] = reduce(e, kind=sum, axes=(3,), keepdims=true)
  p: f32[1, 4, 128, 128] = div(e, t)
  o: f32[1, 4, 128, 64] = contract(p, v, spec="b h i j, b h j d -> b h i d")
  x: f32[1, 128, 4, 64] = transpose(o, perm=(0, 2, 1, 3))
  r: f32[128, 256] = reshape(x, shape=(128, 256))
  y: f32[128, 256] = contract(r, w, spec="ik,kj->ij")
"""


def test_attentions_stay_whole_and_store_what_the_next_product_reads() -> None:
    module = filled(ATTENTION)
    after = reduce_precision(module, PAIRS)
    assert [types(n) for n in products(after)] == [("f32", "f32"), ("f32", "f32"), ("bf16", "bf16")]
    exe = tw.compile(after)
    assert len(exe.kernels) == 2 and "attention" in {d.template for d in exe.decisions.values()}
    feeds = {name: numbers(1, 4, 128, 64, seed=n) for n, name in enumerate("qkv")}
    expected = evaluate(after, feeds)["y"]
    np.testing.assert_allclose(exe.run(feeds)["y"], expected, atol=2e-3 * float(np.abs(expected).max()))


CONVOLUTION = """
graph main(x: f32[1, {inputs}, {size}, {size}]) -> y:
  w: f32[{outputs}, {inputs}, 3, 3] = constant(name=@w)
  zero: f32[] = full(value=0.0, shape=())
  p: f32[1, {inputs}, {wide}, {wide}] = pad(x, zero, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
  y: f32[1, {outputs}, {size}, {size}] = contract(p, w, spec="n c i+a j+b, o c a b -> n o i j",
    sizes=(("i", {size}), ("j", {size})))
"""


def convolution(inputs: int, outputs: int, size: int) -> Module:
    return filled(CONVOLUTION.format(inputs=inputs, outputs=outputs, size=size, wide=size + 2))


def test_winograds_products_stay() -> None:
    """Those in f32 would make too much of roundings; what has to be rounded of others is already."""
    for halves, kind in ((False, "f32"), (True, "bf16")):
        module = winograd(convolution(256, 256, 14), PAIRS, halves)
        (product,) = products(module)
        assert types(product) == (kind, kind) and product.outputs[0].type.dtype.name == "f32"
        assert reduce_precision(module, PAIRS) is module


WAYS = [
    ((32, 8, 28), PAIRS, False, "f32"),
    ((32, 32, 28), PAIRS, True, "f32"),
    ((256, 256, 14), PAIRS, True, "bf16"),
    ((64, 64, 56), PAIRS, True, "f32"),
    ((63, 64, 56), PAIRS, True, "f32"),
    ((255, 256, 14), PAIRS, True, "f32"),
    ((256, 256, 14), PLAIN, True, "f32"),
    ((256, 256, 14), ARM_PAIRS, True, "bf16"),
]


@pytest.mark.parametrize(("sizes", "target", "tiles", "kind"), WAYS, ids=str)
def test_convolutions_are_by_tiles_or_by_pairs_or_both_whichever_is_fastest(
    sizes: tuple[int, int, int], target: Target, tiles: bool, kind: str
) -> None:
    """Pairs are of channels: where these are odd in number, tiles stay f32, as on machines without pairs."""
    after = winograd(convolution(*sizes), target, halves=True)
    assert ("winograd_input" in [n.op.name for n in after.graph.nodes]) == tiles
    assert [types(n) for n in products(reduce_precision(after, target))] == [(kind, kind)]


@pytest.mark.parametrize("spec", ["n c i+a j+b, o c a b -> n o i j", "n g c i+a j+b, g o c a b -> n g o i j"])
def test_convolutions_that_pairs_do_not_fill_stay(spec: str) -> None:
    groups = "4, " if "g" in spec else ""
    channels, windows = (4, 64) if "g" in spec else (3, 64)
    text = f"""
graph main(x: f32[1, {groups}{channels}, 58, 58]) -> y:
  w: f32[{groups}{windows}, {channels}, 3, 3] = constant(name=@w)
  y: f32[1, {groups}{windows}, 56, 56] = contract(x, w, spec="{spec}", sizes=(("i", 56), ("j", 56)))
"""
    module = filled(text)
    assert reduce_precision(module, PAIRS) is module


# What is computed


def small_integers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("target", [PAIRS, PLAIN], ids=str)
def test_what_bf16_holds_is_computed_as_without_it(rows: int, target: Target, always: None) -> None:
    """Small integers round to themselves, and all sums are exact."""
    text = f"""
graph main(x: f32[{rows}, 48]) -> q:
  w: f32[48, 65] = constant(name=@w)
  b: f32[65] = constant(name=@b)
  p: f32[{rows}, 65] = contract(x, w, spec="ik,kj->ij")
  q: f32[{rows}, 65] = add(p, b)
"""
    module = parse_module(text).with_constants({"w": small_integers(48, 65), "b": small_integers(65, seed=1)})
    x = small_integers(rows, 48, seed=2)
    expected = x @ module.constants["w"] + module.constants["b"]
    after = reduce_precision(module, target)
    assert after is not module
    np.testing.assert_array_equal(tw.compile(after).run({"x": x})["q"], expected)


@pytest.mark.parametrize("shape", [(1, 257, 130), (1, 64, 1000), (3, 100, 96), (2, 2048, 16)])
def test_the_only_error_of_few_rows_is_that_of_the_weights(shape: tuple[int, int, int], always: None) -> None:
    rows, terms, columns = shape
    text = f"""
graph main(x: f32[{rows}, {terms}]) -> y:
  w: f32[{terms}, {columns}] = constant(name=@w)
  y: f32[{rows}, {columns}] = contract(x, w, spec="ik,kj->ij")
"""
    module, x = filled(text), numbers(rows, terms)
    exe = tw.compile(module, target=native(), precision="bf16")
    if not native().has_bf16_dot:
        assert "bf16" in exe.show(after="drop")
    w = half(module.constants["w"]).astype(np.float64)
    close = 4 * terms * 2.0**-24 * (np.abs(x.astype(np.float64)) @ np.abs(w))
    if not native().has_bf16_dot:
        assert (np.abs(exe.run({"x": x})["y"] - x.astype(np.float64) @ w) <= close).all()


LONG = settings.get_current_profile_name() == "long"


@settings(max_examples=200 if LONG else 5, deadline=None)
@given(st.sampled_from([1, 2, 5, 33]), st.sampled_from([4, 16, 47]), st.sampled_from([2, 31, 64]), st.integers(0, 9))
def test_compiled_code_computes_the_rounded_graph(rows: int, width: int, inner: int, seed: int) -> None:
    """Of all sizes, for both kinds of machine: within what rounding an intermediate value up or down makes."""
    module = filled(LAYERS.format(rows=rows, width=width, inner=inner), seed)
    x = numbers(rows, width, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision_choice, "pays", lambda plain, rounded: True)
        for target in (PAIRS, PLAIN):
            after = reduce_precision(module, target)
            found, expected = tw.compile(after).run({"x": x}), evaluate(after, {"x": x})
            exact = evaluate(module, {"x": x})
            for name, array in expected.items():
                scale = float(np.abs(array).max())
                np.testing.assert_allclose(found[name], array, rtol=0, atol=2.0**-7 * scale)
                assert cosine(array, exact[name]) >= COSINE


FEW = ("MLP", "LSTM", "ResNet-50", "BERT-base")


@pytest.mark.parametrize("network", [n for n in NETWORKS if LONG or n.name in FEW], ids=lambda network: network.name)
def test_networks_point_the_same_way(network: Network, always: None) -> None:
    """With everything rounded that may be, on a machine with products of pairs and on this one."""
    graph = network.build_tiny()
    model, feeds = graph.model().SerializeToString(), graph.feeds
    right = evaluate(read(model), feeds)
    here = tw.compile(model, precision="bf16").run(feeds)
    passes = pipeline(PAIRS, None, Switches(precision=HALF))
    names = [p.name for p in passes]
    rounded = run_passes(read(model), passes[: names.index("drop") + 1], level=GRAPH)
    assert any("bf16" in types(n) for n in products(rounded)) or network.name == "LSTM"
    there = tw.compile(rounded).run(feeds)
    for name, array in right.items():
        assert cosine(here[name], array) >= COSINE
        assert cosine(there[name], array) >= COSINE


# What runs


def lowered(graph: Graph, target: Target) -> tuple[str, Choices]:
    """The assembly of a network in bf16, and how its kernels came to their schedules."""
    compiled = lower(read(graph.model().SerializeToString()), target, Switches(precision=HALF))
    return assembly(compiled.llvm, target), compiled.choices


def by_instructions(choices: Choices) -> tuple[list[str], list[str]]:
    """The kernels of products, by instructions for pairs and otherwise, or of transforms."""
    dots, others = list[str](), list[str]()
    for name, d in choices.decisions.items():
        if d.template in ("contraction", "transposed", "winograd input", "winograd output"):
            assert d.taken is not None
            of_pairs = isinstance(d.taken.choice, dict) and d.taken.choice.get("dot")
            (dots if of_pairs else others).append(name)
    return dots, others


def test_the_products_of_a_transformer_layer_are_the_machines() -> None:
    graph = transformers.bert(transformers.Sizes(width=192, heads=3, blocks=1), 64, 40, 64)
    listing, choices = lowered(graph, PAIRS)
    dots, others = by_instructions(choices)
    assert len(dots) >= 4 and not others
    for name in dots:
        loops = [loop for loop in inner_loops(listing, "vdpbf16ps") if name in loop.function.split(".")]
        assert max(loop.count("vdpbf16ps") for loop in loops) >= 12, name
        assert not any(loop.count("vfmadd") for loop in loops)
        assert not any(loop.on_stack for loop in loops)


def test_the_products_of_a_residual_block_are_the_machines() -> None:
    """But for the first convolution, of three channels, the last product, of few columns, and the transforms."""
    graph = images.resnet50(((64, 1, 1), (128, 1, 2)), 64, size=56, classes=7)
    listing, choices = lowered(graph, PAIRS)
    dots, others = by_instructions(choices)
    windows = [name for name in dots if choices.decisions[name].template == "transposed"]
    assert len([name for name in windows if "pad" in name]) == 1, "the other 3x3 windows are by tiles"
    assert len(dots) >= 7 and len(others) == 4
    for name in dots:
        loops = [loop for loop in inner_loops(listing, "vdpbf16ps") if name in loop.function.split(".")]
        assert max(loop.count("vdpbf16ps") for loop in loops) >= 12, name
        assert not any(loop.count("vfmadd") or loop.on_stack for loop in loops)


def test_the_products_of_rounded_tiles_are_the_machines() -> None:
    """And whatever else there is has a schedule of its own: the transforms, which round and weave what they store."""
    compiled = lower(convolution(256, 256, 14), PAIRS, Switches(precision=HALF))
    decisions = compiled.choices.decisions
    assert [d.template for d in decisions.values()] == ["winograd input", "contraction", "winograd output"]
    assert not any(d.refusals for d in decisions.values())
    loops = inner_loops(assembly(compiled.llvm, PAIRS), "vdpbf16ps")
    assert max(loop.count("vdpbf16ps") for loop in loops) >= 12
    assert not any(loop.count("vfmadd") or loop.on_stack for loop in loops)


def test_few_rows_read_half_the_bytes() -> None:
    """The loop of a matrix-vector product widens 16-bit elements, and does nothing else to them."""
    text = """
graph main(x: f32[1, 1024]) -> y:
  w: f32[1024, 4096] = constant(name=@w)
  y: f32[1, 4096] = contract(x, w, spec="ik,kj->ij")
"""
    compiled = lower(filled(text), PLAIN, Switches(precision=HALF))
    (loop,) = inner_loops(assembly(compiled.llvm, PLAIN))
    assert loop.count("vpmovzxwd") == loop.count("vpslld") == loop.multiply_adds > 0
    assert not loop.on_stack


# How it is asked for


def test_precisions_are_kept_apart_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TILEWRIGHT_MACHINE", str(save_slow_memory(tmp_path)))
    path = save_product(tmp_path, 1024)
    plain, rounded = tw.compile(path), tw.compile(path, precision="bf16")
    assert not plain.cached and not rounded.cached
    again = tw.compile(path, precision="bf16")
    assert again.cached and tw.compile(path, precision="f32").cached
    x = numbers(1, 1024)
    results = [exe(x)[0] for exe in (plain, rounded, again)]
    np.testing.assert_array_equal(results[1], results[2])
    assert not np.array_equal(results[0], results[1])
    assert "bf16" in again.show(after="drop") and "bf16" not in plain.show(after="drop")


def test_several_processes_make_the_same_code() -> None:
    """A large model's kernels are compiled by workers, which have to hear of the precision."""
    graph = transformers.bert(transformers.Sizes(width=192, heads=3, blocks=2), 64, 40, 64)
    module, switches = read(graph.model().SerializeToString()), Switches(precision=HALF)
    assert is_large(module)
    several, one = produce(module, PAIRS, switches), lower(module, PAIRS, switches)
    assert several.code == one.code
    assert several.code != produce(module, PAIRS).code


@pytest.mark.parametrize("precision", ["f16", "float32", "BF16", "", "f64"])
def test_a_precision_that_does_not_exist_is_refused(precision: str, tmp_path: Path) -> None:
    with pytest.raises(tw.UserError) as caught:
        tw.compile(save_product(tmp_path, 8), precision=precision)
    assert str(caught.value) == (
        f"there is no precision {precision!r}\n"
        "why:  f32 computes as the model says, bf16 may round the factors of f32 products to bf16\n"
        'fix:  take precision="bf16", or leave it out'
    )


@pytest.mark.parametrize(
    ("sizes", "rounded", "plain"), [((32, 32, 28), "f32", "f32"), ((256, 256, 14), "bf16", "f32")], ids=str
)
def test_tiles_are_chosen_as_in_f32_where_nothing_is_rounded(
    sizes: tuple[int, int, int], rounded: str, plain: str
) -> None:
    """With the rounding switched off there are no tiles of rounded factors."""
    made = []
    for off in (frozenset[str](), frozenset({"reduce-precision"})):
        passes = pipeline(PAIRS, None, Switches(off=off, precision=HALF))
        until = [p.name for p in passes].index("orient")
        made.append(run_passes(convolution(*sizes), passes[:until], level=GRAPH))
    operators = [[n.op.name for n in module.graph.nodes] for module in made]
    assert ["winograd_input" in names for names in operators] == [True, True]
    assert [types(products(module)[0]) for module in made] == [(rounded, rounded), (plain, plain)]


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    model = save_product(tmp_path, 1024).read_bytes()
    for options in ({"level": 2}, {"off": ["reduce-precision"]}):
        assert "bf16" not in tw.compile(model, precision="bf16", **options).show(after="drop")  # type: ignore[arg-type]
