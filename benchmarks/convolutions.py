"""The convolutions of ResNet-50, MobileNet-V3-Large and EfficientNet-B0, each distinct layer alone, f32, batch 1.

A layer is a race of ours, ONNX Runtime and OpenVINO, each with one thread and with two. The bound of a depthwise layer
is the longer of its multiply-adds at the peak of a core and of its bytes at the rate at which the core reads a buffer
of as many bytes, so from the cache or memory that holds them; both are measured in the same rounds. What is compared
with it is native code, called by native code; through Python's interface a call takes microseconds more.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.alone import open_alone
from benchmarks.contest import Options, Outcome, Reference, Run, against, hold, milliseconds, percent
from benchmarks.layers import NETWORKS, Layer, distinct
from benchmarks.limits import multiply_adds, reads
from benchmarks.problems import Problem, convolution
from benchmarks.report import Report
from benchmarks.timing import Samples, compare

PEERS = ("onnxruntime", "openvino")
LAYERS = "layers"
ALONE = "ours alone"
THREADS = (1, 2)
FASTER = 1.1
"""The geometric mean over the faster peer that is aimed at."""
DEPTHWISE_SHARE = 0.7
PARTIAL_STEP = 5
"""A partial run takes one layer of this many."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A layer's contests by number of threads."""

    layer: Layer
    networks: Mapping[str, int]
    outcomes: Mapping[int, Outcome]

    @property
    def bound(self) -> Samples:
        """What the limit that binds would take."""
        limits = self.outcomes[1].references
        return max((limits[name] for name in ("peak", "bytes")), key=lambda samples: samples.best)

    @property
    def kernel_share(self) -> float:
        """The share of the bound that ours reaches, called by native code."""
        return compare(self.bound, self.outcomes[1].references[ALONE]).best

    @property
    def call_share(self) -> float:
        """The share of the bound that a call from Python reaches."""
        return compare(self.bound, self.outcomes[1].ours).best


def wanted(options: Options) -> dict[Layer, dict[str, int]]:
    """The layers whose name, or the name of a network that has them, has a match."""
    found = {
        layer: networks for layer, networks in distinct().items() if options.wants(f"{layer.name} {' '.join(networks)}")
    }
    return dict(list(found.items())[:: PARTIAL_STEP if options.is_partial else 1])


def measure(layers: Mapping[Layer, Mapping[str, int]], run: Run) -> list[Report]:
    """The report of the layers and the one of the networks."""
    measured = []
    for layer, networks in layers.items():
        outcomes = run.attempt(layer.name, partial(_hold, layer, run))
        if outcomes is not None:
            measured.append(Measured(layer, networks, outcomes))
    return [report_layers(measured), report_networks(measured)]


def _hold(layer: Layer, run: Run) -> dict[int, Outcome]:
    problem = convolution(layer.name, layer)
    return {n: hold(problem, n, run, _limits(layer) if n == 1 else _nothing) for n in THREADS}


def _limits(layer: Layer) -> Callable[[Problem], Mapping[str, Reference]]:
    def refer(problem: Problem) -> Mapping[str, Reference]:
        limits = {"peak": Reference.limit(multiply_adds(), problem.flops)}
        if layer.is_depthwise:
            limits["bytes"] = Reference.limit(reads(layer.bytes), layer.bytes)
            limits[ALONE] = Reference.limit(open_alone(problem), 1)
        return limits

    return refer


def _nothing(problem: Problem) -> Mapping[str, Reference]:
    return {}


def report_layers(measured: Sequence[Measured]) -> Report:
    """A row for each layer."""
    peers = ("× faster", "ORT", "OV")
    heads = ("layer", "in", "µs", "GFLOP/s", "of peak", "kernel µs", "of bound", *peers, "2T: µs", *peers, "compile")
    report = Report(LAYERS, "Convolutions, batch 1, with one thread and with two", heads)
    for one in measured:
        alone = one.outcomes[1]
        kernel = alone.references[ALONE].best if one.layer.is_depthwise else None
        bound = one.kernel_share if one.layer.is_depthwise else None
        peak = alone.share("peak").best
        cells = [one.layer.name, _abbreviate(one.networks), f"{1e6 * alone.ours.best:.1f}"]
        cells += [f"{2e-9 * one.layer.multiply_adds / alone.ours.best:.1f}", percent(peak)]
        cells += ["" if kernel is None else f"{1e6 * kernel:.1f}", "" if bound is None else percent(bound)]
        data: dict[str, object] = {"layer": one.layer.name, "networks": dict(one.networks), "of peak": peak}
        data |= {"kernel_seconds": kernel, "of bound": bound, "compile_seconds": alone.compile_seconds}
        for n, outcome in one.outcomes.items():
            written, found = against(outcome, PEERS)
            cells += ([f"{1e6 * outcome.ours.best:.1f}"] if n > 1 else []) + written
            data[f"{n} threads"] = {"ours": outcome.ours.record()} | found
        report.add([*cells, milliseconds(alone.compile_seconds)], data)
    report.note = "in: how often ResNet-50, MobileNet-V3-Large and EfficientNet-B0 have the layer; ORT, OV: times ours"
    return report


def _abbreviate(networks: Mapping[str, int]) -> str:
    return " ".join(f"{name[0]}{count}" for name, count in networks.items())


def report_networks(measured: Sequence[Measured]) -> Report:
    """For each network and for all layers: the geometric mean over the faster peer, and the sum of the layers."""
    heads = ("distinct layers of", "", "T", "× faster", "bar", "", "at least as fast", "sum ms", "ORT sum", "OV sum")
    report = Report(
        "networks", "Convolutions by network: geometric means, and sums as often as a network has them", heads
    )
    groups = {network.name: [m for m in measured if network.name in m.networks] for network in NETWORKS}
    groups["all"] = list(measured)
    groups["all but 1×1 images"] = [m for m in measured if m.layer.size > 1]
    for name, members in groups.items():
        for threads in THREADS if members else ():
            report.add(*_describe_group(name, members, threads))
    depthwise = [one for one in measured if one.layer.is_depthwise]
    if depthwise:
        report.add(*_describe_shares("kernels", [one.kernel_share for one in depthwise]))
        report.add(*_describe_shares("calls", [one.call_share for one in depthwise]))
    return report


def _describe_shares(what: str, shares: Sequence[float]) -> tuple[list[str], dict[str, object]]:
    """The row of depthwise layers: the geometric mean of their shares of the bound, and how many reach the bar."""
    mean, least = statistics.geometric_mean(shares), min(shares)
    cells = [f"depthwise {what}, share of the bound", str(len(shares)), "1", percent(mean)]
    reached = sum(share >= DEPTHWISE_SHARE for share in shares)
    verdict = "ok" if least >= DEPTHWISE_SHARE else "under"
    cells += [f"≥ {percent(DEPTHWISE_SHARE)}", verdict, f"{reached} reach it", "", "", ""]
    data: dict[str, object] = {"group": f"depthwise {what}", "layers": len(shares), "mean share": mean}
    return cells, data | {"least share": least, "reached": reached, "bar": DEPTHWISE_SHARE}


def _describe_group(name: str, members: Sequence[Measured], threads: int) -> tuple[list[str], dict[str, object]]:
    """The row of some layers with some threads. Each counts once in the mean, and in sums as often as it occurs."""
    outcomes = [one.outcomes[threads] for one in members]
    ratios = [ratio.best for o in outcomes if (ratio := o.over_fastest()) is not None]
    mean = statistics.geometric_mean(ratios) if ratios else None
    reached = sum(ratio >= 1 for ratio in ratios)
    weights = [one.networks.get(name, sum(one.networks.values())) for one in members]
    ours = sum(w * o.ours.best for w, o in zip(weights, outcomes, strict=True))
    sums = {
        peer: sum(w * o.peers[peer].best for w, o in zip(weights, outcomes, strict=True))
        for peer in PEERS
        if all(peer in o.peers for o in outcomes)
    }
    verdict = "" if mean is None else "ok" if mean >= FASTER else "under"
    cells = [name, str(len(members)), str(threads), "-" if mean is None else f"{mean:.2f}", f"≥ {FASTER}", verdict]
    cells += [f"{reached} of {len(members)}", f"{1e3 * ours:.2f}"]
    cells += [f"{1e3 * sums[peer]:.2f}" if peer in sums else "-" for peer in PEERS]
    data: dict[str, object] = {"group": name, "layers": len(members), "threads": threads, "mean over faster": mean}
    data |= {"at least as fast": reached, "sum_seconds": {"ours": ours} | sums, "bar": FASTER}
    return cells, data
