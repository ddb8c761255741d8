"""Loops functions that stand alone become a module of their own: an entry gives them scratch memory and calls them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Alloc, Buffer, CallFunction, Function, Reserve, Stmt, seq
from tilewright.lower.memory.bufferize import lift_temporaries
from tilewright.lower.memory.plan_memory import Life, plan_memory
from tilewright.types.scopes import Scope

ENTRY = "main"


def wrap(*functions: Function) -> Module:
    """A module whose entry takes the parameters of the functions, outputs included, and calls them in order. A function
    that comes several times is called as often, with parameters for each call."""
    made: dict[Function, Function] = {}
    calls: list[Stmt] = []
    entry: list[Buffer] = []
    lives: list[Life] = []
    scratch_of: dict[Function, tuple[Buffer, ...]] = {}
    for n, function in enumerate(functions):
        if function not in made:
            made[function], scratch_of[function] = lift_temporaries(function.replace(name=_name(function, made)))
        scratch = tuple(b.replace() for b in scratch_of[function])
        lives += [Life(b, n, n) for b in scratch]
        params = tuple(p.replace(scope=Scope.ARGUMENT, shared=False) for p in function.params)
        inputs, outputs = params[: len(params) - function.outputs], params[len(params) - function.outputs :]
        entry += params
        calls.append(CallFunction(made[function].name, function.symbols, (*inputs, *scratch, *outputs)))
    layout = plan_memory(lives, {})
    body: list[Stmt] = [Reserve(layout.totals[0])] if lives else []
    body += [Alloc(life.buffer, layout.offsets[life.buffer]) for life in lives]
    symbols = tuple(dict.fromkeys(s for f in functions for s in f.symbols))
    main = Function(ENTRY, symbols, tuple(entry), seq(*body, *calls), functions[-1].outputs)
    return Module({ENTRY: main, **{f.name: f for f in made.values()}}, {}, ENTRY)


def _name(function: Function, made: Mapping[Function, Function]) -> str:
    name = f"{function.name}.body" if function.name == ENTRY else function.name
    return name if all(f.name != name for f in made.values()) else f"{name}.{len(made)}"
