"""What calling a compiled model of one small kernel costs beyond the kernel.

    python -m benchmarks.overhead [--quick] [--json]

`exe(x)` checks its arrays, binds sizes, makes outputs and enters native code; the native entry point alone, called
with pointers that were made before, stands for the kernel. Their difference is what Python adds; the bar is 10 µs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

import tilewright as tw
from benchmarks.report import Report, judge, main
from benchmarks.timing import take_turns

BAR = 10e-6

MODELS = {
    "one input, fixed size": "graph main(x: f32[16]) -> y:\n  y: f32[16] = relu(x)\n",
    "one input, symbolic size": "graph main[n](x: f32[n]) -> y:\n  y: f32[n] = relu(x)\n",
    "two inputs, one output": "graph main[n](a: f32[n], b: f32[n]) -> y:\n  y: f32[n] = add(a, b)\n",
    "three inputs, two outputs": (
        "graph main[n](a: f32[n, 4], b: f32[n, 4], c: f32[n, 4]) -> s, p:\n"
        "  t: f32[n, 4] = add(a, b)\n"
        "  s: f32[n, 4] = relu(t)\n"
        "  p: f32[n, 4] = mul(t, c)\n"
    ),
}
SIZE = 16


def measure(quick: bool = False) -> Report:
    """The report: a row for each model."""
    rounds, calls = (20, 500) if quick else (200, 2000)
    heads = ("16 rows a call", "exe(…) best", "median", "native entry best", "over it, best", "median", "bar 10 µs")
    report = Report("overhead", "Cost of a call over its kernel, in µs", heads)
    for name, text in MODELS.items():
        whole, native = take_turns(programs(text), rounds, calls)
        over, over_median = whole.best - native.best, whole.median - native.median
        figures = (whole.best, whole.median, native.best, over, over_median)
        data = {
            "model": name,
            "call": whole.record(),
            "entry": native.record(),
            "over_best": over,
            "over_median": over_median,
        }
        report.add((name, *(f"{1e6 * f:.2f}" for f in figures), judge(over, BAR)), data)
    report.note = "the native entry is called through ctypes, which is part of its time"
    return report


def programs(text: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """(a call of the executable, a call of its native entry point with everything made ready)."""
    graph = tw.parse(text)
    assert isinstance(graph, tw.GraphFunction)
    exe = tw.compile(tw.Module({graph.name: graph}))
    shapes = [[int(str(d)) if str(d).isdigit() else SIZE for d in p.shape] for p in exe.inputs]
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    return lambda: exe(*arrays), NativeCall(exe, arrays)


class NativeCall:
    """The entry point of an executable with the record of a call that was made once, and what that refers to."""

    def __init__(self, exe: tw.Executable, arrays: list[np.ndarray]) -> None:
        self.held = (exe, arrays, exe(*arrays))
        entry, self.record = exe.native_call()
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(entry)
        assert self() == 0

    def __call__(self) -> int:
        status: int = self.entry(self.record)
        return status


if __name__ == "__main__":
    main(measure, __doc__)
