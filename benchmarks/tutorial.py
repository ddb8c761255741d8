"""The matrix product of docs/schedules.md after each step of its schedule, against the multiply-add peak of one core.

    python -m benchmarks.tutorial [--size N] [--rounds N] [--quick] [--json] [--write PAGE]

The page's own code runs with another SIZE, and checks the results as it does there. Each program, and the one that the
compiler's own schedule makes, is then timed on one thread in a race beside the peak; where loops are parallel, on
two as well.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.limits import multiply_adds
from benchmarks.page import write_reports
from benchmarks.report import Report, show
from benchmarks.timing import Samples, race
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.plan.choose import schedule
from tilewright.target import native

PAGE = Path(__file__).parents[1] / "docs" / "schedules.md"
SECTION = "A matrix product, step by step"
SIZE = 480
"""A multiple of the page's tiles: one matrix of this size does not fit the second cache of most machines."""
MOST_THREADS = 2


@dataclass(frozen=True, slots=True)
class Stage:
    """The program that the code under a heading of the page leaves."""

    title: str
    function: Function


def section_of(page: str, title: str = SECTION) -> str:
    """What stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no section {title!r}")
    return found[1]


def titled_code(section: str) -> Iterator[tuple[str, str]]:
    """The Python of a section, each block with the heading that it stands under."""
    title = ""
    for found in re.finditer(r"^### ([^\n]*)$|^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        if found[1] is not None:
            title = found[1]
        else:
            yield title, found[2]


def stages(page: str, size: int) -> list[Stage]:
    """Runs the section's code for matrices of `size` x `size`. Returns the program after each block that changed it."""
    namespace: dict[str, Any] = {"np": np, "tw": tw}
    found: list[Stage] = []
    for title, code in titled_code(section_of(page)):
        code = re.sub(r"^SIZE = \d+$", f"SIZE = {size}", code, flags=re.MULTILINE)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, f"{PAGE.name}: {title}", "exec", dont_inherit=True), namespace)
        made = namespace.get("s")
        if made is not None and (not found or made.func is not found[-1].function):
            found.append(Stage(title, made.func))
    return [*found, Stage("The compiler's own schedule", schedule(found[0].function, native())[0].func)]


def is_parallel(function: Function) -> bool:
    return any(isinstance(s, For) and s.kind is LoopKind.PARALLEL for s in statements(function.body))


def programs(found: list[Stage], size: int) -> dict[str, Callable[[], object]]:
    """A call of each program by its title, those with parallel loops with each number of threads."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    y = np.empty((size, size), np.float32)
    calls: dict[str, Callable[[], object]] = {}
    for stage in found:
        most = min(MOST_THREADS, native().cores) if is_parallel(stage.function) else 1
        for threads in range(1, most + 1):
            kernel = tw.build(stage.function, threads=threads)
            title = stage.title if threads == 1 else f"{stage.title}, on {threads} cores"
            calls[title] = partial(kernel, x, w, y)
    return calls


def measure(quick: bool = False, size: int = SIZE, rounds: int | None = None) -> Report:
    """The report: a row for each program."""
    calls = programs(stages(PAGE.read_text(encoding="utf-8"), size), size)
    limit = multiply_adds()
    taken = race({**calls, "peak": limit.call}, rounds or (3 if quick else 20), 0.004)
    return describe({title: taken[title] for title in calls}, limit.work / taken["peak"].best, size)


def describe(taken: dict[str, Samples], peak: float, size: int) -> Report:
    """The table of a race; `peak` is in operations a second."""
    title = f"f32 {size}×{size}×{size}, of one core's peak: {peak / 1e9:.0f} GFLOP/s"
    report = Report("tutorial", title, ("after", "GFLOP/s", "of peak"))
    for name, samples in taken.items():
        rate = 2 * size**3 / samples.best
        cells = (name, f"{rate / 1e9:.1f}", f"{rate / peak:.1%}")
        report.add(cells, {"after": name, "rate": rate, "of_peak": rate / peak, **samples.record()})
    return report


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tutorial", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", type=int, default=SIZE, metavar="N", help=f"of the matrices (default {SIZE})")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each program")
    parser.add_argument("--quick", action="store_true", help="few rounds, for a first look")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into a page, between its marks")
    options = parser.parse_args()
    report = measure(options.quick, options.size, options.rounds)
    show([report], options.json)
    if options.write is not None:
        write_reports(options.write, report.name, [report])


if __name__ == "__main__":
    main()
