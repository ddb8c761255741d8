"""Pools of well-known networks, each alone, f32: ours, ONNX Runtime and OpenVINO, with one thread and with two.

    python -m benchmarks.pools [--only REGEX] [--threads N,N] [--rounds N] [--json] [--write PAGE]

The bound is the time in which a core reads as many bytes as a pool reads and stores, so from the cache or the memory
that holds them; it is measured in the same rounds, and what is compared with it is native code, called by native code.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.alone import open_alone
from benchmarks.command import run_parts
from benchmarks.contest import Outcome, Reference, Run, against, hold, milliseconds, percent
from benchmarks.limits import reads
from benchmarks.problems import Array, Problem, make_model
from benchmarks.report import Report
from benchmarks.timing import compare

PEERS = ("onnxruntime", "openvino")
ALONE = "ours alone"
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Pool:
    """The largest, or the mean, of square windows of square images, with so much around them on each side."""

    network: str
    images: int
    channels: int
    size: int
    window: int
    stride: int
    around: int = 0
    is_mean: bool = False

    @property
    def name(self) -> str:
        """As shown: what of what."""
        kind, step = "mean" if self.is_mean else "max", f"/{self.stride}" if self.stride > 1 else ""
        count = f"{self.images}×" if self.images > 1 else ""
        return f"{kind} {self.window}×{self.window}{step} {count}{self.channels} @{self.size}"

    @property
    def result_size(self) -> int:
        """Rows and columns of the result."""
        return (self.size + 2 * self.around - self.window) // self.stride + 1

    @property
    def bytes(self) -> int:
        """What it reads and stores."""
        return FLOAT_BYTES * self.images * self.channels * (self.size**2 + self.result_size**2)


POOLS = (
    Pool("ResNet-50", 1, 64, 112, 3, 2, 1),
    Pool("VGG-16", 1, 64, 224, 2, 2),
    Pool("VGG-16", 1, 256, 56, 2, 2),
    Pool("VGG-16", 1, 512, 28, 2, 2),
    Pool("VGG-16", 1, 512, 14, 2, 2),
    Pool("SqueezeNet", 1, 64, 111, 3, 2),
    Pool("SqueezeNet", 1, 256, 27, 3, 2),
    Pool("GoogLeNet", 1, 192, 28, 3, 1, 1),
    Pool("GoogLeNet", 1, 512, 14, 3, 1, 1),
    Pool("GoogLeNet", 1, 832, 7, 3, 1, 1),
    Pool("Inception-v3", 1, 192, 35, 3, 1, 1, is_mean=True),
    Pool("Inception-v3", 1, 288, 35, 3, 2),
    Pool("DenseNet-121", 1, 128, 56, 2, 2, is_mean=True),
    Pool("DenseNet-121", 1, 512, 14, 2, 2, is_mean=True),
    Pool("YOLOv5s", 1, 256, 20, 5, 1, 2),
    Pool("YOLOv3", 1, 512, 13, 5, 1, 2),
    Pool("MTCNN", 16, 28, 23, 3, 2),
    Pool("MTCNN", 4, 64, 21, 3, 2),
)


def problem_of(pool: Pool) -> Problem:
    """What all engines get."""
    x = np.random.default_rng(0).uniform(-1, 1, (pool.images, pool.channels, pool.size, pool.size)).astype(np.float32)
    expected = reduced(x, pool)
    sides = {"kernel_shape": pool.window, "strides": pool.stride}
    attributes = {name: [number] * 2 for name, number in sides.items()} | {"pads": [pool.around] * 4}
    operation = "AveragePool" if pool.is_mean else "MaxPool"
    model = make_model(operation, ("x",), {"x": x}, {}, expected.shape, x.dtype, attributes)
    return Problem(pool.name, model, {"x": x}, expected, 1e-6, float(expected.size * pool.window**2))


def reduced(x: Array, pool: Pool) -> Array:
    """The pool as NumPy computes it; a mean is that of what lies inside the image."""
    around = ((0, 0), (0, 0), *((pool.around, pool.around) for _ in range(2)))
    padded = np.pad(x.astype(np.float64), around, constant_values=0 if pool.is_mean else -np.inf)
    inside = np.pad(np.ones(x.shape[2:]), around[2:])
    windows, counts = (
        np.lib.stride_tricks.sliding_window_view(a, (pool.window, pool.window), (-2, -1))[
            ..., :: pool.stride, :: pool.stride, :, :
        ]
        for a in (padded, inside)
    )
    result: Array = windows.sum((-2, -1)) / counts.sum((-2, -1)) if pool.is_mean else windows.max((-2, -1))
    return result


def measure(pools: Sequence[Pool], threads: Sequence[int], run: Run) -> Report:
    """The table: a row for each pool, and one for all."""
    peers = ("× faster", "ORT", "OV")
    columns = [head for n in threads for head in (f"{n}T: µs", *peers)]
    report = Report("pools", "Pools, alone", ("pool", "of", *columns, "kernel µs", "of the rate of reads", "compile"))
    means: dict[int, list[float]] = {n: [] for n in threads}
    for pool in pools:
        outcomes = run.attempt(pool.name, partial(_hold, pool, threads, run))
        if outcomes is not None:
            report.add(*_describe(pool, outcomes))
            for n, outcome in outcomes.items():
                ratio = outcome.over_fastest()
                means[n] += [] if ratio is None else [ratio.best]
    written = "; ".join(f"{n}: {statistics.geometric_mean(found):.2f}" for n, found in means.items() if found)
    report.note = f"ORT, OV: times ours; geometric means over the faster peer, by threads: {written}"
    return report


def _hold(pool: Pool, threads: Sequence[int], run: Run) -> dict[int, Outcome]:
    problem = problem_of(pool)

    def refer(problem: Problem) -> Mapping[str, Reference]:
        limit = Reference.limit(reads(pool.bytes), pool.bytes)
        return {"bytes": limit, ALONE: Reference.limit(open_alone(problem), 1)}

    return {n: hold(problem, n, run, refer) for n in threads}


def _describe(pool: Pool, outcomes: Mapping[int, Outcome]) -> tuple[list[str], dict[str, object]]:
    cells, data = [pool.name, pool.network], dict[str, object](pool=pool.name, network=pool.network)
    for n, outcome in outcomes.items():
        written, found = against(outcome, PEERS)
        cells += [f"{1e6 * outcome.ours.best:.1f}", *written]
        data[f"{n} threads"] = {"ours": outcome.ours.record()} | found
    alone = next(iter(outcomes.values()))
    kernel, share = alone.references[ALONE], compare(alone.references["bytes"], alone.references[ALONE]).best
    cells += [f"{1e6 * kernel.best:.1f}", percent(share), milliseconds(alone.compile_seconds)]
    return cells, data | {"kernel_seconds": kernel.best, "share": share, "compile_seconds": alone.compile_seconds}


def main() -> None:
    """Measures, prints."""
    run_parts("pools", __doc__, "pool", POOLS, measure)


if __name__ == "__main__":
    main()
