"""Convolutions that keep channels apart, channels innermost: what they compute, compared with the graph's evaluator,
and which of them are run in tiles of columns that read the image where it lies."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from inner_loops import inner_loops

import tilewright as tw
from drawn import LONG, cover, pairs
from planned import llvm_of, planned_kernels
from tilewright.codegen.assemble import assembly
from tilewright.compiler import compile_module
from tilewright.compiler.pipeline import lower
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.loops.same import same
from tilewright.plan.choose import schedule
from tilewright.schedule.find import nests
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target, native
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]

PLAIN = "n {y} {x} c, a b c -> n i j c"
TURNED_WINDOW = "n {y} {x} c, b a c -> n i j c"
GROUPS = "n k {y} {x} c, c k a b o -> n o i j c"
"""The axes of images, weights and results; {y} and {x} are the rows and columns that a place of the window meets."""


@dataclass(frozen=True, slots=True)
class Case:
    """Images (count, height, width, channels); a window; its step and the distance of its places along height and
    width; zeros before and behind both; what follows."""

    images: tuple[int, int, int, int]
    window: tuple[int, int] = (3, 3)
    step: tuple[int, int] = (1, 1)
    gap: tuple[int, int] = (1, 1)
    low: tuple[int, int] = (1, 1)
    high: tuple[int, int] = (1, 1)
    spec: str = PLAIN
    after: str = ""
    dtype: str = "f32"
    zero: float = 0.0

    @property
    def sizes(self) -> list[int]:
        rows = zip(self.images[1:], self.window, self.step, self.gap, self.low, self.high, strict=False)
        return [(n + lo + hi - (k - 1) * g - 1) // s + 1 for n, k, s, g, lo, hi in rows]


def around(size: int) -> dict[str, Any]:
    """A square window with as many zeros around the image as keep its size."""
    return {"window": (size, size), "low": (size // 2, size // 2), "high": (size // 2, size // 2)}


TILED = {
    "a tile": Case((1, 7, 7, 32)),
    "a tile, 5x5": Case((1, 7, 7, 32), **around(5)),
    "a tile, 7x7": Case((1, 14, 14, 16), **around(7)),
    "a large window": Case((1, 14, 14, 16), **around(9)),
    "a window larger than the image": Case((1, 9, 9, 32), **around(21)),
    "two tiles": Case((1, 9, 28, 48)),
    "several tiles": Case((1, 9, 56, 16)),
    "several tiles, 7x7": Case((1, 15, 45, 16), **around(7)),
    "tiles moved back": Case((1, 13, 19, 48), **around(5)),
    "wide": Case((1, 6, 112, 32)),
    "few columns": Case((1, 9, 3, 32)),
    "two columns": Case((1, 2, 2, 32)),
    "every second": Case((1, 14, 14, 32), step=(2, 2)),
    "every second, 5x5": Case((1, 28, 28, 48), step=(2, 2), **around(5)),
    "every second, 7x7": Case((1, 15, 57, 32), step=(2, 2), **around(7)),
    "every second, wide": Case((1, 12, 112, 16), step=(2, 2)),
    "every third": Case((1, 22, 31, 16), step=(3, 3)),
    "steps of rows": Case((1, 23, 12, 16), step=(2, 1)),
    "steps of columns": Case((1, 12, 23, 16), step=(1, 2)),
    "apart": Case((1, 15, 16, 16), gap=(2, 3), low=(2, 3), high=(2, 3)),
    "uneven zeros": Case((1, 11, 12, 16), low=(2, 0), high=(0, 3)),
    "zeros above": Case((1, 11, 12, 16), low=(2, 0), high=(0, 0)),
    "zeros beside": Case((1, 11, 30, 16), low=(0, 1), high=(0, 2)),
    "zeros all over": Case((1, 4, 4, 16), low=(5, 5), high=(5, 9)),
    "no zeros": Case((1, 12, 12, 32), low=(0, 0), high=(0, 0)),
    "no zeros, every second": Case((1, 33, 33, 16), step=(2, 2), low=(0, 0), high=(0, 0)),
    "other padding": Case((1, 12, 12, 16), zero=0.5),
    "images": Case((3, 9, 10, 16)),
    "more images than channels": Case((11, 9, 10, 16), step=(2, 2)),
    "a row of a window": Case((1, 9, 20, 16), (1, 7), low=(0, 3), high=(0, 3)),
    "a column of a window": Case((1, 20, 9, 16), (7, 1), low=(3, 0), high=(3, 0)),
    "a window turned": Case((1, 9, 20, 16), (3, 5), low=(1, 2), high=(1, 2), spec=TURNED_WINDOW),
    "few vectors of channels": Case((1, 56, 14, 16)),
    "blocks of rows, every second": Case((1, 112, 14, 32), step=(2, 2)),
    "groups": Case((2, 14, 14, 32), spec=GROUPS, **around(5)),
    "groups, a smooth step": Case((1, 7, 7, 64), spec=GROUPS, after="swish"),
    "half a vector of channels": Case((1, 14, 14, 24), after="bias"),
    "a quarter of a vector of channels": Case((1, 14, 14, 20), after="swish"),
    "fewer channels than lanes": Case((1, 14, 30, 8), after="swish", **around(5)),
    "four channels": Case((1, 9, 9, 4), step=(2, 2)),
    "columns in few sets": Case((1, 7, 7, 512), **around(5)),
    "columns in few sets, a smooth step": Case((2, 8, 10, 512), low=(0, 1), high=(1, 0), after="swish"),
    "columns in few sets, every second": Case((1, 14, 9, 512), step=(2, 2)),
    "columns in few sets, no zeros": Case((1, 9, 9, 512), (5, 5), low=(0, 0), high=(0, 0)),
    "columns in few sets, f64": Case((1, 28, 9, 256), low=(1, 2), high=(1, 2), dtype="f64"),
    "columns in few sets, zeros all over": Case((1, 4, 4, 512), low=(5, 5), high=(5, 9)),
    "a large image, columns in few sets": Case((1, 28, 28, 512), after="bias"),
    "large images, columns in few sets": Case((2, 26, 23, 512), step=(2, 1), after="swish", **around(5)),
    "a bias": Case((1, 14, 14, 32), after="bias"),
    "a smooth step": Case((1, 7, 7, 32), after="swish", **around(5)),
    "a smooth step, several tiles": Case((1, 9, 40, 16), after="swish"),
    "a smooth step, every second": Case((1, 30, 30, 32), step=(2, 2), after="swish"),
    "a hard step": Case((1, 14, 14, 48), after="hard"),
    "an image is added": Case((1, 14, 14, 32), after="image"),
    "a smooth step of an added image": Case((2, 14, 14, 32), after="image swish"),
    "a smooth step, pairs": Case((1, 14, 14, 48), after="swish", **around(5)),
    "a smooth step, pairs, groups": Case((2, 10, 8, 32), spec=GROUPS, after="swish"),
    "f64": Case((1, 14, 15, 16), dtype="f64"),
    "f64, every second": Case((1, 14, 15, 8), step=(2, 2), after="swish", dtype="f64"),
}
MASKED = {
    "channels beyond vectors": Case((1, 14, 14, 37), after="bias"),
    "channels beyond vectors, a smooth step": Case((1, 9, 28, 21), after="swish", **around(5)),
    "channels beyond vectors, every second": Case((1, 29, 29, 18), step=(2, 2)),
    "fewer odd channels than lanes": Case((1, 14, 14, 5)),
}
"""Tiled where the machine has masks."""

OTHERS = {
    "no window": Case((1, 16, 16, 16), (1, 1), (2, 2)),
    "three channels": Case((1, 9, 9, 3)),
    "one row": Case((1, 1, 14, 16), (1, 3), low=(0, 1), high=(0, 1)),
}


EVERY = TILED | MASKED | OTHERS


def traits(name: str) -> set[Hashable]:
    """What a case has that decides how it is run."""
    case, (rows, columns) = EVERY[name], EVERY[name].sizes
    window = tuple(min(n, 8) // 4 + (n > 1) for n in case.window)
    zeros = any(case.low), any(case.high), case.low == case.high, case.zero
    channels = case.images[3] // 512, case.images[3] % 16 == 0, case.images[3] > 16
    sizes = rows > 28, columns > 28
    other = case.images[0] > 1, case.step, case.gap != (1, 1), case.spec, case.after, case.dtype
    return set(enumerate((name in OTHERS, window, zeros, channels, sizes, *other)))


HERE = [[*EVERY][n] for n in cover([pairs(traits(name)) for name in EVERY])]
"""Cases of which each two traits that go together do so in one: they run on this machine, and all others without masks,
with some of each way to end a row of channels. Long runs take both of all."""

WITHOUT = [name for name in (*TILED, *MASKED) if LONG or name in MASKED or name not in HERE]


def convolution(case: Case) -> tuple[Module, list[Array]]:
    """The graph, and images for it."""
    dtype = DTYPES[case.dtype]
    rng, (count, *image, channels) = np.random.default_rng(0), case.images
    groups = case.spec is GROUPS
    window = case.window[::-1] if case.spec is TURNED_WINDOW else case.window
    weights = (channels, 1, *window, 1) if groups else (*window, channels)
    single = (1,) if groups else ()
    shape = (count, *single, *image, channels)
    w = rng.standard_normal(weights).astype(dtype.numpy)
    graph = GraphBuilder()
    value = graph.param("x", TensorType.of(dtype, shape))
    if any((*case.low, *case.high)):
        zero = graph.op("full", value=const(case.zero, dtype), shape=())
        none = (0, *(0 for _ in single))
        value = graph.op("pad", value, zero, low=(*none, *case.low, 0), high=(*none, *case.high, 0))
    rows, columns = (f"{n}*{s}+{k}*{g}" for n, k, s, g in zip("ij", "ab", case.step, case.gap, strict=True))
    sizes = tuple(zip("ij", case.sizes, strict=True))
    spec = case.spec.format(y=rows, x=columns).replace("*1", "")
    y = graph.op("contract", value, graph.constant("w", w), spec=spec, sizes=sizes)
    inputs = [rng.standard_normal(shape).astype(dtype.numpy)]
    made = (count, *single, *case.sizes, channels)
    if "image" in case.after:
        y = graph.op("add", y, graph.param("r", TensorType.of(dtype, made)))
        inputs.append(rng.standard_normal(made).astype(dtype.numpy))
    elif case.after:
        y = graph.op("add", y, graph.constant("b", rng.standard_normal(channels).astype(dtype.numpy)))
    if "swish" in case.after:
        y = graph.op("mul", y, graph.op("sigmoid", y))
    if case.after == "hard":
        three, six, none = (graph.op("full", value=const(n, dtype), shape=()) for n in (3.0, 6.0, 0.0))
        step = graph.op("min", graph.op("max", graph.op("add", y, three), none), six)
        y = graph.op("div", graph.op("mul", y, step), six)
    return graph.module({"y": y}), inputs


def kernels(case: Case, target: Target) -> list[Function]:
    """The kernels of a case before they are scheduled."""
    return planned_kernels(convolution(case)[0], target)


def scheduled(case: Case, target: Target) -> list[Schedule]:
    """The schedules of those kernels of a case that run with channels along the lanes."""
    made = [schedule(f, target) for f in kernels(case, target)]
    return [s for s, decision in made if decision.template == "windows, channels last"]


def check(case: Case, target: Target) -> bool:
    """Compares what is computed with the graph's evaluator; whether it is run in tiles."""
    module, inputs = convolution(case)
    (wanted,) = evaluate(module, inputs).values()
    exe = compile_module(module, target, threads=2)
    (found,) = exe(*inputs)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))
    return any(d.template == "windows, channels last" for d in exe.decisions.values())


@pytest.mark.parametrize("name", EVERY if LONG else HERE)
def test_same_as_the_graph(name: str) -> None:
    """Whichever way it is run; and these are run in tiles, the others not."""
    machine = native()
    tiled = check(EVERY[name], machine)
    assert tiled == (name in TILED or (machine.has_masks and name in MASKED))


@pytest.mark.parametrize("name", WITHOUT)
def test_the_same_without_masks(name: str) -> None:
    """Vectors of 256 bits, or shorter ones where channels would leave lanes empty: some sums stay as they are."""
    machine = Target.parse("x86-64-v3")
    if not set(machine.features) <= set(native().features):
        pytest.skip("this machine has no AVX2")
    assert check(EVERY[name], machine) == (name in TILED)


@pytest.mark.parametrize("seed", range(12))
def test_random_sizes(seed: int) -> None:
    """Sizes, windows, steps and zeros as they come."""
    rng = np.random.default_rng(seed)
    pick = lambda low, high: (int(rng.integers(low, high)), int(rng.integers(low, high)))  # noqa: E731
    height, width = pick(9, 40)
    case = Case(
        (int(rng.integers(1, 3)), height, width, int(rng.integers(4, 70))),
        pick(2, 6),
        pick(1, 3),
        low=pick(0, 4),
        high=pick(0, 4),
        after=("", "bias", "swish", "hard", "image")[seed % 5],
    )
    check(case, native())


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("name", ["tiles moved back", "every second, 5x5", "a smooth step"])
def test_other_machines(name: str, target: str) -> None:
    """Vectors of other lengths."""
    machine = Target.parse(target)
    assert scheduled(TILED[name], machine)
    assert lower(convolution(TILED[name])[0], machine).code


@pytest.mark.parametrize(("target", "columns"), [("x86-64-v3", 7), ("x86-64-v4", 14)])
def test_sums_stay_in_registers(target: str, columns: int) -> None:
    """A row of the window at a time: one multiply-add for each sum and place, one load for each vector of the image and
    each weight, and nothing on the stack."""
    machine = Target.parse(target)
    case = Case((1, 18, columns + 4, 16), (5, 5), low=(0, 0), high=(0, 0))
    loops = list(inner_loops(assembly(llvm_of(convolution(case)[0], machine), machine)))
    (loop,) = (loop for loop in loops if loop.multiply_adds)
    assert loop.multiply_adds == columns * 5
    assert loop.on_stack == [], loop
    assert loop.reads <= columns + 4 + 5


def asked_for(order: str, **fields: int) -> dict[str, Any]:
    """Tiles of seven columns in an order."""
    choice = {"columns": 7, "vectors": 1, "lanes": 8, "order": order, "block": 0, "edges": False, "in_pairs": False}
    return {"template": "windows, channels last", "choice": {**choice, "copied": 0, **fields}}


@pytest.mark.parametrize("order", ["channels", "rows", "columns"])
@pytest.mark.parametrize("size", [(2, 9, 28, 48), (1, 11, 14, 32), (1, 8, 45, 64)])
def test_every_order_of_tiles(size: tuple[int, int, int, int], order: str) -> None:
    """By two threads, of two tiles of columns and of more."""
    case = Case(size)
    (kernel,), (module, inputs) = kernels(case, native()), convolution(case)
    (found,) = tw.compile(module, threads=2, choices={kernel.name: asked_for(order)})(*inputs)
    (wanted,) = evaluate(module, inputs).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


COPIED = {
    "padding on all sides": Case((2, 9, 11, 64)),
    "every second": Case((1, 15, 14, 64), step=(2, 2)),
    "no padding": Case((1, 9, 14, 32), low=(0, 0), high=(0, 0)),
    "padding before alone": Case((1, 8, 13, 32), (2, 4), low=(1, 3), high=(0, 0)),
    "more padding than window": Case((1, 7, 9, 32), low=(4, 5), high=(5, 4)),
    "apart": Case((1, 9, 12, 32), gap=(2, 3), low=(2, 3), high=(2, 3)),
    "what follows": Case((2, 7, 7, 64), after="swish"),
    "something else around": Case((1, 7, 8, 32), zero=1.5),
    "an image of one row": Case((1, 1, 9, 32), low=(2, 1), high=(2, 1)),
    "padding beside rows": Case((1, 4, 9, 32), low=(0, 1), high=(0, 1)),
    "padding beside columns": Case((1, 9, 9, 32), low=(1, 0), high=(1, 0)),
}


@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("name", COPIED)
def test_images_of_several_tiles_are_copied(name: str, vectors: int) -> None:
    """By two threads: with padding and without, in tiles of one vector and of two."""
    case = COPIED[name]
    asked = asked_for("channels", vectors=vectors, copied=2)
    (kernel,), (module, inputs) = kernels(case, native()), convolution(case)
    s, _ = schedule(kernel, native(), asked)
    assert "in stack" in str(s.func)
    (found,) = tw.compile(module, threads=2, choices={kernel.name: asked})(*inputs)
    (wanted,) = evaluate(module, inputs).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


def test_images_whose_columns_are_far_apart_are_copied() -> None:
    """Columns of 4 KiB lie in the same sets of the first cache; those of 4.5 KiB do not, and are read in place."""
    target = Target.parse("x86-64-v4")
    for channels, copied in ((1024, True), (1152, False)):
        (s,) = scheduled(Case((1, 7, 7, channels)), target)
        assert ("in stack" in str(s.func)) == copied


def test_threads_share_all_tiles() -> None:
    """The tiles at both edges, which have loops of their own, too."""
    target = Target.parse("x86-64-v3")
    for columns, parts in ((14, 2), (28, 3)):
        (kernel,) = kernels(Case((1, 28, columns, 64)), target)
        s, _ = schedule(kernel, target, asked_for("columns"))
        outer = [loop for loop in nests(s.func) if isinstance(loop, For)]
        assert [loop.kind for loop in outer] == [LoopKind.PARALLEL] * parts


def test_an_image_is_not_copied() -> None:
    """It is read where it lies: all buffers of its size are arguments."""
    (s,) = scheduled(TILED["a bias"], Target.parse("x86-64-v4"))
    assert "in arena" not in str(s.func) and "in stack" not in str(s.func)


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("a tile", "v3"),
        ("several tiles", "v4"),
        ("few vectors of channels", "v4"),
        ("images", "v3"),
        ("a large image, columns in few sets", "v4"),
    ],
)
def test_steps_replay(name: str, machine: str) -> None:
    target = Target.parse(f"x86-64-{machine}")
    (kernel,) = kernels(TILED[name], target)
    (s,) = scheduled(TILED[name], target)
    again = Schedule(kernel)
    again.replay(s.trace)
    assert same(again.func, s.func)
