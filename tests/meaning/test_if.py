"""Branches of graphs: an `if` means the branch that its condition takes, and compiled code runs no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from graph_strategies import Program, agree, choosing
from stages import check, stages_of
from tilewright.compiler import compile_module
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.lower.graph.eliminate_common import eliminate_common
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.fix_dimensions import fix_dimensions
from tilewright.lower.graph.fold_constants import fold_constants
from tilewright.lower.graph.own_results import own_results
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.lower.graph.sink_constants import sink_constants
from tilewright.report.errors import RuntimeFault

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=2000 if LONG else 6, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)
PASSES = (sink_constants, fold_constants, simplify_graph, eliminate_common, eliminate_dead, own_results)


@given(program=choosing())
@some
def test_random_branches(program: Program) -> None:
    check(program.module, [program.inputs])


@given(program=choosing())
@some
def test_passes_keep_branches(program: Program) -> None:
    text = str(program.module)
    assert str(parse_module(text, program.module.constants)) == text
    module = program.module
    for step in PASSES:
        module = step(module)
        agree(program, module)


SIZES = """
graph main[n](c: bool[], x: f32[n, 4]) -> y, z:
  w: f32[4, 4] = constant(name=@w)
  m, y: f32[m, 4], z: f32[n] = if(c, x, w, then="dense", otherwise="double", symbols=(n,))

graph dense[n](x: f32[n, 4], w: f32[4, 4]) -> y, sums:
  y: f32[n, 4] = contract(x, w, spec="ij,jk->ik")
  sums: f32[n] = reduce(y, axes=(1,), kind=sum)

graph double[k](x: f32[k, 4], w: f32[4, 4]) -> both, most:
  both: f32[k*2, 4] = concat(x, x, axis=0)
  most: f32[k] = reduce(x, axes=(1,), kind=max)
"""


def sizes() -> Module:
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    return parse_module(SIZES.strip(), {"w": w})


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_an_if_is_its_branch(n: int) -> None:
    module, x = sizes(), rows(n)
    verify(module)
    y, z = evaluate(module, [np.array(True), x]).values()
    np.testing.assert_allclose(y, x @ module.constants["w"], rtol=1e-5)
    np.testing.assert_allclose(z, y.sum(1), rtol=1e-5, atol=1e-5)
    y, z = evaluate(module, [np.array(False), x]).values()
    np.testing.assert_array_equal(y, np.concatenate([x, x]))
    np.testing.assert_array_equal(z, x.max(1))


def test_sizes_that_differ() -> None:
    check(sizes(), [[np.array(c), rows(n)] for c in (True, False) for n in (0, 1, 5)])


def test_weights_are_constants_of_the_branch_that_reads_them() -> None:
    module = sink_constants(sizes())
    dense = module.functions["dense"]
    assert isinstance(dense, GraphFunction)
    assert [p.name for p in dense.params] == ["x"]
    made = next(stage.program for stage in stages_of(sizes()) if stage.name == "bufferize")
    assert "call contract[n](x, @w.cache, " in str(made.main)


CHECKED = """
graph main[n](c: bool[], x: f32[n], k: i64[]) -> y:
  y: f32[n] = if(c, x, k, then="cut", otherwise="keep", symbols=(n,))

graph cut[n](x: f32[n], k: i64[]) -> y:
  m = size(k, low=0, high=n, what="rows")
  require(n >= 3, message="{1} is less than {0}")
  part: f32[m] = slice(x, starts=(0,), sizes=(m,), steps=(1,))
  sum: f32[] = reduce(part, axes=(0,), kind=sum)
  y: f32[n] = broadcast(sum, shape=(n,))

graph keep[n](x: f32[n], k: i64[]) -> x:
  pass
"""


def test_checks_of_a_branch_fail_where_it_runs() -> None:
    module = parse_module(CHECKED.strip())
    x, k = np.arange(5, dtype=np.float32), np.array(2)
    check(module, [[np.array(True), x, k], [np.array(False), x, np.array(99)], [np.array(False), x[:1], k]])
    exe = compile_module(module)
    for array, rows, why in ((x, 6, "rows is 6, outside 0 to 5"), (x[:2], 1, "2 is less than 3")):
        with pytest.raises(RuntimeFault, match=why):
            exe(np.array(True), array, np.array(rows))
        np.testing.assert_array_equal(exe(np.array(False), array, np.array(rows))[0], array)


NESTED = """
graph main[n, s](a: bool[], b: bool[], x: f32[n, 3], xs: f32[s, 3]) -> y, h:
  m, y: f32[m, 3] = if(a, b, x, then="outer", otherwise="same", symbols=(n,))
  zero: f32[3] = full(value=0.0, shape=(3,))
  h: f32[3] = scan(zero, xs, b, body="step", steps=s, states=1, scanned=(forward,))

graph outer[n](b: bool[], x: f32[n, 3]) -> y:
  k, y: f32[k, 3] = if(b, x, then="twice", otherwise="first", symbols=(n,))

graph twice[n](x: f32[n, 3]) -> y:
  y: f32[n*2, 3] = concat(x, x, axis=0)

graph first[n](x: f32[n, 3]) -> z:
  y: f32[3] = reduce(x, axes=(0,), kind=sum)
  z: f32[1, 3] = reshape(y, shape=(1, 3))

graph same[n](b: bool[], x: f32[n, 3]) -> x:
  pass

graph step(h: f32[3], x: f32[3], b: bool[]) -> t:
  t: f32[3] = if(b, h, x, then="sum", otherwise="latest")

graph sum(h: f32[3], x: f32[3]) -> y:
  y: f32[3] = add(h, x)

graph latest(h: f32[3], x: f32[3]) -> x:
  pass
"""


def test_branches_in_branches_and_in_loops() -> None:
    rng = np.random.default_rng(3)
    module = parse_module(NESTED.strip())
    calls = [
        [np.array(a), np.array(b), *(rng.standard_normal((k, 3)).astype(np.float32) for k in (n, s))]
        for a in (True, False)
        for b in (True, False)
        for n, s in ((0, 0), (1, 4), (3, 1))
    ]
    check(module, calls)


LOOP = """
graph main[n](c: bool[], x: f64[n, 3]) -> y, ys:
  zero: f64[3] = full(value=f64(0.0), shape=(3,))
  y: f64[3], ys: f64[n, 3] = if(c, zero, x, then="run", otherwise="skip", symbols=(n,))

graph run[n](zero: f64[3], x: f64[n, 3]) -> y, ys:
  y: f64[3], ys: f64[n, 3] = scan(zero, x, body="cell", steps=n, states=1, scanned=(forward,), stacked=(reverse,))

graph cell(h: f64[3], x: f64[3]) -> t, t as each:
  t: f64[3] = add(h, x)

graph skip[n](zero: f64[3], x: f64[n, 3]) -> zero, x:
  pass
"""


def test_a_loop_in_a_branch() -> None:
    rng = np.random.default_rng(4)
    check(
        parse_module(LOOP.strip()), [[np.array(c), rng.standard_normal((n, 3))] for c in (True, False) for n in (0, 4)]
    )


def test_fixed_sizes_are_those_of_the_branches() -> None:
    module = fix_dimensions(sizes(), {"n": 5})
    verify(module)
    text = str(module)
    assert 'm, y: f32[m, 4], z: f32[5] = if(c, x, w, then="dense.1", otherwise="double.1")' in text
    assert "graph dense.1(x: f32[5, 4], w: f32[4, 4]) -> y, sums:" in text
    for taken in (True, False):
        for found, wanted in zip(
            evaluate(module, [np.array(taken), rows(5)]).values(),
            evaluate(sizes(), [np.array(taken), rows(5)]).values(),
            strict=True,
        ):
            np.testing.assert_array_equal(found, wanted)


def test_a_branch_that_sizes_forbid_fails_where_it_runs() -> None:
    module = fix_dimensions(parse_module(CHECKED.strip()), {"n": 2})
    x, k = np.arange(2, dtype=np.float32), np.array(1)
    exe = compile_module(module)
    np.testing.assert_array_equal(exe(np.array(False), x, k)[0], x)
    with pytest.raises(RuntimeFault, match="2 is less than 3"):
        exe(np.array(True), x, k)
