"""Walks an ONNX model's protobuf bytes and takes the large tensors out of them.

The promise: `skeleton(buffer, …)` reads the structure once, skips tensor data, and returns the bytes of a small, valid
model together with the places of the data it left behind. It never recurses, never trusts a length before it has
been compared with the end of the message around it, and allocates nothing in proportion to a number found in the file.

A tensor whose data was left behind becomes one with external data in the model itself: location "", and the offset
and length of its bytes in the buffer. Only raw data, and float or double data in one packed piece, are left behind:
these bytes are what a little-endian machine computes with. Integers in typed fields are variable-length and stay.

    message  :=  field*
    field    :=  varint(number * 8 + wire)  payload
    payload  :=  varint (wire 0)  |  8 bytes (wire 1)  |  varint(n) n bytes (wire 2)  |  4 bytes (wire 5)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tilewright.frontends.onnx.limits import Limits
from tilewright.report.errors import UserError
from tilewright.store.files import Buffer

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


OWN_FILE = ""
"""The external location that stands for the model's own bytes."""

SMALL = 256
"""Data of up to this many bytes stays in the model."""

UNWALKED = 4 << 20
"""Messages of up to SMALL bytes are copied unread, up to this many bytes in all; the rest are read field by field."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_LEVELS = 100
_INTEGER_GROWTH = 8  # a packed integer takes one byte at least, a parsed one eight
_SMALLEST_SUBGRAPH = 6
_FLOAT, _DOUBLE = 1, 11
_DATA_TYPE, _FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA, _EXTERNAL, _LOCATION = 2, 4, 9, 10, 13, 14

_FIX_DAMAGED = "check that the path names an ONNX model and that the file was copied or downloaded completely"


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A model without its large tensors: its bytes, and offset → length in the buffer of each payload left behind."""

    data: bytes
    payloads: Mapping[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A protobuf message type: the types of its fields that hold messages, by number, and those that hold integers."""

    name: str
    inner: dict[int, Message]
    integers: frozenset[int]


@dataclass(slots=True, eq=False)
class _Frame:
    """One open message of the walk: what is left to read of it and where its length goes in the output."""

    message: Message
    fields: Iterator[tuple[int, int, int, int, int]]
    end: int
    slot: int
    run: int
    graphs: int
    size: int = 0


@cache
def messages() -> Message:
    """The message type of a model, with all types it reaches; taken from the installed `onnx` schema."""
    from onnx import ModelProto

    made = {ModelProto.DESCRIPTOR.full_name: _message(ModelProto.DESCRIPTOR)}
    open_types = [ModelProto.DESCRIPTOR]
    while open_types:
        descriptor = open_types.pop()
        message = made[descriptor.full_name]
        for field in descriptor.fields:
            inner = field.message_type
            if inner is None:
                continue
            if inner.full_name not in made:
                made[inner.full_name] = _message(inner)
                open_types.append(inner)
            message.inner[field.number] = made[inner.full_name]
    return made[ModelProto.DESCRIPTOR.full_name]


def _message(descriptor: Descriptor) -> Message:
    numbers = {
        f.number for f in descriptor.fields if f.cpp_type in (f.CPPTYPE_INT32, f.CPPTYPE_INT64, f.CPPTYPE_UINT64)
    }
    return Message(descriptor.name, {}, frozenset(numbers))


def skeleton(buffer: Buffer, limits: Limits, source: str) -> Skeleton:
    """Take the large tensors out of a model's bytes; UserError if these are damaged or larger than the limits."""
    return _Walk(buffer, limits, source).run()


def damaged(source: str, why: str) -> UserError:
    """The error for bytes that are no protobuf message of the expected type."""
    return UserError("cannot read the file as an ONNX model", where=source, why=why, fix=_FIX_DAMAGED)


def varint(value: int) -> bytes:
    """A non-negative integer in protobuf's variable-length form."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Walk:
    """The state of one walk. Output is a list of pieces; a message's length is filled in when the message closes."""

    def __init__(self, buffer: Buffer, limits: Limits, source: str) -> None:
        self.buffer = buffer
        self.limits = limits
        self.source = source
        self.parts: list[bytes] = []
        self.payloads: dict[int, int] = {}
        self.entries = 0
        self.kept = 0
        self.unwalked = 0

    def run(self) -> Skeleton:
        end = len(self.buffer)
        root = messages()
        stack = [_Frame(root, self.fields(0, end, root.name), end, self.reserve(), 0, 0)]
        while stack:
            frame = stack[-1]
            inner = self.advance(frame)
            if inner is not None:
                stack.append(inner)
                if len(stack) > _MAX_LEVELS:
                    raise damaged(self.source, f"messages are nested more than {_MAX_LEVELS} deep")
                continue
            stack.pop()
            if stack:
                length = varint(frame.size)
                self.parts[frame.slot] = length
                stack[-1].size += frame.size + len(length)
        return Skeleton(b"".join(self.parts), self.payloads)

    def advance(self, frame: _Frame) -> _Frame | None:
        """Read on in a message up to the next inner message to enter; None at its end."""
        inner_types = frame.message.inner
        for number, wire, start, body, end in frame.fields:
            inner = inner_types.get(number)
            if inner is None or wire != _BYTES:
                if wire == _BYTES and number in frame.message.integers:
                    self.charge((end - body) * _INTEGER_GROWTH)
                continue
            if inner.name == "TensorProto":
                self.tensor(frame, number, start, body, end)
            elif not self.may_skip(end - body, frame.graphs):
                return self.enter(frame, inner, start, body, end)
        self.flush(frame, frame.end)
        return None

    def enter(self, frame: _Frame, inner: Message, start: int, body: int, end: int) -> _Frame:
        graphs = frame.graphs + (inner.name == "GraphProto" and frame.message.name == "AttributeProto")
        if graphs > self.limits.nesting:
            raise too_deep(self.source, self.limits.nesting)
        self.flush(frame, start)
        frame.run = end
        self.emit(frame, self.tag(start))
        return _Frame(inner, self.fields(body, end, inner.name), end, self.reserve(), body, graphs)

    def may_skip(self, size: int, graphs: int) -> bool:
        """May this inner message be copied unread? It is too small for large data and for sub-graphs past the limit."""
        if size > SMALL or graphs + size // _SMALLEST_SUBGRAPH > self.limits.nesting or self.unwalked > UNWALKED:
            return False
        self.unwalked += size
        return True

    def tensor(self, frame: _Frame, number: int, start: int, body: int, end: int) -> None:
        """Leave a tensor's large data behind; tensors without it stay in the run of bytes to copy."""
        if end - body <= SMALL and self.unwalked <= UNWALKED:
            self.unwalked += end - body
            return
        fields = list(self.bounded(self.fields(body, end, "TensorProto")))
        payload = self.payload(fields)
        if payload is None:
            integers = frame.message.inner[number].integers
            self.charge(sum(f[4] - f[3] for f in fields if f[0] in integers and f[1] == _BYTES) * _INTEGER_GROWTH)
            return
        at, stop = payload
        left_out = (_EXTERNAL, _LOCATION)
        kept = [self.copy(f[2], f[4]) for f in fields if f[0] not in left_out and not f[2] < at <= f[4]]
        kept.append(_own_data(at, stop - at))
        content = b"".join(kept)
        self.flush(frame, start)
        frame.run = end
        self.payloads[at] = stop - at
        self.emit(frame, varint(number * 8 + _BYTES) + varint(len(content)) + content)

    def bounded(self, fields: Iterator[tuple[int, int, int, int, int]]) -> Iterator[tuple[int, int, int, int, int]]:
        """The fields of one tensor, few enough to hold; one of unpacked elements is refused before it fills memory."""
        for count, field in enumerate(fields):
            if count > 100_000:
                raise damaged(self.source, "a tensor holds more than 100000 separate fields; its data is not packed")
            yield field

    def payload(self, fields: list[tuple[int, int, int, int, int]]) -> tuple[int, int] | None:
        """Start and end of the data to leave behind, if the tensor has large contiguous data and none elsewhere."""
        pieces: list[tuple[int, int, int]] = []
        data_type = 0
        for number, wire, _, body, end in fields:
            if number == _DATA_TYPE and wire == _VARINT:
                data_type = self.varint(body, end, "TensorProto")[0]
            elif number in (_RAW_DATA, _FLOAT_DATA, _DOUBLE_DATA):
                pieces.append((number if wire == _BYTES else 0, body, end))
            elif number == _EXTERNAL or (number == _LOCATION and wire == _VARINT and self.buffer[body] != 0):
                return None
        if len(pieces) != 1 or pieces[0][0] not in _BARE.get(data_type, (_RAW_DATA,)):
            return None
        _, start, end = pieces[0]
        return (start, end) if end - start > SMALL else None

    def fields(self, pos: int, end: int, message: str) -> Iterator[tuple[int, int, int, int, int]]:
        """The fields of the message in [pos, end): number, wire type, start of tag, start and end of payload."""
        buffer = self.buffer
        while pos < end:
            self.entries += 1
            start = pos
            tag = buffer[pos]
            pos += 1
            if tag > 127:
                tag, pos = self.varint(start, end, message)
            wire = tag & 7
            if wire == _BYTES:
                length, body = (buffer[pos], pos + 1) if pos < end else (128, pos)
                if length > 127:
                    length, body = self.varint(pos, end, message)
                pos = body + length
            elif wire == _VARINT:
                body = pos
                _, pos = self.varint(pos, end, message)
            elif wire in (_FIXED32, _FIXED64):
                body = pos
                pos += 4 if wire == _FIXED32 else 8
            else:
                raise damaged(self.source, f"byte {start} starts a field of unknown kind {wire} in a {message}")
            if pos > end:
                raise damaged(self.source, f"the field at byte {start} ends at byte {pos}, its {message} at byte {end}")
            if tag < 8:
                raise damaged(self.source, f"byte {start} starts a field with the number 0 in a {message}")
            if self.entries > self.limits.entries:
                raise self.too_large("entries", self.limits.entries)
            yield tag >> 3, wire, start, body, pos

    def varint(self, pos: int, end: int, message: str) -> tuple[int, int]:
        """The integer at pos and the position after it; at most ten bytes, all before end."""
        value = shift = 0
        start = pos
        while pos < end and shift < 70:
            byte = self.buffer[pos]
            pos += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, pos
            shift += 7
        problem = "ends within an integer" if pos >= end else "holds an integer of more than ten bytes"
        raise damaged(self.source, f"the {message} that ends at byte {end} {problem} at byte {start}")

    def tag(self, start: int) -> bytes:
        pos = start
        while self.buffer[pos] > 127:
            pos += 1
        return bytes(self.buffer[start : pos + 1])

    def copy(self, start: int, end: int) -> bytes:
        """Bytes of the buffer, counted before they are copied."""
        self.charge(end - start)
        return bytes(self.buffer[start:end])

    def charge(self, nbytes: int) -> None:
        """Count bytes that will be in memory when the message is parsed."""
        self.kept += nbytes
        if self.kept > self.limits.structure_bytes:
            raise self.too_large("structure_bytes", self.limits.structure_bytes)

    def flush(self, frame: _Frame, end: int) -> None:
        """Copy the bytes read since the last piece of this message."""
        if end > frame.run:
            self.emit(frame, self.copy(frame.run, end))
        frame.run = end

    def emit(self, frame: _Frame, piece: bytes) -> None:
        self.parts.append(piece)
        frame.size += len(piece)

    def reserve(self) -> int:
        self.parts.append(b"")
        return len(self.parts) - 1

    def too_large(self, limit: str, value: int) -> UserError:
        return UserError(
            "the model's structure is too large",
            where=self.source,
            why=f"without its tensors' data it is past the limit {limit} = {value}",
            fix=f"if you trust the file, open it with a higher limit: open_model(path, Limits({limit}=…))",
        )


_BARE = {_FLOAT: (_RAW_DATA, _FLOAT_DATA), _DOUBLE: (_RAW_DATA, _DOUBLE_DATA)}
"""Data type → fields whose bytes are the elements themselves; for other types only the raw data is."""


def too_deep(source: str, nesting: int) -> UserError:
    """The error for sub-graphs nested past the limit."""
    return UserError(
        "sub-graphs are nested too deep",
        where=source,
        why=f"a sub-graph is nested in more than {nesting} others",
        fix="move the inner sub-graphs into model-local functions",
    )


def _own_data(offset: int, length: int) -> bytes:
    """The fields of a TensorProto that say: external data, in the model's own bytes."""
    entries = ((b"location", OWN_FILE.encode()), (b"offset", b"%d" % offset), (b"length", b"%d" % length))
    out = bytes([_LOCATION * 8 + _VARINT, 1])
    for key, value in entries:
        entry = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(value)) + value
        out += bytes([_EXTERNAL * 8 + _BYTES]) + varint(len(entry)) + entry
    return out
