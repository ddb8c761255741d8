"""Compiling for a command: with a display when it takes long, and with the words for what it took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tilewright as tw
from tilewright.cli.feeds import Feeds, Graph
from tilewright.cli.guard import note
from tilewright.cli.imports import import_modules
from tilewright.cli.tables import counted, duration
from tilewright.core.forced import EXAMPLE, Forced
from tilewright.core.reading import Dim
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.graph.nodes import GraphFunction
from tilewright.report import settings
from tilewright.report.errors import UserError
from tilewright.report.printable import printable
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.runtime.file import is_compiled
from tilewright.runtime.threads import count_threads as threads_of_calls
from tilewright.target import Target
from tilewright.target.host import current_host


@dataclass(frozen=True, slots=True)
class How:
    """How a command wants a model compiled, in the words of its options."""

    level: int = HIGHEST
    off: Sequence[str] = ()
    dims: Sequence[str] = ()
    precision: str = PLAIN
    denormals: str | None = None
    choices: str | None = None
    strict: bool = False
    imports: Sequence[str] = ()


def compile_model(path: str, target: str = "native", threads: int | None = None, how: How = How()) -> Executable:
    """The model at `path`, compiled; a display tells of it after a second. A compiled file is loaded."""
    if is_compiled(path):
        _check_no_choices(path, target, how)
        return tw.load(path, threads=threads, denormals=how.denormals)
    sizes = read_dims(how.dims)
    import_modules(how.imports)
    with progress(f"compiling {os.path.basename(path)}"):
        return tw.compile(
            path,
            target=target,
            threads=threads,
            dims=sizes,
            level=how.level,
            off=how.off,
            precision=how.precision,
            denormals=how.denormals,
            choices=read_choices(how.choices),
            strict=how.strict,
        )


def read_choices(path: str | None) -> Mapping[str, Forced] | None:
    """The choices in the file that `--choices` names."""
    if path is None:
        return None
    try:
        return settings.parse_record(path).record
    except ValueError as error:
        fix = f"write such a file: {EXAMPLE}"
        raise UserError("cannot read the file of --choices", where=path, why=str(error), fix=fix) from None


def read_dims(words: Sequence[str]) -> dict[str, int | Sequence[Dim]]:
    """The sizes of dimensions that `--dim` gives, `n=1`, and the dimensions of inputs, `x=[n, 3]`. Whether the model
    has such ones, compiling tells."""
    shapes: dict[str, Sequence[Dim]] = {}
    others = []
    for each in words:
        name, equals, text = (part.strip() for part in each.partition("="))
        if equals and text.startswith("["):
            shapes[name] = _read_shape(name, text, each)
        else:
            others.append(each)
    return {**read_sizes(others), **shapes}


def _read_shape(name: str, text: str, word: str) -> list[Dim]:
    """The dimensions of an input as an option gives them: `[n, 3]`."""
    inner = text[1:].removesuffix("]").strip()
    parts = [part.strip() for part in inner.split(",")] if inner else []
    if not text.endswith("]") or not all(parts):
        why = "its dimensions, sizes or names, stand between brackets"
        raise UserError(f"cannot use --dim {word}", why=why, fix=f"write --dim '{name or 'x'}=[n, 3]'")
    return [int(part[:20]) if part.isascii() and part.isdigit() else part for part in parts]


def read_sizes(words: Sequence[str]) -> dict[str, int]:
    """The sizes of dimensions that an option gives."""
    sizes: dict[str, int] = {}
    for word in (part for each in words for part in each.split(",")):
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not text.isascii() or not text.isdigit():
            why = f"{text!r} is no whole number from 0" if equals else "it has no ="
            raise UserError(f"cannot use --dim {word}", why=why, fix=f"write --dim {name or 'n'}=1")
        if sizes.setdefault(name, int(text[:20])) != int(text[:20]):
            raise UserError(
                f"--dim {word} contradicts --dim {name}={sizes[name]}",
                why="a program is compiled for one size of a dimension",
                fix="leave one of them out; a dimension that is not given may have any size",
            )
    return sizes


def _check_no_choices(path: str, target: str, how: How) -> None:
    """Refuses options of compiling for what is compiled already."""
    choices = {"--target": target != "native", "-O": how.level != HIGHEST, "--off": bool(how.off)}
    choices |= {"--dim": bool(how.dims), "--precision": how.precision != PLAIN, "--choices": how.choices is not None}
    choices |= {"--strict": how.strict, "--import": bool(how.imports)}
    given = next((option for option, chosen in choices.items() if chosen), None)
    if given is not None:
        raise UserError(
            f"{given} does not go with a compiled file",
            where=path,
            why="it says how a model is compiled, and the file holds machine code",
            fix=f"give it to `tilewright compile`, or leave {given} out",
        )


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
        fix="leave --target out; `tilewright show` compiles for any target",
    )


def time_compile(compile: Callable[[], Executable]) -> float:
    """The seconds from the file to a program that can be called."""
    start = time.perf_counter()
    compile()
    return time.perf_counter() - start


def count_threads(threads: int | None) -> int:
    """The number of threads that a program compiled with `threads` may use."""
    return threads_of_calls(threads)


def describe_compile(executable: Executable, path: str) -> str:
    """`compiled in 412 ms`, `taken from the store in 12 ms`, or `loaded in 5 ms`."""
    what = "loaded" if is_compiled(path) else "taken from the store" if executable.cached else "compiled"
    return f"{what} in {duration(executable.compile_seconds)}"


def title(path: str, threads: int, target: str = "native") -> str:
    """The first line of a report on a model."""
    return f"{printable(os.path.basename(path))} for {target}, up to {counted(threads, 'thread')}"


def graph_of(executable: Executable) -> Graph:
    """Gives the graph that a program was compiled from, as it was read; None for one from a compiled file."""

    def read() -> GraphFunction | None:
        try:
            origin = executable.origin
        except UserError:  # a compiled file holds no graph
            return None
        return None if origin is None else origin.read().graph

    return read


def tell_assumptions(feeds: Feeds, wanted: Sequence[str]) -> None:
    """Prints on stderr which sizes were assumed; `wanted` are the words of `--size` that were given."""
    if feeds.assumed:
        chosen = ", ".join(f"{name} = {feeds.sizes[name]}" for name in feeds.assumed)
        more = f"--size {','.join(f'{name}={2 * feeds.sizes[name]}' for name in feeds.assumed)}"
        note(f"{chosen}: choose {'other sizes' if wanted or len(feeds.assumed) > 1 else 'another size'} with {more}")
