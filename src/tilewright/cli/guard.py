"""What a command ends with: errors become their text and their exit code, never a traceback."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec

import typer

from tilewright.cli.fit import columns, wrapped
from tilewright.cli.streams import drop, end_lost_output, is_lost_output, tell
from tilewright.report.errors import InternalError, RuntimeFault, TilewrightError
from tilewright.report.printable import printable

P = ParamSpec("P")

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells give it: 128 + SIGINT."""


def guarded(command: Callable[P, int]) -> Callable[P, None]:
    """The command, ending the process with its result; its errors are printed on stderr in their own format."""

    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        try:
            with _plain_warnings():
                code = command(*args, **options)
            sys.stdout.flush()
        except KeyboardInterrupt:
            code = INTERRUPTED
        except TilewrightError as error:
            code = _tell(error)
        except MemoryError as error:
            code = _tell(_out_of_memory(error))
        except Exception as error:
            lost = isinstance(error, OSError) and is_lost_output(error)
            code = end_lost_output(error) if lost else _tell(_defect(error))  # type: ignore[arg-type]
        raise typer.Exit(code)

    return run


def note(text: str) -> None:
    """A remark that is no part of the output, on stderr."""
    print(wrapped(f"note: {printable(text)}", columns(sys.stderr)), file=sys.stderr)


def _tell(error: TilewrightError) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        drop(sys.stdout)
    tell(str(error))
    return error.exit_code


def _out_of_memory(error: MemoryError) -> RuntimeFault:
    return RuntimeFault(
        "there is not enough memory", why=str(error) or None, fix="take smaller inputs (see --size), or free memory"
    )


def _defect(error: Exception) -> InternalError:
    """An exception that nothing expected, with its traceback in a file."""
    report = "".join(traceback.format_exception(error))
    place: str | None = None
    with contextlib.suppress(OSError):
        handle, place = tempfile.mkstemp(prefix="tilewright-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(report)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return InternalError(
        f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}",
        where=place,
        why=str(error) or None,
        fix="report it with that file" if place else "report it",
    )


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as their text: the line of code that a warning came from means nothing on a command line."""

    def show(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
        print(f"warning: {printable(str(message), lines=True)}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield
