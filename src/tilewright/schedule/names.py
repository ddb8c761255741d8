"""Names of what primitives make: every block of a program has a name of its own, so that handles stay clear."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.loops.edit import blocks, transform_statements
from tilewright.loops.nodes import Block, Function, Stmt


def unique_block(function: Function, name: str) -> str:
    """The name, with a number behind it where a block has it already."""
    taken = {b.name for b in blocks(function.body)}
    found, n = name, 1
    while found in taken:
        n += 1
        found = f"{name}{n}"
    return found


def fresh_blocks(function: Function, stmt: Stmt, suffix: str) -> Stmt:
    """The statement with its blocks named anew: NAME + suffix, numbered where that is taken."""
    taken = {b.name for b in blocks(function.body)}

    def change(node: Node) -> Node:
        if not isinstance(node, Block):
            return node
        name, n = node.name + suffix, 1
        while name in taken:
            n += 1
            name = f"{node.name}{suffix}{n}"
        taken.add(name)
        return node.replace(name=name)

    return transform_statements(stmt, change)
