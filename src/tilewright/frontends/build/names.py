"""Names from a model: quoted for messages, made fit for symbols, and one symbol for each name of a dimension."""

from __future__ import annotations

from tilewright.expr.nodes import Var
from tilewright.graph.build import GraphBuilder

LONGEST = 80
"""How many characters of a name a message shows."""


def clip(text: str) -> str:
    """A name from a model, quoted and short enough for a message."""
    return repr(text if len(text) <= LONGEST else text[: LONGEST - 3] + "...")


def symbol_name(text: str) -> str:
    """The name with all but letters, digits and underscores replaced; one that begins with a digit gets a letter."""
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in text)
    return f"d{plain}" if plain[:1].isdigit() else plain


class Dimensions:
    """The symbols of dynamic dimensions. Dimensions of one name are one symbol; those without a name are all
    different."""

    def __init__(self, graph: GraphBuilder) -> None:
        self._graph = graph
        self._symbols: dict[str, Var] = {}

    def symbol(self, name: str, place: str) -> Var:
        """The symbol of a dimension called `name`; of one without a name, the symbol of its `place` in the model."""
        key = name or f"?{place}"
        if key not in self._symbols:
            self._symbols[key] = self._graph.symbol(symbol_name(name or place))
        return self._symbols[key]
