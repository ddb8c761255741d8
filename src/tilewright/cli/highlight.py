"""Colours for program text on a terminal: graphs, loops, LLVM IR and assembly by one table of words."""

from __future__ import annotations

import re

_RESET = "\033[0m"

STYLES = {
    "comment": "\033[2m",
    "string": "\033[32m",
    "constant": "\033[35m",
    "type": "\033[36m",
    "keyword": "\033[1;34m",
    "number": "\033[33m",
}

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
"""What each style applies to; where two rules meet, the first one wins."""

_ANY = re.compile("|".join(f"(?P<{style}>{pattern})" for style, pattern in RULES), re.MULTILINE)


def highlight(text: str) -> str:
    """The text with colours, as a terminal takes them; without them it is the same text."""
    return _ANY.sub(lambda found: f"{STYLES[found.lastgroup or 'string']}{found[0]}{_RESET}", text)
