"""Groups that come to the same program share one function, whatever its buffers are called; others never do."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

import tilewright as tw
from graph_strategies import Program, programs
from tilewright.analysis.structure import form_of
from tilewright.expr.dtypes import f32
from tilewright.graph.nodes import Module, Value
from tilewright.graph.parse import parse_module
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.lower.kernels import make_kernels as kernels
from tilewright.lower.kernels.form import form_of_kernel
from tilewright.lower.kernels.make_kernels import make_kernels
from tilewright.plan.fusion.kernels import Kernel
from tilewright.plan.fusion.planner import choose, unfused
from tilewright.target import Target, native
from tilewright.tune.task import Maker, task_of

LAYERS = """
graph main(x: f32[4, 8]) -> y:
  first.w: f32[8, 8] = constant(name=@first.w)
  first.b: f32[8] = constant(name=@first.b)
  a: f32[4, 8] = contract(x, first.w, spec="ik,kj->ij")
  b: f32[4, 8] = add(a, first.b)
  c: f32[4, 8] = relu(b)
  second.w: f32[8, 8] = constant(name=@second.w)
  second.b: f32[8] = constant(name=@second.b)
  d: f32[4, 8] = contract(c, second.w, spec="ik,kj->ij")
  e: f32[4, 8] = add(d, second.b)
  y: f32[4, 8] = relu(e)
"""
SHAPES = {"w": (8, 8), "b": (8,)}


def test_layers_share_a_kernel_and_keep_their_weights() -> None:
    rng = np.random.default_rng(0)
    weights = {f"{layer}.{n}": rng.standard_normal(s) for layer in ("first", "second") for n, s in SHAPES.items()}
    constants = {name: value.astype(np.float32) for name, value in weights.items()}
    exe = tw.compile(parse_module(LAYERS).with_constants(constants))
    assert len(exe.kernels) == 1
    x = rng.standard_normal((4, 8)).astype(np.float32)
    expected = x.astype(np.float64)
    for layer in ("first", "second"):
        expected = np.maximum(expected @ weights[f"{layer}.w"] + weights[f"{layer}.b"], 0)
    np.testing.assert_allclose(exe(x)[0], expected, rtol=1e-4, atol=1e-5)


def test_layers_share_a_kernel_wherever_a_number_that_both_read_is_defined() -> None:
    module = parse_module("""
graph main(x: f32[4, 8], w: f32[8, 8], v: f32[8, 8]) -> y:
  a: f32[4, 8] = contract(x, w, spec="ik,kj->ij")
  half: f32[] = full(value=0.5, shape=())
  b: f32[4, 8] = mul(a, half)
  c: f32[4, 8] = contract(b, v, spec="ik,kj->ij")
  y: f32[4, 8] = mul(c, half)
""")
    assert len(tw.compile(module).kernels) == 1


TARGET = Target.parse("x86-64-v3")
LANES = TARGET.lanes(f32)


def planned(module: Module, fuses: bool) -> str:
    return str(make_kernels(module, lambda graph: (choose if fuses else unfused)(graph, TARGET), LANES))


def by_programs(module: Module, fuses: bool) -> str:
    """The same, of the programs of all kernels: none is told by the graph."""
    with patch.object(kernels, "form_of_kernel", lambda kernel, fixed: (kernel,)):
        return planned(module, fuses)


@settings(max_examples=20, deadline=None)
@given(programs(nodes=12))
def test_the_graph_tells_which_programs_are_the_same(program: Program) -> None:
    for fuses in (True, False):
        assert planned(program.module, fuses) == by_programs(program.module, fuses)


def test_layers_are_told_by_the_graph() -> None:
    made: list[Kernel] = []

    def form(kernel: Kernel, fixed: set[Value]) -> object:
        made.append(kernel)
        return form_of_kernel(kernel, fixed)

    module = parse_module(LAYERS)
    make = kernels._function
    with patch.object(kernels, "form_of_kernel", form), patch.object(kernels, "_function", wraps=make) as programs:
        planned(module, True)
    assert (len(made), programs.call_count) == (2, 1)


STEPS = """
graph main(x: f32[4, 3, 8], h: f32[4, 8], w: f32[8, 8]) -> y:
  a: f32[4, 1, 8] = slice(x, starts=(0, 0, 0), sizes=(4, 1, 8), steps=(1, 1, 1))
  u: f32[4, 8] = reshape(a, shape=(4, 8))
  p: f32[4, 8] = contract(h, w, spec="ik,kj->ij")
  q: f32[4, 8] = add(p, u)
  b: f32[4, 1, 8] = slice(x, starts=(0, 1, 0), sizes=(4, 1, 8), steps=(1, 1, 1))
  v: f32[4, 8] = reshape(b, shape=(4, 8))
  r: f32[4, 8] = contract(q, w, spec="ik,kj->ij")
  s: f32[4, 8] = add(r, v)
  c: f32[4, 1, 8] = slice(x, starts=(0, 2, 0), sizes=(4, 1, 8), steps=(1, 1, 1))
  z: f32[4, 8] = reshape(c, shape=(4, 8))
  t: f32[4, 8] = contract(s, w, spec="ik,kj->ij")
  y: f32[4, 8] = add(t, z)
"""


def test_steps_that_read_other_places_share_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every access is asserted to be inside its buffer."""
    monkeypatch.setenv("TILEWRIGHT_CHECK", "1")
    exe = tw.compile(parse_module(STEPS))
    assert len(exe.kernels) == 2  # slices, and sums of products
    rng = np.random.default_rng(0)
    x, h, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 8), (4, 8), (8, 8)))
    wanted = h.astype(np.float64)
    for step in range(3):
        wanted = wanted @ w + x[:, step]
    np.testing.assert_allclose(exe(x, h, w)[0], wanted, rtol=1e-4, atol=1e-4)


def test_a_kernel_that_is_told_a_place_outside_reads_the_last_one() -> None:
    made = make_kernels(parse_module(STEPS), lambda graph: choose(graph, TARGET), LANES)
    (function,) = (f for f in made.functions.values() if isinstance(f, Function) and f.name == "slice")
    assert [symbol.name for symbol in function.symbols] == ["slice.start0"]
    assert "min(slice.start0, 2)" in str(function)


def test_kernels_that_are_told_a_place_can_be_tuned() -> None:
    made = make_kernels(parse_module(STEPS), lambda graph: choose(graph, TARGET), LANES)
    kernels = [f for f in made.functions.values() if isinstance(f, Function) and f.symbols]
    tasks = [task_of(made, function, {}) for function in kernels]
    assert tasks
    for function, task in zip(kernels, tasks, strict=True):
        assert task is not None and task.sizes.keys() == {s.name for s in function.symbols}
        program = Maker(task, native()).program()
        given = [np.ones([int(e.value) for e in b.shape], np.float32) for b in function.params[: function.inputs]]  # type: ignore[attr-defined]
        assert np.unique(program(*given)[0]).tolist() in ([1.0], [9.0])  # a slice, or products and what is added


def test_slices_of_constants_and_those_that_are_the_same_are_told_nothing() -> None:
    text = """
graph main(x: f32[8, 4]) -> y, z:
  w: f32[8, 4] = constant(name=@w)
  a: f32[2, 4] = slice(w, starts=(0, 0), sizes=(2, 4), steps=(1, 1))
  b: f32[2, 4] = slice(w, starts=(4, 0), sizes=(2, 4), steps=(1, 1))
  c: f32[2, 4] = slice(x, starts=(3, 0), sizes=(2, 4), steps=(1, 1))
  d: f32[2, 4] = mul(a, c)
  y: f32[2, 4] = relu(d)
  e: f32[2, 4] = mul(b, c)
  z: f32[2, 4] = exp(e)
"""
    made = make_kernels(parse_module(text), lambda graph: unfused(graph, TARGET), LANES)
    assert not any(f.symbols for f in made.functions.values() if isinstance(f, Function))


CHOSEN = """
graph main[n](c: bool[], x: f32[n, 3]) -> z:
  m, y: f32[m, 3] = if(c, x, then="twice", otherwise="same", symbols=(n,))
  k, z: f32[k, 3] = if(c, y, then="twice2", otherwise="same2", symbols=(m,))

graph twice[n](x: f32[n, 3]) -> y:
  y: f32[n*2, 3] = concat(x, x, axis=0)

graph same[n](x: f32[n, 3]) -> y:
  y: f32[n, 3] = tanh(x)

graph twice2[m](x: f32[m, 3]) -> y:
  y: f32[m*2, 3] = concat(x, x, axis=0)

graph same2[m](x: f32[m, 3]) -> y:
  y: f32[m, 3] = tanh(x)
"""


def test_kernels_of_other_symbols_are_the_same_program() -> None:
    """Of two choices of sizes one after the other: the kernels of both branches, and those that copy their results."""
    exe = tw.compile(parse_module(CHOSEN.strip()))
    assert len(exe.kernels) == 4
    x = np.ones((2, 3), np.float32)
    assert [exe(np.array(c), x)[0].shape for c in (True, False)] == [(8, 3), (2, 3)]


MAP = """
func map({x}: f32[4], {y}: f32[4]):
  alloc {t}: {dtype}[4] in {scope}
  for i in 0..4:
    block {block}(vi = i):
      {t}[vi] = {dtype}({f}({x}[vi]))
  for i in 0..4:
    block out(vi = i):
      {y}[vi] = f32({t}[vi])
"""


def program(**changes: str) -> Function:
    names = {"x": "x", "y": "y", "t": "t", "dtype": "f32", "scope": "arena", "block": "map", "f": "exp"}
    return parse(MAP.format_map(names | changes))


@pytest.mark.parametrize("changes", [{"x": "layer.1.x"}, {"y": "x", "x": "y"}, {"t": "u"}, {"block": "other"}], ids=str)
def test_names_of_buffers_and_blocks_make_no_difference(changes: dict[str, str]) -> None:
    assert form_of(program(**changes)) == form_of(program())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"f": "erf"}),
        ({}, {"dtype": "f64"}),
        ({}, {"scope": "stack"}),
        ({"t": "exp"}, {"t": "erf", "f": "erf"}),
        ({"t": "f32"}, {"t": "f64", "dtype": "f64"}),
        ({"t": "arena"}, {"t": "stack", "scope": "stack"}),
        ({"t": "x2"}, {"t": "x2", "f": "tanh"}),
    ],
    ids=str,
)
def test_other_programs_differ(one: dict[str, str], other: dict[str, str]) -> None:
    """Also where buffers are called like what tells the programs apart."""
    assert form_of(program(**one)) != form_of(program(**other))
