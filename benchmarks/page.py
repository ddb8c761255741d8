"""Tables of a run put into a page of the documentation, between two marks:

<!-- contractions: begin -->
<!-- contractions: end -->
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Report


def write_reports(page: Path, mark: str, reports: Sequence[Report]) -> None:
    """Puts `reports` in the place of what stands between the marks."""
    text = page.read_text(encoding="utf-8")
    page.write_text(replace_between(text, mark, "\n\n".join(r.markdown() for r in reports)), encoding="utf-8")


def replace_between(text: str, mark: str, content: str) -> str:
    """`text` with `content` between its two marks, which must be there once each and in order."""
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the page needs one line {begin.strip()} and one line {end} after it")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    return f"{before}{begin}\n{content}\n\n{end}{after}"
