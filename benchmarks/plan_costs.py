"""The planner's prices against the clock: every distinct kernel of nine networks, alone and warm, on one core.

    python -m benchmarks.plan_costs [--only REGEX] [--quick] [--json] [--kernels N] [--rates FILE]
                                    [--unknown] [--write PAGE]

Prices are those of a compilation on this machine; `--rates` puts some rates in by hand, `--unknown` forgets what is
known of its family, so that all is measured (`benchmarks.machines`). What counts is that the order is right: a plan is
chosen by comparing prices. The rank correlation (Spearman's) says how far the order by price is that by time, 1 being
the same.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import tilewright as tw
from benchmarks.command import deliver, page_command
from benchmarks.contest import Options
from benchmarks.machines import add_machine, chosen_machine
from benchmarks.network_models import NETWORKS
from benchmarks.report import Report
from tilewright.compiler.pipeline import lower
from tilewright.expr.nodes import Const
from tilewright.frontends.onnx import read
from tilewright.loops.nodes import Function
from tilewright.report.progress import progress
from tilewright.runtime.plan_report import KernelRow
from tilewright.target import Target, native

SECONDS, LEAST_CALLS = 0.02, 5
"""A kernel is called for so long, and so often at least; its time is the best call."""

LEAST_SECONDS = 2e-7
"""What a kernel takes at least: less cannot be told from the call around it."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A kernel of a network: what was expected of it, and its time."""

    network: str
    row: KernelRow
    seconds: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.row.seconds


def measure_network(name: str, model: bytes, overhead: float, target: Target | None = None) -> list[Priced]:
    """The distinct kernels of a network, but those of dynamic sizes, with the prices of a machine."""
    target = native() if target is None else target
    compiled = lower(read(model), target)
    functions = compiled.record.after("share-out").program.functions
    plan = compiled.choices.plan
    assert plan is not None
    found: list[Priced] = []
    for row in {row.name: row for row in reversed(plan.kernels)}.values():
        function = functions.get(row.name)
        if isinstance(function, Function) and all(isinstance(e, Const) for b in function.params for e in b.shape):
            found.append(Priced(name, row, max(measure_kernel(function, target) - overhead, LEAST_SECONDS)))
    return found


def measure_kernel(function: Function, target: Target | None = None) -> float:
    """Seconds of the best call of a kernel, its data warm."""
    kernel = tw.build(function, target=target or "native", threads=1)
    arrays = [np.full([int(e.value) for e in b.shape], 1, b.dtype.numpy) for b in function.params]  # type: ignore[attr-defined]
    kernel(*arrays)
    best, end, calls = math.inf, time.perf_counter() + SECONDS, 0
    while calls < LEAST_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        kernel(*arrays)
        best = min(best, time.perf_counter() - start)
        calls += 1
    return best


def measure_overhead() -> float:
    """Seconds of a call from Python of a kernel that does next to nothing."""
    nothing = tw.parse("func nothing(a: f32[1]):\n  for i in 0..1:\n    block b(vi = i):\n      a[vi] = 0.0\n")
    assert isinstance(nothing, Function)
    return measure_kernel(nothing)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's: the correlation of ranks, of which equal numbers share the mean."""
    x, y = (_ranks(np.asarray(values)) for values in (a, b))
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def report_templates(found: Sequence[Priced]) -> Report:
    """A row for each template, and one for all kernels."""
    heads = ("template", "kernels", "rank correlation", "median time / price", "middle half", "within 2 times")
    made = Report("plan costs", "Kernels of nine networks: the planner's price and the time", heads)
    groups = {
        name: [p for p in found if p.row.template == name] for name in dict.fromkeys(p.row.template for p in found)
    }
    for name, group in {**groups, "all": list(found)}.items():
        ratios = [p.ratio for p in group]
        rank = rank_correlation([p.row.seconds for p in group], [p.seconds for p in group]) if len(group) > 2 else 1.0
        low, _, high = statistics.quantiles(ratios, n=4) if len(group) > 1 else (ratios[0],) * 3
        near = sum(0.5 <= r <= 2 for r in ratios) / len(ratios)
        median = statistics.median(ratios)
        cells = (name, str(len(group)), f"{rank:.3f}", f"{median:.2f}", f"{low:.2f}-{high:.2f}", f"{100 * near:.0f} %")
        data = {"template": name, "kernels": len(group), "rank correlation": rank, "median ratio": median}
        made.add(cells, data | {"quartiles": [low, high], "within 2 times": near})
    return made


def report_furthest(found: Sequence[Priced], count: int) -> Report:
    """The kernels whose time is furthest from their price."""
    made = Report(
        "furthest", "Furthest off", ("kernel", "network", "template", "price", "time", "read", "write", "compute")
    )
    for p in sorted(found, key=lambda p: -abs(math.log(p.ratio)))[:count]:
        cost = p.row.cost
        times = [f"{1e6 * t:.1f}" for t in (p.row.seconds, p.seconds, cost.read, cost.write, cost.compute)]
        made.add((p.row.name, p.network, p.row.template, *times), {**p.row.record(), "seconds": p.seconds})
    made.note = "microseconds"
    return made


def measure_all(options: Options, furthest: int, target: Target | None = None) -> list[Report]:
    """The tables of a run."""
    overhead = measure_overhead()
    found: list[Priced] = []
    chosen = [network for network in NETWORKS if options.wants(network.name)]
    with progress("timing kernels", len(chosen)) as step:
        for network in chosen:
            graph = network.build_tiny() if options.is_partial else network.build()
            found += measure_network(network.name, graph.model().SerializeToString(), overhead, target)
            step(network.name)
    reports = [report_templates(found)]
    return [*reports, report_furthest(found, furthest)] if furthest else reports


def main() -> None:
    """Measures, prints."""
    parser = page_command("plan_costs", __doc__, "networks", quick="the networks made tiny, for a first look")
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="list the N kernels furthest off, too")
    add_machine(parser)
    asked = parser.parse_args()
    reports = measure_all(Options(1, SECONDS, asked.only, asked.quick), asked.kernels, chosen_machine(asked))
    deliver(asked, "plan costs", reports, reports[:1])


if __name__ == "__main__":
    main()
