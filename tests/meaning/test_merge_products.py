"""Products of one kind as one: sums of products, products that share an operand, and the same numbers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from graph_strategies import Program, agree
from tilewright.graph.parse import parse_module
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.merge_products import merge_products


def merged(text: str) -> Counter[str]:
    """How many nodes of each operator there are after the pass, whose program agrees with the one before."""
    before = parse_module(text)
    after = eliminate_dead(merge_products(before))
    rng = np.random.default_rng(3)
    shapes = [[d.value if hasattr(d, "value") else 3 for d in p.type.shape] for p in before.graph.params]
    agree(Program(before, [rng.standard_normal(s).astype(np.float32) for s in shapes]), after, 1e-4)
    return Counter(node.op.name for node in after.graph.nodes)


def sums(count: int, rows: int, columns: int, terms: int | str, results: str = "y") -> str:
    """A sum of so many products of the same sizes, added one after another."""
    factors = [f"a{n}: f32[{terms}, {rows}], b{n}: f32[{terms}, {columns}]" for n in range(count)]
    symbols = f"[{terms}]" if isinstance(terms, str) else ""
    lines = [f"graph main{symbols}({', '.join(factors)}) -> {results}:"]
    total = "p0"
    for n in range(count):
        lines.append(f'  p{n}: f32[{rows}, {columns}] = contract(a{n}, b{n}, spec="ki,kj->ij")')
        if n:
            name = "y" if n == count - 1 else f"s{n}"
            lines.append(f"  {name}: f32[{rows}, {columns}] = add({total}, p{n})")
            total = name
    return "\n".join([*lines, ""])


def steps(rows: int, columns: int, terms: int) -> str:
    """Three products with one operand, of which the last depends on the first."""
    return (
        f"graph main(a: f32[{rows}, {terms}], b: f32[{rows}, {terms}], w: f32[{terms}, {columns}]) -> x, y, z:\n"
        f'  x: f32[{rows}, {columns}] = contract(a, w, spec="ik,kj->ij")\n'
        f"  h: f32[{rows}, {terms}] = slice(x, starts=(0, 0), sizes=({rows}, {terms}), steps=(1, 1))\n"
        f'  z: f32[{rows}, {columns}] = contract(h, w, spec="ik,kj->ij")\n'
        f'  y: f32[{rows}, {columns}] = contract(b, w, spec="ik,kj->ij")\n'
    )


@pytest.mark.parametrize("count", [2, 3, 70])
def test_a_sum_of_products_is_a_product_of_all_terms(count: int) -> None:
    found = merged(sums(count, 16, 16, 2))
    assert found["contract"] == 1
    assert found["add"] == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (sums(2, 4, 4, 64), "factors are larger than what they make"),
        (sums(2, 16, 16, "k"), "only a call knows how many terms there are"),
        (sums(3, 16, 16, 2, "y, p0, p1, p2"), "the products are asked for, too"),
    ],
)
def test_other_sums_stay(text: str, why: str) -> None:
    assert merged(text)["concat"] == 0, why


def test_what_is_asked_for_stays_beside_a_sum() -> None:
    found = merged(sums(3, 16, 16, 2, "y, p1"))
    assert (found["contract"], found["add"]) == (2, 1)


def test_products_that_share_an_operand_are_one_unless_they_depend_on_each_other() -> None:
    found = merged(steps(2, 64, 32))
    assert (found["contract"], found["concat"], found["slice"]) == (2, 1, 3)


def test_an_operand_smaller_than_the_results_is_read_again() -> None:
    assert merged(steps(64, 16, 16))["contract"] == 3
