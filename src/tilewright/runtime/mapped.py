"""A compiled file in memory, being checked.

Reading hundreds of megabytes takes as long as importing what runs a program. So the file is mapped by this module,
which imports little, and read by a thread while the rest is imported.
"""

from __future__ import annotations

import os

from tilewright.report.arguments import path_of
from tilewright.store.checksum import PendingChecksum
from tilewright.store.files import map_file
from tilewright.store.frame import FRAME_SIZE, MAGIC, find_fault

KIND = "compiled file"


class MappedPrograms:
    """What a compiled file holds, with its checksum under way. `name` is what errors call it, `path` the absolute path
    of the file; None for bytes that came from elsewhere."""

    def __init__(self, name: str, content: memoryview, path: str | None = None) -> None:
        self.name = name
        self.path = path
        self.content = content
        self._head, self.payload = content[:FRAME_SIZE], content[FRAME_SIZE:]
        self._pending = PendingChecksum(self.payload)

    @property
    def is_framed(self) -> bool:
        """Whether it begins as such a file does."""
        return bytes(self.content[: len(MAGIC)]) == MAGIC

    def find_fault(self, key: str) -> str | None:
        """What is wrong with the file as one of this key, or None: only then may `payload` be used."""
        return find_fault(key, self._head, self.payload, self._pending)


def map_programs(path: str | os.PathLike[str]) -> MappedPrograms:
    """The file at a path. Raises UserError where it cannot be read."""
    name = path_of(path)
    return MappedPrograms(name, memoryview(map_file(name, KIND).data), os.path.abspath(name))
