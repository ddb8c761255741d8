"""Matrix products and convolutions against the limits of this machine and against other runtimes.

    python -m benchmarks.contractions [--only REGEX] [--rounds N] [--quick] [--json] [--write PAGE]

Each case is a race in one process: ours, NumPy, PyTorch, ONNX Runtime and OpenVINO with the same arrays and as many
threads, and the machine's multiply-add peak or memory bandwidth, measured again in the same rounds. Peers are printed
as times ours, above 1 where ours is faster. All results are compared with NumPy's before they are timed: a peer that is
wrong is left out of the case and listed; where ours is, the case is listed as failed, and the run ends with status 1.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import convolutions
from benchmarks.command import deliver, page_command
from benchmarks.contest import Options, Outcome, Reference, Run, against, hold, milliseconds, percent
from benchmarks.engines import open_ours
from benchmarks.failures import exit_on_failures
from benchmarks.limits import memory_reads, multiply_adds
from benchmarks.problems import Problem, matmul
from benchmarks.report import Report
from tilewright.cli.peers import find_version
from tilewright.report.progress import progress
from tilewright.target import native

REFERENCES = {"peak": "of peak", "memory": "of memory", "f32": "× our f32", "one thread": "× one thread"}
NAMES = {"numpy": "NumPy", "torch": "PyTorch", "onnxruntime": "ONNX RT", "openvino": "OpenVINO"}


@dataclass(frozen=True, slots=True)
class Case:
    """A matrix product M×N×K, and the share of its reference that it shall reach."""

    m: int
    n: int
    k: int
    bar: float
    constant: bool = True
    dtype: str = "f32"
    threads: int = 1
    is_long: bool = False
    """Left out of a partial run."""

    @property
    def name(self) -> str:
        words = [self.dtype] * (self.dtype != "f32") + [f"{self.m}x{self.n}x{self.k}"]
        words += ["constant" if self.constant else "variable"] + [f"{self.threads} threads"] * (self.threads > 1)
        return " ".join(words)

    def problem(self) -> Problem:
        return matmul(self.name, self.m, self.n, self.k, self.dtype, self.constant)


def _both(m: int, n: int, k: int, constant: float, variable: float, is_long: bool = False) -> tuple[Case, Case]:
    """The case with a constant right operand and the one with a variable one, with their bars."""
    return Case(m, n, k, constant, is_long=is_long), Case(m, n, k, variable, constant=False, is_long=is_long)


PRODUCTS = (
    *_both(512, 512, 512, 0.92, 0.85),
    *_both(1024, 1024, 1024, 0.92, 0.85),
    *_both(2048, 2048, 2048, 0.92, 0.85, is_long=True),
    *_both(128, 768, 768, 0.90, 0.85),
    *_both(128, 3072, 768, 0.90, 0.85),
    *_both(128, 768, 3072, 0.90, 0.85),
    *_both(16, 768, 768, 0.75, 0.75),
    *_both(127, 129, 131, 0.70, 0.70),
    *_both(1000, 1000, 1000, 0.70, 0.70, is_long=True),
    *_both(33, 1001, 77, 0.70, 0.70),
)
PARALLEL = (Case(1024, 1024, 1024, 1.85, threads=2), Case(1024, 1024, 1024, 1.85, constant=False, threads=2))
VECTOR = (Case(1, 4096, 4096, 0.85),)
NARROW = (Case(1024, 1024, 1024, 1.8, dtype="bf16"), Case(1024, 1024, 1024, 3.0, dtype="i8"))


@dataclass(frozen=True, slots=True)
class Table:
    """Cases in one report: their rate, and their share of one reference."""

    name: str
    title: str
    cases: tuple[Case, ...]
    unit: str
    reference: str
    refer: Callable[[Case, Problem], Reference]

    def wanted(self, options: Options) -> list[Case]:
        return [c for c in self.cases if options.wants(c.name) and not (options.is_partial and c.is_long)]


def weights_bytes(case: Case) -> int:
    """What an f32 matrix-vector product has to read: the matrix and the vector."""
    return 4 * case.k * (case.n + 1)


def _refer_one_thread(case: Case, problem: Problem) -> Reference:
    return Reference(open_ours(problem, 1)[0])


def _refer_f32(case: Case, problem: Problem) -> Reference:
    return Reference(open_ours(matmul("f32", case.m, case.n, case.k), case.threads)[0])


TABLES = (
    Table(
        "products",
        "f32 matrix products, M×N×K, on one core",
        PRODUCTS,
        "GFLOP/s",
        "peak",
        lambda case, problem: Reference.limit(multiply_adds(), problem.flops),
    ),
    Table("threads", "f32 matrix products on two cores", PARALLEL, "GFLOP/s", "one thread", _refer_one_thread),
    Table(
        "vector",
        "f32 matrix times vector on one core",
        VECTOR,
        "GB/s",
        "memory",
        lambda case, problem: Reference.limit(memory_reads(), weights_bytes(case)),
    ),
    Table("narrow", "Narrow types on one core", NARROW, "GOP/s", "f32", _refer_f32),
)


def measure_table(table: Table, run: Run) -> Report:
    """The report of a table: a row for each case that is wanted."""
    share = REFERENCES[table.reference]
    heads = ("case", table.unit, share, "median", "bar", "", "× fastest", *NAMES.values(), "compile")
    report = Report(table.name, table.title, heads)
    for case in table.wanted(run.options):
        outcome = run.attempt(case.name, partial(_hold, table, case, run))
        if outcome is not None:
            report.add(*describe(case, table, outcome))
    return report


def _hold(table: Table, case: Case, run: Run) -> Outcome:
    def refer(problem: Problem) -> Mapping[str, Reference]:
        return {table.reference: table.refer(case, problem)}

    return hold(case.problem(), case.threads, run, refer)


def describe(case: Case, table: Table, outcome: Outcome) -> tuple[list[str], dict[str, object]]:
    """A row, and what it says as data."""
    work = weights_bytes(case) if table.reference == "memory" else 2.0 * case.m * case.n * case.k
    rate = work / outcome.ours.best / 1e9
    share = outcome.share(table.reference)
    write = percent if table.reference in ("peak", "memory") else "{:.2f}".format
    peers, data = against(outcome)
    verdict = "ok" if share.best >= case.bar else "under"
    cells = [case.name, f"{rate:.1f}", write(share.best), write(share.median), f"≥ {write(case.bar)}", verdict]
    data |= {"case": case.name, "ours": outcome.ours.record(), "rate": rate, "unit": table.unit, "bar": case.bar}
    data |= {REFERENCES[table.reference]: {"best": share.best, "median": share.median}}
    data |= {"compile_seconds": outcome.compile_seconds}
    return [*cells, *peers, milliseconds(outcome.compile_seconds)], data


def measure_machine(options: Options) -> Report:
    """What the figures were measured on and with."""
    target = native()
    report = Report("machine", "The machine", ("what", "is"))
    rows = {
        "processor": f"{_processor()}, {target.cores} cores, vectors of {target.vector_bits} bits",
        "caches": ", ".join(f"{cache.bytes >> 10} KiB" for cache in target.caches),
        "peers": ", ".join(f"{name} {find_version(name) or 'absent'}" for name in NAMES),
        "rounds": f"{options.rounds}, turns of {1e3 * options.turn_seconds:g} ms",
    }
    for what, words in rows.items():
        report.add((what, words), {"what": what, "is": words})
    return report


def _processor() -> str:
    """The processor's name as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def measure_all(options: Options) -> list[Report]:
    """All reports that have a row: the machine's first, and what failed last."""
    layers = convolutions.wanted(options)
    total = 1 + sum(len(table.wanted(options)) for table in TABLES) + len(layers)
    with progress("racing", total) as step:
        run = Run(options, step)
        # Loads the compiler, which is no part of compiling a kernel.
        run.attempt("a first product", lambda: open_ours(matmul("8x8x8", 8, 8, 8), 1))
        reports = [measure_table(table, run) for table in TABLES]
        reports += convolutions.measure(layers, run)
    return [measure_machine(options), *(report for report in reports if report.rows), *run.failures.reports()]


def measure(quick: bool = False) -> list[Report]:
    """The reports of a whole run, or of a quick one."""
    return measure_all(options_of(quick))


def options_of(quick: bool, only: str = "", rounds: int | None = None) -> Options:
    """The options of a run; a quick one has few rounds of short turns and leaves cases out."""
    if quick:
        return Options(rounds or 3, 0.002, only, quick=True)
    return Options(rounds or Options().rounds, only=only)


def _short(reports: list[Report]) -> Iterator[Report]:
    """The reports that a page shows: all but the one of every layer."""
    return (report for report in reports if report.name != convolutions.LAYERS)


def main() -> None:
    """Measures, prints."""
    parser = page_command("contractions", __doc__, "cases", quick="few rounds of fewer cases, for a first look")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each engine in each race")
    asked = parser.parse_args()
    reports = measure_all(options_of(asked.quick, asked.only, asked.rounds))
    deliver(asked, "contractions", reports, list(_short(reports)))
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
