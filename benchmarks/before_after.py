"""Two versions of this package against each other: what calls and compilations take before and after.

    python -m benchmarks.before_after --before COMMIT|FOLDER [--after COMMIT|FOLDER] [--cases networks,pools]
                                      [--only REGEX] [--target native --target x86-64-v3] [--threads 1,2]
                                      [--rounds N] [--pairs N] [--compiles N] [--models DIR] [--unsettled] [--json]

Each version has a process of its own for each case, target and number of threads, with its own sources, and the two
take short turns: a disturbance hits both. Where the memory of a process lies changes times by a few percent, so several
pairs of processes follow each other, and the bests are those of all. With one thread, the clock counts while the thread
has a core. Results of both are compared before anything is timed. A compilation is cold (nothing of the case is in the
store), in one process, with the compiler loaded; versions take turns there, too. Where the machine is too busy to
measure what it does, nothing is timed: the versions would choose by different figures. An interrupted run reports
the cases that it has measured.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import SETS, Case, list_cases
from benchmarks.command import add_models, add_turns
from benchmarks.contest import Options
from benchmarks.failures import exit_on_failures, name_case
from benchmarks.network_race import Prepared, Run, compare_results, take_turns
from benchmarks.network_worker import OURS, Worker, WorkerFailed
from benchmarks.report import Report, show
from benchmarks.timing import PAUSE_SECONDS, THREADS_PAUSE_SECONDS, Ratio, Samples, compare
from benchmarks.versions import Seconds, Version, find_version, here
from tilewright.report.progress import progress

ROUNDS, PAIRS, COMPILES = 6, 8, 3
TURN_SECONDS = 0.03
SLOWEST = 0.97
"""What is below is marked."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Samples of calls of both versions, of the same rounds."""

    name: str
    target: str
    threads: int
    before: Samples
    after: Samples

    @property
    def faster(self) -> Ratio:
        """How many times longer a call took before."""
        return compare(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Compiled:
    """The best compilations of both versions."""

    name: str
    target: str
    before: Seconds
    after: Seconds

    @property
    def share(self) -> Seconds:
        """What compiling takes after as a share of what it took before."""
        return Seconds(self.after.wall / self.before.wall, self.after.cpu / self.before.cpu)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: both versions, targets, numbers of threads, how many pairs of processes, how many cold
    compilations of each version."""

    versions: tuple[Version, Version]
    targets: tuple[str, ...]
    threads: tuple[int, ...]
    pairs: int
    compiles: int


def compile_both(prepared: Prepared, target: str, plan: Plan) -> Compiled:
    """Both versions' compilations in turns, once at least: what they make is run afterwards."""
    taken: dict[str, list[Seconds]] = {version.name: [] for version in plan.versions}
    for n in range(max(plan.compiles, 1)):
        for version in plan.versions[:: -1 if n % 2 else 1]:
            taken[version.name].append(version.compile(prepared, target))
    before, after = (
        Seconds(min(s.wall for s in taken[v.name]), min(s.cpu for s in taken[v.name])) for v in plan.versions
    )
    return Compiled(prepared.name, target, before, after)


def race_pairs(run: Run, prepared: Prepared, target: str, threads: int, plan: Plan) -> Calls:
    """The calls of several pairs of processes. WorkerFailed where one fails, or their results differ."""
    taken: dict[str, list[float]] = {version.name: [] for version in plan.versions}
    for pair in range(plan.pairs):
        with ExitStack() as stack:
            workers: dict[str, Worker] = {}
            for version in plan.versions[:: -1 if pair % 2 else 1]:
                workers[version.name] = worker = Worker(
                    *(OURS, prepared.model, prepared.feeds, threads),
                    target=target,
                    clock="processor" if threads == 1 else "wall",
                    environment=version.environment,
                )
                stack.callback(worker.close)
            if not pair:
                _check(run, workers)
            pause = PAUSE_SECONDS if threads == 1 else THREADS_PAUSE_SECONDS
            for name, samples in take_turns(workers, run.options.rounds, run.options.turn_seconds, pause).items():
                taken[name] += samples.seconds
    before, after = (Samples(tuple(taken[version.name])) for version in plan.versions)
    return Calls(prepared.name, target, threads, before, after)


def _check(run: Run, workers: Mapping[str, Worker]) -> None:
    right, results = (workers[name].results(run.scratch / f"{name}.npz") for name in ("before", "after"))
    wrong = compare_results(results, right)
    if wrong is not None:
        raise WorkerFailed(f"not the result of before: {wrong}")


def measure_case(run: Run, case: Case, plan: Plan) -> tuple[list[Calls], list[Compiled]]:
    """A case with every target and number of threads; what fails is noted."""
    calls: list[Calls] = []
    compiled: list[Compiled] = []
    prepared = case.prepare(run)
    for target in plan.targets:
        try:
            compiled.append(compile_both(prepared, target, plan))
        except RuntimeError as error:
            run.failures.cases.append((f"{case.name}, {target}", str(error)))
            continue
        for threads in plan.threads:
            try:
                calls.append(race_pairs(run, prepared, target, threads, plan))
            except WorkerFailed as error:
                run.failures.cases.append((f"{name_case(case.name, threads)}, {target}", str(error)))
    return calls, compiled


def report_calls(calls: Sequence[Calls]) -> Report:
    """A row for each race, and their means."""
    heads = ("case", "target", "T", "before ms", "after ms", "× faster", "median", "")
    made = Report("calls", "A call before and after", heads)
    for one in calls:
        ratio, mark = one.faster, "slower" if one.faster.best < SLOWEST else ""
        times = [f"{1e3 * samples.best:.3f}" for samples in (one.before, one.after)]
        cells = [one.name, one.target, str(one.threads), *times, f"{ratio.best:.3f}", f"{ratio.median:.3f}", mark]
        data = {"case": one.name, "target": one.target, "threads": one.threads, "best": ratio.best}
        data |= {"median": ratio.median, "before": one.before.record(), "after": one.after.record()}
        made.add(cells, data)
    for target, threads in dict.fromkeys((one.target, one.threads) for one in calls):
        ratios = [one.faster for one in calls if (one.target, one.threads) == (target, threads)]
        best, median = (
            statistics.geometric_mean(found) for found in zip(*((r.best, r.median) for r in ratios), strict=True)
        )
        data = {"case": "geometric mean", "target": target, "threads": threads, "best": best, "median": median}
        made.add(["geometric mean", target, str(threads), "", "", f"{best:.3f}", f"{median:.3f}", ""], data)
    made.note = (
        "× faster: the time before over the time after, of the bests of all pairs; median: of the rounds' ratios. One "
        "thread: the time for which it had a core"
    )
    return made


def report_compiled(compiled: Sequence[Compiled]) -> Report:
    """A row for each compilation, and their means."""
    heads = ("case", "target", "before s", "after s", "after / before", "of the processor")
    made = Report("compiling", "A cold compilation in one process before and after", heads)
    for one in compiled:
        cells = [one.name, one.target, f"{one.before.wall:.3f}", f"{one.after.wall:.3f}"]
        data: dict[str, object] = {"case": one.name, "target": one.target, "wall": one.share.wall, "cpu": one.share.cpu}
        data |= {"before": [one.before.wall, one.before.cpu], "after": [one.after.wall, one.after.cpu]}
        made.add([*cells, f"{one.share.wall:.3f}", f"{one.share.cpu:.3f}"], data)
    for target in dict.fromkeys(one.target for one in compiled):
        shares = [one.share for one in compiled if one.target == target]
        wall, cpu = (statistics.geometric_mean(found) for found in zip(*((s.wall, s.cpu) for s in shares), strict=True))
        data = {"case": "geometric mean", "target": target, "wall": wall, "cpu": cpu}
        made.add(["geometric mean", target, "", "", f"{wall:.3f}", f"{cpu:.3f}"], data)
    made.note = "seconds on the wall, the best; of the processor: the ratio of the processor's time"
    return made


def require_settled(plan: Plan) -> None:
    """SystemExit where the machine is too busy to be measured: the versions would choose by different figures."""
    for version in plan.versions:
        left = version.warm(plan.targets)
        if left:
            raise SystemExit(
                f"{version.name}: the machine is too busy to be measured, and the versions would go by different "
                f"figures: {', '.join(left)}. Run it while nothing else runs, by estimates (TILEWRIGHT_CALIBRATE=0), "
                "or, even so, with --unsettled"
            )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.before_after", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--before", required=True, metavar="VERSION", help="a commit, or the folder of another tree")
    parser.add_argument("--after", metavar="VERSION", help="the same (default: this tree)")
    parser.add_argument(
        "--cases", default="networks", metavar="LIST,LIST", help=f"some of {', '.join(SETS)} (default: networks)"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name has a match")
    parser.add_argument("--quick", action="store_true", help="networks made tiny and fewer convolutions")
    parser.add_argument("--target", action="append", metavar="NAME", help="what is compiled for (default: native)")
    add_turns(parser)
    parser.set_defaults(rounds=ROUNDS)
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"pairs of processes (default {PAIRS})")
    parser.add_argument(
        "--compiles", type=int, default=COMPILES, metavar="N", help=f"cold compilations of each (default {COMPILES})"
    )
    parser.add_argument("--unsettled", action="store_true", help="go on where the machine is too busy to be measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_models(parser)
    asked = parser.parse_args()
    unknown = sorted(set(asked.cases.split(",")) - set(SETS))
    if unknown:
        parser.error(f"no list of cases is called {', '.join(unknown)}")
    return asked


def main() -> None:
    """Measures, prints."""
    asked = parse()
    options = Options(asked.rounds, TURN_SECONDS, asked.only, asked.quick)
    cases = list_cases(tuple(asked.cases.split(",")), options)
    calls: list[Calls] = []
    compiled: list[Compiled] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch, progress("comparing", len(cases)) as step:
        folder = Path(scratch)
        after = here(folder) if asked.after is None else find_version("after", asked.after, folder)
        versions = (find_version("before", asked.before, folder), after)
        plan = Plan(versions, tuple(asked.target or ("native",)), asked.threads, asked.pairs, asked.compiles)
        if not asked.unsettled:
            require_settled(plan)
        models = asked.models or folder
        models.mkdir(parents=True, exist_ok=True)
        run = Run(options, models, folder)
        with suppress(KeyboardInterrupt):
            for case in cases:
                found = measure_case(run, case, plan)
                calls += found[0]
                compiled += found[1]
                step(case.name)
    reports = [report_calls(calls), *([report_compiled(compiled)] if asked.compiles else [])]
    reports += run.failures.reports()
    show([report for report in reports if report.rows], asked.json)
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
