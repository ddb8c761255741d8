"""External data: where a tensor says its bytes are, and the files that may hold them.

A model may name only ordinary files without hard links, at or below the model's own folder. A symbolic link is followed
where its target is below that folder, or beside the model's file, whose name may be a link, too: caches of downloads
keep a folder of links to a folder of files. Paths are opened one component at a time, relative to the folder opened
before, and the system follows no link: a link is read, its target is checked, and opened again from the folder that it
must be in, so that what was checked is what is read. Files are mapped read-only, once each; nothing is read before a
tensor is used.
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
_MOST_LINKS = 16
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
    """The data files of one model, mapped when first asked for. They are found below `folder`, through links also in
    `beside`, the folder of the model's file itself where its name is a link."""

    def __init__(self, folder: str | None, beside: str | None = None) -> None:
        self.folder = folder
        self._beside = beside
        self._files: dict[str, MappedFile] = {}

    @staticmethod
    def of_model(path: str) -> ExternalFiles:
        """Those of the model in a file."""
        return ExternalFiles(os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path)))

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
        """Opens what the components name below the model's folder, following the links that may be followed."""
        assert self.folder is not None
        base = os.path.realpath(self.folder)
        for _ in range(_MOST_LINKS):
            found = _open_below(base, parts, location, where)
            if isinstance(found, int):
                return found
            inside = self._inside(found.target)
            if inside is None:
                why = (
                    f"{clip(found.name)} is a symbolic link to {clip(found.target)}, which is neither below the "
                    "model's folder nor beside the model's file"
                )
                raise _refused(location, where, why, _FIX_INLINE)
            base, parts = inside
        raise _refused(location, where, f"its links lead on after {_MOST_LINKS} of them", _FIX_INLINE)

    def _inside(self, target: str) -> tuple[str, list[str]] | None:
        """The folder that a link's target may be opened from, and the components below it; None where it may not."""
        assert self.folder is not None
        folder = os.path.realpath(self.folder)
        plain = os.path.normpath(target)
        for path in (plain, os.path.join(os.path.realpath(os.path.dirname(plain)), os.path.basename(plain))):
            if path.startswith(os.path.join(folder, "")):
                return folder, os.path.relpath(path, folder).split(os.sep)
            if self._beside is not None and os.path.dirname(path) == self._beside:
                return self._beside, [os.path.basename(path)]
        return None


@dataclass(frozen=True, slots=True)
class _Link:
    """A link on the way to a file: its path from where the way began, and the file that it stands for."""

    name: str
    target: str


def _open_below(base: str, parts: list[str], location: str, where: str) -> int | _Link:
    """The descriptor of what the components name, each opened relative to the one before; the first one that is a link
    instead."""
    fd = -1
    try:
        fd = os.open(base, READ_FLAGS | os.O_DIRECTORY)
        for position, part in enumerate(parts):
            last = position == len(parts) - 1
            flags = READ_FLAGS | os.O_NOFOLLOW | (os.O_NONBLOCK if last else os.O_DIRECTORY)
            try:
                inner = os.open(part, flags, dir_fd=fd)
            except OSError as error:
                text = _link_text(part, fd)
                if text is None:
                    raise error
                target = os.path.join(base, *parts[:position], text, *parts[position + 1 :])
                os.close(fd)
                return _Link("/".join(parts[: position + 1]), target)
            os.close(fd)
            fd = inner
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        raise unreadable("data file", clip(location), error, where) from None
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


def _link_text(part: str, fd: int) -> str | None:
    """Where a symbolic link in an open folder leads; None for what is no link."""
    try:
        return os.readlink(part, dir_fd=fd)
    except OSError:
        return None


def _refused(location: str, where: str, why: str, fix: str) -> UserError:
    return UserError(f"refused to open the data file {clip(location)}", where=where, why=why, fix=fix)
