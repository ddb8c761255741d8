"""The order of written-out products in tiles: the fewest loads that the registers allow, and the same results."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_tile_windows import SAPPHIRE

from tilewright.codegen.assemble import assembly
from tilewright.compiler.pipeline import lower_function
from tilewright.expr.dtypes import bf16, f32
from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function, Seq
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.order_sums import order_sums
from tilewright.lower.loops.order_tiles import count_loads, is_product
from tilewright.plan.price.contraction import Sums, term_cycles, tiles
from tilewright.plan.price.dots import choose_tiles


def products(rows: int, vectors: int, *, same_sums: bool = False) -> Function:
    """Sums of so many tiles, row by row, and their stores."""
    count = rows * vectors
    sums = [f"t[{n * 256}:{n * 256 + 256}]" for n in range(count)]
    lines = [f"    {t} = x86.amx.zero_f32({t})" for t in sums]
    lines.append("    for k in 0..3:")
    for n, t in enumerate(sums):
        a, b = divmod(n, vectors)
        t = sums[0] if same_sums else t
        x = f"x[k*{rows * 512} + {a * 512}:k*{rows * 512} + {a * 512 + 512}]"
        w = f"w[k*{vectors * 512} + {b * 512}:k*{vectors * 512} + {b * 512 + 512}]"
        lines.append(f"      {t} = x86.amx.dot_bf16({x}, {w}, {t})")
    lines += [
        f"    y[{n * 256}:{n * 256 + 256}] = x86.amx.move_f32({t}, y[{n * 256}:{n * 256 + 256}])"
        for n, t in enumerate(sums)
    ]
    made = parse(
        f"func f(x: bf16[{rows * 1536}], w: bf16[{vectors * 1536}], y: f32[{count * 256}]):\n"
        f"  for j in 0..1:\n    alloc t: f32[{count * 256}] in register\n" + "\n".join(lines)
    )
    assert isinstance(made, Function)
    return made


def ordered(function: Function) -> list[str]:
    """The products in a loop, in order."""
    (body,) = [s for s in statements(function.body) if type(s) is Seq and all(map(is_product, s.body))]
    return [str(s) for s in body.body]


@pytest.mark.parametrize(("rows", "vectors"), [(2, 3), (3, 2)])
def test_beside_six_sums_each_product_shares_a_factor_with_the_one_before(rows: int, vectors: int) -> None:
    function = products(rows, vectors)
    made = order_sums(function, SAPPHIRE)
    verify(made)
    assert same(made, parse(str(made)))
    assert ordered(made) != ordered(function)
    assert sorted(ordered(made)) == sorted(ordered(function))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(int(str(p.shape[0]))).astype(p.dtype.numpy) for p in function.params]
    found = []
    for f in (function, made):
        given = [a.copy() for a in arrays]
        evaluate(f, given)
        found.append(given[-1])
    np.testing.assert_array_equal(*found)
    listing = assembly(lower_function(function, SAPPHIRE).llvm, SAPPHIRE)
    (loop,) = [
        text for text in re.findall(r"^\.LBB\S+:\n((?:\t.*\n)+?)\tj\w+\s", listing, re.MULTILINE) if "tdpbf16ps" in text
    ]
    assert len(re.findall(r"^\ttileloadd", loop, re.MULTILINE)) == 7
    assert "tilestored" not in loop


@pytest.mark.parametrize(("rows", "vectors"), [(2, 2), (1, 6), (6, 1), (1, 1)])
def test_products_that_load_each_factor_once_stay(rows: int, vectors: int) -> None:
    function = products(rows, vectors)
    assert order_sums(function, SAPPHIRE) is function
    listing = assembly(lower_function(function, SAPPHIRE).llvm, SAPPHIRE)
    loops = re.findall(r"^\.LBB\S+:\n((?:\t.*\n)+?)\tj\w+\s", listing, re.MULTILINE)
    (loop,) = [text for text in loops if "tdpbf16ps" in text]
    assert len(re.findall(r"^\ttileloadd", loop, re.MULTILINE)) == rows + vectors


def test_products_that_are_added_to_one_sum_keep_their_order() -> None:
    function = products(2, 3, same_sums=True)
    assert order_sums(function, SAPPHIRE) is function


def test_loads_are_counted_with_the_last_used_factors_held() -> None:
    a, b, c, d = (parse(f"func f(x: f32[{n}]): x[0] = 0.0").body for n in (1, 2, 3, 4))  # type: ignore[union-attr]
    assert count_loads([(a, c), (a, d), (b, d), (b, c)], 2) == 5
    assert count_loads([(a, c), (a, d), (b, c), (b, d)], 2) == 6
    assert count_loads([(a, c), (a, d), (b, c), (b, d)], 3) == 4
    assert count_loads([(a, c), (a, c)], 2) == 2


def test_tiles_have_two_registers_beside_their_sums() -> None:
    dot = choose_tiles(bf16, bf16, f32, SAPPHIRE)
    sums = Sums(1024, 1024, 1024, dot=dot)
    found = {
        (t.rows // 16, t.vectors): term_cycles(sums, t, SAPPHIRE) / (t.rows * t.vectors) for t in tiles(sums, SAPPHIRE)
    }
    assert {(2, 3), (3, 2), (2, 2), (1, 6), (6, 1)} <= found.keys()
    assert max(rows * vectors for rows, vectors in found) == 6
    assert found[2, 3] < found[2, 2] < found[1, 6]
