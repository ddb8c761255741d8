"""The container that entries and artefacts are packed in: one JSON manifest and named blobs of bytes.

    offset 0    magic    8 bytes   b"TWRIGHT" and a zero
           8    version  u32       1
          12    zero     u32
          16    json     u64       length of the JSON text in bytes
          24    total    u64       length of the whole container in bytes
          32    {"blobs": [[name, length], …], "manifest": {…}}      UTF-8
          …     the blobs in that order, each at the next multiple of 64, zeros between

All numbers are little-endian. No offset is written down: each follows from the lengths before it, so blobs can
neither overlap nor leave the container. JSON is the only encoding: reading a container never runs anything. The blobs
that `unpack` returns are views into the container, aligned in memory when the container is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

from ..report.errors import UserError
from .pages import ALIGNMENT

MAGIC = b"TWRIGHT\0"
VERSION = 1
_HEADER = struct.Struct("<8sIIQQ")

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What a manifest may hold. Floats are finite: JSON has no word for the others. Tuples come back as lists."""


class Damaged(UserError):
    """The bytes are not a container: cut short, altered, or made by another program. `why` names the first fault."""


def pack(manifest: Mapping[str, Json], blobs: Mapping[str, bytes | memoryview]) -> bytes:
    """The container of `manifest` and `blobs`, as `parts_of` gives it."""
    return b"".join(parts_of(manifest, blobs))


def parts_of(
    manifest: Mapping[str, Json], blobs: Mapping[str, bytes | memoryview], first: int = 0
) -> list[bytes | memoryview]:
    """The container of `manifest` and `blobs` (contiguous bytes), in their order, as parts that follow one another:
    blobs are not copied. The first of them starts at byte `first`, if that is behind what comes before: there are
    spaces at the end of the JSON text then. Equal arguments give equal bytes.

    Raises ValueError for a number that JSON cannot say, and TypeError for a value that is not `Json`.
    """
    views = {name: memoryview(blob) for name, blob in blobs.items()}
    rows = [[name, view.nbytes] for name, view in views.items()]
    content = {"blobs": rows, "manifest": manifest}
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    text = text.ljust(first - _HEADER.size)
    at = _HEADER.size + len(text)
    parts: list[bytes | memoryview] = [text]
    for view in views.values():
        gap = -at % ALIGNMENT
        parts += [bytes(gap), view.cast("B")]
        at += gap + view.nbytes
    return [_HEADER.pack(MAGIC, VERSION, 0, len(text), at), *parts]


def unpack(data: bytes | memoryview) -> tuple[dict[str, Json], dict[str, memoryview]]:
    """The manifest and the blobs (read-only views into `data`) of a container; raises `Damaged` for anything else."""
    view = memoryview(data).cast("B").toreadonly()
    at = _check_header(view)
    manifest, rows = _read_json(view[_HEADER.size : at])
    blobs: dict[str, memoryview] = {}
    for row in rows:
        name, length = _read_row(row)
        start = at + -at % ALIGNMENT
        if length > len(view) - start:
            raise _refusal(f"blob {name!r} needs {length} bytes from {start} on, and the end is at {len(view)}")
        if any(view[at:start]):
            raise _refusal(f"the bytes before blob {name!r} are not zero")
        if name in blobs:
            raise _refusal(f"blob {name!r} appears twice")
        at = start + length
        blobs[name] = view[start:at]
    if at != len(view):
        raise _refusal(f"{len(view) - at} bytes follow the last blob")
    return manifest, blobs


def _check_header(view: memoryview) -> int:
    """The offset at which the JSON text ends; every field of the header agrees with the length of `view`."""
    if len(view) < _HEADER.size:
        raise _refusal(f"{len(view)} bytes are fewer than the header's {_HEADER.size}")
    magic, version, zero, length, total = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise _refusal(f"it starts with {magic!r}, not {MAGIC!r}")
    if version != VERSION or zero != 0:
        raise _refusal(f"its format is {version}.{zero}, this reader knows {VERSION}.0")
    if total != len(view):
        raise _refusal(f"it should have {total} bytes and has {len(view)}")
    if length > len(view) - _HEADER.size:
        raise _refusal(f"a manifest of {length} bytes does not fit in {len(view)}")
    return int(_HEADER.size + length)


def _read_json(text: memoryview) -> tuple[dict[str, Json], list[object]]:
    try:
        top = json.loads(bytes(text).decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as fault:
        raise _refusal(f"its JSON text does not parse: {fault}") from fault
    if not isinstance(top, dict) or set(top) != {"blobs", "manifest"}:
        raise _refusal("its JSON text is not an object of blobs and manifest")
    manifest, rows = top["manifest"], top["blobs"]
    if not isinstance(manifest, dict) or not isinstance(rows, list):
        raise _refusal("its manifest is not an object, or its blobs are not a list")
    return manifest, rows


def _read_row(row: object) -> tuple[str, int]:
    match row:
        case [str(name), int(length)] if not isinstance(length, bool) and length >= 0:
            return name, length
    raise _refusal(f"a blob's row is {row!r:.80}, not [name, length]")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """A JSON object whose names differ: of two equal names, readers disagree on which counts."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("an object has a name twice")
    return out


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _refusal(why: str) -> Damaged:
    return Damaged(
        "these bytes are not a container of this compiler",
        why=why,
        fix="delete the file they came from and make it again",
    )
