"""The blocks of a node, by the definition of its operator. Of an operator that a program added, they are checked.

Planning believes what an operator says of itself: a map is one block over its output, so that readers compute it where
they need it, and an element-wise one reads each input of its output's shape at the point that it computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.asking import ask, failure, place_of
from tilewright.expr.nodes import Var
from tilewright.graph.nodes import Node
from tilewright.graph.op import Pattern
from tilewright.loops.build import Builder
from tilewright.loops.edit import blocks, loads, statements
from tilewright.loops.nodes import Alloc, AxisKind, Block, Buffer, Function, Stmt, Store, seq
from tilewright.loops.symbols import free_symbols
from tilewright.loops.text import show
from tilewright.loops.verify import verify
from tilewright.report.errors import Block as Lines
from tilewright.report.errors import UserError


def define(build: Builder, node: Node, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> None:
    """Adds the blocks of a node to `build`. UserError for an operator of a program whose definition is not valid."""
    if not node.op.is_added:
        node.op.define(build, inputs, outputs, node.attrs)
        return
    before = len(build.statements)
    ask(f"the definition of the operator {node.op.name}", node.op.define, build, inputs, outputs, node.attrs)
    _check(node, seq(*build.statements[before:]), inputs, outputs)


def _check(node: Node, body: Stmt, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> None:
    params = (*dict.fromkeys(inputs), *outputs)
    try:
        function = Function(node.op.name, free_symbols(body, params), params, body, len(outputs))
        verify(function, family=UserError)
    except UserError as error:
        raise _wrong(node, error.what.removeprefix("invalid program: "), error.where, error.why, error.fix) from None
    except Exception as error:  # whatever parts of a program cause that are of other kinds than they must be
        raise failure(f"the definition of the operator {node.op.name}", node.op.define, error) from error
    stored = {s.buffer for s in statements(body) if isinstance(s, Store)}
    allocated = {s.buffer for s in statements(body) if isinstance(s, Alloc)}
    for buffer in stored - allocated - set(outputs):
        raise _wrong(node, f"it writes {buffer.name}, which is no output", Lines(show(function)))
    for buffer in outputs:
        if buffer not in stored:
            raise _wrong(node, f"it writes nothing to {buffer.name}", Lines(show(function)))
    if node.op.pattern is Pattern.MAP:
        _check_map(node, function, blocks(body), outputs)


def _check_map(node: Node, function: Function, found: Sequence[Block], outputs: tuple[Buffer, ...]) -> None:
    """A map is one block whose store indices are its axes."""
    (out,) = outputs if len(outputs) == 1 else (None,)
    stores = [s for s in statements(function.body) if isinstance(s, Store)]
    axes = tuple([axis.var for axis in found[0].axes]) if len(found) == 1 else ()
    spatial = len(found) == 1 and all(axis.kind is AxisKind.SPATIAL for axis in found[0].axes)
    if out is None or not spatial or len(stores) != 1 or stores[0].indices != axes or found[0].where is not None:
        why = "its pattern is MAP, and a map is one block that stores to each point of its one output"
        raise _wrong(node, why, Lines(show(function)), fix="pattern = tilewright.Pattern.OPAQUE")
    if node.op.elementwise:
        _check_elementwise(node, function, out, axes)


def _check_elementwise(node: Node, function: Function, out: Buffer, axes: tuple[Var, ...]) -> None:
    """Each input of the output's shape is read at the point that is computed."""
    for load in loads(function.body):
        if load.buffer.shape == out.shape and load.indices != axes:
            why = f"it is elementwise, and reads {load} for the point {', '.join(a.name for a in axes)}"
            raise _wrong(node, why, Lines(show(function)), fix="elementwise = False")


def _wrong(node: Node, what: str, where: object, why: str | None = None, fix: str | None = None) -> UserError:
    """The error for a definition: with the program that it gives, and where it is written."""
    said = f"{what}: {why}" if why else what
    place = place_of(node.op.define) or node.op.place()
    return UserError(
        f"the definition of the operator {node.op.name} is not valid",
        where=where,
        why=f"{said}\n(written at {place})" if place else said,
        fix=fix,
    )
