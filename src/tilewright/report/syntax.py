"""The words of program text: graphs, loops, LLVM IR and assembly by one table, for colouring."""

from __future__ import annotations

import re
from collections.abc import Iterator

_KEYWORDS = (
    "graph func for parallel vectorize unroll bind block init reduce where alloc in at let if else while assert "
    "reserve call pass scope out inout constant source from as and or not "
    "define declare ret br load store phi icmp fcmp getelementptr select switch unreachable attributes target"
)

RULES = (
    ("comment", r"(?:^|(?<=\s))[#;](?!\d+\b).*$"),
    ("string", r'"(?:[^"\\\n]|\\.)*"'),
    ("constant", r"@[\w.$]+"),
    ("type", r"\b(?:bool|[iu](?:1|8|16|32|64)|f16|bf16|f32|f64|half|bfloat|float|double|ptr|void)\b"),
    ("keyword", rf"\b(?:{_KEYWORDS.replace(' ', '|')})\b"),
    ("number", r"(?<![\w.%@])-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w])"),
)
"""The styles, and what each applies to; where two rules meet, the first one wins."""

_ANY = re.compile("|".join(f"(?P<{style}>{pattern})" for style, pattern in RULES), re.MULTILINE)


def styled(text: str) -> Iterator[tuple[str | None, str]]:
    """The text in pieces, each with its style; None for what has none."""
    end = 0
    for found in _ANY.finditer(text):
        if found.start() > end:
            yield None, text[end : found.start()]
        yield found.lastgroup, found[0]
        end = found.end()
    if end < len(text):
        yield None, text[end:]
