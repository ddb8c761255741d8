"""Products of a few rows by packed weights: where they are chosen, and that they are the products by floats."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drawn import LONG
from tilewright.compiler import compile_module
from tilewright.expr.dtypes import DTYPES, f32
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.verify import verify
from tilewright.lower.graph import keep_packed as rewriting
from tilewright.lower.graph.keep_packed import keep_packed
from tilewright.plan.rewrite.packed import Rows, pays
from tilewright.target import Target, native
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
V4 = Target.parse("x86-64-v4")
V3 = Target.parse("x86-64-v3")
VNNI = Target.parse("x86-64-v4 +avx512vnni")
BYTES = (VNNI, Target.parse("x86-64-v3 +avxvnni"), Target.parse("aarch64 +i8mm"))
"""Targets that add up products of bytes."""
PACKED = {"packed_product", "digit_product"}


def weights(dtype: str, terms: int, columns: int, block: int, zeros: bool, axis: int) -> list[Array]:
    """Codes, scales and zero points, quantized along an axis; the bits above the codes are set at random."""
    rng = np.random.default_rng(terms + columns)
    kind = DTYPES[dtype].numpy
    shapes = [(terms, columns), (terms // block, columns)]
    codes, points = (rng.integers(0, 256, shape, np.uint8).view(kind) for shape in shapes)
    scale = rng.uniform(0.01, 0.02, shapes[1]).astype(np.float32)
    parts = [codes, scale, *([points] if zeros else [])]
    return [np.ascontiguousarray(part.T) if axis else part for part in parts]


def product(parts: list[Array], spec: str, x: tuple[int, ...], axis: int, block: int) -> Module:
    graph = GraphBuilder()
    held = [graph.constant(f"c{n}", part) for n, part in enumerate(parts)]
    w = graph.op("dequantize", *held, axis=axis, block=block)
    return graph.module({"y": graph.op("contract", graph.param("x", TensorType.of(f32, x)), w, spec=spec)})


def operators(module: Module) -> list[str]:
    return [node.op.name for node in module.graph.nodes]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product that may be packed is."""
    monkeypatch.setattr(rewriting, "pays", lambda *_: True)


WEIGHTS = [
    ("i4", False, "mk,kn->mn", 0),
    ("i4", True, "mk,nk->mn", 1),
    ("u4", True, "k,kn->n", 0),
    ("u4", False, "amk,nk->amn", 1),
    ("i2", True, "mk,kn->mn", 0),
    ("u2", False, "mk,kn->nm", 0),
    ("i8", True, "mk,kn->mn", 0),
    ("u8", True, "mk,nk->mn", 1),
]
PRODUCTS = [(*w, t) for n, w in enumerate(WEIGHTS) for t in (V4, V3, *(BYTES if LONG else [BYTES[n % 3]]))]
"""Machines that multiply bytes by turns: each has codes of 4 bits and of fewer or more."""


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(("dtype", "zeros", "spec", "axis", "target"), PRODUCTS, ids=lambda value: str(value))
def test_the_product_is_the_same(dtype: str, zeros: bool, spec: str, axis: int, target: Target) -> None:
    """Of columns that fill panels and that do not, in the evaluator and in compiled code."""
    outer = spec.index("k")
    for terms, columns, block in ((64, 64, 32), (96, 150, 16), (16, 1, 16)):
        parts = weights(dtype, terms, columns, block, zeros, axis)
        module = product(parts, spec, (1,) * outer + (terms,), axis, block)
        made = keep_packed(module, target)
        verify(made)
        packed = PACKED.intersection(operators(made))
        assert packed == {"digit_product" if target in BYTES and dtype[1:] in "24" else "packed_product"}
        assert "contract" not in operators(made) and "dequantize" not in operators(made)
        x = np.random.default_rng(1).standard_normal((1,) * outer + (terms,)).astype(np.float32)
        (wanted,), (found,) = (list(evaluate(m, {"x": x}).values()) for m in (module, made))
        assert found.shape == wanted.shape
        size = float(np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * size)
        if target is not V3:
            (compiled,) = compile_module(made, native())(x)
            np.testing.assert_allclose(compiled, wanted, rtol=0, atol=1e-5 * size)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("dtype", "zeros", "spec", "axis", "rows"),
    [
        ("i4", False, "mk,kn->mn", 0, (2,)),
        ("u4", True, "mk,nk->mn", 1, (5,)),
        ("i2", True, "amk,kn->amn", 0, (3, 2)),
        ("u8", False, "mk,kn->mn", 0, (9,)),
    ],
)
def test_products_of_several_rows(dtype: str, zeros: bool, spec: str, axis: int, rows: tuple[int, ...]) -> None:
    for terms, columns, block in ((64, 64, 32), (96, 70, 16)):
        module = product(weights(dtype, terms, columns, block, zeros, axis), spec, (*rows, terms), axis, block)
        made = keep_packed(module, V4)
        verify(made)
        assert "packed_product" in operators(made) and "contract" not in operators(made)
        x = np.random.default_rng(1).standard_normal((*rows, terms)).astype(np.float32)
        (wanted,), (found,) = (list(evaluate(m, {"x": x}).values()) for m in (module, made))
        size = float(np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * size)
        np.testing.assert_allclose(compile_module(made, native())(x)[0], wanted, rtol=0, atol=1e-5 * size)


@pytest.mark.usefixtures("everywhere")
def test_digits_are_as_good_as_floats() -> None:
    """Errors of products by whole numbers are of the size of those by floats, for numbers of all sizes."""
    module = product(weights("u4", 512, 64, 32, True, 0), "mk,kn->mn", (2, 512), 0, 32)
    exact_weights = module_weights(module)
    rng = np.random.default_rng(3)
    normal = rng.standard_normal((2, 512))
    for x in (normal, normal * 1e30, normal * 1e-30, np.abs(normal), rng.uniform(-1, 1, (2, 512)) ** 9):
        rows = x.astype(np.float32)
        exact = rows.astype(np.float64) @ exact_weights
        bound = 4e-7 * (np.abs(rows).astype(np.float64) @ np.abs(exact_weights))
        for target in (V4, VNNI):
            made = compile_module(keep_packed(module, target), native())
            made.denormals = "keep"  # digits of 1e-30 are subnormal
            (found,) = made(rows)
            assert (np.abs(found - exact) <= bound).all(), target


def module_weights(module: Module) -> Array:
    """The weights of a product, in f64."""
    codes, scale, zero = (module.constants[f"c{n}"] for n in range(3))
    numbers, points = ((part.view(np.uint8) & 15).astype(np.float64) for part in (codes, zero))
    return np.asarray((numbers - np.repeat(points, 32, 0)) * np.repeat(scale.astype(np.float64), 32, 0))


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_stays_none(number: float) -> None:
    """In the row that has it, of all columns; zeros are zeros."""
    module = product(weights("i4", 64, 64, 32, False, 0), "mk,kn->mn", (3, 64), 0, 32)
    rows = np.zeros((3, 64), np.float32)
    rows[0, 5], rows[2] = number, 1
    (found,) = compile_module(keep_packed(module, VNNI), native())(rows)
    assert not np.isfinite(found[0]).any()
    np.testing.assert_array_equal(found[1], 0)
    assert np.isfinite(found[2]).all()


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("spec", "x", "why"),
    [
        ("mk,kn->nm", (2, 64), "rows are the last dimension of the result"),
        ("km,kn->mn", (64, 2), "terms are the first dimension of rows"),
        ("mk,nk->mn", (1, 48), "summed over the other axis"),
        ("k,kn->", (64,), "columns are summed, too"),
        ("k,kn->kn", (64,), "nothing is summed"),
    ],
)
def test_other_products_stay(spec: str, x: tuple[int, ...], why: str) -> None:
    module = product(weights("i4", 64, 48, 32, False, 0), spec, x, 0, 32)
    assert keep_packed(module, V4) is module, why


def test_blocks_that_do_not_fill_words_stay() -> None:
    module = product(weights("i4", 12, 64, 4, False, 0), "mk,kn->mn", (1, 12), 0, 4)
    assert keep_packed(module, V4) is module


def test_packing_pays_where_floats_come_from_memory() -> None:
    """A large matrix of four bits is packed for a few rows, not for so many that multiply-adds take longer than memory;
    and where an operation takes as long as a load from a cache, not one whose floats stay in that."""
    slow = replace(V4, core=V4.core.replace(add_cycles=1.0))
    for target, rows, size, packed in (
        (V4, 1, 4096, True),
        (V4, 4, 4096, True),
        (V4, 64, 4096, False),
        (slow, 1, 4096, True),
        (slow, 1, 128, False),
    ):
        found = Rows(rows, size, size, 4, 32)
        assert pays(found, 4.0 * size**2, size**2 / 2, target) is packed, found


@pytest.mark.parametrize(("columns", "asked"), [(4096, True), (128, False)])
def test_packed_weights_from_memory_are_prefetched(columns: int, asked: bool) -> None:
    """In the order in which they are read, so many lines as a piece of them has; not those that stay in the second
    cache."""
    module = product(weights("i4", 1024, columns, 32, False, 0), "mk,kn->mn", (1, 1024), 0, 32)
    text = compile_module(module, target=VNNI).show(after="schedule")
    packed, scales = (re.findall(rf"prefetch {name}\[.*", text) for name in ("packed", "scales"))
    assert (len(packed) == len(scales) > 0) is asked
