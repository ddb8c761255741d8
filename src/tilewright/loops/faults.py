"""What is wrong with a program, and where in its text."""

from __future__ import annotations

import re

from tilewright.core.node import Node
from tilewright.expr.nodes import Expr
from tilewright.expr.text import Printer
from tilewright.loops.nodes import Function
from tilewright.loops.text import describe, index_text
from tilewright.report.snippet import Snippet


class Fault(Exception):
    """What is wrong at a node; `part` is the expression or text to mark on its line."""

    def __init__(
        self, at: Node, what: str, *, part: Expr | str | None = None, why: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(what)
        self.at = at
        self.what = what
        self.part = part
        self.why = why
        self.fix = fix


def place_of(function: Function, fault: Fault) -> Snippet:
    """The line of the fault, with its part marked where that can be found."""
    text = describe(function)
    line = text.lines.get(fault.at, 1)
    shown = text.text.split("\n")[line - 1]
    for part in _texts(fault.part, text.printer):
        found = re.search(rf"(?<![\w.]){re.escape(part)}(?!\w)", shown)
        if found is not None:
            return Snippet(text.text, line, found.start() + 1, found.end() + 1)
    return Snippet(text.text, line)


def _texts(part: Expr | str | None, printer: Printer) -> list[str]:
    """How a part may stand on its line."""
    if isinstance(part, Expr):
        return [index_text(printer, part), printer.text(part, part.dtype), printer.text(part)]
    return [] if part is None else [part]
