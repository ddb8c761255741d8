"""What is wrong with a model and does not keep anybody from knowing what it means: one warning for each kind.

remarks = Remarks()
remarks.add(UNSORTED, "Relu 'b'", "it uses 'z', which Neg 'a' defines later")
remarks.tell()            # warns: what, the first place and how many more there are, why, and what is assumed
remarks.check()           # or raises one UserError that lists all kinds
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass

from tilewright.report.errors import UserError, all_of

_PACKAGE = __name__.partition(".")[0]


class ModelWarning(UserWarning):
    """A model is not written as its format says. It was read with what the warning's last line says; `strict=True`, or
    `--strict` on the command line, makes it a UserError."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A way of being wrong: what it is, what is assumed in its place, and how to mend the model."""

    what: str
    assumed: str
    fix: str


class Remarks:
    """What was found of one model, each place of a kind once."""

    def __init__(self) -> None:
        self._found: dict[Kind, dict[str, str]] = {}

    def add(self, kind: Kind, where: str, why: str) -> None:
        """Something of this kind at a place, with the names or numbers that show it."""
        self._found.setdefault(kind, {}).setdefault(where, why)

    def has(self, kind: Kind) -> bool:
        """Whether there is something of this kind."""
        return kind in self._found

    def tell(self) -> None:
        """A `ModelWarning` for each kind, at the line outside of this package that asked for the model."""
        for kind, places in self._found.items():
            where, why = _first(places)
            text = f"{kind.what}\nat:   {where}\nwhy:  {why}\nso:   {kind.assumed}"
            warnings.warn(ModelWarning(text), stacklevel=_level())

    def check(self) -> None:
        """UserError with every kind, if there is any."""
        errors = []
        for kind, places in self._found.items():
            where, why = _first(places)
            errors.append(UserError(kind.what, where=where, why=why, fix=kind.fix))
        if errors:
            raise all_of("the model is not written as its format says", errors)


def _first(places: dict[str, str]) -> tuple[str, str]:
    """The first place with the number of others, and its reason."""
    where, why = next(iter(places.items()))
    more = len(places) - 1
    return (f"{where}, and {more} more {'place' if more == 1 else 'places'}" if more else where), why


def _level() -> int:
    """How many frames above `tell` the line is that called this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    return level
