"""The sums around Strassen's products: meaning against products of blocks written out, definition against meaning.
Inputs are small whole numbers, so that sums are exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import Array, Case, Draw, array, case, check, quick

from tilewright.expr.dtypes import f32, f64
from tilewright.ops.strassen import (
    DERIVED,
    PRODUCTS,
    STORED,
    factor_terms,
    input_terms,
    output_terms,
    parts_of,
    transform_factor,
)

LEFT = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, -1, -1], [-1, 0, 1, 1], [-1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 1]])
"""How often each of the blocks 00, 01, 10, 11 of the first factor is in each product."""

OUT = np.array([[1, 1, 0, 0, 0, 0, 0], [1, 0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 1, 1, 0], [1, 0, 0, 1, 1, 0, 1]])
"""How often each product is in each of the blocks 00, 01, 10, 11 of the result."""


def outer(draw: Draw) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, 3), max_size=2)))


@case("strassen_input")
def inputs(draw: Draw) -> Case:
    leading, rows, columns = outer(draw), draw(st.integers(1, 7)), draw(st.integers(1, 7))
    together = draw(st.sampled_from((1, 2)))
    x = array(draw, (*leading, rows, columns), draw(st.sampled_from((f32, f64))), small=True)
    m, k = -(-rows // together), -(-columns // 2)
    blocks = np.zeros((2 * together, *leading, m, k), x.dtype)
    for i, j in np.ndindex(rows, columns):
        blocks[i % together * 2 + j // k, ..., i // together, j % k] = x[..., i, j]
    sums = LEFT if together == 2 else LEFT[:STORED, :2]
    expected = np.tensordot(sums, blocks, 1).astype(x.dtype)
    return Case([x], {"together": together}, [expected], 1e-6, constant=((0, x.ndim - 1),))


@case("strassen_output")
def outputs(draw: Draw) -> Case:
    leading, m, n = outer(draw), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    together = draw(st.sampled_from((1, 2)))
    dtype, shape = draw(st.sampled_from((f32, f64))), (draw(st.integers(1, together * m)), draw(st.integers(1, 2 * n)))
    parts = [array(draw, (products, *leading, m, n), dtype, small=True) for products in parts_of(together)]
    sums = OUT if together == 2 else OUT[:2, :STORED]
    blocks = np.tensordot(sums, np.concatenate(parts), 1)
    expected = np.zeros((*leading, *shape), dtype.numpy)
    for i, j in np.ndindex(*shape):
        expected[..., i, j] = blocks[i % together * 2 + j // n, ..., i // together, j % n]
    rank = parts[0].ndim
    known = tuple((n, d) for n in range(len(parts)) for d in (0, rank - 2, rank - 1))
    return Case(parts, {"shape": shape, "together": together}, [expected], 1e-6, constant=known)


@pytest.mark.parametrize("name", ["strassen_input", "strassen_output"])
@given(data=st.data())
@quick
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, {"strassen_input": inputs, "strassen_output": outputs}[name](data.draw))


def test_seven_products_are_the_product() -> None:
    """The sums are linear in each factor: they make the product of all matrices if they do of all pairs of units."""
    units: list[list[float]] = np.eye(4).tolist()
    for a in units:
        for b in units:
            u = factor_terms(b)
            u += [each - u[DERIVED] for each in u[:DERIVED]]
            made = output_terms([s * v for s, v in zip(input_terms(a), u, strict=True)])
            assert len(u) == PRODUCTS
            np.testing.assert_array_equal(made, (np.reshape(a, (2, 2)) @ np.reshape(b, (2, 2))).reshape(-1))


def test_four_products_are_the_product_of_a_row_by_itself() -> None:
    for a in np.eye(2).tolist():
        for b in np.eye(4).tolist():
            made = output_terms([s * v for s, v in zip(input_terms(a), factor_terms(b), strict=True)])
            np.testing.assert_array_equal(made, (np.reshape(a, (1, 2)) @ np.reshape(b, (2, 2))).reshape(-1))


@pytest.mark.parametrize(("shape", "half"), [((4, 6), 3), ((5, 6), 3), ((4, 5), 4), ((1, 1), 1)])
def test_sums_of_the_constant(shape: tuple[int, int], half: int) -> None:
    w: Array = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    u = transform_factor(w, half)
    k = -(-shape[0] // 2)
    whole = np.zeros((2 * k, 2 * half))
    whole[: shape[0], : shape[1]] = w
    blocks = whole.reshape(2, k, 2, half).swapaxes(1, 2).reshape(4, k, half)
    assert u.dtype == np.float32
    assert u.shape == (STORED, k, half)
    np.testing.assert_array_equal(u, [blocks[0], blocks[2], blocks[3], blocks[3] - blocks[1] + blocks[0]])
