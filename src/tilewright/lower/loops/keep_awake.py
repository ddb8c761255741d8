"""Long sums of products in tiles store a tile in each iteration, which nobody reads.

    for k: t[0:256] = x86.amx.dot_bf16(…)      =>      alloc idle: f32[256] in stack
                                                       for k:
                                                         t[0:256] = x86.amx.dot_bf16(…)
                                                         idle[0:256] = x86.amx.zero_f32(…)

A processor puts to sleep what stores tiles where it is not used for a while (`TILE_STORES_APART`), and the next store
waits until it is awake. Stores that keep it awake take no time that can be measured (docs/findings.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.core.node import Node
from tilewright.expr.nodes import Ramp, const
from tilewright.loops.edit import perfect_nest, statements, transform_statements
from tilewright.loops.nodes import Alloc, Buffer, For, Function, Instruct, Load, Stmt, Store, seq
from tilewright.target.instructions import INSTRUCTIONS, TILE_ROWS, TILE_STORES_APART, Instruction
from tilewright.types.scopes import Scope


def keep_awake(function: Function) -> Function:
    """The function with such stores in its long sums of products in tiles."""
    idle: dict[Instruction, Load] = {}

    def change(node: Node) -> Node:
        if type(node) is not For:
            return node
        loops, inner = perfect_nest(node)
        products = _products(inner)
        if not products or not _is_long(loops, len(products)):
            return node
        clears = INSTRUCTIONS[products[0].with_rows(TILE_ROWS).clears]
        place = idle.setdefault(clears, _place(clears, len(idle)))
        inner = seq(inner, Store(place.buffer, place.indices, Instruct(clears, (place,))))
        for loop in reversed(loops):
            inner = loop.replace(body=inner)
        return inner

    body = transform_statements(function.body, change)
    if not idle:
        return function
    return function.replace(body=seq(*(Alloc(place.buffer) for place in idle.values()), body))


def _is_long(loops: Sequence[For], products: int) -> bool:
    """Whether so many products in each iteration of loops may take too long: a product takes as many cycles as a tile
    has rows, and twice as many where it waits for its factors."""
    turns = [loop.size for loop in loops]
    return None in turns or 2 * TILE_ROWS * products * math.prod(n or 0 for n in turns) >= TILE_STORES_APART


def _products(body: Stmt) -> list[Instruction]:
    """The products in tiles that the body of an innermost loop adds up; none where it stores tiles to memory, too."""
    found: list[Instruction] = []
    for s in statements(body):
        if type(s) is For:
            return []
        if type(s) is Store and type(s.value) is Instruct and s.value.instruction.has_tiles:
            if s.buffer.scope is not Scope.REGISTER:
                return []
            found += [s.value.instruction] * s.value.instruction.adds_products
    return found


def _place(clears: Instruction, number: int) -> Load:
    """Where a tile is stored to."""
    acc = clears.accumulator
    buffer = Buffer(f"idle{number or ''}", acc.dtype, (const(acc.lanes),), Scope.STACK)
    return Load(buffer, (Ramp(const(0), const(1), acc.lanes),))
