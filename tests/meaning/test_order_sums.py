"""The pass that orders written-out sums: registers hold them, and nothing else changes, to the last bit."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from chosen import candidates_of, schedule_for
from inner_loops import inner_loops

import tilewright as tw
from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Fence, Function, Store
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.order_sums import order_sums
from tilewright.lower.loops.unroll import unroll
from tilewright.target import Target

V3, V4 = Target.parse("x86-64-v3"), Target.parse("x86-64-v4")


def window(rows: int, taps: int, vectors: int = 1) -> Function:
    """A tile of `rows` places and so many vectors of channels, its taps written out: y[p, o] += x[p + t] * w[t, o]."""
    columns, place, weight = vectors * 8, rows + taps - 1, "(c*{taps} + k)*{columns} + v*8"
    one = f"t[ramp(r*{columns} + v*8, 1, 8)]"
    element, vector = f"x[c*{place} + k + r]", f"w[ramp({weight.format(taps=taps, columns=columns)}, 1, 8)]"
    return unroll(
        parse(f"""
func f(x: f32[{4 * place}], w: f32[{4 * taps * columns}], y: f32[{rows * columns}]):
  alloc t: f32[{rows * columns}] in register
  unroll r in 0..{rows}, v in 0..{vectors}:
    {one} = broadcast(0.0, 8)
  for c in 0..4:
    unroll k in 0..{taps}, r in 0..{rows}, v in 0..{vectors}:
      {one} = fma(broadcast({element}, 8), {vector}, {one})
  unroll r in 0..{rows}, v in 0..{vectors}:
    y[ramp(r*{columns} + v*8, 1, 8)] = {one}
""")
    )


def fences(function: Function) -> int:
    return sum(isinstance(s, Fence) for s in statements(function.body))


@pytest.mark.parametrize(
    ("tile", "target", "ordered", "fenced"),
    [
        ((4, 3), V3, False, 0),  # all that it loads has room
        ((11, 3), V3, True, 0),  # elements with their sums
        ((12, 3), V3, True, 0),
        ((13, 3), V3, True, 2),  # no room for the vectors of three taps
        ((6, 3, 2), V3, True, 2),  # two vectors of each tap have room
        ((13, 3), V4, False, 0),
        ((12, 3, 2), V4, True, 0),
        ((14, 3, 2), V4, True, 2),
        ((11, 1), V3, False, 0),  # a term of each sum
    ],
    ids=str,
)
def test_orders(tile: tuple[int, ...], target: Target, ordered: bool, fenced: int) -> None:
    function = window(*tile)
    made = order_sums(function, target)
    verify(made)
    assert same(made, parse(str(made)))
    assert (made is not function) == ordered
    assert fences(made) == fenced
    rng = np.random.default_rng(0)
    arrays = {p.name: rng.standard_normal([int(e.value) for e in p.shape]).astype(np.float32) for p in function.params}  # type: ignore[attr-defined]
    copies = {name: array.copy() for name, array in arrays.items()}
    evaluate(function, arrays)
    evaluate(made, copies)
    np.testing.assert_array_equal(arrays["y"], copies["y"])  # to the last bit: no sum is added up in another order


def difference(rows: int, vectors: int, terms: int = 4) -> Function:
    """A tile of products with a difference of two operands, some terms written out."""
    columns, one, all_terms = vectors * 8, f"t[ramp(r*{vectors * 8} + v*8, 1, 8)]", 4 * terms
    x, w = all_terms * rows, all_terms * columns
    place = f"ramp((c*{terms} + k)*{columns} + v*8, 1, 8)"
    return unroll(
        parse(f"""
func f(x: f32[{x}], w: f32[{w}], u: f32[{w}], y: f32[{rows * columns}]):
  alloc t: f32[{rows * columns}] in register
  unroll r in 0..{rows}, v in 0..{vectors}:
    {one} = broadcast(0.0, 8)
  for c in 0..4:
    unroll k in 0..{terms}, v in 0..{vectors}, r in 0..{rows}:
      {one} = fma(broadcast(x[(c*{terms} + k)*{rows} + r], 8), w[{place}] - u[{place}], {one})
  unroll r in 0..{rows}, v in 0..{vectors}:
    y[ramp(r*{columns} + v*8, 1, 8)] = {one}
""")
    )


def test_what_sums_compute_of_loads_is_in_one_register() -> None:
    """Twelve sums, three differences and an element fill 16 registers: rows stand together, and nothing is loaded
    again. Two loads for each difference would have no room."""
    function = difference(4, 3)
    made = order_sums(function, V3)
    assert made is not function and fences(made) == 0
    found = [s.value for s in statements(made.body) if type(s) is Store and "fma" in str(s)]
    elements = [str(value).split(",")[0] for value in found]
    assert len(list(groupby(elements))) == len(set(elements))  # each element once
    arrays = {p.name: np.arange(1, 1 + int(p.shape[0].value), dtype=np.float32) for p in function.params}  # type: ignore[attr-defined]
    copies = {name: array.copy() for name, array in arrays.items()}
    evaluate(function, arrays)
    evaluate(made, copies)
    np.testing.assert_array_equal(arrays["y"], copies["y"])


def test_where_nothing_is_operated_on_in_memory_all_stays() -> None:
    function = window(13, 3)
    assert order_sums(function, Target.parse("aarch64")) is function


TEXT = """
func f(x: f32[9], w: f32[16], t: f32[64]):
  alloc a: f32[128] in register
{body}
"""


@pytest.mark.parametrize(
    "between",
    ["t[ramp(0, 1, 8)] = a[ramp(0, 1, 8)]", "let i = 3", "prefetch x[8]", "if x[0] < 1.0: t[0] = 2.0"],
    ids=["a store", "a let", "a prefetch", "a branch"],
)
def test_other_statements_end_a_run(between: str) -> None:
    """Sums do not move past what may read or write what they do."""
    sums = [
        [
            f"  a[ramp({8 * r}, 1, 8)] = fma(broadcast(x[{r % 9}], 8), w[ramp({8 * k}, 1, 8)], a[ramp({8 * r}, 1, 8)])"
            for r in range(16)
        ]
        for k in range(2)
    ]
    function = parse(TEXT.format(body="\n".join([*sums[0], f"  {between}", *sums[1]])))
    assert order_sums(function, V3) is function


def test_vectors_that_overlap_stay_in_order() -> None:
    """What one adds to, another one reads: their order is the program's."""
    sums = [
        f"  {own} = fma(broadcast(x[{(r + k) % 9}], 8), w[ramp({8 * k}, 1, 8)], {own})"
        for k in range(2)
        for r in range(24)
        for own in (f"a[ramp({4 * r}, 1, 8)]",)
    ]
    function = parse(TEXT.format(body="\n".join(sums)))
    assert order_sums(function, V3) is function


def convolution(channels: int, taps: int, width: int) -> Function:
    """A convolution along rows, its image with room around it: y[o, p] = the sum of x[c, p + t] * w[c, t, o]."""
    place, kernel = width + taps - 1, f"{channels}, {taps}, 64"
    function = tw.parse(f"""
func convolution(x: f32[{channels}, {place}], w: f32[{kernel}] in constant, y: f32[64, {width}]):
  for o in 0..64, p in 0..{width}, c in 0..{channels}, t in 0..{taps}:
    block sum(vo = o, vp = p, reduce vc = c, reduce vt = t):
      init: y[vo, vp] = 0.0
      y[vo, vp] += x[vc, vp + vt] * w[vc, vt, vo]
""")
    assert isinstance(function, Function)
    return function


@pytest.mark.parametrize(
    ("taps", "tiles", "target"),
    [
        (3, ((6, 2), (4, 3), (12, 1), (11, 1)), V3),
        (5, ((6, 2), (4, 3), (10, 1)), V3),
        (3, ((12, 2), (11, 2), (13, 2), (6, 4)), V4),
        (5, ((12, 2), (11, 2), (6, 4)), V4),
    ],
    ids=["3 taps, 16 registers", "5 taps, 16 registers", "3 taps, 32 registers", "5 taps, 32 registers"],
)
def test_tiles_of_windows_keep_their_sums_in_registers(
    taps: int, tiles: tuple[tuple[int, int], ...], target: Target
) -> None:
    """Elements that several taps read fill no registers that sums need."""
    function = convolution(16, taps, 60)
    found = candidates_of(function, target, "transposed")
    for tile in tiles:
        choice = next(c.choice for c in found if (c.choice.tile.rows, c.choice.tile.vectors) == tile)
        made = schedule_for(function, target, choice, "transposed").func
        loops = inner_loops(tw.build(made, target=target).show("assembly"))
        widest = max(loops, key=lambda i: i.multiply_adds)
        assert widest.multiply_adds == tile[0] * tile[1] * taps
        assert widest.sums_on_stack == [], str(tile)
        assert len(widest.on_stack) <= 4, str(tile)
