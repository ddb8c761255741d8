"""`tilewright tune`: other ways to run a model's kernels, measured, and the faster ones kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import tilewright as tw
from tilewright.api.tuning import TuneResult
from tilewright.artifact.stored import compiler_version
from tilewright.cli import options
from tilewright.cli.fit import say
from tilewright.cli.guard import note
from tilewright.cli.model import read_dims, read_sizes
from tilewright.cli.saving import place_for, save_text
from tilewright.cli.tables import counted, json_text, table
from tilewright.cli.tune_table import HEADS, TuneTable, cells_of
from tilewright.core.switches import PLAIN
from tilewright.report.errors import UserError
from tilewright.report.printable import printable
from tilewright.runtime.machine import measured
from tilewright.store import Json, Store
from tilewright.target import Target
from tilewright.tune.network import Row, read_budget
from tilewright.tune.records import Records, read_text

What = Annotated[
    str, typer.Argument(metavar="MODEL", help="An ONNX file; or the word export, or import.", show_default=False)
]

File = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="The file of export and import.", show_default=False)
]

Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="How long to measure: 60s, 2m, 1h.")]

Sizes = Annotated[
    list[str],
    typer.Option(
        "--size",
        metavar="NAME=N",
        help="What a dynamic size is while it is measured, such as n=32; may be given again.",
        show_default=False,
    ),
]


Threads = Annotated[
    int, typer.Option("--threads", metavar="N", min=1, max=4096, help="Threads of the calls that are measured.")
]

Kernels = Annotated[
    str,
    typer.Option(
        "--kernels", metavar="REGEX", help="Tune those whose name, as `why` lists it, has a match.", show_default=False
    ),
]


def tune(
    model: What,
    file: File = None,
    budget: Budget = "60s",
    sizes: Sizes = [],  # noqa: B006  (typer reads the default, nothing changes it)
    dims: options.Dims = [],  # noqa: B006
    target: options.TargetName = "native",
    precision: options.Precision = PLAIN,
    threads: Threads = 1,
    kernels: Kernels = "",
    as_json: options.Json = False,
) -> int:
    """Measure other ways to run a model's kernels; keep the faster.

    What is found is in the store: each later compilation on this machine takes it, and `tilewright why` says so. Ctrl-C
    keeps what was confirmed; the next run goes on where this one ended. `export` writes what is known of this machine
    to a file, a line for each kernel, and `import` reads one.

    \b
    Examples:
      tilewright tune model.onnx --budget 2m
      tilewright tune model.onnx --size batch=8 --json
      tilewright tune model.onnx --kernels 'conv|dense1' --threads 2
      tilewright tune export kernels.jsonl
      tilewright tune import kernels.jsonl
    """
    if model in ("export", "import"):
        return _move(model, file, target, as_json)
    if file is not None:
        raise UserError(f"cannot use {printable(file)}", why="a model is tuned alone", fix="leave it out")
    seconds = read_budget(budget)
    found = _tuned(model, seconds, dims, sizes, target, precision, threads, kernels)
    if as_json:
        record: dict[str, Json] = {"model": model, "kernels": found.kernels, "ratio": found.ratio, "kept": found.kept}
        rows: list[Json] = [_record(row) for row in found.rows]
        print(json_text({**record, "rows": rows}))
    else:
        say(f"{_table(found)}\n\n{_told(found)}")
    return 0


def _tuned(
    model: str,
    seconds: float,
    dims: list[str],
    sizes: list[str],
    target: str,
    precision: str,
    threads: int,
    kernels: str,
) -> TuneResult:
    """What tuning finds, with a display of the kernels."""
    with TuneTable(f"tuning {Path(model).name}", seconds) as show:
        return tw.autotune(
            model,
            budget=seconds,
            target=target,
            threads=threads,
            dims=read_dims(dims),
            sizes=read_sizes(sizes),
            precision=precision,
            kernels=kernels,
            tell=show,
            watch=show,
        )


def _record(row: Row) -> dict[str, Json]:
    return {
        "kernel": row.kernel,
        "calls": row.calls,
        "share": row.share,
        "default_seconds": row.default_seconds,
        "ratio": row.ratio,
        "roofline": row.roofline,
        "measured": row.measured,
        "skipped": row.skipped,
    }


def _table(found: TuneResult) -> str:
    """A row for each kernel, the longest first."""
    lines = [(row.kernel, str(row.calls), f"{row.share:.1%}", *cells_of(row)) for row in found.rows]
    return table(HEADS, lines, frozenset(HEADS[1:]), ("of roofline", "share", "measured", "calls"))


def _told(found: TuneResult) -> str:
    """What it comes to."""
    left = found.kernels - len(found.rows)
    rest = f"; no time was left for {counted(left, 'kernel')}" if left else ""
    if found.ratio is None:
        return f"no kernel runs faster in another way{rest}"
    if not found.kept:
        return f"the program takes {found.ratio:.3f} of its time with them, in turns: nothing is kept{rest}"
    return f"a call takes {found.ratio:.3f} of the time it took, in turns{rest}"


def _move(word: str, file: str | None, target: str, as_json: bool) -> int:
    """Writes the records of this machine to a file, or reads those of one."""
    if file is None:
        raise UserError(f"tune {word} needs a file", fix=f"write: tilewright tune {word} kernels.jsonl")
    store, machine = Store.default(), measured(Target.parse(target))
    if not store.is_on:
        raise UserError("there is no store", why="TILEWRIGHT_STORE is off", fix="set it to a folder, or leave it out")
    known = Records.of(store, machine, compiler_version())
    if word == "export":
        save_text(place_for(file, "FILE"), known.text())
        count = len(known)
    else:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError("cannot read tuning records", where=file, why=str(error)) from None
        rows = read_text(text, file)
        known.keep(rows)
        count = len(rows)
    if as_json:
        print(json_text({"file": file, "kernels": count}))
    else:
        note(f"{printable(file)}: {counted(count, 'kernel')} of {machine} {word}ed")
    return 0
