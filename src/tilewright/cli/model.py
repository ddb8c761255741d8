"""Compiling for a command: with a display when it takes long, and with the words for what it took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import tilewright as tw
from tilewright.cli.feeds import Feeds
from tilewright.cli.guard import note
from tilewright.cli.tables import counted, duration
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.report.errors import UserError
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.runtime.threads import count_threads as threads_of_calls
from tilewright.target import Target
from tilewright.target.host import current_host


def compile_model(
    path: str,
    target: str = "native",
    threads: int | None = None,
    level: int = HIGHEST,
    off: Sequence[str] = (),
    precision: str = PLAIN,
) -> Executable:
    """The model at `path`, compiled; a display tells of it after a second."""
    with progress(f"compiling {os.path.basename(path)}"):
        return tw.compile(path, target=target, threads=threads, level=level, off=off, precision=precision)


def check_runnable(target: str) -> None:
    """UserError unless this machine runs code for the target: the processor would end the process at a wrong one."""
    wanted, host = Target.parse(target), current_host()
    if wanted.is_runnable_on(host):
        return
    if wanted.architecture != host.architecture:
        why = f"this machine is of architecture {host.architecture}"
    else:
        why = f"this machine lacks {', '.join(sorted(wanted.features - host.features)) or 'its system'}"
    raise UserError(
        f"cannot run code for {wanted} on this machine",
        where=f"--target {target}",
        why=why,
        mend="leave --target out; `tilewright show` compiles for any target",
    )


def time_compile(compile: Callable[[], Executable]) -> float:
    """The seconds from the file to a program that can be called."""
    start = time.perf_counter()
    compile()
    return time.perf_counter() - start


def count_threads(threads: int | None) -> int:
    """The number of threads that a program compiled with `threads` may use."""
    return threads_of_calls(threads)


def describe_compile(executable: Executable) -> str:
    """`compiled in 412 ms`, or `taken from the store in 12 ms`."""
    what = "taken from the store" if executable.cached else "compiled"
    return f"{what} in {duration(executable.compile_seconds)}"


def title(path: str, threads: int, target: str = "native") -> str:
    """The first line of a report on a model."""
    return f"{os.path.basename(path)} for {target}, up to {counted(threads, 'thread')}"


def tell_assumptions(feeds: Feeds, wanted: Sequence[str]) -> None:
    """Says on stderr which sizes nobody chose; `wanted` are the words of `--size` that were given."""
    if feeds.assumed:
        chosen = ", ".join(f"{name} = {feeds.sizes[name]}" for name in feeds.assumed)
        more = " ".join(f"--size {name}=32" for name in feeds.assumed)
        note(f"{chosen}: choose {'other sizes' if wanted or len(feeds.assumed) > 1 else 'another size'} with {more}")
