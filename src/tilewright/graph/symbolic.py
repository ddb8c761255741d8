"""The attribute records that the graph level itself understands: what binds, checks and names instead of computing.

Verification and evaluation treat nodes with these records themselves, because they need the module around the node.
The operators they belong to stand in `ops/symbolic.py` with all others.
"""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.graph.op import Attributes
from tilewright.types.tensor import TensorType


class Constant(Attributes):
    """The module's constant `name`, of the static `type`."""

    name: str
    type: TensorType


class Size(Attributes):
    """The run-time value of an i64 scalar becomes the symbol that the node binds; the call fails unless it lies in
    [low, high]. `what` says in the message what it is the size of."""

    low: Expr
    high: Expr
    what: str

    def symbol(self, name: str) -> Var:
        """A symbol for a node with this record to bind. It counts as never negative only where `low` says so."""
        return Var(name, dtypes.index, 0 if isinstance(self.low, Const) and self.low.value >= 0 else None)


class Require(Attributes):
    """The call fails with `message` unless `cond` holds; {0} and {1} are the two sides of a comparison."""

    cond: Expr
    message: str


class Call(Attributes):
    """Calls the loops function `callee` with `symbols` for its symbols: its parameters are the node's inputs, then the
    node's outputs, which have `types`."""

    callee: str
    symbols: tuple[Expr, ...]
    types: tuple[TensorType, ...]
