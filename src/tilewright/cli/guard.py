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

from tilewright.report.errors import InternalError, RuntimeFault, TilewrightError

P = ParamSpec("P")

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells give it: 128 + SIGINT."""

UNREAD = 141
"""The exit code when the reader of the output has gone, as shells give it: 128 + SIGPIPE."""


def guarded(command: Callable[P, int]) -> Callable[P, None]:
    """The command, ending the process with its result; its errors are printed on stderr in their own format."""

    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        try:
            with _plain_warnings():
                code = command(*args, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_output()
            code = UNREAD
        except KeyboardInterrupt:
            code = INTERRUPTED
        except TilewrightError as error:
            code = _tell(error)
        except MemoryError as error:
            code = _tell(_out_of_memory(error))
        except Exception as error:
            code = _tell(_defect(error))
        raise typer.Exit(code)

    return run


def note(text: str) -> None:
    """A remark that is no part of the output, on stderr."""
    print(f"note: {text}", file=sys.stderr)


def _tell(error: TilewrightError) -> int:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    print(error, file=sys.stderr)
    return error.exit_code


def _out_of_memory(error: MemoryError) -> RuntimeFault:
    return RuntimeFault(
        "there is not enough memory", why=str(error) or None, mend="take smaller inputs (see --size), or free memory"
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
        mend="report it with that file" if place else "report it",
    )


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as their text: the line of code that a warning came from means nothing on a command line."""

    def show(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def _drop_output() -> None:
    """Sends what is still buffered to nowhere, so that the interpreter does not complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
