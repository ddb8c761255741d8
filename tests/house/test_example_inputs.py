"""Inputs that commands make up: sizes that the model takes, and integers inside of what they index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from cli_models import invoke, save_rows
from tilewright.cli.examples import LENGTH, SIDE, SIDE_OF_VOLUME, Examples, examples_of
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module


def _graph(text: str) -> GraphFunction:
    graph = tw.parse(text)
    assert isinstance(graph, GraphFunction)
    return graph


def _examples(text: str) -> Examples:
    return examples_of(_graph(text))


POOL = """
graph main[n, h, w](x: f32[n, 3, h, w]) -> y:
  require({least} <= h, message="too low")
  y: f32[n, 3, (h + 1) // 4, (w + 1) // 4] = window_reduce(x, WINDOWS)
"""
"""Images of at least so many rows."""

WINDOWS = "kind=max, window=(1, 1, 3, 3), strides=(1, 1, 4, 4), dilations=(1, 1, 1, 1)"

SUM = """
graph main[b, past, new, total](x: f32[b, past, 4], y: f32[b, new, 4], mask: f32[b, total, 1]) -> z:
  c: f32[b, past + new, 4] = concat(x, y, axis=1)
  require(past + new == total, message="the sizes differ")
  m: f32[b, total, 4] = broadcast(mask, shape=(b, total, 4))
  z: f32[b, past + new, 4] = mul(c, m)
"""
"""Lengths of which one is the sum of the others."""


@pytest.mark.parametrize(("least", "height"), [(1, SIDE), (100, 104), (3000, 4096)])
def test_images_are_large_enough_for_every_window(least: int, height: int) -> None:
    sizes = _examples(POOL.format(least=least).replace("WINDOWS", WINDOWS)).sizes({})
    assert sizes["n"] == 1 and sizes["h"] == height and sizes["w"] >= SIDE


def test_sides_of_volumes_are_shorter() -> None:
    text = """
graph main[n, d](x: f32[n, 3, d, d, d]) -> y:
  y: f32[n, 3, d - 2, d - 2, d - 2] = window_reduce(x, WINDOWS)
""".replace("WINDOWS", "kind=max, window=(1, 1, 3, 3, 3), strides=(1, 1, 1, 1, 1), dilations=(1, 1, 1, 1, 1)")
    assert _examples(text).sizes({}) == {"n": 1, "d": SIDE_OF_VOLUME}


def test_lengths_agree_with_each_other_and_with_those_that_are_given() -> None:
    found = _examples(SUM)
    assert found.sizes({}) == {"b": 1, "past": LENGTH, "new": LENGTH, "total": 2 * LENGTH}
    assert found.sizes({"past": 30}) == {"b": 1, "past": 30, "new": LENGTH, "total": 30 + LENGTH}
    assert found.sizes({"total": 20, "past": 3}) == {"b": 1, "past": 3, "new": 17, "total": 20}
    assert found.sizes({"total": 20, "past": 3, "new": 5})["total"] == 20


def test_leading_dimensions_are_as_large_as_a_reshape_needs() -> None:
    text = """
graph main[n](x: f32[n, 3]) -> y:
  require(n*3 == n*3//48*48, message="the numbers of elements differ")
  y: f32[n*3//48, 48] = reshape(x, shape=(n*3//48, 48))
"""
    assert _examples(text).sizes({}) == {"n": 16}


INDEXED = """
graph main[b, s](ids: i32[b, s], kinds: i64[b, s], mask: i64[b, s], t: f32[100, 4], k: f32[2, 4], p: f32[s, 4]) -> y, m:
  two: i64[] = full(value=2, shape=())
  wide: i64[b, s] = cast(ids, dtype=i64)
  flat: i64[b*s] = reshape(wide, shape=(b*s,))
  moved: i64[b*s] = add(flat, two)
  i: i64[b*s] = checked_indices(moved, limit=100, what="tokens")
  j: i64[b, s] = checked_indices(kinds, limit=2, what="kinds")
  a: f32[b*s, 4] = take(t, i, axis=0)
  c: f32[b, s, 4] = take(k, j, axis=0)
  ab: f32[b, s, 4] = reshape(a, shape=(b, s, 4))
  y: f32[b, s, 4] = add(ab, c)
  m: i64[b, s] = add(mask, two)
"""


def test_integers_are_inside_of_what_they_index() -> None:
    found = _examples(INDEXED)
    sizes = found.sizes({})
    assert [found.range_of(name, sizes) for name in ("ids", "kinds", "mask")] == [(-2, 97), (0, 1), None]


def test_positions_bound_the_length_of_a_text() -> None:
    text = """
graph main[s](x: f32[1, s, 4], p: f32[5, 4]) -> y:
  r: i64[s] = iota(shape=(s,), axis=0, dtype=i64)
  i: i64[s] = checked_indices(r, limit=5, what="positions")
  t: f32[s, 4] = take(p, i, axis=0)
  e: f32[1, s, 4] = reshape(t, shape=(1, s, 4))
  y: f32[1, s, 4] = add(x, e)
"""
    assert _examples(text).sizes({}) == {"s": 5}


def test_a_size_that_an_input_gives_is_a_small_one() -> None:
    text = """
graph main(count: i64[]) -> y:
  n = size(count, low=0, high=1000000, what="boxes")
  y: f32[n] = full(value=1.0, shape=(n,))
"""
    assert _examples(text).range_of("count", {}) == (1, 32)


def test_conditions_that_nothing_meets_end_the_search() -> None:
    text = """
graph main[n](x: f32[n, 3]) -> y:
  require(n*2 == 7, message="no number is")
  y: f32[n, 3] = neg(x)
"""
    assert _examples(text).sizes({}) == {"n": 1}


@pytest.mark.parametrize("text", [SUM, INDEXED])
def test_what_is_chosen_runs(text: str) -> None:
    graph = _graph(text)
    found = examples_of(graph)
    sizes = found.sizes({})
    feeds = {}
    for param in graph.params:
        shape = [int(d.value) if not d.variables else sizes[str(d)] for d in param.type.shape]
        low, high = found.range_of(param.name, sizes) or (0, 1)
        feeds[param.name] = np.random.default_rng(0).integers(low, high + 1, shape).astype(param.type.dtype.numpy)
    assert set(evaluate(Module({"main": graph}, {}, "main"), feeds)) == set(graph.result_names)


def test_run_says_which_range_and_which_sizes_were_taken(tmp_path: Path) -> None:
    model = save_rows(tmp_path, 50)
    outcome = invoke("run", model, "--random")
    assert outcome.code == 0, outcome.err
    assert "indices  i64[1]  random from 0 to 49, seed 0" in outcome.out
    assert outcome.err == "note: k = 1: choose another size with --size k=2\n"
    taken = invoke("run", model, "--random", "--size", "k=400")
    assert taken.code == 0 and taken.err == ""


def test_a_network_of_windows_runs_without_sizes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("AveragePool", ["a"], ["b"], kernel_shape=[5, 5], strides=[4, 4]),
        helper.make_node("MaxPool", ["b"], ["y"], kernel_shape=[9, 9]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, "h", "w"])
    graph = helper.make_graph(nodes, "windows", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    path = tmp_path / "windows.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    outcome = invoke("run", path, "--random", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.err.startswith("note: n = 1, h = 80, w = 80: choose other sizes with --size n=2,h=160,w=160")
