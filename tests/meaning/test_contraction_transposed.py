"""Contractions with their rows along the lanes: what they compute, where they are chosen, what their inner loops do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from chosen import candidates_of, choice_for, is_transposed, schedule_for

import tilewright as tw
from tilewright.compiler import compile_module
from tilewright.expr.dtypes import f32, f64
from tilewright.expr.evaluate import evaluate as evaluate_size
from tilewright.expr.nodes import Expr, const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.loops.edit import allocations
from tilewright.loops.nodes import Function
from tilewright.target import Target
from tilewright.types.scopes import Scope
from tilewright.types.tensor import TensorType

V3 = Target.parse("x86-64-v3")


@dataclass(frozen=True, slots=True)
class Case:
    """A contraction of x and the constant w; `tail` are the operators behind it: a bias, a residual, a relu."""

    x: tuple[int | str, ...]
    w: tuple[int, ...]
    spec: str
    tail: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    wide: bool = False


CASES = {
    "49": Case((1, 40, 49), (24, 40), "n c p, o c -> n o p"),
    "49, epilogue": Case((1, 40, 49), (24, 40), "n c p, o c -> n o p", "bias residual relu"),
    "channels innermost": Case((1, 49, 40), (24, 40), "n p c, o c -> n o p", "bias"),
    "odd": Case((1, 33, 49), (37, 33), "n c p, o c -> n o p", "bias"),
    "images": Case((3, 17, 25), (19, 17), "n c p, o c -> n o p", "relu"),
    "any images": Case(("n", 17, 25), (19, 17), "n c p, o c -> n o p", "bias relu"),
    "few positions": Case((1, 20, 3), (32, 20), "n c p, o c -> n o p", "bias"),
    "batches": Case((2, 5, 20, 9), (5, 16, 20), "n x c t, x o c -> n x o t"),
    "window": Case((1, 6, 9, 9), (20, 6, 3, 3), "n c i+a j+b, o c a b -> n o i j", "relu", (("i", 7), ("j", 7))),
    "window by 2": Case(
        (2, 6, 15, 15), (20, 6, 3, 3), "n c i*2+a j*2+b, o c a b -> n o i j", "bias relu", (("i", 7), ("j", 7))
    ),
    "groups": Case(
        (1, 3, 4, 9, 9), (3, 9, 4, 3, 3), "n g c i+a j+b, g o c a b -> n g o i j", "relu", (("i", 7), ("j", 7))
    ),
    "wide groups": Case(
        (1, 3, 4, 9, 9), (3, 20, 4, 3, 3), "n g c i+a j+b, g o c a b -> n g o i j", "relu", (("i", 7), ("j", 7))
    ),
    "f64": Case((1, 40, 49), (24, 40), "n c p, o c -> n o p", "bias", wide=True),
}


def module(case: Case) -> Module:
    graph = GraphBuilder()
    dtype = f64 if case.wide else f32
    rng = np.random.default_rng(0)
    shape = tuple(graph.symbol(e) if isinstance(e, str) else const(e) for e in case.x)
    x = graph.param("x", TensorType(dtype, shape))
    w = graph.constant("w", rng.integers(-4, 5, case.w).astype(dtype.numpy))
    sizes: tuple[tuple[str, int | Expr], ...] = case.sizes
    if "j" in case.spec and not case.sizes:
        step = 2 if "*2" in case.spec else 1
        sizes = (("j", (shape[-1] - case.w[-1]) // step + 1),)
    y = graph.op("contract", x, w, spec=case.spec, sizes=sizes)
    if "bias" in case.tail:
        along = [1] * (y.type.rank - (3 if case.sizes else 2)) + [*case.w[-2 if not case.sizes else -4 :][:1]]
        along += [1] * (y.type.rank - len(along))
        y = graph.op("add", y, graph.constant("b", rng.integers(-4, 5, along).astype(dtype.numpy)))
    if "residual" in case.tail:
        y = graph.op("add", y, graph.param("r", y.type))
    return graph.module({"y": graph.op("relu", y) if "relu" in case.tail else y})


@pytest.mark.parametrize("name", CASES)
def test_compiled_is_the_meaning(name: str, only_transposed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every contraction that can be transposed is: sums of small whole numbers are exact in any order."""
    monkeypatch.setenv("TILEWRIGHT_WINOGRAD", "0")
    made = module(CASES[name])
    rng = np.random.default_rng(1)
    inputs = []
    for value in made.graph.params:
        shape = [e.value if hasattr(e, "value") else 2 for e in value.type.shape]
        inputs.append(rng.integers(-4, 5, [int(e) for e in shape]).astype(value.type.dtype.numpy))
    (found,) = compile_module(made)(*inputs)
    np.testing.assert_array_equal(found, evaluate(made, inputs)["y"])


@pytest.mark.parametrize("name", ["wide groups", "batches"])
def test_constants_of_each_batch_have_panels_of_their_own(name: str, only_transposed: None) -> None:
    exe = compile_module(module(CASES[name]))
    assert {d.template for d in exe.decisions.values()} == {"transposed"}


DYNAMIC = {
    "positions": Case((1, 20, "p"), (40, 20), "n c p, o c -> n o p", "bias residual relu"),
    "images and positions": Case(("n", 9, "p"), (37, 9), "n c p, o c -> n o p", "bias"),
    "a window": Case((2, 6, "p"), (20, 6, 3), "n c j+b, o c b -> n o j", "relu"),
    "a window by 2": Case(("n", 6, "p"), (33, 6, 4), "n c j*2+b, o c b -> n o j", "relu"),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_positions(name: str, only_transposed: None) -> None:
    """One program is right for fewer positions than a tile has, for one of them, and for many."""
    made = module(DYNAMIC[name])
    exe = compile_module(made)
    assert {d.template for d in exe.decisions.values()} == {"transposed"}
    rng = np.random.default_rng(1)
    for positions in (6, 4, 8, 11, 17, 50):
        inputs = []
        for value in made.graph.params:
            sizes = {v: {"n": 3, "p": positions}[v.name] for e in value.type.shape for v in e.variables}
            shape = [int(evaluate_size(e, sizes)) for e in value.type.shape]
            inputs.append(rng.integers(-4, 5, shape).astype(np.float32))
        (found,) = exe(*inputs)
        np.testing.assert_array_equal(found, evaluate(made, inputs)["y"])


@pytest.mark.parametrize("x", [(1, 0, "p"), ("n", 0, "p"), (0, 9, "p")], ids=str)
def test_products_of_nothing(x: tuple[int | str, ...], only_transposed: None) -> None:
    """Sums of no terms are 0, and of no images there is none."""
    made = module(Case(x, (37, 0 if 0 in x[1:] else 9), "n c p, o c -> n o p"))
    inputs = np.zeros([{"n": 3, "p": 11}[e] if isinstance(e, str) else e for e in x], np.float32)
    (found,) = compile_module(made)(inputs)
    assert found.shape == (3 if x[0] == "n" else x[0], 37, 11)
    assert not found.any()


@pytest.mark.parametrize(("positions", "transposed"), [("n // 128", True), ("n", False)])
def test_dynamic_choice(positions: str, transposed: bool) -> None:
    """Few positions, as a call usually has them, would leave most lanes empty."""
    function = tw.parse(str(product(64, 128, 4096)).replace("4096", positions).replace("product(", "product[n]("))
    assert isinstance(function, Function)
    assert is_transposed(function, V3) == transposed


def product(outputs: int, depth: int, positions: int, scope: str = " in constant") -> Function:
    """y[o, p] = the sum of w[o, c] * x[c, p]."""
    function = tw.parse(f"""
func product(x: f32[{depth}, {positions}], w: f32[{outputs}, {depth}]{scope}, y: f32[{outputs}, {positions}]):
  for o in 0..{outputs}, p in 0..{positions}, c in 0..{depth}:
    block dot(vo = o, vp = p, reduce vc = c):
      init: y[vo, vp] = 0.0
      y[vo, vp] += x[vc, vp] * w[vo, vc]
""")
    assert isinstance(function, Function)
    return function


@pytest.mark.parametrize(
    ("outputs", "depth", "positions", "transposed"),
    [
        (512, 2048, 49, True),
        (192, 672, 49, True),
        (64, 256, 48, False),
        (512, 128, 784, False),
        (256, 256, 784, False),
        (4, 672, 49, False),
        (64, 8, 49, False),
    ],
)
def test_choice(outputs: int, depth: int, positions: int, transposed: bool) -> None:
    assert is_transposed(product(outputs, depth, positions), V3) == transposed


@pytest.mark.parametrize(("positions", "in_place"), [(4096, False), (4000, True), (1024, False), (1000, True)])
def test_rows_that_share_a_few_sets_are_packed(positions: int, in_place: bool) -> None:
    """Rows that lie 16 or 4 KiB apart are gone from the second cache when the next tile reads them, and are waited for
    one by one: they are packed. Rows of a few elements less stay."""
    function = product(128, 256, positions)
    found = is_transposed(function, V3) or not choice_for(function, V3).pack_vector
    assert found == in_place


def test_only_constants_are_transposed() -> None:
    assert candidates_of(product(512, 2048, 49, scope=""), V3, "transposed") == []


@pytest.mark.parametrize("depth", [33, 2048])
def test_the_other_operand_is_read_in_place(depth: int) -> None:
    """Nothing but the constant is packed."""
    made = schedule_for(product(512, depth, 49), V3, template="transposed")
    assert [b.name for b in allocations(made.func.body) if b.scope is Scope.ARENA] == ["w.cache"]


def test_a_panel_from_memory_is_hidden_by_its_first_tile_alone() -> None:
    """Of many rows, which find it in a cache, tall tiles wait less than short ones that are as fast by registers."""
    made = candidates_of(product(512, 2048, 48), Target.parse("x86-64-v4"), "transposed")
    found = {c.choice.tile.rows: c.seconds for c in made if c.choice.tile.vectors == 2}
    assert found[12] < found[8] < found[6]


def test_packed_rows_of_a_constant_are_prefetched() -> None:
    """Few panels of columns pass by rows that come from far away."""
    few = choice_for(product(672, 336, 64), V3)
    assert few.pack_broadcast and few.prefetch > 0


def test_a_few_rows_are_one_tile_that_may_prefetch_its_own_panel() -> None:
    """Rows that lie next to each other need no places of their own in a tile that they fill."""
    function = tw.parse("""
func product(x: f32[256, 9], w: f32[256, 1536] in constant, y: f32[9, 1536]):
  for p in 0..9, o in 0..1536, c in 0..256:
    block dot(vp = p, vo = o, reduce vc = c):
      init: y[vp, vo] = 0.0
      y[vp, vo] += x[vc, vp] * w[vc, vo]
""")
    assert isinstance(function, Function)
    found = [c.choice for c in candidates_of(function, Target.parse("x86-64-v4"))]
    assert found[0].tile.rows == 9
    assert 2 * 4096 // (4 * 32) in {c.distance for c in found if c.tile.rows == 9 and c.tile.columns == 32}


def test_results_are_transposed_on_the_stack() -> None:
    """A panel of results takes as much of the stack as its positions need, with the outputs next to each other."""
    tile = choice_for(product(512, 2048, 49), V3, "transposed").tile
    made = schedule_for(product(512, 2048, 49), V3, template="transposed")
    local = {b.scope: b.shape for b in allocations(made.func.body) if b.scope in (Scope.STACK, Scope.REGISTER)}
    assert local[Scope.STACK] == (const(49), const(tile.columns))
    assert local[Scope.REGISTER] == (const(tile.rows), const(tile.columns))


def image(side: int, stride: int = 1) -> Function:
    """Windows of 3x3, moving by a stride, over 16 channels of a padded image."""
    whole = side * stride + 2
    function = tw.parse(f"""
func windows(x: f32[16, {whole}, {whole}], w: f32[16, 3, 3, 16] in constant, y: f32[16, {side}, {side}]):
  for o in 0..16, i in 0..{side}, j in 0..{side}, c in 0..16, a in 0..3, b in 0..3:
    block sum(vo = o, vi = i, vj = j, reduce vc = c, reduce va = a, reduce vb = b):
      init: y[vo, vi, vj] = 0.0
      y[vo, vi, vj] += x[vc, vi*{stride} + va, vj*{stride} + vb] * w[vc, va, vb, vo]
""")
    assert isinstance(function, Function)
    return function


@pytest.mark.parametrize(
    ("side", "stride", "prefetched"),
    [(224, 1, "x[c, i + 3, "), (160, 2, "x[c, i*2 + a + 2, "), (24, 1, "")],
    ids=["by 1", "by 2", "near"],
)
@pytest.mark.parametrize("template", ["transposed", "contraction"])
def test_the_next_row_of_a_far_image_is_prefetched(side: int, stride: int, prefetched: str, template: str) -> None:
    """That which is the last that the next row of the result reads, or, where windows move by several, all that it
    reads; of an image in a near cache none. Results that are transposed ask for their next row, too."""
    function = image(side, stride)
    choice = next(
        c.choice for c in candidates_of(function, V3, template) if not getattr(c.choice, "pack_vector", False)
    )
    assert choice.next_row == bool(prefetched)
    text = str(schedule_for(function, V3, choice, template).func)
    found = [line.strip() for line in text.splitlines() if "prefetch x" in line]
    assert bool(found) == bool(prefetched)
    assert all(line.startswith(f"prefetch {prefetched}") for line in found), found
    assert template != "transposed" or ("prefetch y[o" in text) == bool(prefetched)
