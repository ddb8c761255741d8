"""Convolutions that networks have beside plain ones, each alone, f32: grouped, dilated, transposed, of signals.

    python -m benchmarks.windows [--only REGEX] [--threads N,N] [--rounds N] [--json] [--write PAGE]

Terms that read padding alone count as arithmetic, as is usual: whoever leaves them out does more in a second than the
peak of a core, by this count.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.command import run_parts
from benchmarks.contest import Outcome, Reference, Run, against, hold, milliseconds, percent
from benchmarks.limits import multiply_adds
from benchmarks.operators import Operator, Window, convolution, model_of, transposed
from benchmarks.problems import ROUNDING, Problem
from benchmarks.report import Report

PEERS = ("onnxruntime", "openvino")


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution of a network."""

    network: str
    window: Window
    is_transposed: bool = False

    @property
    def operator(self) -> Operator:
        """Its program, shapes and results."""
        return transposed(self.window) if self.is_transposed else convolution("convolution", self.window)

    @property
    def name(self) -> str:
        """As shown: what of what."""
        return f"{self.window.words}{' transposed' if self.is_transposed else ''}"


LAYERS = (
    Layer("ResNeXt-50", Window(1, (56, 56), 128, 128, 3, 1, 1, 1, 32)),
    Layer("ResNeXt-50", Window(1, (14, 14), 512, 512, 3, 1, 1, 1, 32)),
    Layer("ResNeXt-50", Window(1, (7, 7), 1024, 1024, 3, 1, 1, 1, 32)),
    Layer("RegNetY", Window(1, (14, 14), 448, 448, 3, 1, 1, 1, 8)),
    Layer("RegNetY", Window(1, (7, 7), 896, 896, 3, 1, 1, 1, 16)),
    Layer("RegNetY", Window(1, (28, 28), 168, 168, 3, 2, 1, 1, 3)),
    Layer("DeepLab-v3", Window(1, (33, 33), 512, 256, 3, 1, 6, 6)),
    Layer("DeepLab-v3", Window(1, (33, 33), 512, 256, 3, 1, 12, 12)),
    Layer("DeepLab-v3", Window(1, (33, 33), 512, 256, 3, 1, 18, 18)),
    Layer("DRN", Window(1, (28, 28), 256, 256, 3, 1, 2, 2)),
    Layer("DRN", Window(1, (28, 28), 256, 256, 3, 1, 4, 4)),
    Layer("DCGAN", Window(1, (4, 4), 512, 256, 4, 2, 1), is_transposed=True),
    Layer("DCGAN", Window(1, (16, 16), 128, 64, 4, 2, 1), is_transposed=True),
    Layer("DCGAN", Window(1, (32, 32), 64, 3, 4, 2, 1), is_transposed=True),
    Layer("U-Net", Window(1, (28, 28), 256, 128, 2, 2, 0), is_transposed=True),
    Layer("U-Net", Window(1, (112, 112), 64, 32, 2, 2, 0), is_transposed=True),
    Layer("pose", Window(1, (16, 12), 256, 256, 4, 2, 1), is_transposed=True),
    Layer("WaveNet", Window(1, (4000,), 64, 128, 3, 1, 4, 4)),
    Layer("Whisper", Window(1, (3000,), 80, 384, 3, 1, 1)),
    Layer("HiFi-GAN", Window(1, (2048,), 128, 128, 11, 1, 25, 5)),
)
"""Convolutions as large as in these networks, for one image or signal."""


def problem_of(layer: Layer) -> Problem:
    """What all engines get: channels first, constant weights."""
    operator = layer.operator
    feeds = operator.feeds()
    given = operator.peer.feeds(feeds)
    expected = np.moveaxis(operator.reference(feeds), -1, 1)
    inputs = {n: x for n, x in given.items() if n not in operator.weights}
    terms = operator.flops / 2 / expected.size
    return Problem(layer.name, model_of(operator, given), inputs, expected, ROUNDING * terms, operator.flops)


def measure(layers: Sequence[Layer], threads: Sequence[int], run: Run) -> Report:
    """The table: a row for each layer, and means over all."""
    heads = [head for n in threads for head in (f"{n}T: µs", "× faster", "ORT", "OV")]
    report = Report("windows", "Convolutions, alone", ("layer", "as in", *heads, "of peak", "compile"))
    ratios: dict[int, list[float]] = {n: [] for n in threads}
    for layer in layers:
        outcomes = run.attempt(layer.name, partial(_hold, layer, threads, run))
        if outcomes is not None:
            report.add(*_describe(layer, outcomes))
            for n, outcome in outcomes.items():
                ratio = outcome.over_fastest()
                ratios[n] += [] if ratio is None else [ratio.best]
    means = "; ".join(f"{n}: {statistics.geometric_mean(found):.2f}" for n, found in ratios.items() if found)
    report.note = (
        "k: the window, /: stride, d: dilation, g: groups; ORT, OV: times ours; geometric means over the faster peer, "
        f"by threads: {means}; of peak: with the terms of padding, of a core"
    )
    return report


def _hold(layer: Layer, threads: Sequence[int], run: Run) -> dict[int, Outcome]:
    def refer(problem: Problem) -> dict[str, Reference]:
        return {"peak": Reference.limit(multiply_adds(), problem.flops)}

    return {n: hold(problem_of(layer), n, run, refer) for n in threads}


def _describe(layer: Layer, outcomes: dict[int, Outcome]) -> tuple[list[str], dict[str, object]]:
    cells, data = [layer.name, layer.network], dict[str, object](layer=layer.name, network=layer.network)
    for n, outcome in outcomes.items():
        written, found = against(outcome, PEERS)
        cells += [f"{1e6 * outcome.ours.best:.1f}", *written]
        data[f"{n} threads"] = {"ours": outcome.ours.record()} | found
    first = next(iter(outcomes.values()))
    peak = first.share("peak").best
    data |= {"of peak": peak, "compile_seconds": first.compile_seconds}
    return [*cells, percent(peak), milliseconds(first.compile_seconds)], data


def main() -> None:
    """Measures, prints."""
    run_parts("windows", __doc__, "layer", LAYERS, measure)


if __name__ == "__main__":
    main()
