"""Axes of one element go from contractions with windows, and the numbers stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_strategies import Program, agree
from tilewright.graph.parse import parse_module
from tilewright.lower.graph.drop_units import drop_units
from tilewright.lower.graph.eliminate_dead import eliminate_dead


def convolution(n: int, g: int, c: int, o: int, size: tuple[int, int], kernel: tuple[int, int], stride: int = 1) -> str:
    """A convolution in groups by windows without padding."""
    (h, w), (a, b) = size, kernel
    rows, columns = (h - 1) * stride + a, (w - 1) * stride + b
    index = "i+a j+b" if stride == 1 else f"i*{stride}+a j*{stride}+b"
    return (
        f"graph main(x: f64[{n}, {g}, {c}, {rows}, {columns}], w: f64[{g}, {o}, {c}, {a}, {b}]) -> y:\n"
        f'  y: f64[{n}, {g}, {o}, {h}, {w}] = contract(x, w, spec="n g c {index}, g o c a b -> n g o i j", '
        f'sizes=(("i", {h}), ("j", {w})))\n'
    )


def weights(n: int, g: int, c: int, o: int, size: tuple[int, int], kernel: tuple[int, int]) -> str:
    """The gradient of its weights, whose windows are axes of the output."""
    (h, w), (a, b) = size, kernel
    return (
        f"graph main(d: f64[{n}, {g}, {o}, {h}, {w}], x: f64[{n}, {g}, {c}, {h + a - 1}, {w + b - 1}]) -> y:\n"
        f'  y: f64[{g}, {o}, {c}, {a}, {b}] = contract(d, x, spec="n g o s t, n g c s+a t+b -> g o c a b", '
        f'sizes=(("a", {a}), ("b", {b})))\n'
    )


def spec_after(text: str) -> str:
    """The specification of the contraction after the pass, whose program agrees with the one before."""
    before = parse_module(text)
    after = eliminate_dead(drop_units(before))
    rng = np.random.default_rng(3)
    shapes = [p.type.static_shape() or () for p in before.graph.params]
    agree(Program(before, [rng.standard_normal(s) for s in shapes]), after, 1e-12)
    (spec,) = [node.attrs.spec for node in after.graph.nodes if node.op.name == "contract"]
    return str(spec)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        (convolution(4, 1, 16, 8, (6, 5), (3, 3)), "n c i+a j+b, o c a b -> n o i j"),
        (convolution(4, 1, 16, 8, (6, 5), (1, 1)), "n c i j, o c -> n o i j"),
        (convolution(4, 1, 16, 8, (6, 5), (1, 3)), "n c i+a j+b, o c a b -> n o i j"),
        (convolution(1, 1, 16, 8, (6, 5), (3, 3)), "n c i+a j+b, o c a b -> n o i j"),
        (convolution(4, 3, 1, 1, (6, 5), (3, 3)), "n g i+a j+b, g o a b -> n g o i j"),
        (convolution(4, 1, 16, 8, (1, 1), (2, 2)), "n c a b, o c a b -> n o"),
        (weights(4, 1, 16, 8, (6, 5), (3, 3)), "n o s t, n c s+a t+b -> o c a b"),
        (weights(4, 1, 16, 8, (6, 5), (1, 1)), "n o s t, n c s t -> o c"),
    ],
)
def test_they_go(text: str, spec: str) -> None:
    assert spec_after(text) == spec


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (convolution(4, 2, 16, 8, (6, 5), (3, 3)), "all axes have more elements"),
        (
            'graph main(x: f64[1, 4], w: f64[1, 4]) -> y:\n  y: f64[1] = contract(x, w, spec="b k, b k -> b")\n',
            "windows",
        ),
    ],
)
def test_others_stay(text: str, why: str) -> None:
    before = parse_module(text)
    assert drop_units(before) is before, why


def test_a_place_of_a_longer_row_stays() -> None:
    """A window of one point that does not reach the end of a row reads a part of it."""
    text = (
        "graph main(x: f64[2, 7], w: f64[3, 2, 1]) -> y:\n"
        '  y: f64[3, 4] = contract(x, w, spec="c i+a, o c a -> o i", sizes=(("i", 4),))\n'
    )
    assert spec_after(text) == "c i+a, o c a -> o i"


def test_what_has_units_alone_keeps_an_axis_of_each_kind() -> None:
    assert spec_after(convolution(1, 1, 1, 1, (1, 1), (1, 1)))


SIZES = st.integers(1, 3)


@given(SIZES, SIZES, SIZES, SIZES, st.tuples(SIZES, SIZES), st.tuples(SIZES, SIZES), st.integers(1, 2))
def test_all_sizes_agree(
    n: int, g: int, c: int, o: int, size: tuple[int, int], kernel: tuple[int, int], stride: int
) -> None:
    spec_after(convolution(n, g, c, o, size, kernel, stride))
    spec_after(weights(n, g, c, o, size, kernel))
