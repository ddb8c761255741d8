"""The file of one entry: a frame of 128 bytes, then the payload.

    offset 0    magic     8 bytes   b"TWENTRY" and a zero
           8    version   u32       1
          12    zero      u32
          16    length    u64       of the payload in bytes; the file ends with it
          24    zero      u64
          32    key       32 bytes  the key it was put under
          64    checksum  32 bytes  of the payload (checksum.py)
          96    zeros to 128

Every byte of the file is checked before the payload is used, so one altered bit anywhere makes the entry damaged.
The payload starts at a multiple of 64, so a mapped payload is as aligned as a page.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import BinaryIO

from .checksum import Checksum, PendingChecksum
from .pages import SpillMap, release, spilled

MAGIC = b"TWENTRY\0"
VERSION = 2
FRAME_SIZE = 128
_FRAME = struct.Struct("<8sIIQQ32s32s32x")


def frame(key: str, length: int, sum_: bytes) -> bytes:
    """The first `FRAME_SIZE` bytes of the file that holds a payload of this length and checksum under `key`."""
    return _FRAME.pack(MAGIC, VERSION, 0, length, 0, bytes.fromhex(key), sum_)


def write_framed(file: BinaryIO, key: str, parts: Iterable[bytes | memoryview], inside: SpillMap | None = None) -> None:
    """Writes the file of an entry whose payload is these parts in order, at the current position of `file`. Where that
    is the file of `inside`, parts that lie in it are in their place already."""
    start, length, total = file.tell(), 0, Checksum()
    file.write(bytes(FRAME_SIZE))
    for part in parts:
        total.update(part)
        found = None if inside is None else spilled(part)
        if found is not None and found[0] is inside:
            file.seek(memoryview(part).nbytes, os.SEEK_CUR)
        else:
            file.write(part)
        length += memoryview(part).nbytes
        release(part)
    if inside is not None:
        file.truncate()
    file.seek(start)
    file.write(frame(key, length, total.digest()))
    file.seek(0, os.SEEK_END)


def find_fault(
    key: str, head: bytes | memoryview, payload: bytes | memoryview, pending: PendingChecksum | None = None
) -> str | None:
    """What is wrong with the file of `key` made of `head` and `payload`, or None when the payload may be used.
    `pending` is the payload's checksum, where it was begun before."""
    if len(head) != FRAME_SIZE:
        return f"{len(head)} bytes, fewer than a frame has"
    magic, version, zero, length, zero8, owner, sum_ = _FRAME.unpack(head)
    if magic != MAGIC:
        return "not an entry"
    if version != VERSION:
        return f"format {version}, this reader knows {VERSION}"
    if zero or zero8 or any(head[FRAME_SIZE - 32 :]):
        return "bytes that must be zero are not"
    if length != len(payload):
        return f"a payload of {length} bytes expected, {len(payload)} found"
    if owner != bytes.fromhex(key):
        return "the entry of another key"
    if (pending or PendingChecksum(payload)).digest() != sum_:
        return "the checksum differs"
    return None
