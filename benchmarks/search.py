"""Operators written as plain loops: by price alone, tuned, the same as ONNX models, other runtimes. One thread, f32.

    python -m benchmarks.search [--only REGEX] [--batch N] [--budget SECONDS] [--clock processor] [--json]

The programs are those of `benchmarks/operators.py`. *Default* is what a compilation makes of the loops without having
measured anything, *tuned* after `tw.autoschedule(…, budget=…)` (left out without a budget), *model* what our compiler
makes of the same operator as an ONNX model. All take turns in one race, after their results were compared with NumPy's.
A row of the second table is the geometric mean over the shapes of an operator.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import tilewright as tw
from benchmarks.command import add_clock, deliver, page_command
from benchmarks.contest import Options, Run, percent
from benchmarks.engines import Call, as_array, set_threads
from benchmarks.failures import exit_on_failures
from benchmarks.limits import multiply_adds
from benchmarks.operators import Operator, model_of, module_of, operators
from benchmarks.problems import ROUNDING, Array, WrongResult
from benchmarks.report import Report
from benchmarks.timing import PAUSE_SECONDS, Samples, race
from tilewright.cli.peers import PEERS
from tilewright.loops.nodes import Function
from tilewright.report import settings
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable

DEFAULT, TUNED, MODEL, PEAK = "default", "tuned", "model", "peak"
OTHERS = {"torch": "PyTorch", "onnxruntime": "ONNX RT", "openvino": "OpenVINO"}

CLOCKS = {"wall": time.perf_counter_ns, "processor": time.process_time_ns}

LARGEST = 1 << 28
"""Bytes of one tensor; shapes with a larger one are left out."""

TEMPLATE_BAR, PEER_BAR, PRICE_BAR = 0.95, 1.0, 0.7
"""Tuned over the model's speed, over the faster peer's, and the default's over the tuned one's."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The samples of an operator, by engine, and by which template its loops run without tuning and with."""

    operator: Operator
    taken: Mapping[str, Samples]
    templates: tuple[str, str]

    def ratio(self, shorter: str, longer: str) -> float | None:
        """How many times longer one took than another."""
        if shorter not in self.taken or longer not in self.taken:
            return None
        return self.taken[longer].best / self.taken[shorter].best

    @property
    def ours(self) -> str:
        """The engine that bars are for."""
        return TUNED if TUNED in self.taken else DEFAULT

    def over_peers(self) -> float | None:
        """How many times longer the fastest peer took than ours."""
        found = [self.taken[name].best for name in OTHERS if name in self.taken]
        return min(found) / self.taken[self.ours].best if found else None


def measure(operator: Operator, budget: float, run: Run, clock: Callable[[], int] = time.perf_counter_ns) -> Measured:
    """All engines on an operator, in turns."""
    feeds = operator.feeds()
    expected = operator.reference(feeds)
    terms = operator.flops / 2 / expected.size

    def right(name: str, call: Callable[[], object], turned: Callable[[Array], Array] = lambda y: y) -> Call:
        """The call, whose result was compared."""
        found = turned(as_array(call())).reshape(expected.shape)
        off = float(np.abs(found.astype(np.float64) - expected).max())
        if not off <= ROUNDING * terms + 1e-6:
            raise WrongResult(f"{name}, {operator.name}: off by {off:.3g}")
        return call

    def called(executable: Executable, given: Mapping[str, Array]) -> Call:
        arrays = [given[port.name] for port in executable.inputs]
        return lambda: executable(*arrays)

    module = module_of(operator, feeds)
    plain = tw.compile(module, threads=1, tune="off")
    engines: dict[str, Call] = {DEFAULT: right(DEFAULT, called(plain, feeds))}
    (before,) = plain.decisions.values()
    after = before
    if budget:
        function = module.functions[module.graph.nodes[-1].attrs.callee]  # type: ignore[attr-defined]
        assert isinstance(function, Function)
        tw.autoschedule(function, budget=budget)
        tuned = tw.compile(module, threads=1)
        (after,) = tuned.decisions.values()
        engines[TUNED] = right(TUNED, called(tuned, feeds))
    turned = operator.peer.feeds(feeds)
    model = model_of(operator, turned)
    same = tw.compile(model, threads=1, off=("winograd", "strassen"))
    engines[MODEL] = right(MODEL, called(same, turned), operator.peer.result)
    for name, call in _open_peers(operator, turned, model).items():
        try:
            engines[name] = right(name, call, operator.peer.result)
        except WrongResult as error:
            run.failures.peers.append((operator.name, str(error)))
    engines[PEAK] = (limit := multiply_adds()).call
    taken = race(engines, run.options.rounds, run.options.turn_seconds, PAUSE_SECONDS, clock)
    taken[PEAK] = taken[PEAK].scaled(operator.flops / limit.work)
    return Measured(operator, taken, (before.template, after.template))


def _open_peers(operator: Operator, feeds: Mapping[str, Array], model: bytes) -> dict[str, Call]:
    found: dict[str, Call] = {}
    if importlib.util.find_spec("torch"):
        import torch

        tensors = {name: torch.from_numpy(x) for name, x in feeds.items()}

        def call() -> object:
            with torch.inference_mode():
                return operator.peer.torch(tensors)

        found["torch"] = call
    given = {name: x for name, x in feeds.items() if name not in operator.weights}
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model)
        for peer in PEERS:
            if peer.is_installed:
                found[peer.name] = partial(peer.open(str(path), 1), given)
    return found


def report_shapes(measured: list[Measured]) -> Report:
    """A row for each operator at each shape."""
    heads = ("operator", "by", "tuned by", "µs", "GFLOP/s", "of peak", "default/tuned", "× model", *OTHERS.values())
    report = Report("operators", "Operators from plain loops, one thread", (*heads, "× fastest"))
    for one in measured:
        seconds = one.taken[one.ours].best
        ratios = {
            "default/tuned": one.ratio(DEFAULT, one.ours),
            MODEL: one.ratio(one.ours, MODEL),
            **{name: one.ratio(one.ours, name) for name in OTHERS},
            "fastest": one.over_peers(),
        }
        cells = [one.operator.name, *one.templates, f"{1e6 * seconds:.1f}", f"{one.operator.flops / seconds / 1e9:.1f}"]
        cells += [percent(one.taken[PEAK].best / seconds), *map(_written, ratios.values())]
        rows = {name: samples.record() for name, samples in one.taken.items()}
        report.add(cells, {"operator": one.operator.name, "templates": one.templates, "ratios": ratios, "taken": rows})
    report.note = "model: the same operator as an ONNX model, by ours; × model and peers: times ours, above 1 slower"
    return report


def report_kinds(measured: list[Measured]) -> Report:
    """A row for each kind of operator: geometric means, and whether they reach the bars."""
    heads = ("operator", "shapes", "tuned over model", "", "over fastest peer", "", "default over tuned")
    report = Report("kinds", "Operators from plain loops: geometric means", heads)
    kinds = defaultdict[str, list[Measured]](list)
    for one in measured:
        kinds[one.operator.kind].append(one)
    for kind, members in kinds.items():
        model = _mean(one.ratio(one.ours, MODEL) for one in members)
        peers = _mean(one.over_peers() for one in members)
        price = _mean(one.ratio(DEFAULT, one.ours) for one in members)
        cells = [kind, str(len(members)), _written(model), _verdict(model, TEMPLATE_BAR)]
        cells += [_written(peers), _verdict(peers, PEER_BAR), _written(price)]
        report.add(cells, {"kind": kind, "model": model, "peers": peers, "default": price})
    price = _mean(one.ratio(DEFAULT, one.ours) for one in measured)
    reached = sum(row["peers"] is not None and row["peers"] >= PEER_BAR for row in report.data)
    report.note = f"{reached} of {len(report.rows)} at least as fast as the fastest peer; default over tuned, all: "
    report.note += f"{_written(price)} (bar {PRICE_BAR})"
    return report


def _mean(ratios: object) -> float | None:
    found = [ratio for ratio in ratios if ratio is not None]  # type: ignore[attr-defined]
    return statistics.geometric_mean(found) if found else None


def _written(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _verdict(ratio: float | None, bar: float) -> str:
    return "" if ratio is None else "ok" if ratio >= bar else "under"


def main() -> None:
    """Measures, prints."""
    parser = page_command("search", __doc__, "operators")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="how many images, or matrices")
    parser.add_argument("--budget", type=float, default=30.0, metavar="SECONDS", help="of tuning, each; 0 for none")
    parser.add_argument("--rounds", type=int, default=Options().rounds, metavar="N", help="turns of each engine")
    add_clock(parser)
    asked = parser.parse_args()
    options = Options(asked.rounds, only=asked.only)
    wanted = [o for o in operators(asked.batch) if options.wants(o.name) and o.largest <= LARGEST]
    set_threads(1)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as store, progress("racing", len(wanted)) as step:
        os.environ[settings.STORE.name] = store
        run = Run(options, step)
        found = [run.attempt(o.name, partial(measure, o, asked.budget, run, CLOCKS[asked.clock])) for o in wanted]
    measured = [one for one in found if one is not None]
    reports = [report_shapes(measured), report_kinds(measured), *run.failures.reports()]
    deliver(asked, "search", [report for report in reports if report.rows])
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
