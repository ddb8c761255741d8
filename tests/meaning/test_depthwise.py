"""Convolutions that keep channels apart: what they compute, compared with the graph's evaluator, and which of them are
run in tiles over padded channels."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from inner_loops import inner_loops

from drawn import LONG, cover, pairs
from planned import llvm_of, planned, planned_kernels
from tilewright.codegen.assemble import assembly
from tilewright.compiler import compile_module
from tilewright.compiler.pipeline import lower
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.loops.same import same
from tilewright.plan.choose import schedule
from tilewright.plan.window.column_tiles import Held
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target, native
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Images (count, channels, height, width); a window; its step and the distance of its places along height and
    width; zeros before and behind both; how many results a channel has; what follows."""

    images: tuple[int, int, int, int]
    window: tuple[int, int] = (3, 3)
    step: tuple[int, int] = (1, 1)
    gap: tuple[int, int] = (1, 1)
    low: tuple[int, int] = (1, 1)
    high: tuple[int, int] = (1, 1)
    results: int = 1
    after: str = ""
    dtype: str = "f32"
    zero: float = 0.0

    @property
    def sizes(self) -> list[int]:
        rows = zip(self.images[2:], self.window, self.step, self.gap, self.low, self.high, strict=True)
        return [(n + lo + hi - (k - 1) * g - 1) // s + 1 for n, k, s, g, lo, hi in rows]


TILED = {
    "a tile": Case((1, 9, 7, 7)),
    "a tile, 5x5": Case((1, 9, 7, 7), (5, 5), low=(2, 2), high=(2, 2)),
    "several tiles": Case((1, 5, 14, 14)),
    "tiles moved back": Case((1, 5, 13, 19)),
    "few columns": Case((1, 5, 9, 5)),
    "a row of tiles at a time": Case((1, 2, 40, 112)),
    "5x5, long rows": Case((1, 3, 17, 56), (5, 5), low=(2, 2), high=(2, 2)),
    "every second": Case((1, 5, 14, 14), step=(2, 2)),
    "every second, 5x5": Case((1, 3, 28, 28), (5, 5), (2, 2), low=(2, 2), high=(2, 2)),
    "every second, long rows": Case((1, 2, 30, 113), step=(2, 2)),
    "a column of a window, long rows": Case((1, 2, 60, 112), (5, 1), low=(2, 0), high=(2, 0)),
    "every third": Case((1, 5, 22, 31), step=(3, 3)),
    "steps of rows": Case((1, 5, 23, 12), step=(2, 1)),
    "steps of columns": Case((1, 5, 12, 23), step=(1, 2)),
    "apart": Case((1, 5, 15, 16), gap=(2, 3), low=(2, 3), high=(2, 3)),
    "apart, every second": Case((1, 5, 15, 26), step=(2, 2), gap=(2, 3), low=(2, 3), high=(2, 3)),
    "uneven zeros": Case((1, 5, 11, 12), low=(2, 0), high=(0, 3)),
    "uneven zeros, every second": Case((1, 5, 11, 24), (3, 5), (2, 2), low=(0, 1), high=(1, 3)),
    "zeros all over": Case((1, 3, 4, 4), (3, 3), low=(5, 5), high=(5, 9)),
    "no zeros": Case((1, 5, 12, 12), low=(0, 0), high=(0, 0)),
    "other padding": Case((1, 5, 12, 12), zero=0.5),
    "images": Case((3, 4, 9, 10)),
    "more images than channels": Case((5, 2, 9, 10), step=(2, 2)),
    "a row of a window": Case((1, 5, 9, 20), (1, 7), low=(0, 3), high=(0, 3)),
    "a column of a window": Case((1, 5, 20, 9), (7, 1), low=(3, 0), high=(3, 0)),
    "no window": Case((1, 5, 16, 16), (1, 1), (2, 2), low=(1, 1)),
    "a bias": Case((1, 5, 14, 14), after="bias"),
    "a smooth step": Case((1, 5, 7, 7), after="swish"),
    "a smooth step, few columns": Case((1, 5, 9, 5), after="swish"),
    "an image is added, few columns": Case((1, 5, 9, 7), after="image"),
    "a smooth step, several tiles": Case((1, 5, 14, 14), after="swish"),
    "a smooth step, tiles moved back": Case((1, 3, 13, 19), after="swish"),
    "a smooth step, images": Case((3, 2, 9, 20), after="swish"),
    "a smooth step, little more than a vector": Case((1, 3, 5, 5), after="swish"),
    "a smooth step, vectors moved back": Case((1, 2, 11, 13), after="swish"),
    "a smooth step, every second": Case((1, 5, 30, 30), step=(2, 2), after="swish"),
    "f64": Case((1, 5, 14, 15), dtype="f64"),
    "f64, every second": Case((1, 5, 14, 15), step=(2, 2), dtype="f64"),
    "a large window": Case((1, 3, 14, 14), (9, 9), low=(4, 4), high=(4, 4)),
    "a window larger than the image": Case((1, 3, 14, 17), (31, 29), low=(15, 14), high=(15, 14)),
    "a large window, every second": Case((1, 3, 29, 40), (11, 13), (2, 2), low=(5, 6), high=(5, 6), after="swish"),
    "tall tiles": Case((1, 3, 28, 28)),
    "tall tiles, moved back": Case((2, 3, 41, 37), (3, 2), low=(1, 0), high=(1, 1), after="bias"),
    "tall tiles, a smooth step": Case((1, 2, 42, 56), after="swish"),
}
TOGETHER = {
    "channels": Case((1, 32, 7, 7), (5, 5), low=(2, 2), high=(2, 2)),
    "channels, every second": Case((1, 16, 14, 14), (5, 5), (2, 2), low=(2, 2), high=(2, 2)),
    "channels, images": Case((3, 32, 6, 7), (5, 5), low=(2, 2), high=(2, 2)),
    "channels, more images": Case((20, 16, 5, 8), (5, 5), low=(2, 2), high=(2, 2)),
    "channels, no zeros": Case((1, 16, 9, 11), (5, 5), low=(0, 0), high=(0, 0)),
    "channels, uneven zeros": Case((1, 16, 6, 6), (3, 5), low=(2, 0), high=(0, 3)),
    "channels, zeros all over": Case((1, 16, 4, 4), (5, 5), low=(4, 4), high=(4, 4)),
    "channels, three columns": Case((1, 16, 5, 3), (3, 5), low=(1, 3), high=(1, 3)),
    "channels, other padding": Case((1, 16, 6, 6), (5, 5), low=(2, 2), high=(2, 2), zero=0.5),
    "channels, a column of a window": Case((1, 16, 7, 7), (11, 1), low=(5, 0), high=(5, 0)),
    "channels, a bias": Case((1, 32, 7, 7), (5, 5), low=(2, 2), high=(2, 2), after="bias"),
    "channels, a smooth step": Case((1, 32, 7, 7), after="swish"),
    "channels, a smooth step, images": Case((2, 16, 4, 7), after="swish"),
    "half a vector of channels": Case((1, 24, 7, 7), (5, 5), low=(2, 2), high=(2, 2)),
    "few channels": Case((1, 16, 7, 7)),
    "four channels": Case((1, 12, 4, 4), after="bias"),
    "channels, several tiles": Case((1, 6, 20, 6)),
    "channels, tiles moved back": Case((1, 4, 30, 13), step=(2, 2)),
    "channels, every second, four": Case((1, 12, 8, 8), step=(2, 2), after="swish"),
    "channels, every second, images": Case((3, 6, 9, 13), (4, 3), (2, 2), low=(0, 2), high=(3, 1), after="bias"),
    "channels, every second column": Case((1, 4, 6, 15), (3, 5), (1, 2), low=(2, 0), high=(0, 3)),
    "channels, every second row": Case((1, 4, 12, 6), step=(2, 1)),
    "channels, every second, no zeros": Case((1, 4, 11, 11), (2, 4), (2, 2), low=(0, 0), high=(0, 0)),
    "channels, every second, one row": Case((1, 4, 9, 11), (1, 3), (2, 2), low=(0, 1), high=(0, 1)),
    "channels, apart": Case((1, 16, 7, 7), (5, 3), gap=(2, 3), low=(4, 3), high=(4, 3)),
    "channels, apart, images": Case((2, 16, 4, 7), gap=(2, 2), low=(2, 2), high=(2, 2), after="swish"),
    "half a vector of channels, apart": Case((1, 24, 7, 7), (5, 5), gap=(2, 2), low=(4, 4), high=(4, 4)),
    "few channels, apart": Case((1, 16, 7, 7), gap=(2, 2), low=(2, 2), high=(2, 2)),
    "channels, every second, apart": Case((1, 8, 15, 14), step=(2, 2), gap=(2, 2), low=(2, 2), high=(2, 2)),
    "channels, every second, apart alone": Case((1, 8, 14, 14), (3, 5), (2, 2), (3, 1), low=(3, 2), high=(3, 2)),
}
"""Where a vector has sixteen lanes, channels share it."""

ALONE = {
    "an image is added": Case((1, 16, 7, 7), (5, 5), low=(2, 2), high=(2, 2), after="image"),
    "odd channels": Case((1, 9, 7, 7), (5, 5), low=(2, 2), high=(2, 2)),
    "channels, f64": Case((1, 16, 4, 4), (5, 5), low=(2, 2), high=(2, 2), dtype="f64"),
    "much to turn": Case((1, 16, 33, 33), (5, 5), (4, 4)),
}
TILED |= TOGETHER | ALONE
OTHERS = {
    "several results": Case((1, 3, 9, 9), results=2),
    "a small image": Case((1, 5, 3, 3)),
    "one channel": Case((1, 1, 9, 9)),
}


EVERY = TILED | OTHERS


def traits(name: str) -> set[Hashable]:
    """What a case has that decides how it is run."""
    case, (rows, columns) = EVERY[name], EVERY[name].sizes
    kind = next((n for n, some in enumerate((TOGETHER, ALONE, OTHERS)) if name in some), None)
    window = tuple(min(n, 8) // 4 + (n > 1) for n in case.window)
    zeros = any(case.low), any(case.high), case.low == case.high, case.zero
    sizes = columns > 16, columns % 4 == 0, rows > 28
    other = case.images[0] > 1, case.step, case.gap != (1, 1), case.after, case.dtype
    return set(enumerate((kind, window, zeros, sizes, *other)))


SOME = [*EVERY] if LONG else [[*EVERY][n] for n in cover([pairs(traits(name)) for name in EVERY])]
"""Cases of which each two traits that go together do so in one."""


def convolution(case: Case) -> tuple[Module, list[Array]]:
    """The graph, and images for it."""
    dtype = DTYPES[case.dtype]
    rng, channels = np.random.default_rng(0), case.images[1]
    w = rng.standard_normal((channels, case.results, *case.window)).astype(dtype.numpy)
    graph = GraphBuilder()
    value = graph.param("x", TensorType.of(dtype, case.images))
    if any((*case.low, *case.high)):
        zero = graph.op("full", value=const(case.zero, dtype), shape=())
        value = graph.op("pad", value, zero, low=(0, 0, *case.low), high=(0, 0, *case.high))
    rows, columns = (f"{n}*{s}+{k}*{g}" for n, k, s, g in zip("ij", "ab", case.step, case.gap, strict=True))
    spec = f"n c {rows} {columns}, c o a b -> n c o i j".replace("*1", "")
    sizes = tuple(zip("ij", case.sizes, strict=True))
    y = graph.op("contract", value, graph.constant("w", w), spec=spec, sizes=sizes)
    inputs = [rng.standard_normal(case.images).astype(dtype.numpy)]
    if case.after == "image":
        shape = (*case.images[:2], case.results, *case.sizes)
        y = graph.op("add", y, graph.param("r", TensorType.of(dtype, shape)))
        inputs.append(rng.standard_normal(shape).astype(dtype.numpy))
    elif case.after:
        y = graph.op("add", y, graph.constant("b", rng.standard_normal((channels, 1, 1, 1)).astype(dtype.numpy)))
    if case.after == "swish":
        y = graph.op("mul", y, graph.op("sigmoid", y))
    return graph.module({"y": y}), inputs


def kernels(case: Case, target: Target) -> list[Function]:
    """The kernels of a case before they are scheduled."""
    return planned_kernels(convolution(case)[0], target)


def scheduled(case: Case, target: Target, **choice: Any) -> list[Schedule]:
    """The schedules of those kernels of a case that a template of windows runs; with fields of a choice, by that."""
    found = []
    for kernel in kernels(case, target):
        made, decision = schedule(kernel, target)
        if decision.template.startswith("windows"):
            if choice:
                assert decision.taken is not None
                forced = {"template": decision.template, "choice": {**decision.taken.choice, **choice}}
                made, _ = schedule(kernel, target, forced)
            found.append(made)
    return found


@pytest.mark.parametrize("name", SOME)
def test_same_as_the_graph(name: str) -> None:
    """Whichever way it is run; and these are run in tiles, the others not."""
    module, inputs = convolution(EVERY[name])
    (wanted,) = evaluate(module, inputs).values()
    exe = compile_module(module, threads=2)
    (found,) = exe(*inputs)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))
    assert any(d.template.startswith("windows") for d in exe.decisions.values()) == (name in TILED)


@pytest.mark.parametrize("seed", range(8))
def test_random_sizes(seed: int) -> None:
    """Sizes, windows, strides, dilations and zeros as they come: images of two rows, and vectors that are not full."""
    rng = np.random.default_rng(seed)
    pick = lambda low, high: (int(rng.integers(low, high)), int(rng.integers(low, high)))  # noqa: E731
    images = int(rng.integers(1, 3)), int(rng.choice([2, 8, 16])), int(rng.integers(6, 30)), int(rng.integers(9, 40))
    case = Case(
        images, pick(1, 5), pick(1, 4), pick(1, 3), pick(0, 4), pick(0, 4), after=("", "bias", "swish")[seed % 3]
    )
    module, inputs = convolution(case)
    (wanted,) = evaluate(module, inputs).values()
    machines = ("native", "x86-64-v3")
    for machine in machines if LONG else (machines[seed % 2],):
        if Target.parse(machine).features <= native().features:
            (found,) = compile_module(module, target=Target.parse(machine), threads=2)(*inputs)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


SHARED = "windows, channels share vectors"


@pytest.mark.parametrize("name", [name for name in SOME if name in TOGETHER or name in ALONE])
def test_channels_share_vectors(name: str) -> None:
    """Where rows of seven columns would leave half of them empty."""
    target = Target.parse("x86-64-v4")
    found = {schedule(kernel, target)[1].template for kernel in kernels(TILED[name], target)}
    assert (SHARED in found) == (name in TOGETHER)


@pytest.mark.parametrize("name", ["four channels", "channels, every second, four"])
def test_rows_of_four_columns_share_vectors_of_eight_lanes(name: str) -> None:
    """They fill them, so that nothing is masked."""
    target, case = Target.parse("x86-64-v3"), TILED[name]
    assert {schedule(kernel, target)[1].template for kernel in kernels(case, target)} == {SHARED}
    if target.features <= native().features:
        module, inputs = convolution(case)
        (wanted,) = evaluate(module, inputs).values()
        (found,) = compile_module(module, target=target)(*inputs)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize(("name", "side", "met"), [("channels", 5, 29), ("few channels", 3, 19)])
def test_rows_of_channels_are_held(name: str, side: int, met: int) -> None:
    """Channels that share vectors: each row is loaded once, and the weights of two channels; besides, there are the
    stores, few vectors that do not fit, and shuffles. Of the 35, or 21, rows that seven windows have, those of zeros
    are left out. A sum that starts with zeros may be, too."""
    target = Target.parse("x86-64-v4")
    text = assembly(llvm_of(convolution(TILED[name])[0], target), target)
    (loop,) = (one for one in inner_loops(text) if one.multiply_adds)
    assert met * side - 1 <= loop.multiply_adds <= met * side
    assert len(loop.on_stack) <= 32, loop
    rows = stores = 2 * 7
    assert loop.reads <= rows + stores + 2 * side**2 + 8 + len(loop.on_stack)
    assert "vgather" not in text and "vpinsr" not in text and "vinsertps" not in text


def test_windows_that_move_by_two_meet_pairs() -> None:
    """A row of the image is loaded once for two places of the window, and every second element of two channels is one
    shuffle within quarters of a vector, which takes nothing from the multiply-adds; nothing goes through the stack."""
    target = Target.parse("x86-64-v4")
    text = assembly(llvm_of(convolution(TILED["channels, every second"])[0], target), target)
    (loop,) = (one for one in inner_loops(text) if one.multiply_adds)
    assert loop.multiply_adds in (32 * 5 - 1, 32 * 5)  # three of 35 rows are zeros
    assert len(loop.on_stack) <= 32, loop
    rows, pairs = 2 * 14, 3
    assert loop.reads <= rows * pairs + 2 * 25 + 2 * 7 + 8 + len(loop.on_stack)
    assert "vgather" not in text and "vpinsr" not in text and "vinsertps" not in text


@pytest.mark.parametrize("weight", [np.inf, np.nan])
@pytest.mark.parametrize("name", ["few channels", "channels, every second", "several tiles"])
def test_rows_of_zeros_are_kept_where_weights_are_not_finite(name: str, weight: float) -> None:
    """Zero times infinity is NaN: a sum that a window's first place meets outside the image is."""
    module, inputs = convolution(TILED[name])
    weights = module.constants["w"].copy()
    weights[:, :, 0, 0] = weight
    module = module.with_constants({**module.constants, "w": weights})
    (wanted,) = evaluate(module, inputs).values()
    (found,) = compile_module(module, target=Target.parse("native"))(*inputs)
    assert np.isnan(wanted[0, 0, 0, 0, 0])
    assert np.isnan(weight) or not np.isnan(wanted[0, 0, 0, 2, 2])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    plan = planned(module, Target.parse("x86-64-v4"))
    assert "finite" not in "".join(str(f) for f in plan.functions.values())


def test_constants_are_known_to_be_finite() -> None:
    """Those that what was padded is multiplied by."""
    (kernel,) = kernels(TILED["a bias"], Target.parse("x86-64-v4"))
    assert [p.name for p in kernel.params if p.finite] == ["w"]


@pytest.mark.parametrize("name", ["tall tiles", "tall tiles, moved back", "tall tiles, a smooth step"])
def test_tall_tiles_load_what_they_meet(name: str) -> None:
    """There is no copy of the image, and what the next row of tiles meets is asked for."""
    for machine, rows in (("x86-64-v4", 14), ("x86-64-v3", 7)):
        (s,) = scheduled(TILED[name], Target.parse(machine), held=Held.COLUMN.value, rows=rows, prefetch=True)
        assert "prefetch x[" in str(s.func)
        assert not re.search(r"alloc pad\S*: .* in stack", str(s.func))
    (s,) = scheduled(TILED[name], Target.parse("x86-64-v2"))  # loads no vectors under masks
    assert re.search(r"alloc pad\S*: .* in stack", str(s.func)) and "prefetch" not in str(s.func)


@pytest.mark.parametrize("name", ["several tiles", "5x5, long rows", "tall tiles, moved back"])
def test_rows_are_loaded_under_masks(name: str) -> None:
    """Of AVX2, for numbers of 32 and 64 bits: the zeros beside an image are no memory."""
    target, (module, inputs) = Target.parse("x86-64-v3"), convolution(TILED[name])
    (decision,) = (d for d in compile_module(module, target=target).decisions.values() if d.taken is not None)
    assert decision.taken.choice["held"] == Held.COLUMN.value
    assert "vmaskmovps" in assembly(llvm_of(module, target), target)
    if target.features <= native().features:
        (wanted,) = evaluate(module, inputs).values()
        (found,) = compile_module(module, target=target)(*inputs)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("channels", [72, 144])
def test_long_columns_of_tiles_are_chosen(channels: int) -> None:
    """Where there are registers for fourteen sums and the rows they meet, and images are large."""
    case = Case((1, channels, 56, 56), after="bias")
    (kernel,) = kernels(case, Target.parse("x86-64-v4"))
    taken = schedule(kernel, Target.parse("x86-64-v4"))[1].taken
    assert taken is not None
    assert (taken.choice["held"], taken.choice["rows"], taken.choice["prefetch"]) == (Held.COLUMN.value, 14, True)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_the_next_channel_is_asked_for(target: str) -> None:
    """Where channels are copied one after the other, and lie so."""
    one = TILED["every second, 5x5"]
    (s,) = scheduled(one, Target.parse(target))
    assert "prefetch x[0, " in str(s.func)
    (s,) = scheduled(replace(one, images=(2, *one.images[1:])), Target.parse(target))
    assert "prefetch" not in str(s.func)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("name", ["tiles moved back", "every second, 5x5", "channels"])
def test_other_machines(name: str, target: str) -> None:
    """Vectors of other lengths."""
    machine = Target.parse(target)
    assert scheduled(TILED[name], machine)
    assert lower(convolution(TILED[name])[0], machine).code


@pytest.mark.parametrize(
    ("name", "multiply_adds"), [("several tiles", 7 * 9), ("5x5, long rows", 6 * 5), ("every second, long rows", 5 * 9)]
)
def test_sums_stay_in_registers(monkeypatch: pytest.MonkeyPatch, name: str, multiply_adds: int) -> None:
    """One multiply-add for each sum and place of the window, and for these tiles nothing on the stack but a copy."""
    monkeypatch.setattr(Target, "masks_loads", lambda *_: False)
    target = Target.parse("x86-64-v3")
    loops = list(inner_loops(assembly(llvm_of(convolution(TILED[name])[0], target), target)))
    (loop,) = (loop for loop in loops if loop.multiply_adds)
    assert loop.multiply_adds == multiply_adds
    assert loop.on_stack == [], loop


def test_a_row_is_loaded_once_for_all_sums_that_meet_it() -> None:
    """Fourteen rows of sums, two rows of the image apart, meet 31; each multiply-add would load one of 70."""
    target = Target.parse("x86-64-v4")
    text = assembly(llvm_of(convolution(TILED["every second, 5x5"])[0], target), target)
    (loop,) = (one for one in inner_loops(text) if one.multiply_adds)
    rows, weights = 2 * 13 + 5, 5
    assert loop.multiply_adds == 14 * 5
    assert loop.reads <= rows + weights + 2


@pytest.mark.parametrize(("name", "multiply_adds"), [("every second", 7 * 9), ("every second, long rows", 5 * 9)])
def test_rows_are_held_in_registers(name: str, multiply_adds: int) -> None:
    """Where there are enough of them: each row of the image is loaded once for the tile, in three vectors at most, and
    nothing else is between memory and a tile in the middle of the image but the weights and a bias."""
    target = Target.parse("x86-64-v4")
    loops = list(inner_loops(assembly(llvm_of(convolution(TILED[name])[0], target), target)))
    (loop, *_) = [one for one in loops if one.multiply_adds and not one.on_stack]
    assert loop.multiply_adds == multiply_adds
    rows, stores = 2 * multiply_adds // 9 + 1, multiply_adds // 9
    assert loop.reads <= 3 * rows + 9 + stores


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_rows_are_taken_apart_in_registers(target: str) -> None:
    """Columns that one place of the window meets are shuffled out of whole vectors, each of which is loaded once for
    two places: out of two or, where there are masks, of one."""
    machine = Target.parse(target)
    (s,) = scheduled(TILED["every second, 5x5"], machine)
    assert "alloc pad.acc: f32[1, 1, 1, 8, 2] in register" in str(s.func)
    text = assembly(llvm_of(convolution(TILED["every second, 5x5"])[0], machine), machine)
    assert "vgather" not in text and "vpinsr" not in text and "vinsertps" not in text


@pytest.mark.parametrize(
    ("name", "machine"),
    [("a tile", "v3"), ("every second, long rows", "v3"), ("every second, long rows", "v4"), ("channels", "v4")],
)
def test_steps_replay(name: str, machine: str) -> None:
    target = Target.parse(f"x86-64-{machine}")
    (kernel,) = kernels(TILED[name], target)
    (s,) = scheduled(TILED[name], target)
    again = Schedule(kernel)
    again.replay(s.trace)
    assert same(again.func, s.func)


@pytest.mark.parametrize(("target", "masked"), [("x86-64-v3", 0), ("x86-64-v4", 14)])
def test_short_rows_are_stored_at_once_where_masks_are_cheap(target: str, masked: int) -> None:
    """Fourteen rows of fourteen, in vectors of sixteen lanes: one store a row, not two of eight."""
    machine = Target.parse(target)
    text = assembly(llvm_of(convolution(TILED["a bias"])[0], machine), machine)
    assert len(re.findall(r"vmovups\s+%zmm\d+, .*\) \{%k\d\}", text)) == masked
    assert not re.search(r"vmaskmovps\s+%\w+, %\w+, .*\)", text)


def test_an_epilogue_of_rows_shorter_than_a_vector_runs_on_whole_vectors() -> None:
    """One division a row: of halves of a vector there would be two."""
    target = Target.parse("x86-64-v3")
    text = assembly(llvm_of(convolution(TILED["a smooth step"])[0], target), target)
    assert text.count("vdivps") == 7 and all("ymm" in line for line in text.splitlines() if "vdivps" in line)


def test_a_smooth_step_runs_over_a_channel_as_one_row() -> None:
    """In a loop of its own, with a division for each of two vectors that are computed together: in tiles one would
    stand there for each row, and rows of 14 would take two vectors, 28 in all, not 26."""
    target = Target.parse("x86-64-v3")
    text = assembly(llvm_of(convolution(TILED["a smooth step, several tiles"])[0], target), target)
    assert text.count("vdivps") == 2
    (s,) = scheduled(TILED["a smooth step, several tiles"], target)
    assert "in 0..13:\n      vectorize" in str(s.func)
