"""Long files that go to the disk past the system's cache, which takes hardly any of the processors' time.

    if not write_past_cache(file, parts, 1 << 18):
        write_parts(file, parts, 1 << 18)       the system cannot

The disk takes bytes from where they lie: from a mapped file, say, whose pages are in the cache. Parts whose places in
memory and in the file do not agree go through a buffer that stays in a processor's cache. What is written so is no
longer in the system's cache when it is read: that suits files that other processes read, later or elsewhere.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from typing import BinaryIO, Final

import numpy as np

from .blocks import LARGE_PAGE, Bytes, reserve
from .pages import address_of, release

FILE_ALIGNMENT: Final = 4096
"""Blocks begin and end at multiples of so many bytes of the file: the block of most file systems, and at least the
disk's."""

_MEMORY_ALIGNMENT: Final = 512
"""Where most disks take bytes from memory. A disk that wants more refuses the block, which then goes through the
buffer."""

_BLOCK: Final = 2 * LARGE_PAGE

_WORTH: Final = 1 << 18
"""Fewer bytes go through the buffer: a request to the disk takes as long as copying so many."""

_WRITERS: Final = 2
"""Threads that write: one fills its buffer while the disk is busy with the other's block."""


def write_past_cache(file: BinaryIO, parts: Sequence[Bytes], start: int) -> bool:
    """Writes parts one after another into a file, from `start`, a multiple of FILE_ALIGNMENT, and releases the pages of
    those that are in mapped files; they are on the disk then. False where the system cannot write so: what the file has
    from `start` on is to be written again. Raises OSError where there is no room."""
    direct = _open(file)
    if direct is None:
        return False
    try:
        reserve(direct, start + sum(memoryview(part).nbytes for part in parts))
        _Writers(direct, file.fileno(), _blocks(parts, start)).run()
        os.fsync(direct)
        return True
    except OSError as error:
        if error.errno == errno.EINVAL:  # a file system that has the flag and no such writes
            return False
        raise
    finally:
        os.close(direct)


def _open(file: BinaryIO) -> int | None:
    """The file once more, for writes past the cache; None where there are none."""
    try:
        return os.open(f"/proc/self/fd/{file.fileno()}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except (AttributeError, OSError):
        return None


@dataclass(slots=True)
class _Block:
    """Views that follow one another in the file, from `place`; the last of them ends the parts that are `behind`. One
    that `lies_right` is a single view from which the disk can take it."""

    place: int
    views: list[memoryview] = field(default_factory=list)
    bytes: int = 0
    behind: list[Bytes] = field(default_factory=list)
    lies_right: bool = False

    @property
    def end(self) -> int:
        """The place behind it."""
        return self.place + self.bytes

    def add(self, view: memoryview) -> None:
        """Takes a further view."""
        self.views.append(view)
        self.bytes += len(view)


def _blocks(parts: Sequence[Bytes], start: int) -> Iterator[_Block]:
    """The blocks that parts make. Only the last may end elsewhere than at a multiple of FILE_ALIGNMENT."""
    block = _Block(start)
    for part in parts:
        view = memoryview(part).cast("B")
        while view:
            if block.end % FILE_ALIGNMENT == 0 and _lies_right(view):
                if block.bytes:
                    yield block
                size = min(len(view) // FILE_ALIGNMENT * FILE_ALIGNMENT, _BLOCK)
                block = _Block(block.end, [view[:size]], size, lies_right=True)
            else:
                size = -block.end % FILE_ALIGNMENT or _BLOCK - block.bytes
                block.add(view[:size])
            view = view[size:]
            if block.bytes == _BLOCK or block.lies_right:
                block.behind += [] if view else [part]
                yield block
                block = _Block(block.end)
                if not view:
                    break
        else:
            block.behind.append(part)
    yield block


def _lies_right(view: memoryview) -> bool:
    """Whether the disk can take what begins here from where it is."""
    return len(view) >= _WORTH and address_of(np.frombuffer(view, np.uint8)) % _MEMORY_ALIGNMENT == 0


class _Writers:
    """Threads that write the blocks of a file, this one among them."""

    def __init__(self, direct: int, file: int, blocks: Iterator[_Block]) -> None:
        self._direct, self._file, self._blocks = direct, file, blocks
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Writes all blocks. Raises what the first raises that fails."""
        others = [threading.Thread(target=self._work, daemon=True) for _ in range(_WRITERS - 1)]
        for other in others:
            other.start()
        self._work()
        for other in others:
            other.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            room = mmap(-1, _BLOCK)
            while (block := self._next()) is not None:
                self._write(block, room)
                for part in block.behind:
                    release(part)
        except BaseException as error:  # of a thread, too
            self._error = error

    def _next(self) -> _Block | None:
        with self._lock:
            return None if self._error else next(self._blocks, None)

    def _write(self, block: _Block, room: mmap) -> None:
        if block.bytes % FILE_ALIGNMENT:
            _write_all(self._file, memoryview(b"".join(block.views)), block.place)
            return
        if block.lies_right:
            try:
                _write_all(self._direct, block.views[0], block.place)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        _write_all(self._direct, _gathered(block.views, room), block.place)


def _gathered(views: Sequence[memoryview], room: mmap) -> memoryview:
    """The views one after another in a buffer."""
    into, at = np.frombuffer(room, np.uint8), 0
    for view in views:
        into[at : at + len(view)] = np.frombuffer(view, np.uint8)
        at += len(view)
    return memoryview(room)[:at]


def _write_all(file: int, data: memoryview, place: int) -> None:
    while data:
        count = os.pwrite(file, data, place)
        data, place = data[count:], place + count
