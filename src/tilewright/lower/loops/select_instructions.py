"""Nests that are one instruction become a store of what the instruction makes of vectors.

    instruct x86.avx2.dot_i16 = l in 0..8:
      for q in 0..2: y[j + l] += i32(x[k + q]) * i32(w[k*8 + l*2 + q])
          =>
    y[j:j + 8] = x86.avx2.dot_i16(x[k:k + 2], w[k*8:k*8 + 16], y[j:j + 8])

The rows of a tile that lie further apart are elements base + lane // row * apart + lane % row.

After `flatten`, when every place is one index. Raises UserError where the target has not got the instruction.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr.nodes import Broadcast, Expr, Ramp, const
from tilewright.loops.edit import transform_statements
from tilewright.loops.faults import Fault, place_of
from tilewright.loops.instructions import Mismatch, Tile, match
from tilewright.loops.nodes import For, Function, If, Instruct, Load, Stmt, Store
from tilewright.report.errors import InternalError, UserError
from tilewright.target import Target
from tilewright.target.features import known_features
from tilewright.target.instructions import INSTRUCTIONS, Instruction


def select_instructions(function: Function, target: Target) -> Function:
    """The function with its INSTRUCTION loops as expressions over vectors."""

    def change(node: Node) -> Node:
        if not isinstance(node, For) or node.instruction is None:
            return node
        if not node.instruction.runs_on(target):
            raise _lacking(function, node, node.instruction, target)
        return _store(node, node.instruction)

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)


def _store(loop: For, instruction: Instruction) -> Stmt:
    try:
        found = match(loop, instruction)
    except Mismatch as wrong:
        raise InternalError(f"the nest of {instruction} was changed", why=wrong.why) from None
    given = tuple(_vector(found.tiles[r.name]) for r in instruction.registers)
    made = Store(given[-1].buffer, given[-1].indices, Instruct(instruction, given))
    return made if found.where is None else If(found.where, made)


def _vector(tile: Tile) -> Load:
    (first,) = tile.indices
    index: Expr = first if tile.count == 1 else Ramp(first, const(1), tile.count)
    if tile.apart not in (0, tile.row):
        lanes = Ramp(const(0), const(1), tile.count)
        row, apart = (Broadcast(const(n), tile.count) for n in (tile.row, tile.apart))
        index = Broadcast(first, tile.count) + (lanes // row * apart + lanes % row)
    return Load(tile.buffer, (index,))


def _lacking(function: Function, loop: For, instruction: Instruction, target: Target) -> UserError:
    """The error for a target without the instruction, with what it lacks and what there is in its place."""
    lacking = min(([f for f in features if not target.has(f)] for features in instruction.requires), key=len)
    what = f"cannot compile {instruction} for the target {target}"
    why = f"the target has no {' and no '.join(lacking)}"
    kind = instruction.accumulator.dtype
    others = [i.name for i in INSTRUCTIONS.values() if i.accumulator.dtype is kind and i.runs_on(target)]
    ways = [f'target="{target} {" ".join("+" + f for f in lacking)}"'] if _may_have(target, instruction) else []
    ways += [f"tensorize with one of {', '.join(others)}"] if others else []
    fix = ", or ".join(ways) or "leave out tensorize"
    return UserError(what, where=place_of(function, Fault(loop, what)), why=why, fix=fix)


def _may_have(target: Target, instruction: Instruction) -> bool:
    """Whether the instruction is one of the target's architecture, and the target is no machine that is there."""
    known = known_features(target.architecture)
    return not target.name.startswith("native") and all(f in known for f in instruction.requires[0])
