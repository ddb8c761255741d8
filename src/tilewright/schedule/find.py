"""Finding what a primitive works on: loops by variable, blocks and buffers by name, nests by their buffer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from tilewright.expr.nodes import Var
from tilewright.loops.edit import (
    allocations,
    blocks,
    loaded_buffers,
    loops_around,
    loops_inside,
    statements,
    stored_buffers,
)
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Seq, Stmt
from tilewright.report.errors import UserError
from tilewright.schedule.step import Obstacle, Step, refusing

Named = TypeVar("Named", Block, Buffer)


def find_loop(function: Function, loop: Var | str) -> For:
    """The loop over this variable, or the only loop of this name. Raises UserError where there is none, or several."""
    loops = loops_inside(function.body)
    found = [s for s in loops if s.var is loop or s.name == loop]
    if len(found) == 1:
        (only,) = found
        whole = next((s for s in loops if s.instruction is not None and only in statements(s)), None)
        if whole is None:
            return only
        what = f"loop {only.name} of {function.name} is part of the instruction {whole.instruction}"
        fix = f"do this before tensorize({whole.name}, …)"
        raise Obstacle(whole, "an instruction runs its nest as a whole", fix).error(function, what)
    name = loop if isinstance(loop, str) else loop.name
    if not found:
        why = f"its loops are {', '.join(dict.fromkeys(s.name for s in loops)) or 'none'}"
        if not isinstance(loop, str):
            why = f"an earlier step replaced it, or it is another program's; {why}"
        raise UserError(f"no loop {name} in {function.name}", why=why)
    what = f"{len(found)} loops are called {name} in {function.name}"
    inside = ", ".join(dict.fromkeys(b.name for s in found for b in blocks(s)))
    fix = f"take it from get_loops(block), with one of the blocks {inside}"
    raise Obstacle(found[1], "a name must mean one loop", fix).error(function, what)


def find_block(function: Function, name: str) -> Block:
    """The block of this name. Raises UserError where there is none, or several."""
    return _only("block", name, blocks(function.body), function)


def find_buffer(function: Function, name: str) -> Buffer:
    """The buffer of this name, a parameter, a local buffer or another one that is touched. Raises UserError where there
    is none, or several."""
    touched = sorted(stored_buffers(function.body) | loaded_buffers(function.body), key=lambda buffer: buffer.name)
    known = dict.fromkeys((*function.params, *allocations(function.body), *touched))
    return _only("buffer", name, list(known), function)


def _only(kind: str, name: str, known: Sequence[Named], function: Function) -> Named:
    """The only one of the blocks or buffers that has this name."""
    found = [each for each in known if each.name == name]
    if len(found) != 1:
        what = f"{len(found) or 'no'} {kind}{'s' * (len(found) > 1)} {name} in {function.name}"
        raise UserError(what, why=f"its {kind}s are {', '.join(dict.fromkeys(b.name for b in known)) or 'none'}")
    return found[0]


FINDERS: dict[str, Callable[..., For | Block | Buffer]] = {"For": find_loop, "Block": find_block, "Buffer": find_buffer}
"""How nodes that primitives work on are found by their handles, by their types."""


def primitive(what: str) -> Callable[[Callable[..., Step]], Callable[..., Step]]:
    """Makes a primitive of a function that works on nodes of a program: called with handles, it finds those for its
    parameters that are annotated For, Block or Buffer. An obstacle that is met is the error `what`, in which parameters
    stand for what is given, nodes for their names: "cannot split loop {loop} by {factor}"."""

    def made(body: Callable[..., Step]) -> Callable[..., Step]:
        signature = inspect.signature(body)
        types = {name: str(p.annotation).removesuffix(" | None") for name, p in signature.parameters.items()}
        finders = {name: FINDERS[kind] for name, kind in types.items() if kind in FINDERS}
        named = all(p.kind is not inspect.Parameter.VAR_POSITIONAL for p in signature.parameters.values())

        @wraps(body)
        def applied(function: Function, *arguments: Any, **options: Any) -> Step:
            bound = signature.bind(function, *arguments, **options)
            bound.apply_defaults()
            given, names = bound.arguments, dict(bound.arguments)
            for name in [name for name in finders if given[name] is not None]:
                value, find = given[name], finders[name]
                nodes = [find(function, handle) for handle in (value if isinstance(value, tuple) else (value,))]
                given[name] = tuple(nodes) if isinstance(value, tuple) else nodes[0]
                names[name] = ", ".join(node.name for node in nodes)
            with refusing(function, what.format_map(names)):
                return body(**given) if named else body(*bound.args, **bound.kwargs)

        shown = {name: "Var" if find is find_loop else "str" for name, find in finders.items()}
        given = [p.replace(annotation=shown.get(n, p.annotation)) for n, p in signature.parameters.items()]
        applied.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        return applied

    return made


def get_loop(function: Function, name: str) -> Step:
    """The loop of this name, which must be the only one."""
    return Step(function, find_loop(function, name).var)


def get_loops(function: Function, block: str) -> Step:
    """The loops around a block, outermost first."""
    return Step(function, tuple(loop.var for loop in loops_around(function.body, find_block(function, block))))


def get_nests(function: Function) -> Step:
    """The outermost loops of the program, in order; None in the place of each statement beside them."""
    return Step(function, tuple([s.var if isinstance(s, For) else None for s in nests(function)]))


def get_block(function: Function, name: str) -> Step:
    """The block of this name: that there is one, and only one, is checked here."""
    return Step(function, find_block(function, name).name)


def get_producers(function: Function, block: str) -> Step:
    """The blocks that store what a block loads, in program order."""
    wanted, others = loaded_buffers(find_block(function, block)), (b for b in blocks(function.body) if b.name != block)
    return Step(function, tuple([b.name for b in others if stored_buffers(b) & wanted]))


def get_consumers(function: Function, block: str) -> Step:
    """The blocks that load what a block stores, in program order."""
    made, others = stored_buffers(find_block(function, block)), (b for b in blocks(function.body) if b.name != block)
    return Step(function, tuple([b.name for b in others if loaded_buffers(b) & made]))


def nests(function: Function) -> tuple[Stmt, ...]:
    """The top-level statements of a function."""
    return function.body.body if isinstance(function.body, Seq) else (function.body,)


def local_buffers(function: Function) -> list[Buffer]:
    """The buffers that are allocated at the top level of a function."""
    return [s.buffer for s in nests(function) if isinstance(s, Alloc)]
