"""Names of what primitives make: every block of a program has a name of its own, so that handles stay clear."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, count

from tilewright.core.node import Node
from tilewright.loops.edit import allocations, blocks, loops_inside, transform_statements
from tilewright.loops.nodes import Block, Function, Stmt


def unique_block(function: Function, name: str) -> str:
    """The name, with a number behind it where a block has it already."""
    return unique(name, {b.name for b in blocks(function.body)})


def unique_buffer(function: Function, name: str) -> str:
    """The name, with a number behind it where a parameter, a local buffer or a block has it already: a buffer and the
    block that fills it share theirs."""
    taken = {b.name for b in (*function.params, *allocations(function.body))}
    return unique(name, taken | {b.name for b in blocks(function.body)})


def unique_loops(function: Function, names: Sequence[str]) -> tuple[str, ...]:
    """The names, each with a number behind it where a loop of the program, or one before it, has it already."""
    taken = {loop.var.name for loop in loops_inside(function.body)}
    made: list[str] = []
    for name in names:
        made.append(unique(name, taken))
        taken.add(made[-1])
    return tuple(made)


def unique(name: str, taken: Collection[str], joint: str = "") -> str:
    """The name, with a number behind it, after `joint`, where it is taken."""
    numbered = (f"{name}{joint}{n}" for n in count(2))
    return next(each for each in chain((name,), numbered) if each not in taken)


def fresh_blocks(function: Function, stmt: Stmt, suffix: str) -> Stmt:
    """The statement with its blocks named anew: NAME + suffix, numbered where that is taken."""
    taken = {b.name for b in blocks(function.body)}

    def change(node: Node) -> Node:
        if not isinstance(node, Block):
            return node
        name = unique(node.name + suffix, taken)
        taken.add(name)
        return node.replace(name=name)

    return transform_statements(stmt, change)
