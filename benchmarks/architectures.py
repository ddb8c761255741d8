"""Random architectures for images against other runtimes: drawn out of timm, random weights, one image, f32.

    python -m benchmarks.architectures [--seed 0] [--count 24] [--only REGEX] [--threads 1,2] [--rounds N] [--json]
                                       [--clock wall|processor] [--models DIR] [--write PAGE]

The draw (`benchmarks.architecture_models`) depends on the seed alone. Files are made once and kept in a folder. Results
are compared with ONNX Runtime's before anything is timed, as those of the nine networks are, and the engines take turns
in the same way. What cannot be exported is replaced by what is drawn next, and listed. What we fail to compile or get
wrong is not replaced: it is listed as failed, counts as slower, and the run ends with status 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from benchmarks.architecture_models import Drawn, read_list, usable
from benchmarks.command import add_clock, add_turns, deliver, page_command
from benchmarks.contest import Options, percent, times
from benchmarks.contractions import measure_machine
from benchmarks.failures import exit_on_failures
from benchmarks.limits import multiply_adds, on_cores
from benchmarks.network_race import TURN_SECONDS, Measured, Prepared, Run
from benchmarks.network_worker import OURS
from benchmarks.report import Report
from tilewright.cli.peers import PEERS
from tilewright.report.progress import progress

FOLDER = Path("build/architectures")
SEED, COUNT, ROUNDS = 0, 24, 10


def export_missing(folder: Path, seed: int, count: int) -> list[Drawn]:
    """What was drawn until there were `count` files; made by a process of its own where there are fewer."""
    missing = count - len(usable(read_list(folder, seed), count))
    if missing > 0:
        command = [sys.executable, "-m", "benchmarks.architecture_models", str(folder), str(seed), str(count)]
        with progress("exporting", missing) as step:
            exporting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert exporting.stdout is not None
            for line in exporting.stdout:
                drawn = json.loads(line)
                if not drawn["reason"]:
                    step(drawn["name"])
            _, said = exporting.communicate()
        if exporting.returncode:
            raise SystemExit(
                f"exporting failed; pip install 'tilewright[architectures]' has what it needs:\n{said[-2000:]}"
            )
    drawn = read_list(folder, seed)
    last = usable(drawn, count)[-1]
    return drawn[: drawn.index(last) + 1]


def prepare(drawn: Drawn, folder: Path, seed: int, scratch: Path) -> Prepared:
    """The architecture's file, and its input as one."""
    model = drawn.file(folder, seed)
    name = onnx.load(model, load_external_data=False).graph.input[0].name
    feeds = scratch / f"{drawn.name}.npz"
    np.savez(feeds, **{name: drawn.feeds()})
    return Prepared(drawn.name, model, feeds, drawn.flops)


def report_architectures(chosen: Sequence[Drawn], measured: Sequence[Measured]) -> Report:
    """A row for each architecture and number of threads, and their means."""
    peers = [peer.name for peer in PEERS]
    short = [{"onnxruntime": "ORT", "openvino": "OV"}.get(name, name) for name in peers]
    heads = ("architecture", "image", "GFLOP", "T", "ms", *short, "× faster", "median", "of peak", "compile s")
    made = Report("architectures", f"{len(chosen)} random architectures, f32, one image", heads)
    sizes = {one.name: one for one in chosen}
    for one in measured:
        made.add(*describe(sizes[one.name], one))
    words = [_sum_up(made, len(chosen), threads, measured) for threads in dict.fromkeys(m.threads for m in measured)]
    made.note = (
        "ms: best of all rounds; × faster: the faster peer's time over ours, of the bests and of the median round; of "
        f"peak: what the arithmetic takes at the multiply-add peak of as many cores, over ours. {' '.join(words)}"
    )
    return made


def describe(drawn: Drawn, one: Measured) -> tuple[list[str], dict[str, object]]:
    """A row, and what it says as data."""
    fastest = one.over_fastest()
    order = [one.engines.get(name) for name in (OURS, *(peer.name for peer in PEERS))]
    cells = [drawn.name, "×".join(map(str, drawn.size[1:])), f"{drawn.flops / 1e9:.2f}", str(one.threads)]
    cells += ["-" if engine is None else f"{1e3 * engine.samples.best:.2f}" for engine in order]
    cells += [times(fastest), "-" if fastest is None else f"{fastest.median:.2f}", percent(one.share.best)]
    cells += [f"{one.engines[OURS].open_seconds:.2f}"]
    data: dict[str, object] = {"architecture": drawn.name, "family": drawn.family, "size": drawn.size}
    data |= {"flops": drawn.flops, "parameters": drawn.parameters, "threads": one.threads}
    data |= {"over faster": None if fastest is None else {"best": fastest.best, "median": fastest.median}}
    data |= {"of peak": {"best": one.share.best, "median": one.share.median}}
    return cells, data | {"engines": {name: engine.record() for name, engine in one.engines.items()}}


def _sum_up(made: Report, count: int, threads: int, measured: Sequence[Measured]) -> str:
    """Adds the row of the mean; says how many are at least as fast."""
    ratios = [r.best for one in measured if one.threads == threads and (r := one.over_fastest()) is not None]
    if not ratios:
        return ""
    mean, fast = statistics.geometric_mean(ratios), sum(ratio >= 1 for ratio in ratios)
    cells = ["geometric mean", *[""] * (len(made.heads) - 1)]
    cells[3], cells[made.heads.index("× faster")] = str(threads), f"{mean:.2f}"
    data = {"architecture": "geometric mean", "threads": threads, "over faster": mean, "at least as fast": fast}
    made.add(cells, data | {"count": count})
    return f"At least as fast as the faster peer, {threads} thread{'s' if threads > 1 else ''}: {fast} of {count}."


def report_replaced(drawn: Sequence[Drawn]) -> Report:
    """What was drawn and could not be exported; what is too large is counted only."""
    large = sum(one.is_too_large for one in drawn)
    made = Report("replaced", "Drawn, not exported, and replaced by what was drawn next", ("architecture", "why"))
    for one in drawn:
        if one.reason and not one.is_too_large:
            made.add((one.name, one.reason), {"architecture": one.name, "why": one.reason})
    made.note = f"of {len(drawn)} drawn; {large} were larger than the draw allows"
    return made


def measure_all(
    options: Options, threads: Sequence[int], chosen: Sequence[Drawn], folder: Path, seed: int, clock: str = "wall"
) -> list[Report]:
    """The table, and what failed."""
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch, progress("measuring", len(chosen)) as step:
        run = Run(options, folder, Path(scratch), clock)
        for drawn in chosen:
            prepared = prepare(drawn, folder, seed, Path(scratch))
            found = (run.measure(prepared, n, drawn.flops, on_cores(multiply_adds, drawn.flops, n)) for n in threads)
            measured.extend(one for one in found if one is not None)
            step(drawn.name)
    return [report_architectures(chosen, measured), *run.failures.reports("architecture")]


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """The options of those that take random architectures."""
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"what is drawn (default {SEED})")
    parser.add_argument("--count", type=int, default=COUNT, metavar="N", help=f"how many are drawn (default {COUNT})")
    parser.add_argument(
        "--models", type=Path, default=FOLDER, metavar="DIR", help=f"where files are (default {FOLDER})"
    )


def main() -> None:
    """Exports what is missing, measures, prints."""
    parser = page_command("architectures", __doc__, "architectures", quick="three rounds, for a first look")
    add_turns(parser)
    add_clock(parser)
    add_drawing(parser)
    asked = parser.parse_args()
    options = Options(asked.rounds or (3 if asked.quick else ROUNDS), TURN_SECONDS, asked.only, asked.quick)
    drawn = export_missing(asked.models, asked.seed, asked.count)
    chosen = [one for one in usable(drawn, asked.count) if options.wants(one.name)]
    reports = [
        measure_machine(options),
        *measure_all(options, asked.threads, chosen, asked.models, asked.seed, asked.clock),
    ]
    reports.append(report_replaced(drawn))
    reports = [report for report in reports if report.rows]
    deliver(asked, "architectures", reports)
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
