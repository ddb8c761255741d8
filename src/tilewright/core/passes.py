"""The pass runner: runs passes over a program in order, and lets people watch.

A pass is a plain function from program to program that returns the same object when it changes nothing. The runner
knows nothing of what a program is: its `text`, its `suffix` and its `verify` come from the level, as functions.

It times each pass; verifies what each made (`TILEWRIGHT_VERIFY`); prints a line for each (`TILEWRIGHT_SHOW=1`):

     3  plan          12.40 ms  changed

writes the text after each pass (`TILEWRIGHT_SHOW=dir/`) to `03-plan.graph`; and keeps the stages in a `Record`.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from tilewright.core.switches import NEEDED
from tilewright.report import settings
from tilewright.report.errors import InternalError, TilewrightError, UserError
from tilewright.report.logs import debug
from tilewright.report.settings import Show

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Level(Generic[P]):
    """What the runner must know of a level of programs: how one prints, the suffix of its files, how it is checked.

    `verify` raises a TilewrightError for a program that breaks a law of the level.
    """

    suffix: str
    text: Callable[[P], str]
    verify: Callable[[P], None]


@dataclass(frozen=True, slots=True)
class Pass(Generic[P]):
    """A named step from program to program; `level` is that of its result. It belongs to the optimisation levels from
    `since` on; one of level 0 cannot be left out."""

    name: str
    run: Callable[[P], P]
    level: Level[P]
    since: int = NEEDED


@dataclass(frozen=True, slots=True)
class Stage(Generic[P]):
    """What one pass did: its number from 1, its name, its result, its time, and whether the result differs."""

    number: int
    name: str
    program: P
    level: Level[P]
    milliseconds: float
    changed: bool

    def text(self) -> str:
        """The program after the pass."""
        return self.level.text(self.program)

    def line(self) -> str:
        """The line that `TILEWRIGHT_SHOW=1` prints."""
        changed = "changed" if self.changed else "same"
        return f"{self.number:>4}  {self.name:<24} {self.milliseconds:>9.2f} ms  {changed}"

    def file_name(self) -> str:
        """The name of its file under `TILEWRIGHT_SHOW=dir/`."""
        return f"{self.number:02}-{re.sub(r'[^A-Za-z0-9_.+-]+', '-', self.name)}.{self.level.suffix}"


@dataclass(slots=True)
class Record(Generic[P]):
    """The stages of one compilation, in order. Several calls of `run_passes` may continue one record."""

    stages: list[Stage[P]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Stage[P]]:
        return iter(self.stages)

    def after(self, name: str) -> Stage[P]:
        """The last stage of this name. Raises UserError, with the names there are, when no pass was called that."""
        for stage in reversed(self.stages):
            if stage.name == name:
                return stage
        names = ", ".join(dict.fromkeys(stage.name for stage in self.stages)) or "none"
        raise UserError(f"no pass is called {name}", why=f"the passes that ran: {names}")

    def report(self) -> str:
        """A line for each stage, and their time in all."""
        total = sum(stage.milliseconds for stage in self.stages)
        return "\n".join([*(stage.line() for stage in self.stages), f"{'':4}  {'in all':<24} {total:>9.2f} ms"])


def run_passes(
    program: P,
    passes: Sequence[Pass[P]],
    *,
    level: Level[P] | None = None,
    record: Record[P] | None = None,
    verify: bool | None = None,
    show: Show | None = None,
) -> P:
    """The program after all passes.

    `level` is that of the program given, for a record without stages. `verify` and `show` are the settings of the
    environment unless given. UserError and RuntimeFault pass through; any other exception becomes an InternalError that
    names the pass and the file with the program before it.
    """
    record = Record() if record is None else record
    verify = settings.VERIFY.read() if verify is None else verify
    show = settings.SHOW.read() if show is None else show
    before = record.stages[-1].level if record.stages else level
    for step in passes:
        stage = _run_one(step, program, before, len(record.stages) + 1, verify, show)
        record.stages.append(stage)
        _present(stage, show)
        program, before = stage.program, step.level
    return program


def dump(text: str, file_name: str, directory: Path) -> Path:
    """Writes the text of a program into the directory, which is made when absent, and returns the file.

    Raises UserError when the file cannot be written.
    """
    path = directory / file_name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise UserError(
            f"cannot write {path}", why=reason, fix=f"set {settings.SHOW.name} to a directory you may write"
        ) from None
    return path


def _run_one(step: Pass[P], program: P, before: Level[P] | None, number: int, verify: bool, show: Show) -> Stage[P]:
    start = time.perf_counter()
    try:
        after = step.run(program)
    except TilewrightError as error:
        if isinstance(error, InternalError):
            raise _failure(step, "failed", error, program, before, number, show) from error
        raise
    except Exception as error:
        raise _failure(step, "failed", error, program, before, number, show) from error
    stage = Stage(number, step.name, after, step.level, (time.perf_counter() - start) * 1e3, after is not program)
    if verify and (stage.changed or step.level is not before or number == 1):
        try:
            step.level.verify(after)
        except Exception as error:
            raise _failure(step, "made a program that is not valid", error, after, step.level, number, show) from error
    return stage


def _present(stage: Stage[P], show: Show) -> None:
    if show.lines:
        print(stage.line(), file=sys.stderr)
    debug("pass %s: %.2f ms, %s", stage.name, stage.milliseconds, "changed" if stage.changed else "same")
    if show.directory is not None:
        dump(stage.text(), stage.file_name(), show.directory)


def _failure(
    step: Pass[P], verb: str, error: Exception, program: P, level: Level[P] | None, number: int, show: Show
) -> InternalError:
    """The error for a pass that broke, with the program at fault dumped where a bug report can take it from."""
    if isinstance(error, TilewrightError):
        why = "\n".join(part for part in (error.what, str(error.where or ""), error.why or "") if part)
    else:
        why = f"{type(error).__name__}: {error}"
    where = None if level is None else _dump_fault(step, program, level, number, show)
    return InternalError(
        f"pass {step.name} {verb}",
        where=where,
        why=why,
        fix="report it with that file" if where else f"run again with {settings.SHOW.name}=a directory, and report it",
    )


def _dump_fault(step: Pass[P], program: P, level: Level[P], number: int, show: Show) -> Path | None:
    """The file with the program at fault, or None where it cannot be written: the first error matters more."""
    try:
        directory = show.directory or Path(tempfile.mkdtemp(prefix="tilewright-"))
        name = f"{number:02}-fault-{re.sub(r'[^A-Za-z0-9_.+-]+', '-', step.name)}.{level.suffix}"
        return dump(level.text(program), name, directory)
    except Exception:
        return None
