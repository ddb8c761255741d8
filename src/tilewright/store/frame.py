"""The file of one entry: a frame of 128 bytes, then the payload.

    offset 0    magic     8 bytes   b"TWENTRY" and a zero
           8    version   u32       1
          12    zero      u32
          16    length    u64       of the payload in bytes; the file ends with it
          24    zero      u64
          32    key       32 bytes  the key it was put under
          64    checksum  32 bytes  SHA-256 of the payload
          96    zeros to 128

Every byte of the file is checked before the payload is used, so one altered bit anywhere makes the entry damaged.
The payload starts at a multiple of 64, so a mapped payload is as aligned as a page.
"""

from __future__ import annotations

import hashlib
import struct

MAGIC = b"TWENTRY\0"
VERSION = 1
FRAME_SIZE = 128
_FRAME = struct.Struct("<8sIIQQ32s32s32x")


def frame(key: str, payload: bytes | memoryview) -> bytes:
    """The first `FRAME_SIZE` bytes of the file that holds `payload` under `key`."""
    length = memoryview(payload).nbytes
    return _FRAME.pack(MAGIC, VERSION, 0, length, 0, bytes.fromhex(key), hashlib.sha256(payload).digest())


def find_fault(key: str, head: bytes | memoryview, payload: bytes | memoryview) -> str | None:
    """What is wrong with the file of `key` made of `head` and `payload`, or None when the payload may be used."""
    if len(head) != FRAME_SIZE:
        return f"{len(head)} bytes, fewer than a frame has"
    magic, version, zero, length, zero8, owner, checksum = _FRAME.unpack(head)
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
    if hashlib.sha256(payload).digest() != checksum:
        return "the checksum differs"
    return None
