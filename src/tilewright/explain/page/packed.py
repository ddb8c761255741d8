"""Programs in a page: coloured and compressed, each kernel's in an element that is unpacked when it is shown.

An element holds the base64 of a zlib stream of JSON: `[[name, about, markup], …]`, the levels of a kernel.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Sequence

from tilewright.explain.page.markup import Markup, element
from tilewright.explain.page.programs import Level
from tilewright.report.syntax import styled

TAGS = {"comment": "i", "string": "s", "constant": "u", "type": "em", "keyword": "b", "number": "var"}
"""The elements that stand for the styles of program text."""


def packed(name: str, levels: Sequence[Level]) -> Markup:
    """The element with the programs of a kernel."""
    text = json.dumps([[level.name, level.about, coloured(level.text)] for level in levels], separators=(",", ":"))
    data = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return element("script", Markup(data), type="application/octet-stream", data_of=name)


def coloured(text: str) -> str:
    """Program text as markup."""
    return "".join(_piece(style, html.escape(piece, quote=False)) for style, piece in styled(text))


def _piece(style: str | None, text: str) -> str:
    return text if style is None else f"<{TAGS[style]}>{text}</{TAGS[style]}>"
