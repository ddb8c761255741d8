"""Protobuf bytes changed field by field, without a parser that would mend them: tags of another wire type or number,
lengths and numbers at the ends of their ranges, numbers in more bytes than they need, fields repeated or left out.

    message  :=  field*
    field    :=  varint(number * 8 + wire)  payload
    payload  :=  varint (wire 0)  |  8 bytes (wire 1)  |  varint(n) n bytes (wire 2)  |  4 bytes (wire 5)
"""

from __future__ import annotations

import random
from dataclasses import dataclass

NUMBERS = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70 - 1)
_DEEPEST = 12


@dataclass(frozen=True)
class Field:
    """A field: where it begins, where its payload does (behind a length), and where it ends."""

    begin: int
    tag: int
    payload: int
    end: int

    @property
    def wire(self) -> int:
        return self.tag & 7


def varint(number: int, least: int = 1) -> bytes:
    """A number in base 128, in as many bytes as it needs, and `least` at least."""
    digits = bytearray()
    while number > 127 or len(digits) < least - 1:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """(number, where it ends), or None where there is none."""
    number = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    return None


def fields(data: bytes, at: int, end: int) -> list[Field] | None:
    """The fields of a message; None where the bytes are none."""
    found: list[Field] = []
    while at < end:
        tag = read_varint(data, at, end)
        if tag is None or tag[0] < 8:
            return None
        begin, payload, wire = at, tag[1], tag[0] & 7
        if wire == 0:
            number = read_varint(data, payload, end)
            at = end + 1 if number is None else number[1]
        elif wire == 2:
            length = read_varint(data, payload, end)
            payload, at = (payload, end + 1) if length is None else (length[1], length[1] + length[0])
        else:
            at = payload + {1: 8, 5: 4}.get(wire, end + 1)
        if at > end:
            return None
        found.append(Field(begin, tag[0], payload, at))
    return found


def mutate_wire(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    """(what was done, the bytes with one field changed). Lengths of the messages around it are mended, mostly."""
    around: list[Field] = []
    at, end = 0, len(data)
    field = None
    for _ in range(_DEEPEST):
        inside = fields(data, at, end)
        if not inside:
            break
        field = chance.choice(inside)
        if field.wire != 2 or chance.random() < 0.25 or not fields(data, field.payload, field.end):
            break
        around.append(field)
        at, end = field.payload, field.end
    if field is None:
        return "nothing", data
    if around and around[-1] is field:
        around.pop()
    done, changed = _changed(data, field, chance)
    mends = chance.random() < 0.8
    begin, stop = field.begin, field.end
    for outer in reversed(around):
        body = data[outer.payload : begin] + changed + data[stop : outer.end]
        length = len(body) if mends else outer.end - outer.payload
        changed = varint(outer.tag) + varint(length) + body
        begin, stop = outer.begin, outer.end
    return done, data[:begin] + changed + data[stop:]


def _changed(data: bytes, field: Field, chance: random.Random) -> tuple[str, bytes]:
    whole, payload = data[field.begin : field.end], data[field.payload : field.end]
    length = varint(len(payload)) if field.wire == 2 else b""
    done = chance.choice(
        ("wire type", "number", "length", "value", "long tag", "repeat", "leave out", "empty", "group")
    )
    if done == "wire type":
        return done, varint(field.tag & ~7 | chance.randrange(8)) + length + payload
    if done == "number":
        return done, varint(
            chance.choice((1, 2, 3, 5, 7, 15, 20, 25, 2**29 - 1, 0)) * 8 | field.wire
        ) + length + payload
    if done == "length" and field.wire == 2:
        return done, varint(field.tag) + varint(chance.choice((*NUMBERS, len(payload) + 1))) + payload
    if done == "value" and field.wire == 0:
        return done, varint(field.tag) + varint(chance.choice(NUMBERS), chance.choice((1, 5, 10, 11)))
    if done == "long tag":
        return done, varint(field.tag, chance.choice((2, 5, 10))) + length + payload
    if done == "repeat":
        return done, whole * chance.choice((2, 3, 50, 2000 if len(whole) < 100 else 2))
    if done == "leave out":
        return done, b""
    if done == "empty" and field.wire == 2:
        return done, varint(field.tag) + varint(0)
    return "group", varint(field.tag & ~7 | 3) * chance.choice((1, 200, 20000)) + payload
