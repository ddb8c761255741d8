"""`Store`: entries in one folder, shared by any number of processes, the least recently used dropped first.

    <folder>/<key>.entry              one file per entry (frame.py), its modification time the time of its last use
    <folder>/<key>.<random>.part      complete, and about to take the entry's name; so no reader sees half of one. Where
                                      the system has no files without names, being written

There is no index and no lock: the folder is the state, a rename is the only commit, and deleting any file at any time
costs one recomputation and nothing else. Entries are code that will run, so a folder that others may write to is not
used.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..report.errors import InternalError
from .files import unnamed_file, write_aside
from .frame import FRAME_SIZE, find_fault, write_framed
from .keys import is_key
from .pages import Spill, SpillMap, spilled

DEFAULT_LIMIT = 2 << 30
"""Bytes that a store may hold unless told otherwise."""

OFF = "off"
"""The value of TILEWRIGHT_STORE that means: keep nothing."""

_STALE_SECONDS = 3600.0
"""A part file older than this belongs to a process that died while writing it."""

_ENTRY_NAME = re.compile(r"[0-9a-f]{64}\.entry")
_PART_NAME = re.compile(r"[0-9a-f]{64}\..*\.part")
_warned: set[str] = set()


class StoreWarning(UserWarning):
    """The store cannot be used; results are computed afresh. Shown once per folder and process."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as the folder shows it: its key, its bytes on disk, and when it was last used (Unix seconds)."""

    key: str
    bytes: int
    used: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `verify` found: how many entries were read, and the fault of each damaged one (dropped by then), by key."""

    checked: int
    damaged: dict[str, str]


class Store:
    """Bytes under keys in the folder `path`, at most `limit_bytes` of them; `Store(None)` keeps nothing.

    Nothing is created before the first `put`. Whatever the disk does, `get` and `map` answer None and `put` answers
    False; the first failure is reported by a `StoreWarning`. Safe to use from threads, forks and other processes at the
    same time.
    """

    def __init__(self, path: Path | str | None, limit_bytes: int = DEFAULT_LIMIT) -> None:
        self.path = None if path is None else Path(path)
        self.limit_bytes = limit_bytes
        self._trusted: bool | None = None
        self._writable = self.path is not None

    @property
    def is_on(self) -> bool:
        """Whether it may keep anything."""
        return self.path is not None

    @classmethod
    def default(cls) -> Store:
        """The store of this user: in `TILEWRIGHT_STORE` (a folder, or `off`), else in the platform's cache folder."""
        return cls(default_path())

    def get(self, key: str) -> bytes | None:
        """The payload put under `key`, or None. A damaged entry is dropped."""
        path = self._find(key)
        if path is None:
            return None
        try:
            head, payload = _read(path)
        except OSError:
            return None
        return payload if self._accept(key, path, head, payload) else None

    def map(self, key: str) -> memoryview | None:
        """Like `get`, mapped from the file instead of copied: for payloads of megabytes. It starts 64-byte aligned.

        The mapping lives as long as a view of it does, whatever happens to the entry meanwhile.
        """
        path = self._find(key)
        content = None if path is None else _map(path)
        if path is None or content is None:
            return None
        payload = content[FRAME_SIZE:]
        return payload if self._accept(key, path, content[:FRAME_SIZE], payload) else None

    def peek(self, key: str) -> memoryview | None:
        """Like `map`, neither checked nor counted as a use: for telling what an entry is, never for running it."""
        path = self._find(key)
        content = None if path is None else _map(path)
        return None if content is None else content[FRAME_SIZE:]

    def put(self, key: str, *payload: bytes | memoryview) -> bool:
        """Keep a payload, given in parts (contiguous bytes), under `key`, in place of what was there; whether it was
        kept.

        Older entries make room. A payload that alone exceeds the limit is not kept.
        """
        return self.put_mapped(key, *payload) is not None

    def put_mapped(self, key: str, *payload: bytes | memoryview) -> memoryview | None:
        """Like `put`; what was written as `map` gives it, None where it was not kept. Nothing of it is read."""
        _check_key(key)
        size = FRAME_SIZE + sum(memoryview(part).nbytes for part in payload)
        if size > self.limit_bytes or not self._open_to_write():
            return None
        try:
            self._evict(self.limit_bytes - size, spare=key)
            return self._write(key, payload)
        except OSError as fault:
            self._writable = False
            self._warn(
                fault.strerror or str(fault), "free space there, or set TILEWRIGHT_STORE to a folder you may write"
            )
            return None

    def spill(self, size: int) -> Spill | None:
        """Room for so many bytes in a file of the folder that has no name, and leaves nothing behind; None where there
        is none."""
        file = unnamed_file(self.path) if self.path is not None and self._open_to_write() else None
        if file is None:
            return None
        try:
            return Spill(file, size)
        except (OSError, ValueError):
            file.close()
            return None

    def entries(self) -> tuple[Entry, ...]:
        """All entries, the least recently used first. Contents are not read."""
        return tuple(sorted((entry for _, entry in self._scan()), key=lambda entry: (entry.used, entry.key)))

    def verify(self) -> Verdict:
        """Read every entry and drop the damaged ones."""
        checked, damaged = 0, {}
        for path, entry in list(self._scan()):
            with contextlib.suppress(OSError):
                fault = find_fault(entry.key, *_read(path))
                checked += 1
                if fault is not None:
                    damaged[entry.key] = fault
                    path.unlink(missing_ok=True)
        return Verdict(checked, damaged)

    def clear(self) -> int:
        """Drop every entry; how many there were."""
        dropped = 0
        for path, _ in list(self._scan()):
            with contextlib.suppress(OSError):
                path.unlink()
                dropped += 1
        return dropped

    def _find(self, key: str) -> Path | None:
        _check_key(key)
        if self.path is None or not self._is_trusted(self.path):
            return None
        return self.path / f"{key}.entry"

    def _accept(self, key: str, path: Path, head: bytes | memoryview, payload: bytes | memoryview) -> bool:
        """Whether `payload` may be used. Use refreshes the entry's age, damage drops it."""
        sound = find_fault(key, head, payload) is None
        with contextlib.suppress(OSError):
            if sound:
                os.utime(path)
            else:
                path.unlink(missing_ok=True)
        return sound

    def _write(self, key: str, payload: Sequence[bytes | memoryview]) -> memoryview:
        assert self.path is not None
        written: list[memoryview] = []
        inside = self._spilled_in_place(payload)

        def write(file: BinaryIO) -> None:
            write_framed(file, key, payload, inside)
            file.flush()
            written.append(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[FRAME_SIZE:])

        write_aside(self.path / f"{key}.entry", key, write, file=None if inside is None else inside.take())
        return written[0]

    def _spilled_in_place(self, payload: Sequence[bytes | memoryview]) -> SpillMap | None:
        """The file of spilled arrays that can become the entry of a payload: it lies in this folder, and all parts that
        are in it are where the entry has them."""
        at, found = FRAME_SIZE, dict[SpillMap, bool]()
        for part in payload:
            place = spilled(part)
            if place is not None:
                found[place[0]] = found.get(place[0], True) and place[1] == at
            at += memoryview(part).nbytes
        fits = [mapped for mapped, in_place in found.items() if in_place and mapped.file is not None]
        return next((m for m in fits if self._is_here(m)), None)

    def _is_here(self, mapped: SpillMap) -> bool:
        """Whether a file may take a name in the folder."""
        assert self.path is not None
        return mapped.file is not None and os.fstat(mapped.file.fileno()).st_dev == self.path.stat().st_dev

    def _evict(self, budget: int, spare: str) -> None:
        """Drop the least recently used entries until all but `spare` take at most `budget` bytes."""
        assert self.path is not None
        others = [entry for entry in self.entries() if entry.key != spare]
        held = sum(entry.bytes for entry in others)
        for entry in others:
            if held <= budget:
                break
            with contextlib.suppress(FileNotFoundError):
                (self.path / f"{entry.key}.entry").unlink()
            held -= entry.bytes
        self._sweep()

    def _sweep(self) -> None:
        """Remove the part files of processes that died while writing."""
        assert self.path is not None
        oldest = time.time() - _STALE_SECONDS
        with os.scandir(self.path) as files:
            for file in files:
                if _PART_NAME.fullmatch(file.name):
                    with contextlib.suppress(OSError):
                        if file.stat(follow_symlinks=False).st_mtime < oldest:
                            os.unlink(file.path)

    def _scan(self) -> Iterator[tuple[Path, Entry]]:
        if self.path is None or not self._is_trusted(self.path):
            return
        try:
            names = os.listdir(self.path)
        except OSError:
            return
        for name in names:
            if _ENTRY_NAME.fullmatch(name):
                path = self.path / name
                with contextlib.suppress(OSError):  # another process may drop it between the list and the look
                    status = path.lstat()
                    yield path, Entry(name[: -len(".entry")], status.st_size, status.st_mtime)

    def _open_to_write(self) -> bool:
        if self.path is None or not self._writable:
            return False
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            self._writable = False
            self._warn(fault.strerror or str(fault), "set TILEWRIGHT_STORE to a folder you may write, or to off")
            return False
        return self._is_trusted(self.path)

    def _is_trusted(self, path: Path) -> bool:
        """Whether only this user (and the system's) can put code into the folder. False for a missing folder."""
        if self._trusted is None:
            try:
                status = path.stat()
            except OSError:
                return False
            why = _find_intruder(status)
            self._trusted = why is None
            if why is not None:
                self._warn(why, f"chown and chmod 700 {path}, or set TILEWRIGHT_STORE to a folder of your own")
        return self._trusted

    def _warn(self, why: str, fix: str) -> None:
        place = str(self.path)
        if place not in _warned:
            _warned.add(place)
            text = f"compiled code is not kept in {place}\nwhy:  {why}\nfix:  {fix}"
            warnings.warn(StoreWarning(text), stacklevel=4)


def default_path() -> Path | None:
    """Where this user's store is; None when TILEWRIGHT_STORE is `off` or no cache folder can be told."""
    chosen = os.environ.get("TILEWRIGHT_STORE", "")
    if chosen.lower() == OFF:
        return None
    try:
        if chosen:
            return Path(chosen).expanduser()
        return _cache_folder() / "tilewright"
    except RuntimeError:  # no home folder
        return None


def _cache_folder() -> Path:
    """The platform's folder for what can be made again. Its standard says to ignore a relative XDG_CACHE_HOME."""
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):
        return Path(xdg)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    local = os.environ.get("LOCALAPPDATA", "")
    if sys.platform == "win32" and local:
        return Path(local)
    return Path.home() / ".cache"


def _read(path: Path) -> tuple[bytes, bytes]:
    """The frame and the payload of a file; unbuffered, so that a payload of megabytes is copied once."""
    with path.open("rb", buffering=0) as file:
        return file.read(FRAME_SIZE), file.readall()


def _map(path: Path) -> memoryview | None:
    """A file in memory; None where it cannot be mapped, as an empty one cannot."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None


def _check_key(key: str) -> None:
    if not is_key(key):
        raise InternalError(
            f"{key!r:.80} is not a key", why="a key is 64 lower-case hexadecimal digits, as digest() makes them"
        )


def _find_intruder(status: os.stat_result) -> str | None:
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {status.st_uid}, who could put code into it"
    if status.st_mode & stat.S_IWOTH:
        return "everyone may write to it, and so put code into it"
    return None
