"""Names that are unlike all others, in constant time each: models have thousands of values that are all called add."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.core.node import Node
from tilewright.expr.text import own_name


class FreshNames:
    """Gives `w`, then `w.1`, `w.2` …, leaving out what is taken."""

    def __init__(self, taken: Iterable[str] = (), separator: str = ".") -> None:
        self._taken = set(taken)
        self._separator = separator
        self._counts: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """A name that begins with `base` and that was not given before."""
        name = base
        count = self._counts.get(base, 0)
        while name in self._taken:
            count += 1
            name = f"{base}{self._separator}{count}"
        self._counts[base] = count
        self._taken.add(name)
        return name


class PrintedNames:
    """The names that the values and symbols of one function have in its text: their own, made writable and unique."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._names = FreshNames(reserved, "_")
        self._given: dict[Node, str] = {}

    def __call__(self, node: Node) -> str:
        """The name of a value or symbol, given when it is first asked for."""
        name = self._given.get(node)
        if name is None:
            name = self._given[node] = self._names.fresh(own_name(node))
        return name
