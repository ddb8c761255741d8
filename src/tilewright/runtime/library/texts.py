"""Texts of a library as one table of bytes, and its messages as templates in it.

    input x has the wrong shape: dimension 0 is ␁0, and …

A template has a byte 1 and a digit where a value of the fault record goes. Messages are rows: where the template
begins, which of its values are floats, as bits, and the code that the call returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.codegen.abi import FaultMessage
from tilewright.report.printable import printable
from tilewright.runtime.library.codes import Code

VALUE = "\x01"
"""What stands before the digit of a value."""


@dataclass(slots=True)
class Texts:
    """The table as it grows; each text is there once."""

    content: bytearray = field(default_factory=bytearray)
    _places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str) -> int:
        """Where a text begins, which a zero ends."""
        if text not in self._places:
            self._places[text] = len(self.content)
            self.content += text.encode("utf-8", "replace") + b"\0"
        return self._places[text]


@dataclass(frozen=True, slots=True)
class Row:
    """A message of a library."""

    template: int
    floats: int
    code: Code


def rows_of(messages: Iterable[tuple[FaultMessage, Code]], texts: Texts) -> list[Row]:
    """The rows of messages."""
    rows = []
    for message, code in messages:
        floats = sum(1 << n for n, dtype in enumerate(message.dtypes) if dtype.is_float)
        rows.append(Row(texts.place(template_of(message)), floats, code))
    return rows


def template_of(message: FaultMessage) -> str:
    """The text of a message as `RuntimeFault` shows it, with marks for its values."""
    what, _, where = message.text.partition(" @ ")
    parts = re.split(r"\{(\d)\}", what)
    shown = [printable(parts[0])]
    for digit, text in zip(parts[1::2], parts[2::2], strict=True):
        known = int(digit) < len(message.dtypes)
        shown += [VALUE + digit if known else f"{{{digit}}}", printable(text)]
    return "".join(shown) + (f"\nat:   {printable(where)}" if where else "")


def bytes_literal(content: bytes) -> str:
    """A constant of LLVM's with these bytes."""
    shown = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in content)
    return f'[{len(content)} x i8] c"{shown}"'
