"""The law of calls: what may be passed to a function, and how many elements memory holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.loops.faults import Fault
from tilewright.loops.nodes import Buffer, CallFunction, Function
from tilewright.types.scopes import Scope


def size_of(buffer: Buffer) -> Expr:
    """How many elements a buffer has."""
    total: Expr = const(1)
    for extent in buffer.shape:
        total = total * extent
    return total


def check_call(s: CallFunction, module: Mapping[str, Function], memory_of: Callable[[Buffer], Buffer]) -> None:
    """A call passes what its callee takes; what it writes is no constant, and no other argument's memory. `memory_of`
    gives the buffer that a view is of."""
    callee = module.get(s.callee)
    if callee is None:
        known = ", ".join(sorted(module)[:8])
        raise Fault(s, f"no function {s.callee}", part=s.callee, mend=f"call one of: {known}" if known else None)
    for what, have, want in (
        ("symbols", len(s.symbols), len(callee.symbols)),
        ("buffers", len(s.arguments), len(callee.params)),
    ):
        if have != want:
            raise Fault(s, f"{s.callee} takes {want} {what}, not {have}")
    values: dict[Expr, Expr] = dict(zip(callee.symbols, s.symbols, strict=True))
    memory = [memory_of(b) for b in s.arguments]
    for position, (buffer, param) in enumerate(zip(s.arguments, callee.params, strict=True)):
        _check_argument(s, buffer, param, values)
        written = position >= len(callee.params) - callee.outputs
        if written and (buffer.scope is Scope.CONSTANT or memory.count(memory_of(buffer)) > 1):
            again = "a constant" if buffer.scope is Scope.CONSTANT else "passed twice"
            raise Fault(s, f"{s.callee} writes {buffer.name}, which is {again}", part=buffer.name)


def _check_argument(s: CallFunction, buffer: Buffer, param: Buffer, values: Mapping[Expr, Expr]) -> None:
    """A buffer fits a parameter of its type, as far as that can be decided, and a flat one of certainly as many
    elements: memory is row-major."""
    shape = tuple(simplify(substitute(d, values)) for d in param.shape)
    wanted = f"{param.dtype}[{', '.join(map(str, shape))}]"
    flattened = len(shape) == 1 != len(buffer.shape)
    given = (size_of(buffer),) if flattened else buffer.shape
    if buffer.dtype is not param.dtype or len(given) != len(shape):
        raise Fault(s, f"{s.callee} takes {wanted} as {param.name}", part=buffer.name)
    for have, want in zip(given, shape, strict=True):
        difference = simplify(have - want)
        if (isinstance(difference, Const) and difference.value) or (flattened and difference is not const(0)):
            why = f"{have} is not {want}"
            raise Fault(s, f"{s.callee} takes {wanted} as {param.name}", part=buffer.name, why=why)
