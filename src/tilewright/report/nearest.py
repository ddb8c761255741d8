"""The name that a misspelt one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def nearest(asked: str, names: Iterable[str]) -> str | None:
    """The name that is most like the one asked for; None where none is like it."""
    import difflib  # for those who misspell

    folded = {name.casefold(): name for name in names}
    found = difflib.get_close_matches(asked.casefold(), folded, n=1)
    return folded[found[0]] if found else None


def suggest(asked: str, names: Sequence[str], kind: str) -> str:
    """The line `fix` for an unknown name: `did you mean image?`, or all of the names there are, which are of a kind."""
    near = nearest(asked, names)
    shown = f"the {kind} are {', '.join(names) or 'none'}"
    return shown if near is None else f"did you mean {near}? {shown}"
