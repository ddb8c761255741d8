"""What starting, compiling and finding compiled code again cost, each in a fresh process.

    python -m benchmarks.compile_time [--quick] [--json]

A cold compile starts from an empty store and keeps its result; the next process finds it there. "after imports" is the
time of `tw.compile` once the packages that it uses are loaded; "with imports" starts at the first line of the program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Report, judge, main
from benchmarks.timing import Samples

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"

IMPORT = "import json, time; a = time.perf_counter(); import tilewright; print(json.dumps([time.perf_counter() - a]))"

IMPORT_ALL = IMPORT.replace("import tilewright;", "import tilewright; tilewright.compile;")

COMPILE = """
import json, sys, time
a = time.perf_counter()
import onnx, tilewright as tw
tw.compile, tw.Executable
b = time.perf_counter()
exe = tw.compile(sys.argv[1])
c = time.perf_counter()
assert exe.cached is (sys.argv[2] == "True"), "a change of the compiler's files since then makes it compile again"
print(json.dumps([c - b, c - a]))
"""


def measure(quick: bool = False) -> Report:
    """The report: a row for each thing that has a bar, and for what belongs to it."""
    repeats = 3 if quick else 15
    heads = ("in a fresh process", "best", "median", "bar", "best is")
    report = Report("compile_time", f"Start and compile, {repeats} processes each", heads)
    imports: list[float] = []
    compilers: list[float] = []
    helps: list[float] = []
    cold: list[list[float]] = []
    found: list[list[float]] = []
    for _ in range(repeats):
        imports += _run(IMPORT)
        compilers += _run(IMPORT_ALL)
        helps.append(_time_help())
        with tempfile.TemporaryDirectory(prefix="tilewright-") as store:
            cold.append(_run(COMPILE, str(MODEL), "False", store=store))
            found.append(_run(COMPILE, str(MODEL), "True", store=store))
    _row(report, "import tilewright", imports, 0.3)
    _row(report, "import tilewright, with its compiler", compilers, 0.3)
    _row(report, "tilewright --help, the process", helps, 0.4)
    _row(report, "digits, cold compile, after imports", [c[0] for c in cold], 0.5)
    _row(report, "digits, cold compile, with imports", [c[1] for c in cold], None)
    _row(report, "digits, from the store, after imports", [f[0] for f in found], 0.05)
    _row(report, "digits, from the store, with imports", [f[1] for f in found], None)
    report.note = "seconds on the wall; the best is what an undisturbed process takes"
    return report


def _row(report: Report, name: str, seconds: list[float], bar: float | None) -> None:
    samples = Samples(tuple(seconds))
    cells = [name, *(f"{1e3 * s:.1f} ms" for s in (samples.best, samples.median))]
    cells += ["", ""] if bar is None else [f"{1e3 * bar:g} ms", judge(samples.best, bar)]
    report.add(cells, {"what": name, **samples.record(), "bar_seconds": bar})


def _run(program: str, *arguments: str, store: str = "off") -> list[float]:
    """What a program prints, run in a process of its own."""
    environment = _environment(store)
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"a measured process failed:\n{done.stderr}")
    found: list[float] = json.loads(done.stdout)
    return found


def _time_help() -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "tilewright", "--help"]
    subprocess.run(command, env=_environment("off"), capture_output=True, check=True, timeout=120)
    return time.perf_counter() - start


def _environment(store: str) -> dict[str, str]:
    """The environment with another store, and compiled Python files allowed, as an installation has them."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "TILEWRIGHT_STORE": store}


if __name__ == "__main__":
    main(measure, __doc__)
