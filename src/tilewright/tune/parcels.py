"""Programs on their way between processes: pickles, of which what takes much memory is in files.

A pipe would copy weights of megabytes some ten times. A file is written once, by the process that makes a program, and
read once, by the one that runs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.runtime.memory import allocate
from tilewright.store.checksum import Checksum

LARGE = 1 << 18
"""Arrays of fewer bytes are in the pickle."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A pickle, the files that it reads when it is unpickled, and a digest of the value."""

    data: bytes
    files: tuple[str, ...]
    digest: bytes


class Parcel(bytes):
    """A pickle, for the process whose the files are: they are gone when this object is."""

    digest: bytes
    _files: tuple[str, ...] = ()

    @staticmethod
    def of(packed: Packed) -> Parcel:
        """What another process has packed, or this one."""
        made = Parcel(packed.data)
        made.digest, made._files = packed.digest, packed.files
        return made

    def __reduce__(self) -> tuple[type, tuple[bytes]]:
        """Other processes get the bytes: their copies are not what the files are kept for."""
        return bytes, (bytes(self),)

    def __del__(self) -> None:
        for file in self._files:
            with contextlib.suppress(OSError):
                os.unlink(file)


def pack(value: object, folder: str) -> Packed:
    """A value in a pickle and files of the folder; in the pickle alone where these cannot be written."""
    large: list[pickle.PickleBuffer] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes >= LARGE:
            large.append(buffer)
        return buffer.raw().nbytes < LARGE

    head = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=stays)
    total = Checksum()
    for buffer in large:
        total.update(buffer.raw())
    digest = hashlib.sha256(head + total.digest()).digest()
    files: list[str] = []
    try:
        files.extend(_written(buffer.raw(), folder) for buffer in large)
        data = pickle.dumps(_InFiles(head, tuple(files)))
    except OSError:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return Packed(data, tuple(files), digest)


class _InFiles:
    """Unpickles as the value that was packed."""

    def __init__(self, head: bytes, files: tuple[str, ...]) -> None:
        self.head, self.files = head, files

    def __reduce__(self) -> tuple[object, ...]:
        return _unpacked, (self.head, self.files)


def _unpacked(head: bytes, files: Sequence[str]) -> object:
    return pickle.loads(head, buffers=[_read(file) for file in files])


def _written(content: memoryview, folder: str) -> str:
    """A file of the folder with this content."""
    number, name = tempfile.mkstemp(dir=folder)
    try:
        with open(number, "wb") as file:
            file.write(content)
    except OSError:
        os.unlink(name)
        raise
    return name


def _read(file: str) -> memoryview:
    """The content of a file, in memory of its own."""
    memory = allocate(os.path.getsize(file))
    with open(file, "rb", buffering=0) as source:
        if source.readinto(memory.data) != memory.nbytes:
            raise OSError(f"{file} is shorter than it was")
    return memory.data
