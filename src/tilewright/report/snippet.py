"""Pieces of program text with line numbers, and carets under the part that is meant.

       1 | for i in 0..8:
       2 |   for j in 0..10:
         |   ^^^^^^^^^^^^^^^

Lines and columns count from 1, as editors do.
"""

from __future__ import annotations

from dataclasses import dataclass

NUMBER_WIDTH = 4
LONGEST_LINE = 160


@dataclass(frozen=True, slots=True)
class Snippet:
    """The lines around line `line` of `text`, with carets under columns `column` up to and without `end_column`.

    Without `column` the carets are under the whole line less its indentation; with `column` and no `end_column` one
    caret stands. `before` and `after` are the numbers of lines shown around it. `name`, of a file or function, is shown
    above the lines. A place outside the text is moved to the nearest line or column.
    """

    text: str
    line: int
    column: int | None = None
    end_column: int | None = None
    before: int = 1
    after: int = 0
    name: str | None = None

    def __str__(self) -> str:
        lines = self.text.split("\n")
        line = min(max(self.line, 1), len(lines))
        first, last = max(1, line - self.before), min(len(lines), line + self.after)
        shown = [] if self.name is None else [f"  in {self.name}"]
        for number in range(first, last + 1):
            source, cut = _window(lines[number - 1], self.column if number == line else 1)
            shown.append(f"{number:>{NUMBER_WIDTH}} | {source}".rstrip())
            if number == line:
                start, end = self._span(lines[line - 1])
                end = min(end, cut + LONGEST_LINE)
                shown.append(f"{'':>{NUMBER_WIDTH}} | {_margin(source, start - cut)}{'^' * max(1, end - start)}")
        return "\n".join(shown)

    def _span(self, source: str) -> tuple[int, int]:
        """The marked columns, counted from 0, the end not included."""
        if self.column is None:
            return len(source) - len(source.lstrip()), len(source.rstrip())
        start = min(max(self.column - 1, 0), len(source))
        end = start + 1 if self.end_column is None else min(self.end_column - 1, len(source))
        return start, max(end, start + 1)


def find(text: str, part: str, *, name: str | None = None, before: int = 1, after: int = 0) -> Snippet | None:
    """The snippet that marks the first occurrence of `part`, up to the end of its line; None when it does not occur."""
    offset = text.find(part)
    if offset < 0 or not part:
        return None
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    width = len(part.split("\n", 1)[0].rstrip())
    return Snippet(text, line, column, column + width, before, after, name)


def _window(source: str, column: int | None) -> tuple[str, int]:
    """The part of a long line that holds the column, and the number of characters cut off before it."""
    if len(source) <= LONGEST_LINE:
        return source, 0
    cut = max(0, min((column or 1) - LONGEST_LINE // 2, len(source) - LONGEST_LINE))
    return source[cut : cut + LONGEST_LINE], cut


def _margin(source: str, width: int) -> str:
    """Blanks that reach as far as `width` characters of the source do on a terminal: tabs are kept."""
    return "".join("\t" if c == "\t" else " " for c in source[:width]).ljust(width)
