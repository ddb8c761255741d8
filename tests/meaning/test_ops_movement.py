"""Data movement: meaning against NumPy's own movers or an element-by-element account, definition against meaning."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import CASES, SIZES, Array, Case, Draw, array, case, check, kinds, shapes, thorough

ANY = kinds("biuf")
MOVERS = ("reshape", "transpose", "broadcast", "slice", "pad", "concat")


def tensor(draw: Draw, low: int = 0, high: int = 3) -> Array:
    return array(draw, shapes(draw, low, high), draw(st.sampled_from(ANY)))


def regrouped(draw: Draw, shape: tuple[int, ...]) -> list[int]:
    """Another shape with as many elements."""
    if 0 in shape:
        return draw(st.permutations([0, *draw(st.lists(st.sampled_from(SIZES), max_size=2))]))
    parts: list[int] = [p for n in shape for p in {4: (2, 2), 6: (3, 2)}.get(n, (n,))]
    groups: list[int] = []
    for part in draw(st.permutations(parts)):
        if groups and draw(st.booleans()):
            groups[-1] *= part
        else:
            groups.append(part)
    return groups + [1] * draw(st.integers(0, 1))


@case("reshape")
def reshapes(draw: Draw) -> Case:
    x = tensor(draw)
    shape = regrouped(draw, x.shape)
    expected = np.array(list(x.flat), x.dtype).reshape(shape)
    # Regrouped sizes of symbols are products, which only constants decide: symbolic shapes are tested on their own.
    return Case([x], {"shape": tuple(shape)}, [expected], symbolic=False)


@case("transpose")
def transposes(draw: Draw) -> Case:
    x = tensor(draw)
    perm = draw(st.permutations(range(x.ndim)))
    expected = np.empty([x.shape[p] for p in perm], x.dtype)
    for at in np.ndindex(expected.shape):
        expected[at] = x[tuple(at[perm.index(d)] for d in range(x.ndim))]
    return Case([x], {"perm": tuple(perm)}, [expected])


@case("broadcast")
def broadcasts(draw: Draw) -> Case:
    shape = shapes(draw)
    own = [1 if draw(st.booleans()) else n for n in shape][draw(st.integers(0, len(shape))) :]
    x = array(draw, own, draw(st.sampled_from(ANY)))
    expected = np.empty(shape, x.dtype)
    for at in np.ndindex(shape):
        expected[at] = x[tuple(0 if n == 1 else i for i, n in zip(at[len(shape) - x.ndim :], x.shape, strict=True))]
    return Case([x], {"shape": shape}, [expected])


@case("slice")
def slices(draw: Draw) -> Case:
    x = tensor(draw)
    starts, sizes, steps, python = [], [], [], []
    for n in x.shape:
        step = draw(st.sampled_from((-3, -2, -1, 1, 2, 3)))
        start = draw(st.integers(0, max(n - 1, 0)))
        most = 0 if n == 0 else 1 + ((n - 1 - start) // step if step > 0 else start // -step)
        size = draw(st.integers(0, most))
        starts, sizes, steps = [*starts, start], [*sizes, size], [*steps, step]
        end = start + size * step
        python.append(slice(start, end if end >= 0 else None, step) if size else slice(0, 0))
    attrs = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}
    return Case([x], attrs, [np.asarray(x[tuple(python)])])


@case("pad")
def pads(draw: Draw) -> Case:
    mode = draw(st.sampled_from(("constant", "edge", "reflect", "wrap")))
    x = tensor(draw, 0, 2)
    low, high = [], []
    for n in x.shape:
        most = {"constant": 4, "reflect": n - 1}.get(mode, 9 if n else 0)
        least = draw(st.sampled_from((0, -n)))
        before = draw(st.integers(min(least, most), most)) if n or mode == "constant" else 0
        after = draw(st.integers(min(max(least, -n - before), most), most)) if n or mode == "constant" else 0
        low, high = [*low, before], [*high, max(after, -n - before)]
    value = array(draw, (), next(d for d in ANY if d.numpy == x.dtype))
    attrs = {"low": tuple(low), "high": tuple(high), "mode": mode}
    return Case([x, value], attrs, [padded(x, value, low, high, mode)])


def padded(x: Array, value: Array, low: list[int], high: list[int], mode: str) -> Array:
    """Element by element, walking from the inside out; np.pad has no crops."""
    out = np.empty([lo + n + hi for lo, n, hi in zip(low, x.shape, high, strict=True)], x.dtype)
    for at in np.ndindex(out.shape):
        source = [walked(i - lo, n, mode) for i, lo, n in zip(at, low, x.shape, strict=True)]
        out[at] = value[()] if None in source else x[tuple(source)]
    return out


def walked(at: int, n: int, mode: str) -> int | None:
    if 0 <= at < n:
        return at
    if mode == "constant":
        return None
    if mode == "edge":
        return 0 if at < 0 else n - 1
    if mode == "reflect":
        return -at if at < 0 else 2 * (n - 1) - at
    while not 0 <= at < n:
        at += n if at < 0 else -n
    return at


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_padding_is_that_of_numpy(mode: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    attrs: dict[str, Any] = {"low": (2, 3), "high": (1, 2), "mode": mode}
    keywords = {"constant_values": -1.0} if mode == "constant" else {}
    expected = np.pad(x, ((2, 1), (3, 2)), mode=mode, **keywords)
    check("pad", Case([x, np.array(-1.0)], attrs, [expected]))


@case("concat")
def concats(draw: Draw) -> Case:
    shape, dtype = shapes(draw, 1), draw(st.sampled_from(ANY))
    axis = draw(st.integers(0, len(shape) - 1))
    lengths = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4))
    parts = [array(draw, (*shape[:axis], n, *shape[axis + 1 :]), dtype) for n in lengths]
    lines = itertools.chain.from_iterable(np.moveaxis(p, axis, 0) for p in parts)
    stacked = np.array(list(lines), dtype.numpy).reshape(sum(lengths), *shape[:axis], *shape[axis + 1 :])
    return Case(parts, {"axis": axis}, [np.moveaxis(stacked, 0, axis)])


@pytest.mark.parametrize("name", MOVERS)
@given(data=st.data())
@thorough
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, CASES[name](data.draw))


@pytest.mark.parametrize("shape", [(2, 5, 7, 1), (2, 5, 1, 7), (2, 5, 7), (1, 2, 5, 7)])
@pytest.mark.parametrize("given_shape", [(2, 1, 5, 7), (2, 5, 7), (2, 5, 1, 1, 7)])
def test_reshape_moves_symbolic_dimensions_around_ones(shape: tuple[int, ...], given_shape: tuple[int, ...]) -> None:
    x = np.arange(70.0).reshape(given_shape)
    check("reshape", Case([x], {"shape": shape}, [np.arange(70.0).reshape(shape)]))
