"""Colours for program text on a terminal."""

from __future__ import annotations

from tilewright.report.syntax import styled

_RESET = "\033[0m"

STYLES = {
    "comment": "\033[2m",
    "string": "\033[32m",
    "constant": "\033[35m",
    "type": "\033[36m",
    "keyword": "\033[1;34m",
    "number": "\033[33m",
}


def highlight(text: str) -> str:
    """The text with colours, as a terminal takes them; without them it is the same text."""
    return "".join(piece if style is None else f"{STYLES[style]}{piece}{_RESET}" for style, piece in styled(text))
