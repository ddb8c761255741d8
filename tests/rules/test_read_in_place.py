"""read_in_place: products of few uses read operands before these are transposed or repeated; all others stay."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.expr.evaluate import evaluate as number_of
from tilewright.expr.nodes import Var
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.read_in_place import read_in_place
from tilewright.target import Target

TARGET = Target.parse("x86-64-v4")

TRANSPOSED = """
graph main(q: f32[6, 1, 5], k: f32[6, 9, 5]) -> s:
  t: f32[6, 5, 9] = transpose(k, perm=(0, 2, 1))
  s: f32[6, 1, 9] = contract(q, t, spec="hid,hdt->hit")
"""

REPEATED = """
graph main[n](p: f32[1, 6, 1, n + 1], v: f32[1, 2, n + 1, 5], past: f32[n]) -> y:
  w: f32[1, 2, 1, n + 1, 5] = reshape(v, shape=(1, 2, 1, n + 1, 5))
  b: f32[1, 2, 3, n + 1, 5] = broadcast(w, shape=(1, 2, 3, n + 1, 5))
  r: f32[1, 6, n + 1, 5] = reshape(b, shape=(1, 6, n + 1, 5))
  y: f32[1, 6, 1, 5] = contract(p, r, spec="bhit,bhtd->bhid")
"""

SOFTMAX = """
graph main(q: f32[1, 6, 1, 5], k: f32[1, 2, 9, 5], m: f32[1, 1, 1, 9]) -> y:
  w: f32[1, 2, 1, 9, 5] = reshape(k, shape=(1, 2, 1, 9, 5))
  b: f32[1, 2, 3, 9, 5] = broadcast(w, shape=(1, 2, 3, 9, 5))
  r: f32[1, 6, 9, 5] = reshape(b, shape=(1, 6, 9, 5))
  t: f32[1, 6, 5, 9] = transpose(r, perm=(0, 1, 3, 2))
  s: f32[1, 6, 1, 9] = contract(q, t, spec="bhid,bhdt->bhit")
  a: f32[1, 6, 1, 9] = add(s, m)
  e: f32[1, 6, 1, 9] = exp(a)
  d: f32[1, 6, 1, 1] = reduce(e, kind=sum, axes=(3,), keepdims=true)
  y: f32[1, 6, 1, 9] = div(e, d)
"""

MANY_USES = """
graph main(q: f32[6, 16, 5], k: f32[6, 9, 5]) -> s:
  t: f32[6, 5, 9] = transpose(k, perm=(0, 2, 1))
  s: f32[6, 16, 9] = contract(q, t, spec="hid,hdt->hit")
"""

UNKNOWN_USES = """
graph main[n](q: f32[6, n, 5], k: f32[6, 9, 5]) -> s:
  t: f32[6, 5, 9] = transpose(k, perm=(0, 2, 1))
  s: f32[6, n, 9] = contract(q, t, spec="hid,hdt->hit")
"""

OTHER_ORDER = """
graph main(q: f32[1, 4], k: f32[2, 2, 9]) -> s:
  t: f32[2, 2, 9] = transpose(k, perm=(1, 0, 2))
  r: f32[4, 9] = reshape(t, shape=(4, 9))
  s: f32[1, 9] = contract(r, q, spec="dt,id->it")
"""


def module_of(text: str) -> Module:
    function = tw.parse(text)
    assert isinstance(function, GraphFunction)
    return Module({function.name: function})


def feeds_of(module: Module, size: int) -> dict[str, np.ndarray]:
    """Random arrays for the parameters, every symbol being of one size."""
    symbols: dict[Var, int] = dict.fromkeys(module.graph.symbols, size)
    rng = np.random.default_rng(size)
    types = [(p.name, p.type.dtype.numpy, p.type.shape) for p in module.graph.params]
    extents = [[int(number_of(d, symbols)) for d in shape] for _, _, shape in types]
    return {n: rng.standard_normal(e).astype(t) for (n, t, _), e in zip(types, extents, strict=True)}


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        (TRANSPOSED, 'spec="h d, h t d -> h t"', "transpose"),
        (REPEATED, 'spec="h_0 h_1 t, h_0 t d -> h_0 h_1 d"', "broadcast"),
        (SOFTMAX, 'spec="h_0 h_1 d, h_0 t d -> h_0 h_1 t"', "broadcast"),
    ],
    ids=["transposed", "repeated", "both, before a softmax"],
)
@pytest.mark.parametrize("size", [0, 1, 4])
def test_operands_of_few_uses_are_read_where_they_lie(text: str, kept: str, gone: str, size: int) -> None:
    module = module_of(text)
    made = eliminate_dead(read_in_place(module, TARGET))
    verify(made)
    assert kept in str(made)
    assert gone not in str(made)
    feeds = feeds_of(module, size)
    for name, array in evaluate(module, feeds).items():
        np.testing.assert_allclose(evaluate(made, feeds)[name], array, rtol=1e-5, atol=1e-6)
        found = dict(zip(made.graph.result_names, tw.compile(made)(*feeds.values()), strict=True))
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_what_follows_keeps_the_shape_of_the_product() -> None:
    made = eliminate_dead(read_in_place(module_of(SOFTMAX), TARGET))
    assert [node.op.name for node in made.graph.nodes][-1] == "reshape"
    assert "y: f32[2, 3, 9] = div(e, d)" in str(made)


@pytest.mark.parametrize("text", [MANY_USES, UNKNOWN_USES], ids=["many uses", "as many as a call says"])
def test_operands_of_many_uses_stay(text: str) -> None:
    module = module_of(text)
    assert read_in_place(module, TARGET) is module


@pytest.mark.parametrize(("shuffle2_cycles", "few"), [(0.5, 10), (1.0, 14)])
def test_uses_are_few_where_products_take_less_than_the_copy(shuffle2_cycles: float, few: int) -> None:
    target = TARGET.with_core(shuffle2_cycles=shuffle2_cycles, load_cycles=0.5, store_cycles=1, fma_cycles=0.5)
    for uses in (few - 1, few):
        module = module_of(MANY_USES.replace("16", str(uses)))
        assert (read_in_place(module, target) is module) == (uses >= few)


def test_terms_keep_their_order() -> None:
    made = read_in_place(module_of(OTHER_ORDER), TARGET)
    assert "transpose" in str(eliminate_dead(made))
