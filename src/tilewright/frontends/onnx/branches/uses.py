"""Which values of a scope are used from a place on: what its outputs follow from, by the last node that takes it.

A place is the position of a node, with the position in its branch behind it for a node of a branch that is read in
place of its If, and so on: places are in the order in which nodes are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.frontends.onnx.order import names_taken

if TYPE_CHECKING:
    from onnx import NodeProto

At = tuple[int, ...]


class Uses:
    """The uses of the values of a scope, whose `outputs` are wanted behind its nodes; looked for when they are first
    asked for, each node once."""

    def __init__(self, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> None:
        self._nodes, self._outputs = nodes, outputs
        self._found: dict[str, At] | None = None

    def is_wanted(self, node: NodeProto) -> bool:
        """Whether the outputs of the scope follow from what a node gives."""
        last = self._last()
        return any(name in last for name in node.output)

    def live(self, names: Sequence[str], at: At) -> list[str]:
        """Those of the names that are used from a place on."""
        last = self._last()
        return [name for name in names if last.get(name, ()) >= at]

    def splice(self, nodes: Sequence[NodeProto], at: At) -> None:
        """Notes that these nodes are read in place of the one there."""
        self._note(self._last(), nodes, at)

    def _last(self) -> dict[str, At]:
        if self._found is None:
            self._found = dict.fromkeys(self._outputs, (len(self._nodes),))
            self._note(self._found, self._nodes, ())
        return self._found

    @staticmethod
    def _note(last: dict[str, At], nodes: Sequence[NodeProto], at: At) -> None:
        for n in reversed(range(len(nodes))):
            here = (*at, n)
            if any(last.get(name, ()) > at for name in nodes[n].output):
                last.update((name, here) for name in names_taken(nodes[n]) if last.get(name, ()) < here)
