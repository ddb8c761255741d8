"""Kernels run right before the first one that reads what they make, where no more memory is in use meanwhile."""

from __future__ import annotations

import pytest

from tilewright.graph.nodes import GraphFunction
from tilewright.graph.parse import parse
from tilewright.lower.kernels.run_late import run_late

FUNCTIONS = """
func grow[n](x: f32[n], y: f32[n, 4]):
  for i in 0..n, j in 0..4: y[i, j] = x[i]

func shrink[n](x: f32[n, 4], y: f32[n]):
  for i in 0..n: y[i] = x[i, 0]

func first[n](x: f32[n*4], y: f32[n]):
  for i in 0..n: y[i] = x[i]

func copy[n](x: f32[n, 4], y: f32[n, 4]):
  for i in 0..n, j in 0..4: y[i, j] = x[i, j]

func keep[n](x: f32[n], y: f32[n]):
  for i in 0..n: y[i] = x[i]

func join[n](x: f32[n, 4], y: f32[n, 4], z: f32[n]):
  for i in 0..n: z[i] = x[i, 0] + y[i, 1]

func weigh[n](w: f32[9999], x: f32[n], y: f32[n]):
  for i in 0..n: y[i] = x[i]
"""
WITH_CONSTANT = FUNCTIONS.replace("w: f32[9999]", "w: f32[9999] in constant")


def order(body: str, params: str = "p: f32[n], q: f32[n], r: f32[n, 4]", results: str = "z") -> list[str]:
    """What the nodes of a graph make, in the order in which they run."""
    module = run_late(parse(f"graph main[n]({params}) -> {results}:\n{body}\n{WITH_CONSTANT}"))
    graph = module.functions["main"]
    assert isinstance(graph, GraphFunction)
    return [v.name for node in graph.nodes for v in node.outputs]


def call(name: str, callee: str, *inputs: str, wide: bool = False) -> str:
    shape = "n, 4" if wide else "n"
    return f'  {name}: f32[{shape}] = call({", ".join(inputs)}, callee="{callee}", symbols=(n,))'


def test_what_is_read_later_is_made_later() -> None:
    body = [call("a", "grow", "p", wide=True), call("b", "grow", "q", wide=True), call("s", "shrink", "a")]
    body += [call("t", "grow", "s", wide=True), call("z", "join", "t", "b")]
    assert order("\n".join(body)) == ["a", "s", "t", "b", "z"]


def test_branches_wait_as_a_whole() -> None:
    body = [call("a", "keep", "p"), call("b", "grow", "a", wide=True), call("s", "shrink", "r")]
    body += [call("t", "grow", "s", wide=True), call("z", "join", "t", "b")]
    assert order("\n".join(body)) == ["s", "t", "a", "b", "z"]


def test_a_kernel_that_frees_more_than_it_makes_stays() -> None:
    body = [call("a", "shrink", "r"), call("s", "grow", "q", wide=True), call("t", "grow", "a", wide=True)]
    assert order("\n".join([*body, call("z", "join", "s", "t")])) == ["a", "s", "t", "z"]


def test_memory_that_others_read_later_is_not_freed() -> None:
    body = [call("a", "shrink", "r"), call("s", "grow", "q", wide=True), call("t", "grow", "a", wide=True)]
    body += [call("u", "join", "s", "r"), call("v", "grow", "u", wide=True), call("z", "join", "t", "v")]
    assert order("\n".join(body)) == ["s", "u", "a", "t", "v", "z"]


@pytest.mark.parametrize("read", ["w", "p4"])
def test_views_are_the_memory_that_they_are_of(read: str) -> None:
    body = ["  v: f32[n*4] = reshape(r, shape=(n*4,))", call("a", "first", "v"), call("p4", "grow", "p", wide=True)]
    body += ["  w: f32[n, 4] = reshape(v, shape=(n, 4))", call("s", "join", "p4", read)]
    body += [call("t", "grow", "s", wide=True), call("u", "grow", "a", wide=True), call("z", "join", "t", "u")]
    stays = ["v", "a", "w", "p4", "s", "t", "u", "z"]
    assert order("\n".join(body)) == (["v", "w", "p4", "s", "t", "a", "u", "z"] if read == "w" else stays)


@pytest.mark.parametrize("results", ["r, z", "z"])
def test_results_are_kept_anyway(results: str) -> None:
    body = [call("a", "shrink", "r"), call("s", "grow", "q", wide=True), call("t", "grow", "a", wide=True)]
    found = order("\n".join([*body, call("z", "join", "s", "t")]), results=results)
    assert found == (["s", "a", "t", "z"] if results == "r, z" else ["a", "s", "t", "z"])


def test_what_reads_as_much_of_other_kernels_as_it_makes_stays_behind_them() -> None:
    body = [call("b", "grow", "p", wide=True), call("c", "copy", "b", wide=True), call("s", "grow", "q", wide=True)]
    body += [call("u", "join", "s", "b"), call("t", "grow", "u", wide=True), call("z", "join", "t", "c")]
    assert order("\n".join(body)) == ["b", "c", "s", "u", "t", "z"]


def test_constants_are_no_memory_of_the_call() -> None:
    body = ["  w: f32[9999] = constant(name=@w)", call("a", "weigh", "w", "p"), call("s", "grow", "q", wide=True)]
    body += [call("t", "grow", "a", wide=True), call("z", "join", "s", "t")]
    assert order("\n".join(body)).index("a") == 2
