r"""Text from models, files and callers as a terminal may have it: characters that do not print are escaped.

    printable("x\x1b[2J")          ->  x\x1b[2J
    printable("a\nb")              ->  a\nb
    printable("a\nb", lines=True)  ->  a
                                       b

Names are anybody's: a terminal would obey the control characters in them, and show text between marks of direction in
another order than it has.
"""

from __future__ import annotations


def printable(text: str, *, lines: bool = False) -> str:
    """The text on one line or, of text that has `lines`, with its ends of lines and tabs."""
    if text.isprintable():
        return text
    if lines and "\n" in text:
        return "\n".join([printable(line, lines=True) for line in text.split("\n")])  # few have what does not print
    kept = "\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)
