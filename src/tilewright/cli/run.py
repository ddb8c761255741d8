"""`tilewright run`: one call of a model, its outputs as a table, checked and saved when asked for."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from tilewright.cli import options
from tilewright.cli.feeds import Feeds, make_feeds
from tilewright.cli.fit import say
from tilewright.cli.guard import note
from tilewright.cli.model import (
    How,
    check_runnable,
    compile_model,
    count_threads,
    describe_compile,
    graph_of,
    tell_assumptions,
    title,
)
from tilewright.cli.saving import place_for, save
from tilewright.cli.tables import counted, duration, json_text, number, table
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.report.errors import UserError
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.runtime.file import is_compiled
from tilewright.store import Json

if TYPE_CHECKING:
    from tilewright.cli.agreement import Verdict

Array = np.ndarray[Any, Any]

OUTPUT_HEADS = ("output", "type", "min", "mean", "max", "values")

SHOWN_VALUES = 6
"""How many elements of an output its row shows."""


Random = Annotated[bool, typer.Option("--random", help="Fill inputs that are not given with random data.")]

SaveOutput = Annotated[
    str | None, typer.Option("--save-output", metavar="FILE", help="Write the outputs to a .npz file.")
]

Compare = Annotated[
    bool,
    typer.Option(
        "--compare", help="Check the outputs against the exact ones; exit code 1 where rounding cannot explain them."
    ),
]


def run(
    model: options.Model,
    inputs: options.Inputs = [],  # noqa: B006  (typer reads the default, nothing changes it)
    random: Random = False,
    seed: options.Seed = 0,
    sizes: options.Sizes = [],  # noqa: B006
    save_output: SaveOutput = None,
    compare: Compare = False,
    target: options.TargetName = "native",
    threads: options.Threads = None,
    dims: options.Dims = [],  # noqa: B006
    level: options.Level = HIGHEST,
    off: options.Off = [],  # noqa: B006
    precision: options.Precision = PLAIN,
    choices: options.Choices = None,
    strict: options.Strict = False,
    imports: options.Imports = [],  # noqa: B006
    denormals: options.Denormals = None,
    as_json: options.Json = False,
) -> int:
    """Run a model once and print its outputs.

    Inputs come from files (NAME=@x.npy, @inputs.npz), from values on the command line, or are random. Random floats
    are normal, random integers inside of what they index, otherwise 0 or 1. Sizes that no input and no --size gives are
    chosen so that the model takes them, and told on stderr.

    \b
    Examples:
      tilewright run model.onnx --random --size n=32 --compare
      tilewright run model.onnx --input x=@x.npy --input scale=0.5 --save-output out.npz
      tilewright run model.onnx --random --precision bf16 --compare
      tilewright run model.onnx --random --dim sequence=1 --size past=511
    """
    if compare and is_compiled(model):
        raise UserError(
            "--compare does not go with a compiled file",
            where=model,
            why="it holds machine code, and no graph that could be evaluated",
            fix="give the model it was compiled from",
        )
    place = None if save_output is None else place_for(save_output, "--save-output", model, inputs, ".npz")
    check_runnable(target)
    executable = compile_model(
        model, target, threads, How(level, off, dims, precision, denormals, choices, strict, imports)
    )
    feeds = make_feeds(executable.inputs, inputs, sizes, random, seed, graph=graph_of(executable))
    tell_assumptions(feeds, sizes)
    outputs, seconds = _call(executable, feeds)
    verdicts = _compare(model, executable, feeds, outputs) if compare else []
    agrees = all(v.agrees for v in verdicts)
    count = count_threads(threads)
    if as_json:
        print(json_text(_record(model, target, count, executable, feeds, seconds, outputs, verdicts)))
    else:
        ran = f"{describe_compile(executable, model)}, ran in {duration(seconds)}"
        say(f"{title(model, count, target)}: {ran}\n\n{_report(executable, feeds, outputs, verdicts)}")
    if place is not None:
        _save(place, outputs, agrees)
    return 0 if agrees else 1


def _call(executable: Executable, feeds: Feeds) -> tuple[dict[str, Array], float]:
    """The outputs, and the seconds that the call took."""
    start = time.perf_counter()
    with progress("running"):
        outputs = executable.run(feeds.arrays)
    return outputs, time.perf_counter() - start


def _save(place: Path, outputs: dict[str, Array], agrees: bool) -> None:
    """Writes the outputs, unless they are known to be wrong."""
    if agrees:
        save(place, outputs)
    note(f"{place} holds the outputs" if agrees else f"{place} was not written, for the outputs differ")


def _compare(model: str, executable: Executable, feeds: Feeds, outputs: dict[str, Array]) -> list[Verdict]:
    """How the outputs compare with the exact ones."""
    with progress("evaluating the graph"):
        from tilewright.cli.compare import compare  # brings the compiler along, which runs from the store do without

        return compare(model, executable, feeds.arrays, outputs)


def _report(executable: Executable, feeds: Feeds, outputs: dict[str, Array], verdicts: list[Verdict]) -> str:
    """The tables of inputs, outputs and verdicts."""
    parts = []
    if feeds.arrays:
        rows = [(p.name, _type(p.dtype.name, feeds.arrays[p.name]), feeds.origins[p.name]) for p in executable.inputs]
        parts.append(table(("input", "type", "from"), rows))
    rows_ = []
    for port in executable.outputs:
        array = outputs[port.name]
        least, mean, most = (number(x) for x in _statistics(array)) if array.size else ("", "", "")
        rows_.append((port.name, _type(port.dtype.name, array), least, mean, most, _values(array)))
    parts.append(table(OUTPUT_HEADS, rows_, frozenset(("min", "mean", "max")), ("mean", "values", "max", "min")))
    if verdicts:
        heads = ("against the exact result", "off by", "relative", "the evaluator", "allowed", "")
        parts.append(table(heads, [_verdict(v) for v in verdicts], frozenset(heads[1:5]), heads[3:1:-1], ""))
    return "\n\n".join(parts)


def _verdict(v: Verdict) -> tuple[str, ...]:
    """The row of an output."""
    said = "agrees" if v.agrees else "DIFFERS"
    if v.steps is not None:
        said += f", {v.steps.told()}"
    elif v.decided:
        said += f", rounding decides {v.decided} of {counted(v.elements, 'element')}"
    numbers = [f"{x:.2g}" for x in (v.absolute, v.relative, v.evaluator, v.allowed)]
    return (v.name, *numbers, said)


def _type(dtype: str, array: Array) -> str:
    return f"{dtype}[{', '.join(map(str, array.shape))}]"


def _statistics(array: Array) -> tuple[float, float, float]:
    """The least value, the mean and the greatest value."""
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        return float(wide.min()), float(wide.mean()), float(wide.max())


def _values(array: Array) -> str:
    """The first elements."""
    first = array.reshape(-1)[:SHOWN_VALUES]
    words = [str(bool(x)).lower() if array.dtype.kind == "b" else number(float(x)) for x in first]
    return " ".join([*words, "…"] if array.size > SHOWN_VALUES else words)


def _port_record(name: str, dtype: str, array: Array) -> dict[str, Json]:
    return {"name": name, "dtype": dtype, "shape": list(array.shape)}


def _record(
    model: str,
    target: str,
    threads: int,
    executable: Executable,
    feeds: Feeds,
    seconds: float,
    outputs: dict[str, Array],
    verdicts: list[Verdict],
) -> dict[str, Json]:
    """The report as JSON says it."""
    results: list[Json] = []
    for p in executable.outputs:
        array = outputs[p.name]
        record = _port_record(p.name, p.dtype.name, array)
        if array.size:
            record |= dict(zip(("min", "mean", "max"), _statistics(array), strict=True))
        first = array.reshape(-1)[:SHOWN_VALUES]
        results.append({**record, "first": [x.item() if array.dtype.kind in "biu" else float(x) for x in first]})
    record = {
        "model": model,
        "target": target,
        "threads": threads,
        "cached": executable.cached,
        "compile_seconds": executable.compile_seconds,
        "run_seconds": seconds,
        "sizes": dict(feeds.sizes),
        "assumed_sizes": list(feeds.assumed),
        "inputs": [
            {**_port_record(p.name, p.dtype.name, feeds.arrays[p.name]), "from": feeds.origins[p.name]}
            for p in executable.inputs
        ],
        "outputs": results,
    }
    if verdicts:
        record["compare"] = [asdict(v) | {"steps": v.steps and v.steps.record()} for v in verdicts]
    return record
