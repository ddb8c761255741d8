"""The three families of errors, in one shape: what went wrong, where, why (with the numbers), and how to fix it.

    cannot split loop j by 4
       1 | for i in 0..8:
       2 |   for j in 0..10:
         |   ^^^^^^^^^^^^^^^
    why:  4 does not divide 10: the last 2 iterations would have no place
    fix:  take a factor from [2, 5], or split(j, 4, tail="mask")

`str(error)` is this text, without a line break at its end. `where` is a `Snippet`, or any object whose `str` says the
place: an operator's name and source line, a file. Everything that a person meets is one of these three; a Python
exception of another kind that reaches a user is a defect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.report.printable import printable


class Block(str):
    """A place that is text of several lines, as it stands."""

    __slots__ = ()


class TilewrightError(Exception):
    """The shape that the three families share. `exit_code` is what a command ends with when the error reaches it."""

    exit_code = 1

    def __init__(self, what: str, *, where: object = None, why: str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        place = "" if self.where is None else str(self.where)
        if isinstance(self.where, str):
            place = _shown(self.where)
        parts = [_shown(self.what)]
        if place:
            parts.append(place if "\n" in place or place.startswith(" ") else f"at:   {place}")
        if self.why:
            parts.append(_labelled("why:  ", self.why))
        if self.fix:
            parts.append(_labelled("fix:  ", self.fix))
        return printable("\n".join(parts), lines=True)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles as text: the place may hold a program, which another process need not know to read the error."""
        where = self.where if self.where is None or type(self.where) is str else Block(str(self.where))
        return _restore, (type(self), self.what, where, self.why, self.fix)


class UserError(TilewrightError):
    """Something in what the user gave: a model, a program, a schedule, a file, an argument, a setting.

    wrong:  schedule.split(j, 4)                 # the extent of j is 10
    why:    4 does not divide 10, and nothing says what happens to the last 2 iterations
    right:  schedule.split(j, 4, tail="mask")
    """

    exit_code = 2


class InternalError(TilewrightError):
    """A defect of the compiler: a pass broke a law, a verifier refused what we made, a rule set cycles.

    The user cannot be at fault for it. The text says so, and where the last state was dumped when there is one.
    """

    exit_code = 70

    def __str__(self) -> str:
        return f"internal error: {super().__str__()}\nThis is a defect in Tilewright, not in your program."


class RuntimeFault(TilewrightError):
    """A compiled program met a value it must not go on with: an index out of range, a negative size, too little memory.

    wrong:  exe(table, np.array([7]))            # a table of 5 rows
    why:    index 7 is outside 0..5 at gather "embed"
    right:  indices below the number of rows, which the caller checks or clips
    """

    exit_code = 3


def all_of(what: str, errors: Sequence[UserError]) -> UserError:
    """One error that lists several, so that a user fixes all of them at once; the only one itself when there is one."""
    if len(errors) == 1:
        return errors[0]
    return UserError(f"{what}: {len(errors)} errors", where=Block(_listing(str(e) for e in errors)))


def _listing(texts: Iterable[str]) -> str:
    blocks = [_labelled(f"{n:>4}. ", text) for n, text in enumerate(texts, 1)]
    return "\n".join(blocks)


def _labelled(label: str, text: str) -> str:
    """The text behind its label, with further lines indented below the first."""
    return label + text.replace("\n", "\n" + " " * len(label))


def _shown(text: str) -> str:
    """Text on one line, as names in it may have more, unless it is several lines of its own."""
    return printable(text, lines=isinstance(text, Block))


def _restore(
    family: type[TilewrightError], what: str, where: object, why: str | None, fix: str | None
) -> TilewrightError:
    return family(what, where=where, why=why, fix=fix)
