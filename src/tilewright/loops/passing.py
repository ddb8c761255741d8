"""The law of calls: what may be passed to a function, and how many elements memory holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import statements
from tilewright.loops.faults import Fault
from tilewright.loops.nodes import Buffer, CallFunction, Function, Store
from tilewright.types.scopes import Scope


def size_of(buffer: Buffer) -> Expr:
    """How many elements a buffer has."""
    total: Expr = const(1)
    for extent in buffer.shape:
        total = total * extent
    return total


def check_over(f: Function) -> None:
    """Outputs that may be the memory of inputs have as many elements, of the same type."""
    for source, output in f.over:
        if not (0 <= source < f.inputs and 0 <= output < f.outputs):
            why = f"{f.inputs} are inputs, {f.outputs} outputs"
            raise Fault(f, f"output {output} is in place of parameter {source}", why=why)
        below, above = f.params[source], f.params[f.inputs + output]
        if below.dtype is not above.dtype or simplify(size_of(below) - size_of(above)) is not const(0):
            have, want = (f"{b.dtype}[{', '.join(map(str, b.shape))}]" for b in (above, below))
            raise Fault(f, f"{above.name} over {below.name}", part=above.name, why=f"{have} is not as large as {want}")


def check_finite(f: Function) -> None:
    """What is known to be finite is a parameter of floats that the function only reads."""
    known = [p for p in f.params if p.finite]
    for param in known:
        if not param.dtype.is_float:
            fix = f"leave finite out: every {param.dtype} is"
            raise Fault(param, f"the parameter {param.name} is finite", part=param.name, fix=fix)
    for s in statements(f.body) if known else ():
        if isinstance(s, Store) and s.buffer in known:
            raise Fault(
                s, f"{s.buffer.name} is finite and stored to", part=s.buffer.name, why="it may be anything then"
            )


def check_shared(f: Function) -> None:
    """What other functions read, too, is a parameter in constant memory."""
    for buffer in f.params:
        if buffer.shared and buffer.scope is not Scope.CONSTANT:
            fix = f"put it there: {buffer.name}: {buffer.dtype}[…] in constant shared"
            raise Fault(buffer, f"{buffer.name} is shared and not in constant memory", part=buffer.name, fix=fix)


def check_call(
    s: CallFunction,
    module: Mapping[str, Function],
    memory_of: Callable[[Buffer], Buffer],
    whole_of: Callable[[Buffer], Buffer],
) -> None:
    """A call passes what its callee takes; what it writes is no constant, and no other argument's memory, but for one
    that the callee may write over. `memory_of` gives the buffer that a view is of, `whole_of` the one that it is all
    of."""
    callee = module.get(s.callee)
    if callee is None:
        known = ", ".join(sorted(module)[:8])
        raise Fault(s, f"no function {s.callee}", part=s.callee, fix=f"call one of: {known}" if known else None)
    for what, have, want in (
        ("symbols", len(s.symbols), len(callee.symbols)),
        ("buffers", len(s.arguments), len(callee.params)),
    ):
        if have != want:
            raise Fault(s, f"{s.callee} takes {want} {what}, not {have}")
    values: dict[Expr, Expr] = dict(zip(callee.symbols, s.symbols, strict=True))
    memory = [memory_of(b) for b in s.arguments]
    whole = [whole_of(b) for b in s.arguments]
    for position, (buffer, param) in enumerate(zip(s.arguments, callee.params, strict=True)):
        _check_argument(s, buffer, param, values)
        if position < callee.inputs:
            continue
        others = [n for n, m in enumerate(memory) if m is memory[position] and n != position]
        over = len(others) == 1 and (others[0], position - callee.inputs) in callee.over
        over = over and whole[others[0]] is whole[position]
        if buffer.scope is Scope.CONSTANT or (others and not over):
            again = "a constant" if buffer.scope is Scope.CONSTANT else "passed twice"
            raise Fault(s, f"{s.callee} writes {buffer.name}, which is {again}", part=buffer.name)


def _check_argument(s: CallFunction, buffer: Buffer, param: Buffer, values: Mapping[Expr, Expr]) -> None:
    """A buffer fits a parameter of its type and shape, as far as that can be decided, and one of another shape with
    certainly as many elements: memory is row-major."""
    shape = tuple(simplify(substitute(d, values)) for d in param.shape)
    wanted = f"{s.callee} takes {param.dtype}[{', '.join(map(str, shape))}] as {param.name}"
    if buffer.dtype is not param.dtype:
        raise Fault(s, wanted, part=buffer.name)
    if len(shape) == len(buffer.shape):
        apart = [simplify(have - want) for have, want in zip(buffer.shape, shape, strict=True)]
        if not any(isinstance(d, Const) and d.value for d in apart):
            return
    have, want = simplify(size_of(buffer)), simplify(substitute(size_of(param), values))
    if simplify(have - want) is not const(0):
        raise Fault(s, wanted, part=buffer.name, why=f"{have} is not {want}")
