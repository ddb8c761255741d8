"""Values by the names that a model gives them, in graphs within graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright.frontends.build.names import clip
from tilewright.frontends.build.problems import AlreadyReported
from tilewright.frontends.build.values import Tensor
from tilewright.report.errors import UserError


class Unread:
    """Stands for a value that could not be read because something before it is not supported."""


UNREAD = Unread()

Known = Tensor | Unread | None
Scope = dict[str, Known]
"""Values by name; None for an input of a function that the call leaves out."""


class Scopes:
    """The scopes that are open, the innermost last: names are looked up from there outwards."""

    def __init__(self) -> None:
        self._open: list[Scope] = []

    @property
    def innermost(self) -> Scope:
        """Where values are defined now."""
        return self._open[-1]

    @contextmanager
    def inner(self, scope: Scope) -> Iterator[None]:
        """Inside, `scope` is the innermost one: a sub-graph, which sees the values around it."""
        self._open.append(scope)
        try:
            yield
        finally:
            self._open.pop()

    @contextmanager
    def apart(self, scope: Scope) -> Iterator[None]:
        """Inside, `scope` is the only one: the body of a function, which sees its parameters alone."""
        before, self._open = self._open, [scope]
        try:
            yield
        finally:
            self._open = before

    def find(self, name: str, user: str) -> Known:
        """What `name` means here. UserError, at `user`, where nothing defines it."""
        for scope in reversed(self._open):
            if name in scope:
                return scope[name]
        why = "no input, initializer or node has it"
        raise UserError(f"the value {clip(name)} is not defined", where=user, why=why)

    def tensor(self, name: str, user: str) -> Tensor:
        """The tensor that `name` means here; AlreadyReported where there is none because of an earlier problem."""
        known = self.find(name, user)
        if not isinstance(known, Tensor):
            raise AlreadyReported
        return known

    def has_any(self, names: Sequence[str]) -> bool:
        """Whether one of the names means something here."""
        return any(name in scope for scope in self._open for name in names)

    def visible(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Those of the names that are tensors here."""
        found: dict[str, Tensor] = {}
        for scope in self._open:
            found.update({n: known for n in names if isinstance(known := scope.get(n), Tensor)})
        return found
