"""Values that a compiled model must not go on with, or must give a defined result for, as a program of its own.

It runs every case in one process with little address space and prints one line each; a crash, a hang or an allocation
driven by a number in the data would end it. tests/errors/test_runtime_faults.py runs it and compares the lines.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from compiled_models import model, one_node
from onnx import helper

import tilewright as tw
from tilewright.report.errors import RuntimeFault, UserError
from tilewright.runtime.executable import Executable

Array = np.ndarray[Any, Any]
Case = tuple[str, dict[str, Any], dict[str, Array], Sequence[str]]

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LEAST, MOST = -(2**63), 2**63 - 1


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def each(op: str, feeds: dict[str, Array], names: str, **attributes: Any) -> Iterator[Case]:
    """The case with the inputs `names` given by the call, and once more with them as constants of the model."""
    for constants in ("", names):
        yield op, attributes, feeds, tuple(constants)


def indices() -> Iterator[Case]:
    one = np.ones((1, 2), np.float32)
    for bad in (3, -4, LEAST, MOST, 2**32):
        yield from each("Gather", {"x": X, "i": ints(0, bad, 1)}, "i")
        yield from each("GatherElements", {"x": X, "i": ints(0, bad).reshape(1, 2)}, "i", axis=0)
        yield from each("ScatterElements", {"x": X, "i": ints(bad, 0).reshape(1, 2), "u": one}, "i", axis=0)
    for bad in (4, -5, LEAST):
        yield from each("GatherND", {"x": X, "i": ints(1, bad)}, "i")
        yield from each("ScatterND", {"x": X, "i": ints(1, bad), "u": np.array(9, np.float32)}, "i")
    many = np.zeros(100_000, np.int64)
    many[54_321] = 999
    yield "Gather", {}, {"x": X, "i": many}, ()
    yield "Gather", {}, {"x": X, "i": np.array([-(2**31)], np.int32)}, ()
    yield "Gather", {}, {"x": X[:0], "i": np.zeros(9, np.int64)}, ()
    yield "GatherElements", {"axis": 0}, {"x": X, "i": np.zeros((1, 9), np.int64)}, ()
    yield "ScatterElements", {"axis": 0}, {"x": X, "i": np.zeros((1, 2), np.int64), "u": X[:1]}, ()
    yield "ReverseSequence", {"batch_axis": 1, "time_axis": 0}, {"x": X, "n": np.array([1, 4, 9, 2])}, ()
    yield "ReverseSequence", {"batch_axis": 1, "time_axis": 0}, {"x": X, "n": ints(1, MOST, LEAST, 2)}, ()
    pooled, place = np.ones((1, 1, 2), np.float32), ints(0, 99).reshape(1, 1, 2)
    yield "MaxUnpool", {"kernel_shape": [2]}, {"p": pooled, "i": place}, ()


def shapes() -> Iterator[Case]:
    for shape in ([5, 5], [-1, 5], [-1, -1], [-2, -6], [2**40, 2**24], [2**32, 2**32], [LEAST, 2], [MOST, 2], [4, 3]):
        yield from each("Reshape", {"x": X, "s": ints(*shape)}, "s")
    yield "Reshape", {}, {"x": X[:0], "s": ints(2**40, 2**24)}, ()
    yield "Reshape", {}, {"x": X[:0], "s": ints(2**40 - 1, 2**40)}, ()
    for shape in ([2**62], [-1], [2**40, 2**40], [2**32, 2**32], [0, 2**40]):
        yield from each("ConstantOfShape", {"s": ints(*shape)}, "s")
    for shape in ([2, 4], [3, 5], [-1, 4], [2**40, 3, 4], [LEAST, 3, 4]):
        yield from each("Expand", {"x": X, "s": ints(*shape)}, "s")
    for repeats in ([-1, 1], [0, 1], [2**40, 2**40], [2**30, 2**30], [LEAST, MOST]):
        yield from each("Tile", {"x": X, "r": ints(*repeats)}, "r")
    for sizes in ([2, 2], [1, 1], [-1, 4], [LEAST, MOST], [1, 2]):
        yield from each("Split", {"x": X, "s": ints(*sizes)}, "s", outputs=2)
    for pads in ([0, -5, 0, 0], [LEAST, 0, 0, 0], [2**24, 2**40, 0, 0], [0, 2**36, 0, 0], [-1, -1, -1, -1]):
        yield from each("Pad", {"x": X, "p": ints(*pads)}, "p")
    yield from each("Pad", {"x": X, "p": ints(9, 0, 0, 0)}, "p", mode="reflect")


def counted() -> Iterator[Case]:
    slices = ((0, 3, 0), (LEAST, MOST, 1), (MOST, LEAST, -1), (MOST, LEAST, LEAST), (0, MOST, MOST), (-1, LEAST, -2))
    for start, end, step in slices:
        feeds = {"x": X, "s": ints(start), "e": ints(end), "a": ints(0), "t": ints(step)}
        yield from each("Slice", feeds, "seat")
    for k in (5, -1, 0, LEAST, MOST):
        yield from each("TopK", {"x": X, "k": ints(k)}, "k", outputs=2)
    index, values = ints(0, -1, 99, LEAST), np.array([0, 1], np.float32)
    for depth in (-1, 3, LEAST, MOST, 2**40):
        yield from each("OneHot", {"i": index, "d": np.array(depth, np.int64), "v": values}, "d")
    yield "OneHot", {}, {"i": index.reshape(2, 2), "d": np.array(2), "v": values[:1]}, ()
    for start, end, step in ((0, 10, 0), (0, 10**18, 1), (LEAST, MOST, 1), (0, 3, 1)):
        yield from each("Range", {"a": np.array(start), "b": np.array(end), "c": np.array(step)}, "abc")
    for start, end, step in ((0, 10, 0), (0, 1e18, 1), (0, np.inf, 1), (np.nan, 1, 1), (0, 1, 1e-30)):
        parts = [np.array(v, np.float32) for v in (start, end, step)]
        yield from each("Range", dict(zip("abc", parts, strict=True)), "abc")
    for axis in (2, -3, LEAST, -1):
        yield from each("CumSum", {"x": X, "a": np.array(axis, np.int64)}, "a")
    for axis in (9, LEAST):
        yield from each("Unsqueeze", {"x": X, "a": ints(axis)}, "a")
        yield from each("ReduceSum", {"x": X, "a": ints(axis)}, "a")
    yield "Squeeze", {}, {"x": X, "a": ints(0)}, ()
    yield "Compress", {"axis": 0}, {"x": X, "c": np.ones(9, np.bool_)}, ()
    yield "Compress", {"axis": 0}, {"x": X, "c": np.array([False, True])}, ()
    yield "NonZero", {}, {"x": X[:0]}, ()


def floats() -> Iterator[Case]:
    for scale in (0.0, -1.0, np.nan, 1e30, np.inf, 1e9, 0.5):
        feeds = {"x": X, "s": np.array([1, scale], np.float32)}
        yield "Resize", {"mode": "nearest"}, feeds, ()
        if scale != 1e9:
            yield "Resize", {"mode": "nearest"}, feeds, ("s",)
    for size in ([-1, 4], [2**40, 2**40], [LEAST, 1]):
        yield "Resize", {"mode": "nearest", "sizes": True}, {"x": X, "s": ints(*size)}, ()
    yield "Resize", {"mode": "linear", "sizes": True}, {"x": X[:, :0], "s": ints(3, 5)}, ()
    image, far = np.ones((1, 1, 4, 4), np.float32), np.array([[[[np.nan, 1e30], [-1e30, np.inf]]]], np.float32)
    for padding in ("zeros", "border", "reflection"):
        yield "GridSample", {"mode": "nearest", "padding_mode": padding}, {"f": image, "g": far}, ("g",)
    yield "GridSample", {}, {"f": image[:, :, :0], "g": np.zeros((1, 1, 2, 2), np.float32)}, ("g",)
    yield "MaxPool", {"kernel_shape": [5]}, {"x": image[0]}, ()


def integers() -> Iterator[Case]:
    for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint64):
        least, most = (int(v) for v in (np.iinfo(dtype).min, np.iinfo(dtype).max))
        a = np.array([least, least, 7, most, 7], dtype)
        b = np.array([0, -1 if least else 1, 0, 0, 2], dtype)
        for op in ("Div", "Mod"):
            yield op, {}, {"a": a, "b": b}, ()
            yield op, {}, {"a": a, "b": b}, ("b",)
    for direction in ("LEFT", "RIGHT"):
        amounts = np.array([7, 8, 63, 64, 255], np.uint64)
        yield "BitShift", {"direction": direction}, {"a": np.full(5, 2**63 + 255, np.uint64), "b": amounts}, ()
        yield "BitShift", {"direction": direction}, {"a": np.full(5, 255, np.uint8), "b": amounts.astype(np.uint8)}, ()


def compiled(op: str, attributes: dict[str, Any], feeds: dict[str, Array], constants: Sequence[str]) -> Executable:
    attributes = dict(attributes)
    outputs = ["y", "z", "w"][: attributes.pop("outputs", 1)]
    names = list(feeds)
    if op == "Resize":
        names[1:1] = ["", ""] if attributes.pop("sizes", False) else [""]
    node = helper.make_node(op, names, outputs, name="it", **attributes)
    return tw.compile(one_node(node, feeds, constants))


def outcome(case: Case, known: dict[str, Executable]) -> str:
    op, attributes, feeds, constants = case
    given = {k: v for k, v in feeds.items() if k not in constants}
    key = str(
        (op, attributes, [(k, v.dtype, v.shape if v.ndim == 1 and v.size <= 4 else v.ndim) for k, v in feeds.items()])
    )
    try:
        exe = known.get(key) if not constants else None
        if exe is None:
            exe = compiled(op, attributes, feeds, constants)
            if not constants:
                known[key] = exe
        results = exe.run(given)
    except (UserError, RuntimeFault) as error:
        return f"{type(error).__name__}: " + str(error).replace("\n", " | ")
    return "gives " + "; ".join(f"{a.dtype}{list(a.shape)} {a.reshape(-1)[:6].tolist()}" for a in results.values())


def shown(case: Case) -> str:
    op, attributes, feeds, constants = case
    parts = [f"{k}={v.dtype}{v.reshape(-1)[:4].tolist()}" for k, v in feeds.items() if v.size < 6]
    options = [f"{k}={v}" for k, v in attributes.items() if k not in ("outputs", "axis")]
    return f"{op} {' '.join([*parts, *options])}{' constant' if constants else ''}"


def main() -> None:
    """Prints `case => outcome` for every case. The first compilation comes before the limit on address space."""
    tw.compile(one_node(helper.make_node("Neg", ["x"], ["y"]), {"x": X}))(X)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
    known: dict[str, Executable] = {}
    for family in (indices, shapes, counted, floats, integers):
        for case in family():
            print(shown(case), "=>", outcome(case, known), flush=True)
    views(known)


def views(known: dict[str, Executable]) -> None:
    """A result that is a view of a larger buffer: the check comes before anything is written to it."""
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Reshape", ["h", "s"], ["y"], name="it")]
    exe = tw.compile(model(nodes, {"x": (1, ["a", "b"])}, constants={"s": ints(2, 2)}))
    for size in (1000, 2):
        try:
            print("view =>", "gives", exe(np.ones((size, 2), np.float32))[0].tolist())
        except RuntimeFault as error:
            print("view =>", "RuntimeFault:", str(error).replace("\n", " | "))


if __name__ == "__main__":
    sys.exit(main())
