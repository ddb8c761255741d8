"""Whole networks against other runtimes: nine networks with random weights, batch 1 (the perceptron: 32), f32.

    python -m benchmarks.networks [--only REGEX] [--threads 1,2] [--rounds N] [--quick] [--json]
                                  [--models DIR] [--write PAGE] [--plot FILE.svg]

Each engine (ours, ONNX Runtime, OpenVINO) has a process of its own for each network and number of threads, and the
processes take turns, with a program that does the same arithmetic at the multiply-add peak. Every result is compared
with ONNX Runtime's before anything is timed: a difference of more than a thousandth of the output's largest number is
listed as a failure, and the run ends with status 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chart import draw_bars
from benchmarks.command import add_models, add_turns, deliver, page_command
from benchmarks.contest import Options, percent, times
from benchmarks.contractions import measure_machine
from benchmarks.failures import exit_on_failures
from benchmarks.limits import multiply_adds, on_cores
from benchmarks.network_models import NETWORKS, Network
from benchmarks.network_models.builder import Graph
from benchmarks.network_race import (
    JUDGE,
    TURN_SECONDS,
    Measured,
    Prepared,
    Run,
    each_network,
)
from benchmarks.network_worker import OURS
from benchmarks.report import Report
from tilewright.cli.peers import PEERS

PARTIAL_FLOPS = 1e9
"""A partial run takes the networks that do less."""
TITLES = {OURS: "Tilewright", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def report_networks(measured: Sequence[Measured]) -> Report:
    """A row for each network and number of threads, and their means."""
    peers = [peer.name for peer in PEERS]
    short = [{"onnxruntime": "ORT", "openvino": "OV"}.get(name, name) for name in peers]
    heads = ("network", "T", "best ms", "median", "× faster", *(f"× {name}" for name in short), "of peak", "median")
    heads += ("compile s", *short, "MiB", *short)
    report = Report("networks", "Networks, f32: a call, opening the model, and the most memory in use", heads)
    for one in measured:
        report.add(*describe(one))
    for threads in dict.fromkeys(one.threads for one in measured):
        ratios = [r.best for one in measured if one.threads == threads and (r := one.over_fastest()) is not None]
        if len(ratios) > 1:
            mean = statistics.geometric_mean(ratios)
            cells = ["geometric mean", str(threads), "", "", f"{mean:.2f}"]
            data = {"network": "geometric mean", "threads": threads, "over faster": mean, "networks": len(ratios)}
            report.add([*cells, *[""] * (len(heads) - len(cells))], data)
    report.note = (
        "×: times ours, above 1 where ours is faster; of peak: what the contractions' arithmetic takes at the "
        "multiply-add peak of as many cores, over what ours takes in the same rounds: of the bests, of the median round"
    )
    return report


def describe(one: Measured) -> tuple[list[str], dict[str, object]]:
    """A row, and what it says as data."""
    ours = one.engines[OURS]
    fastest = one.over_fastest()
    cells = [one.name, str(one.threads), f"{1e3 * ours.samples.best:.2f}", f"{1e3 * ours.samples.median:.2f}"]
    cells += [times(ratio) for ratio in (fastest, *(one.over(peer.name) for peer in PEERS))]
    cells += [percent(one.share.best), percent(one.share.median)]
    order = [one.engines.get(name) for name in (OURS, *(peer.name for peer in PEERS))]
    cells += ["-" if engine is None else f"{engine.open_seconds:.2f}" for engine in order]
    cells += ["-" if engine is None or engine.peak_bytes is None else str(engine.peak_bytes >> 20) for engine in order]
    data: dict[str, object] = {"network": one.name, "threads": one.threads}
    data |= {"of peak": {"best": one.share.best, "median": one.share.median}, "limit": one.limit.record()}
    data |= {"over faster": None if fastest is None else fastest.best}
    return cells, data | {"engines": {name: engine.record() for name, engine in one.engines.items()}}


def draw(measured: Sequence[Measured]) -> str:
    """A chart of each engine's speed as times the speed of ONNX Runtime."""
    groups = {}
    for one in measured:
        label = f"{one.name}, {one.threads} threads" if one.threads > 1 else one.name
        judge = one.engines[JUDGE].samples.best
        groups[label] = {TITLES[name]: judge / one.engines[name].samples.best for name in TITLES if name in one.engines}
    return draw_bars("Speed as times ONNX Runtime's: longer is faster", groups)


def chosen_networks(options: Options) -> list[tuple[Network, Graph]]:
    """The networks that are wanted, without the large ones where a part will do."""
    graphs = [(network, network.build()) for network in NETWORKS if options.wants(network.name)]
    return [(n, g) for n, g in graphs if not options.is_partial or g.flops < PARTIAL_FLOPS]


def measure_all(options: Options, threads: Sequence[int], models: Path | None) -> tuple[list[Report], str]:
    """All reports that have a row (the machine's first, failures last), and the chart."""
    measured: list[Measured] = []

    def measure(run: Run, prepared: Prepared, _: Graph) -> None:
        flops = prepared.flops
        found = (run.measure(prepared, n, flops, on_cores(multiply_adds, flops, n)) for n in threads)
        measured.extend(one for one in found if one is not None)

    run = each_network(options, models, chosen_networks(options), measure)
    reports = [measure_machine(options), report_networks(measured), *run.failures.reports("network")]
    return [report for report in reports if report.rows], draw(measured)


def options_of(quick: bool, only: str = "", rounds: int | None = None) -> Options:
    """The options of a run; a quick one has three rounds, of the small networks if none were chosen."""
    return Options(rounds or (3 if quick else 10), TURN_SECONDS, only, quick)


def main() -> None:
    """Measures, prints."""
    parser = page_command("networks", __doc__, "networks", quick="few rounds of the small networks, for a first look")
    add_turns(parser)
    add_models(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="write a chart of speeds")
    asked = parser.parse_args()
    reports, chart = measure_all(options_of(asked.quick, asked.only, asked.rounds), asked.threads, asked.models)
    deliver(asked, "networks", reports)
    if asked.plot is not None:
        asked.plot.write_text(chart, encoding="utf-8")
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
