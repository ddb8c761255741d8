"""Files of users: mapped to be read, and written all or not at all.

What is written goes to a fresh name or takes the place of a plain file: never of a directory, a device or a link, and
never of a file that it is made of.

A mapped file must keep its length while it is used: the operating system ends a process that reads past the end of a
file which another one has made shorter. Files written here are never made shorter: a new one takes the name.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from ..report.errors import UserError

Buffer = bytes | mmap

READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """A file in memory without a copy. `path` is None for bytes that came from no file."""

    path: str | None
    data: Buffer


def map_file(path: str, kind: str) -> MappedFile:
    """Maps a file that the user named, so links are followed; UserError, which calls it `kind`, where it cannot."""
    try:
        fd = os.open(path, READ_FLAGS | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise unreadable(kind, repr(path), error) from None
    try:
        return MappedFile(os.path.abspath(path), map_descriptor(fd, os.fstat(fd), kind, repr(path)))
    finally:
        os.close(fd)


def map_descriptor(fd: int, status: os.stat_result, kind: str, name: str, where: str | None = None) -> Buffer:
    """What an open file holds. UserError for what is no ordinary file."""
    if not stat.S_ISREG(status.st_mode):
        why = f"it is {_kind_of(status)}"
        raise UserError(f"cannot read the {kind} {name}", where=where, why=why, fix="give the path of an ordinary file")
    if status.st_size == 0:
        return b""
    try:
        return mmap(fd, status.st_size, access=ACCESS_READ)
    except (OSError, ValueError) as error:
        raise unreadable(kind, name, error, where) from None


def unreadable(kind: str, name: str, error: OSError | ValueError, where: str | None = None) -> UserError:
    """The error for a file that the system does not give."""
    why = _reason(error)
    fix = "check that it exists and that you may read it"
    return UserError(f"cannot read the {kind} {name}", where=where, why=why, fix=fix)


def find_obstacle(place: Path, sources: Iterable[str] = ()) -> str | None:
    """Why no file can be written at this place, or None where one can: at a fresh name, or over a plain file that is
    none of the `sources`, the files that what is written is made of, by whatever name."""
    try:
        status = os.lstat(place)
    except FileNotFoundError:
        return _find_obstacle_above(place.parent)
    except (OSError, ValueError) as error:
        return _reason(error)
    if stat.S_ISLNK(status.st_mode):
        return f"it is a link to {os.path.realpath(place)}"
    if stat.S_ISDIR(status.st_mode):
        return "it is a directory"
    if not stat.S_ISREG(status.st_mode):
        return f"it is {_kind_of(status)}"
    for source in sources:
        with contextlib.suppress(OSError, ValueError):
            if os.path.samestat(status, os.stat(source)):
                return f"it is the file {source}, from which this is made"
    return _find_obstacle_above(place.parent)


def _find_obstacle_above(folder: Path) -> str | None:
    """Why a directory takes no file."""
    if not folder.is_dir():
        return f"there is no directory {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"you may not write into the directory {folder}"
    return None


def _kind_of(status: os.stat_result) -> str:
    return "a folder" if stat.S_ISDIR(status.st_mode) else "a device, pipe or socket"


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def check_place(place: Path, sources: Iterable[str] = ()) -> None:
    """UserError where there is an obstacle to writing a file (`find_obstacle`)."""
    obstacle = find_obstacle(place, sources)
    if obstacle is not None:
        raise UserError(f"cannot write {place}", why=obstacle, fix="give a fresh name in a directory of yours")


def replace_file(
    place: Path, write: Callable[[BinaryIO], None], sources: Iterable[str] = (), file: BinaryIO | None = None
) -> None:
    """Makes the file at `place`, for everyone whom the process's mask allows, what `write` writes: complete, or what
    was there stays; into an open `file` of the same folder without a name, where one is given, which is closed.
    UserError where there is an obstacle (`find_obstacle`), or the system refuses."""
    try:
        check_place(place, sources)
        write_aside(place, f".{place.name}", write, lasting=True, file=file)
    except OSError as error:
        raise UserError(f"cannot write {place}", why=_reason(error)) from None
    finally:
        if file is not None:
            file.close()


def write_aside(
    place: Path, prefix: str, write: Callable[[BinaryIO], None], lasting: bool = False, file: BinaryIO | None = None
) -> None:
    """Writes a file that takes the name `place` when it is complete; an open `file` without a name, where one is given.
    Where the system has files without names, nothing is left of one that never was, even when the process is killed;
    elsewhere a file `PREFIX.….part` may be. A `lasting` file is on the disk before it takes the name, and others may
    read it. Raises OSError."""
    part = place.parent / f"{prefix}.{os.urandom(4).hex()}.part"
    try:
        with file or unnamed_file(place.parent) or _named(part) as written:
            write(written)
            written.flush()
            if lasting:
                os.fsync(written.fileno())
                os.fchmod(written.fileno(), 0o666 & ~_mask())
            if not part.exists():
                _name(written, part)
        os.replace(part, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def unnamed_file(folder: Path) -> BinaryIO | None:
    """A file in a folder that has no name yet; None where there are no such files."""
    try:
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600), "w+b")
    except (AttributeError, OSError):
        return None


def _named(part: Path) -> BinaryIO:
    return os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")


def _name(file: BinaryIO, part: Path) -> None:
    """Gives a file without a name one. The folder's descriptor is what makes the system look behind the link."""
    folder = os.open(part.parent, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{file.fileno()}", part, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _mask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
