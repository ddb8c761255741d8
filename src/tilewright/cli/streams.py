"""The standard streams of a command: closed ones lead nowhere, and output that cannot be written ends it quietly.

A descriptor that was closed before the start would be given to the first file that is opened, and what is printed
would go into that file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from tilewright.report.errors import RuntimeFault

UNREAD = 141
"""The exit code when the reader of the output has gone, as shells give it: 128 + SIGPIPE."""

_UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))


def open_closed_streams() -> None:
    """Lets each standard stream that is closed read nothing, and write to nowhere."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def is_lost_output(error: OSError) -> bool:
    """Whether an error is that of a standard stream that takes nothing more: no file has a name in it."""
    return error.filename is None and (isinstance(error, BrokenPipeError) or error.errno in _UNWRITABLE)


def end_lost_output(error: OSError) -> int:
    """The exit code after output was lost; a reader that has gone is no error, and a full disk is reported."""
    gone = isinstance(error, BrokenPipeError)
    drop(sys.stdout)
    if gone:
        drop(sys.stderr)
        return UNREAD
    fault = RuntimeFault("cannot write the output", why=error.strerror, fix="send it elsewhere, or make room")
    tell(str(fault))
    return fault.exit_code


def tell(text: str) -> None:
    """Prints on stderr, if anything can be written there."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        drop(sys.stderr)


def drop(stream: object) -> None:
    """Drops what is still buffered, so that the interpreter does not complain about it at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
        os.close(nowhere)
