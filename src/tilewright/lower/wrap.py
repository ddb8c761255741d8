"""A loops function that a user wrote becomes a module of its own: an entry gives it scratch memory and calls it."""

from __future__ import annotations

from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Alloc, CallFunction, Function, Reserve, Stmt, seq
from tilewright.lower.bufferize import lift_temporaries
from tilewright.lower.plan_memory import Life, plan_memory
from tilewright.types.scopes import Scope

ENTRY = "main"


def wrap(function: Function) -> Module:
    """A module whose entry takes the function's parameters, outputs included, and calls it."""
    inner = function.replace(name=function.name if function.name != ENTRY else f"{ENTRY}.body")
    lifted, scratch = lift_temporaries(inner)
    layout = plan_memory([Life(b, 0, 0) for b in scratch], {})
    params = tuple(p.replace(scope=Scope.ARGUMENT) for p in function.params)
    inputs, outputs = params[: len(params) - function.outputs], params[len(params) - function.outputs :]
    body: list[Stmt] = [Reserve(layout.totals[0])] if scratch else []
    body += [Alloc(b, layout.offsets[b]) for b in scratch]
    body.append(CallFunction(lifted.name, tuple(function.symbols), (*inputs, *scratch, *outputs)))
    main = Function(ENTRY, function.symbols, params, seq(*body), function.outputs)
    return Module({ENTRY: main, lifted.name: lifted}, {}, ENTRY)
