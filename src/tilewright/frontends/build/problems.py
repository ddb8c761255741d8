"""Errors in a model, collected while it is read, so that one error lists them all."""

from __future__ import annotations

from typing import NoReturn

from tilewright.report.errors import UserError, all_of


class Unsupported(Exception):
    """Raised by a handler for what it does not support: `why` in the user's terms. `Problems` collects these."""

    def __init__(self, why: str, fix: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix


class AlreadyReported(Exception):
    """A value is missing because of a problem that is already in the list."""


class Problems:
    """The errors found so far."""

    def __init__(self) -> None:
        self._errors: list[UserError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, what: str, *, where: str, why: str | None = None, fix: str | None = None) -> None:
        self.append(UserError(what, where=where, why=why, fix=fix))

    def append(self, error: UserError) -> None:
        self._errors.append(error)

    def texts(self) -> list[str]:
        """What the errors say."""
        return [str(e) for e in self._errors]

    def extend(self, others: Problems) -> None:
        """Takes in the errors of other problems."""
        self._errors += others._errors

    def check(self, what: str) -> None:
        """One UserError that lists every problem once, under `what`, if there is any: a function that is called twice
        has its problems twice."""
        if self._errors:
            raise all_of(what, list({str(e): e for e in self._errors}.values()))


class Failed:
    """What kept a part of a model from being read: `problems`, and the error that ended the reading, if one did."""

    def __init__(self, problems: Problems, error: Exception | None = None) -> None:
        self._problems, self._error = problems, error

    def report(self, problems: Problems) -> NoReturn:
        """Adds the problems to these, and raises the error."""
        problems.extend(self._problems)
        raise self._error or AlreadyReported
