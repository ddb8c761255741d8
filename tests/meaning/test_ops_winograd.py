"""Winograd's transforms: meaning against sums over matrices made from the points they interpolate at, definition
against meaning. Inputs are small whole numbers, so that sums are exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import Array, Case, Draw, array, case, check, quick

from tilewright.expr.dtypes import bf16, f32, f64
from tilewright.ops.winograd import FILTER, transform_filter

POINTS = {2: (0, 1, -1), 4: (0, 1, -1, 2, -2)}
"""Where the polynomials are evaluated, infinity besides."""

SIGNS = {2: (-1, 1, 1, -1), 4: (1, 1, 1, 1, 1, 1)}
"""The sign of each row of Bᵀ; that of the last also belongs to the last column of Aᵀ."""


def input_matrix(size: int, stride: int = 1) -> Array:
    """Row n holds the coefficients of the product of x - p over all points p but the n-th; the last those of all."""
    if stride == 2:
        return FIVE_PRODUCTS
    points = POINTS[size]
    rows = [np.poly([p for m, p in enumerate(points) if m != n])[::-1] for n in range(len(points) + 1)]
    return np.array([np.pad(row, (0, size + 2 - len(row))) for row in rows]) * np.array(SIGNS[size])[:, None]


def output_matrix(size: int, stride: int = 1) -> Array:
    """Powers of the points; infinity counts in the highest alone."""
    if stride == 2:
        return TWO_OUTPUTS
    columns = [[float(p) ** k for k in range(size)] for p in POINTS[size]]
    return np.array([*columns, [0.0] * (size - 1) + [float(SIGNS[size][-1])]]).T


KINDS = ((2, 1), (4, 1), (2, 2))
"""Sizes and strides that there are."""

FIVE_PRODUCTS = np.array([[1, 0, -1, 0, 0], [0, 0, 1, 0, 0], [0, 0, -1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]])
TWO_OUTPUTS = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]])
"""What test_matrices_compute_the_correlation proves to be right for windows that move by two."""


@case("winograd_input")
def inputs(draw: Draw) -> Case:
    (size, stride), low = draw(st.sampled_from(KINDS)), (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    last, dtype = draw(st.booleans()), draw(st.sampled_from((None, bf16)))
    depth = 1 if last else draw(st.sampled_from((1, 2, 3)))
    n, c = draw(st.integers(0, 2)), draw(st.integers(0, 2)) * depth
    height, width = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    dynamic = last and draw(st.booleans())
    shape = (height, width) if dynamic else (draw(st.integers(1, 3 * size)), draw(st.integers(1, 3 * size)))
    rows, columns = (-(-e // size) for e in shape)
    x = array(draw, (n, c, height, width), draw(st.sampled_from((f32, f64))), small=True)
    edge, step, b = (size - 1) * stride + 3, size * stride, input_matrix(size, stride)
    expected = np.zeros((n, edge * edge, c, rows * columns), x.dtype)
    for i, j in np.ndindex(rows, columns):
        tile = np.zeros((n, c, edge, edge))
        for p, q in np.ndindex(edge, edge):
            h, w = i * step + p - low[0], j * step + q - low[1]
            if 0 <= h < height and 0 <= w < width:
                tile[:, :, p, q] = x[:, :, h, w]
        products = np.einsum("pa,ncab,qb->npqc", b, tile, b)
        expected[:, :, :, i * columns + j] = products.reshape(n, edge * edge, c)
    if depth > 1:
        expected = expected.reshape(*expected.shape[:2], c // depth, depth, rows * columns).swapaxes(3, 4)
    expected = expected.astype(expected.dtype if dtype is None else dtype.numpy)
    attrs = {"size": size, "shape": shape, "low": low, "stride": stride, "depth": depth, "dtype": dtype, "last": last}
    if last:
        x, expected = x.transpose(0, 2, 3, 1), expected.swapaxes(2, 3)
    constant = () if dynamic else ((0, 1), (0, 2), *([] if last else [(0, 3)]))
    plain = () if dynamic else ("shape",)
    return Case([np.ascontiguousarray(x)], attrs, [expected], 1e-6, constant=constant, plain=plain)


@case("winograd_output")
def outputs(draw: Draw) -> Case:
    (size, stride), last = draw(st.sampled_from(KINDS)), draw(st.booleans())
    n, o, edge = draw(st.integers(0, 2)), draw(st.integers(0, 2)), (size - 1) * stride + 3
    height, width = draw(st.integers(1, 3 * size)), draw(st.integers(1, 3 * size))
    rows, columns = -(-height // size), -(-width // size)
    m = array(draw, (n, edge * edge, rows * columns, o), draw(st.sampled_from((f32, f64))), small=True)
    a = output_matrix(size, stride)
    expected = np.zeros((n, o, height, width), m.dtype)
    for h, w in np.ndindex(height, width):
        tile = m[:, :, h // size * columns + w // size].reshape(n, edge, edge, o)
        expected[:, :, h, w] = np.einsum("p,npqo,q->no", a[h % size], tile, a[w % size])
    attrs = {"size": size, "shape": (height, width), "stride": stride, "last": last}
    y, plain = (expected.transpose(0, 2, 3, 1), ()) if last else (expected, ("shape",))
    m = m if last else np.ascontiguousarray(m.swapaxes(1, 2))
    return Case([m], attrs, [y], 1e-6, constant=((0, 1), (0, 2)), plain=plain)


@pytest.mark.parametrize("name", ["winograd_input", "winograd_output"])
@given(data=st.data())
@quick
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, {"winograd_input": inputs, "winograd_output": outputs}[name](data.draw))


@pytest.mark.parametrize(("size", "stride"), KINDS)
def test_matrices_compute_the_correlation(size: int, stride: int) -> None:
    """Aᵀ((G w) ⊙ (Bᵀ d)) is the sum of w[a] * d[i*stride + a] for all w and d: it is for all pairs of unit vectors."""
    a, g, b = output_matrix(size, stride), np.array(FILTER[size, stride]), input_matrix(size, stride)
    for tap, place in np.ndindex(3, (size - 1) * stride + 3):
        made = a @ (g[:, tap] * b[:, place])
        np.testing.assert_allclose(made, [float(i * stride + tap == place) for i in range(size)], atol=1e-12)


@pytest.mark.parametrize(("size", "stride"), KINDS)
def test_filters_keep_their_order(size: int, stride: int) -> None:
    w = np.random.default_rng(0).integers(-9, 9, (2, 3, 3, 3)).astype(np.float32)
    u, g = transform_filter(w, size, stride), np.array(FILTER[size, stride])
    assert u.dtype == np.float64
    assert u.shape == (g.shape[0] ** 2, 3, 2)
    for o, c in np.ndindex(2, 3):
        np.testing.assert_allclose(u[:, c, o], (g @ w[o, c] @ g.T).reshape(-1), atol=1e-12)
