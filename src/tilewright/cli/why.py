"""`tilewright why`: why a kernel is as it is, by the name of an operator, a value or a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from tilewright.cli import options
from tilewright.cli.feeds import make_feeds
from tilewright.cli.fit import say
from tilewright.cli.model import How, check_runnable, compile_model, graph_of, tell_assumptions
from tilewright.cli.tables import duration, json_text, table
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.explain.why import KernelLine, explainer
from tilewright.report.printable import printable
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.runtime.profile import Profile

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="An operator or a value of the model, or a kernel by its name or number. [default: list the kernels]",
        show_default=False,
    ),
]

Measure = Annotated[
    bool, typer.Option("--measure", help="Run the model, on random data unless inputs are given, and time it.")
]

Seconds = Annotated[float, typer.Option("--seconds", min=0.0, max=86400.0, help="How long to measure.")]


def why(
    model: options.Model,
    name: Name = None,
    measure: Measure = False,
    inputs: options.Inputs = [],  # noqa: B006  (typer reads the default, nothing changes it)
    sizes: options.Sizes = [],  # noqa: B006
    seconds: Seconds = 1.0,
    seed: options.Seed = 0,
    target: options.TargetName = "native",
    threads: options.Threads = None,
    dims: options.Dims = [],  # noqa: B006
    level: options.Level = HIGHEST,
    off: options.Off = [],  # noqa: B006
    precision: options.Precision = PLAIN,
    choices: options.Choices = None,
    strict: options.Strict = False,
    imports: options.Imports = [],  # noqa: B006
    as_json: options.Json = False,
) -> int:
    """Tell why a kernel is as it is, and what else was priced.

    Which kernel holds it and what else was priced, why its neighbours are or are not in the same kernel, how its data
    is stored and why, the schedule as the Python that replays it, predicted against measured time. Without a name, the
    kernels to choose from.

    \b
    Examples:
      tilewright why model.onnx
      tilewright why model.onnx conv1 --measure
      tilewright why model.onnx 3 --json
      tilewright why model.onnx value:conv1_output
    """
    executable = compile_model(
        model, target, threads, How(level, off, dims, precision, choices=choices, strict=strict, imports=imports)
    )
    asked = explainer(executable)
    if name is not None:
        asked.find(name)
    profile = _measure(executable, inputs, sizes, seed, seconds, target) if measure or inputs else None
    if name is not None:
        answer = asked.why(name, profile)
        if as_json:
            print(json_text(answer.record()))
        else:
            say(printable(str(answer), lines=True))
        return 0
    lines = asked.lines(profile)
    print(json_text({"kernels": [line.record() for line in lines]}) if as_json else _table(lines))
    return 0


def _measure(
    executable: Executable, inputs: Sequence[str], sizes: Sequence[str], seed: int, seconds: float, target: str
) -> Profile:
    check_runnable(target)
    feeds = make_feeds(executable.inputs, inputs, sizes, random=True, seed=seed, graph=graph_of(executable))
    tell_assumptions(feeds, sizes)
    with progress("measuring"):
        return executable.profile(feeds.arrays, seconds=seconds)


def _table(lines: Sequence[KernelLine]) -> str:
    """The kernels in the order of the plan; a kernel that is called at several places has several rows."""
    measured = any(line.measured is not None for line in lines)
    heads = ("", "kernel", "template", "predicted", *(("measured",) if measured else ()), "holds")
    rows = [
        (
            str(line.number),
            line.name,
            line.template,
            duration(line.predicted),
            *((("" if line.measured is None else duration(line.measured.seconds)),) if measured else ()),
            ", ".join(line.source),
        )
        for line in lines
    ]
    return table(heads, rows, frozenset({"", "predicted", "measured"}), ("template",))
