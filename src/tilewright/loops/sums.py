"""The laws of blocks with reduce axes: they accumulate, and what their `init` needs is there when it runs.

for k in 0..8, i in 0..8:                       for i in 0..8:              before loop k, in a loop i of its own
  block s(vi = i, reduce vk = k):                 y[i] = 0.0
    init: y[vi] = 0.0                     =>    for k in 0..8, i in 0..8:
    y[vi] += x[vi, vk]                            y[i] += x[i, k]

So the bounds of loop i, what vi is bound to, and the `init` itself can use neither k nor what is defined inside loop k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from tilewright.core.node import Node
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.decompose import init_nest, summed_loops
from tilewright.loops.faults import Fault
from tilewright.loops.nodes import Axis, Block, Buffer, CallFunction, For, Load, Seq, Stmt, Store
from tilewright.types.scopes import Scope


def check_accumulates(s: Block) -> None:
    """Some buffer is both read and stored to, or a call may do so."""
    nodes = list(preorder(s.body))
    stored = {n.buffer for n in nodes if isinstance(n, Store)}
    if any(isinstance(n, CallFunction) or (isinstance(n, Load) and n.buffer in stored) for n in nodes):
        return
    axis = s.reduce[0]
    why = "each of its points would overwrite the one before"
    fix = f"accumulate, or make the axis spatial: {axis.var.name} = …"
    what = f"block {s.name} has the reduce axis {axis.var.name}, but accumulates nothing"
    raise Fault(axis, what, why=why, fix=fix)


def check_init(s: Block, init: Stmt, reduced: Set[Var]) -> None:
    """An `init` only stores, begins a sum, and knows nothing of its terms; `reduced` are the reduce axes of the blocks
    around this one."""
    if not s.reduce:
        fix = f"mark the axes that are summed over: reduce {s.axes[-1].var.name if s.axes else 'vk'} = …"
        raise Fault(init, f"block {s.name} has an init, but no reduce axis", fix=fix)
    for axis in s.reduce:
        outer = next((v for v in preorder(axis.binding) if isinstance(v, Var) and v in reduced), None)
        if outer is not None:
            why = f"{axis.var.name} goes on over {outer.name}, an axis of the block around it"
            raise Fault(init, f"the init of block {s.name} would run once for each {outer.name}", why=why)
    own = {a.var for a in s.reduce}
    for node in preorder(init):
        if isinstance(node, Var) and node in own:
            why = "it runs once for all its points"
            raise Fault(init, f"init uses the reduce axis {node.name}", part=node.name, why=why)
        if isinstance(node, Stmt) and not isinstance(node, Seq | Store | For | Block):
            raise Fault(node, f"init of block {s.name} does more than store")


def check_place(s: Block, around: Sequence[For], visible: Sequence[Set[Node]]) -> None:
    """What the `init` of a block needs is defined before the outermost loop that the block sums over. `visible` holds,
    for each loop around the block, what is defined before it."""
    summed = summed_loops(s)
    first = next((n for n, loop in enumerate(around) if loop.var in summed), None)
    if first is None:
        return
    nest = init_nest(s, around[first:], s.name)
    known = visible[first] | _defined(nest)
    for at, root in _needed(nest):
        for found in names_in(root):
            if found not in known:
                raise _too_early(s, found, around[first], at, around)


def _defined(nest: Stmt) -> set[Node]:
    """The loop variables and axes of a nest."""
    return {n.var for n in preorder(nest) if isinstance(n, For | Axis)}


def _needed(nest: Stmt) -> Iterator[tuple[For | Axis | Stmt, Node]]:
    """What the nest of an `init` uses, with the loop, axis or statement that does; a predicate is its block's."""
    while isinstance(nest, For):
        yield nest, nest.begin
        yield nest, nest.end
        nest = nest.body
    assert isinstance(nest, Block)
    for axis in nest.axes:
        yield axis, axis.binding
    if nest.where is not None:
        yield nest, nest.where
    yield nest.body, nest.body


def names_in(root: Node) -> Iterator[Var | Buffer]:
    """The variables and buffers in an expression or a statement. Constants are known everywhere and left out."""
    for node in preorder(root):
        if isinstance(node, Var):
            yield node
        elif isinstance(node, Load | Store) and node.buffer.scope is not Scope.CONSTANT:
            yield node.buffer


def _too_early(s: Block, found: Var | Buffer, outer: For, at: For | Axis | Stmt, around: Sequence[For]) -> Fault:
    """The fault of an `init` that needs what is not there before the loop `outer`."""
    place: Node = at
    part: Expr | str = found.name
    match at:
        case For():
            place = next(loop for loop in around if loop.var is at.var)
            part = f"{at.var.name} in {at.begin}..{at.end}"
            fix = f"give loop {at.var.name} bounds without {found.name}, and the block a predicate: where …"
        case Axis():
            part = at.binding
            fix = f"bind {at.var.name} to an expression without {found.name}"
        case Block():
            place, fix = s, f"leave {found.name} out of the predicate"
        case _ if isinstance(found, Buffer):
            fix = f"allocate {found.name} before loop {outer.var.name}"
        case _:
            fix = f"leave out the init, and store the initial values in a block before loop {outer.var.name}"
    why = f"it runs before loop {outer.var.name}, where {found.name} is not defined"
    return Fault(place, f"the init of block {s.name} needs {found.name}", part=part, why=why, fix=fix)
