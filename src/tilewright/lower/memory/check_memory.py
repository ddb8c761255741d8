"""Whether the layout of the arena is right: the entry is run without its arithmetic, for several sizes.

A layout of constant sizes is proved by its run. Where there are symbols, each run proves it for one choice of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from tilewright.analysis.arena import use_of_arena
from tilewright.expr.nodes import Var
from tilewright.graph.nodes import Module
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Function, Let, Reserve, View
from tilewright.report.errors import InternalError


def check_memory(module: Module, runs: int = 5) -> None:
    """Raises InternalError, with what is wrong first, where a kernel of the module's entry would read what another one
    has written over, or would leave the memory that is reserved. With symbols there are so many runs."""
    main = module.main
    if not isinstance(main, Function) or not any(isinstance(s, Reserve | View) for s in statements(main.body)):
        return
    is_sized_late = any(isinstance(s, Let) for s in statements(main.body))
    for run in range(runs if main.symbols or is_sized_late else 1):
        _check(main, {name: f for name, f in module.functions.items() if isinstance(f, Function)}, run)


def _check(main: Function, functions: Mapping[str, Function], run: int) -> None:
    drawn: dict[Var, int] = {}

    def draw(symbol: Var) -> int:
        drawn[symbol] = max(next(numbers), symbol.least or 0)
        return drawn[symbol]

    numbers = _numbers(run)
    use = use_of_arena(main, functions, {symbol: draw(symbol) for symbol in main.symbols}, draw)
    if use.faults:
        chosen = ", ".join(f"{symbol.name} = {size}" for symbol, size in drawn.items())
        why = "; ".join(use.faults[:3]) + (f", for {chosen}" if chosen else "")
        raise InternalError("the arena is not laid out right", why=why, fix="report it with the model")


def _numbers(run: int) -> Iterator[int]:
    """All large in the first run, all 1 in the second, then numbers that look drawn by chance, the same each time, each
    twice as likely as its double. Steps of loops are among them, so 33 is large."""
    draw = random.Random(run)
    while True:
        yield (33, 1)[run] if run < 2 else draw.randint(0, 33 >> draw.randint(0, 4))
