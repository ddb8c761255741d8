"""The attribute records that the graph level itself understands: what binds, checks, names and repeats instead of
computing.

Verification and evaluation treat nodes with these records themselves, because they need the module around the node.
Their operators are in `ops/symbolic.py`, with all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.graph.op import Attributes
from tilewright.types.tensor import TensorType


class Constant(Attributes):
    """The module's constant `name`, of the static `type`."""

    name: str
    type: TensorType


class Size(Attributes):
    """The run-time value of an i64 scalar becomes the symbol that the node binds; the call fails unless it is in
    [low, high]. `what` says in the message what it is the size of."""

    any_number = frozenset({"low", "high"})

    low: Expr
    high: Expr
    what: str

    def symbol(self, name: str) -> Var:
        """A symbol for a node with this record to bind. It counts as never negative only where `low` says so."""
        return Var(name, dtypes.index, 0 if isinstance(self.low, Const) and self.low.value >= 0 else None)


class Require(Attributes):
    """The call fails with `message` unless `cond` holds; {0} and {1} are the two sides of a comparison."""

    any_number = frozenset({"cond"})

    cond: Expr
    message: str


class Call(Attributes):
    """Calls the loops function `callee` with `symbols` for its symbols: its parameters are the node's inputs, then the
    node's outputs, which have `types`."""

    callee: str
    symbols: tuple[Expr, ...]
    types: tuple[TensorType, ...]


class Direction(Enum):
    """The order in which a scan takes, or gives, the slices along a leading axis."""

    FORWARD = "forward"
    REVERSE = "reverse"


class Scan(Attributes):
    """Runs the graph function `body` `steps` times, with `symbols` for its symbols. If it has one more, that is the
    number of the step, from 0 on.

    The inputs are the initial states, as many as `states`; the operands of which each step takes a slice along the
    leading axis, one for each of `scanned`; and the operands that every step takes whole. The body's parameters are the
    states, the slices and the whole operands. Its results are the next states and a slice of each stacked output, one
    for each of `stacked`. The node's outputs, which have `types`, are the states after the last step (the initial ones
    where there is no step), and the stacked outputs."""

    body: str
    steps: Expr
    states: int
    types: tuple[TensorType, ...]
    symbols: tuple[Expr, ...] = ()
    scanned: tuple[Direction, ...] = ()
    stacked: tuple[Direction, ...] = ()


class If(Attributes):
    """Runs one of two graph functions: `then` where the first input, a truth value, holds, else `otherwise`.

    Both have the inputs behind the first for parameters, with `symbols` for their symbols; their results are the node's
    outputs, which have `types`. An extent that the two give differently is a symbol that the node binds: its value is
    the extent that the branch which ran gives. Of a branch that does not run, no check fails."""

    then: str
    otherwise: str
    types: tuple[TensorType, ...]
    symbols: tuple[Expr, ...] = ()


class While(Attributes):
    """Runs the graph function `body` again and again, as long as a truth value holds that each step computes for the
    next one, and at most `most` times, where that is given.

    The inputs are that truth value for the first step, the initial states, as many as `states`, and the operands that
    every step takes whole. The body's parameters are the states and the operands. Its results are whether to go on, the
    next states, and a slice of each stacked output. Its symbols are those that `symbols` give values; the number of the
    step, from 0 on; and those extents of states that change: each is by itself a dimension of states in its parameters,
    and what its results have there is the extent that the next step begins with.

    The node's outputs, which have `types`, are the states after the last step (the initial ones where there is no step)
    and the stacked outputs. The node binds a symbol for the number of steps, the leading extent of stacked outputs,
    and one for the last value of each extent that changes. What a step requires is checked in that step."""

    body: str
    states: int
    types: tuple[TensorType, ...]
    symbols: tuple[Expr, ...] = ()
    most: Expr | None = None

    any_number = frozenset({"most"})


def bodies_of(attrs: Attributes) -> tuple[str, ...]:
    """The names of the graph functions that a node with this record runs."""
    match attrs:
        case Scan(body) | While(body):
            return (body,)
        case If(then, otherwise):
            return then, otherwise
    return ()


def functions_of(attrs: Attributes) -> tuple[str, ...]:
    """The names of the functions of either level that a node with this record runs."""
    return (attrs.callee,) if isinstance(attrs, Call) else bodies_of(attrs)


def running(attrs: Attributes, names: Mapping[str, str]) -> Attributes:
    """The record of a node that runs functions of other names in the place of its own."""
    match attrs:
        case Scan(body) | While(body):
            return attrs.replace(body=names[body])
        case If(then, otherwise):
            return attrs.replace(then=names[then], otherwise=names[otherwise])
        case Call(callee) if callee in names:
            return attrs.replace(callee=names[callee])
    return attrs


def given_symbols(attrs: Attributes) -> tuple[Expr, ...]:
    """What a node with this record gives the first symbols of the functions that it runs."""
    return attrs.symbols if isinstance(attrs, Scan | If | While) else ()


def given_fields(attrs: Attributes) -> tuple[Any, ...]:
    """The fields of a node's record whose symbols are known before the node: of one that binds extents of its outputs,
    all but the outputs' types."""
    match attrs:
        case If():
            return attrs.symbols
        case While():
            return (*attrs.symbols, *(() if attrs.most is None else (attrs.most,)))
    return attrs.field_values()


def states_of(attrs: Attributes) -> int:
    """How many states a node with this record hands from step to step: its first outputs."""
    return attrs.states if isinstance(attrs, Scan | While) else 0


def ahead(attrs: Attributes) -> int:
    """How many inputs of a node stand before those that its functions take: the truth value of a branch or a loop."""
    return 1 if isinstance(attrs, If | While) else 0


def binds_extents(attrs: Attributes) -> bool:
    """Whether a node with this record binds extents of its own outputs."""
    return isinstance(attrs, If | While)


def place(direction: Direction, step: Expr, steps: Expr) -> Expr:
    """The index of a step's slice along the leading axis."""
    return step if direction is Direction.FORWARD else steps - 1 - step
