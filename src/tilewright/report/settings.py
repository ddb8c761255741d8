"""The environment variables that Tilewright reads: this table is all of them.

Each is read when it is needed, so that a test or a notebook can change it; a value that makes no sense is a `UserError`
that says what would. `table()` is the list a person reads; `unknown()` finds misspelt names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tilewright.report.errors import UserError
from tilewright.report.nearest import nearest

T = TypeVar("T")

PREFIX = "TILEWRIGHT_"
MOST_THREADS = 4096
LEVEL_NAMES = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
MOST_PROCESSES = 256
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Show:
    """What the pass runner shows: a line for each pass on stderr, and the text after each pass in a directory."""

    lines: bool = False
    directory: Path | None = None


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where the store is: `directory`, the user's cache directory when that is None; no store unless `enabled`."""

    enabled: bool = True
    directory: Path | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A file of one JSON object, and what it holds."""

    path: Path
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One variable: its name, what it means, what values look like, and the value when it is unset or empty."""

    name: str
    meaning: str
    form: str
    default: T
    parse: Callable[[str], T]

    def read(self, environment: Mapping[str, str] | None = None) -> T:
        """The value now. Raises UserError when the text is none of the forms."""
        text = (os.environ if environment is None else environment).get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise UserError(
                f"cannot use {self.name}={text}",
                where="the environment",
                why=str(error),
                fix=f"set {self.name} to {self.form}, or unset it",
            ) from None


def _parse_show(text: str) -> Show:
    if text in ("0", "1"):
        return Show(lines=text == "1")
    if "\0" in text:
        raise ValueError("a directory's name holds no zero byte")
    return Show(directory=Path(text).expanduser())


def _parse_store(text: str) -> StorePlace:
    if text.lower() in ("0", "off"):
        return StorePlace(enabled=False)
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise ValueError("a relative path would name another directory from each place the program is started in")
    return StorePlace(directory=path)


def parse_record(text: str, holds: str = "JSON object") -> Record:
    """The JSON object in the file of this name, which `holds` something. ValueError says what is wrong with it."""
    path = Path(text).expanduser()
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"it holds no {holds}")
    return Record(path, record)


def _parse_rates(text: str) -> Record:
    made = parse_record(text, "object of `core` and `peaks`")
    record = made.record.get("machine", made.record)
    if not isinstance(record, dict) or not all(isinstance(part, dict) for part in record.values()):
        raise ValueError("it holds no object of `core` and `peaks`")
    return Record(made.path, record)


def _parse_switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("it is a switch")
    return text == "1"


def _parse_threads(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_THREADS:
        raise ValueError(f"it counts threads, from 1 to {MOST_THREADS}")
    return int(text)


def _parse_processes(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_PROCESSES:
        raise ValueError(f"it counts processes, from 1 to {MOST_PROCESSES}")
    return int(text)


def _parse_level(text: str) -> str:
    if text not in LEVEL_NAMES:
        raise ValueError(f"it is one of {', '.join(LEVEL_NAMES)}")
    return text


def _parse_bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    size = 0 if match is None else int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))
    if not 0 < size < 2**63:
        raise ValueError("it is a number of bytes above 0, with a suffix K, M, G or T for powers of 1024")
    return size


SHOW = Setting(
    "TILEWRIGHT_SHOW",
    "shows the passes at work: a line each (name, milliseconds, changed or not), or the program's text after each",
    "1, or a directory to write into",
    Show(),
    _parse_show,
)
STORE = Setting(
    "TILEWRIGHT_STORE",
    "where compiled code, calibrations and tuned traces are kept (default: the user's cache directory)",
    "an absolute path, or off",
    StorePlace(),
    _parse_store,
)
VERIFY = Setting(
    "TILEWRIGHT_VERIFY",
    "verifies the program after each pass, not only at the ends of the pipeline",
    "1 or 0",
    False,
    _parse_switch,
)
NUM_THREADS: Setting[int | None] = Setting(
    "TILEWRIGHT_NUM_THREADS",
    "how many threads a call of a compiled program uses (default: one for each core that the process may use)",
    "a number from 1",
    None,
    _parse_threads,
)
MEMORY_LIMIT: Setting[int | None] = Setting(
    "TILEWRIGHT_MEMORY_LIMIT",
    "the most bytes that the constants of a model, and the buffers of one call, may each take (default: the machine's)",
    "a size such as 512M or 8G",
    None,
    _parse_bytes,
)

CALIBRATE = Setting(
    "TILEWRIGHT_CALIBRATE",
    "lets what this machine does be measured before the first compilation for it, once; without, it is estimated",
    "1 or 0",
    True,
    _parse_switch,
)
MACHINE: Setting[Record | None] = Setting(
    "TILEWRIGHT_MACHINE",
    "a file of rates to compile by instead of this machine's, as `tilewright doctor --json` prints them at `machine`",
    "the path of a JSON file",
    None,
    _parse_rates,
)
LEVEL: Setting[str | None] = Setting(
    "TILEWRIGHT_LEVEL",
    "takes this machine for one of a lower level of x86-64: programs use the instructions of both, and run on both",
    "x86-64-v3, say",
    None,
    _parse_level,
)
CHOICES: Setting[Record | None] = Setting(
    "TILEWRIGHT_CHOICES",
    "a file of choices that kernels are to have, by their names, as `tilewright why` tells them",
    "the path of a JSON file",
    None,
    parse_record,
)
COMPILE_PROCESSES: Setting[int | None] = Setting(
    "TILEWRIGHT_COMPILE_PROCESSES",
    "how many processes compile the kernels of a large model (default: one for each core; 1: none but the caller's)",
    "a number from 1",
    None,
    _parse_processes,
)
WINOGRAD = Setting(
    "TILEWRIGHT_WINOGRAD",
    "lets convolutions by windows of 3x3 be computed by Winograd's products of tiles, where that is faster",
    "1 or 0",
    True,
    _parse_switch,
)
CHECK = Setting(
    "TILEWRIGHT_CHECK",
    "compiles programs that check every access, and runs them between guard pages: slow, to find defects",
    "1 or 0",
    False,
    _parse_switch,
)
STRASSEN = Setting(
    "TILEWRIGHT_STRASSEN",
    "lets large products be computed by seven products of half the size, where that is faster",
    "1 or 0",
    True,
    _parse_switch,
)

TUNED = Setting(
    "TILEWRIGHT_TUNED",
    "lets compilations take the choices of kernels that `tilewright tune` found to be faster on this machine",
    "1 or 0",
    True,
    _parse_switch,
)

SETTINGS: tuple[
    Setting[Show]
    | Setting[StorePlace]
    | Setting[bool]
    | Setting[int | None]
    | Setting[str | None]
    | Setting[Record | None],
    ...,
] = (
    SHOW,
    STORE,
    VERIFY,
    NUM_THREADS,
    MEMORY_LIMIT,
    CALIBRATE,
    MACHINE,
    LEVEL,
    CHOICES,
    COMPILE_PROCESSES,
    WINOGRAD,
    STRASSEN,
    TUNED,
    CHECK,
)


def table() -> str:
    """The variables, one to a line: name, form, meaning."""
    name_width = max(len(s.name) for s in SETTINGS)
    form_width = max(len(s.form) for s in SETTINGS)
    return "\n".join(f"{s.name:<{name_width}}  {s.form:<{form_width}}  {s.meaning}" for s in SETTINGS)


def unknown(environment: Mapping[str, str] | None = None) -> list[UserError]:
    """An error for each variable of the family that is set and that nothing reads, with the name it may have meant."""
    names = [s.name for s in SETTINGS]
    words = [name.removeprefix(PREFIX) for name in names]
    found = []
    for name in sorted(os.environ if environment is None else environment):
        if name.startswith(PREFIX) and name not in names:
            near = nearest(name.removeprefix(PREFIX), words)
            fix = f"did you mean {PREFIX}{near}?" if near else f"the variables are {', '.join(names)}"
            found.append(UserError(f"unknown variable {name}", where="the environment", fix=fix))
    return found
