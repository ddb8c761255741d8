"""External data: where a tensor says its bytes are, and the files that may hold them.

A model may name only ordinary files with one name each, at or below the model's own folder. The path is opened one
component at a time, relative to the folder opened before, and never through a symbolic link, so that what was checked
is what is read. Files are mapped read-only, once each; nothing is read before a tensor is used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.frontends.build.names import clip
from tilewright.report.errors import UserError
from tilewright.store.files import READ_FLAGS, MappedFile, map_descriptor, unreadable

_KEYS = ("location", "offset", "length", "checksum")
_MAX_DIGITS = 19
_FIX_SAVE = "save the model again with onnx.save(model, path, save_as_external_data=True, location='weights.bin')"
_FIX_INLINE = "copy the data file itself beside the model, or save the model with its data inside"


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a tensor says its data is. A length that was not given is None."""

    location: str
    offset: int
    length: int | None


def reference(entries: Sequence[tuple[str, str]], where: str) -> Reference:
    """Read the key-value pairs of a tensor's external data; UserError for unknown, repeated or malformed ones."""
    found: dict[str, str] = {}
    for key, value in entries:
        if key not in _KEYS:
            why = f"the key {clip(key)} is unknown; ONNX defines {', '.join(_KEYS)}"
            raise UserError("cannot use the external data of a tensor", where=where, why=why, fix=_FIX_SAVE)
        if key in found:
            why = f"the key {clip(key)} is given twice"
            raise UserError("cannot use the external data of a tensor", where=where, why=why, fix=_FIX_SAVE)
        found[key] = value
    if "location" not in found:
        why = "it names no file: the key 'location' is missing"
        raise UserError("cannot use the external data of a tensor", where=where, why=why, fix=_FIX_SAVE)
    offset = _number(found, "offset", where)
    return Reference(found["location"], offset or 0, _number(found, "length", where))


class ExternalFiles:
    """The data files of one model, found below `folder` and mapped when first asked for."""

    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self._files: dict[str, MappedFile] = {}

    def get(self, location: str, where: str) -> MappedFile:
        """The file at a location relative to the model's folder."""
        if location not in self._files:
            self._files[location] = self._open(location, where)
        return self._files[location]

    def opened(self) -> list[MappedFile]:
        """All files in use, in the order of their locations."""
        return [self._files[location] for location in sorted(self._files)]

    def _open(self, location: str, where: str) -> MappedFile:
        parts = _components(location, where)
        if self.folder is None:
            raise UserError(
                f"cannot find the data file {clip(location)}",
                where=where,
                why="the model came from memory, without the folder that its external data is relative to",
                fix="give the folder: from_proto(model, base_dir='…')",
            )
        fd = self._descend(parts, location, where)
        try:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                why = f"the file has {status.st_nlink} hard links: it may be another folder's file under a second name"
                raise _refused(location, where, why, _FIX_INLINE)
            return MappedFile(
                os.path.join(self.folder, *parts), map_descriptor(fd, status, "data file", clip(location), where)
            )
        finally:
            os.close(fd)

    def _descend(self, parts: list[str], location: str, where: str) -> int:
        """Open the last component, each folder on the way relative to the one before and none through a link."""
        assert self.folder is not None
        fd = -1
        try:
            fd = os.open(self.folder, READ_FLAGS | os.O_DIRECTORY)
            for position, part in enumerate(parts):
                last = position == len(parts) - 1
                flags = READ_FLAGS | os.O_NOFOLLOW | (os.O_NONBLOCK if last else os.O_DIRECTORY)
                try:
                    inner = os.open(part, flags, dir_fd=fd)
                except OSError as error:
                    if _is_link(part, fd):
                        why = f"{clip('/'.join(parts[: position + 1]))} is a symbolic link"
                        raise _refused(location, where, why, _FIX_INLINE) from None
                    raise error
                os.close(fd)
                fd = inner
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            raise unreadable("data file", clip(location), error, where) from None
        except UserError:
            os.close(fd)
            raise
        return fd


def _components(location: str, where: str) -> list[str]:
    """The path's components; UserError for one that could lead out of the model's folder."""
    why = None
    parts = [part for part in location.split("/") if part not in ("", ".")]
    if location.startswith("/") or "\\" in location or location[1:2] == ":":
        why = "the path is absolute or not written with '/': it must be relative to the model's folder"
    elif ".." in parts:
        why = "the path has a component '..': it must stay in the model's folder"
    elif "\0" in location:
        why = "the path has a zero character"
    elif not parts or location.endswith("/"):
        why = "the path names no file"
    if why is not None:
        raise _refused(location, where, why, _FIX_SAVE)
    return parts


def _number(found: dict[str, str], key: str, where: str) -> int | None:
    text = found.get(key)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return int(text)
    why = f"its {key} is {clip(text)}, not a number of bytes in at most {_MAX_DIGITS} decimal digits"
    raise UserError("cannot use the external data of a tensor", where=where, why=why, fix=_FIX_SAVE)


def _is_link(part: str, fd: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(part, dir_fd=fd).st_mode)
    except OSError:
        return False


def _refused(location: str, where: str, why: str, fix: str) -> UserError:
    return UserError(f"refused to open the data file {clip(location)}", where=where, why=why, fix=fix)
