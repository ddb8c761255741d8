"""blockize, tensorize: a nest becomes one block, or one instruction of the machine.

for i, jo, k: for l in 0..8, q in 0..2: block dot:              tensorize(l, "x86.avx2.dot_i16")
  y[i, jo*8 + l] += i32(x[i, k*2 + q]) * i32(w[jo, k, l, q])
       =>        for i, jo, k: instruct x86.avx2.dot_i16 = l in 0..8: for q in 0..2: block dot: …
"""

from __future__ import annotations

from tilewright.core.walk import preorder
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.decompose import decompose_block, variables_of
from tilewright.loops.edit import blocks, loops_around, replace, statements, substitute_expressions
from tilewright.loops.instructions import Mismatch, Tile, match
from tilewright.loops.nodes import Axis, AxisKind, Block, For, Function, LoopKind, Seq, Stmt, Store
from tilewright.report.errors import UserError
from tilewright.schedule.facts.place import Memory
from tilewright.schedule.find import find_loop
from tilewright.schedule.names import unique_block
from tilewright.schedule.step import Step, refusal
from tilewright.target.instructions import INSTRUCTIONS, Instruction


def blockize(function: Function, loop: Var) -> Step:
    """The nest from the loop down becomes one block, whose axes are bound to the outer loops that it uses. The init of
    a sum over those loops becomes the block's own init. Returns its name: BLOCK.nest, after the last block in it.

    for io, ko, ii, ki: block dot(vi = io*4 + ii, reduce vk = ko*8 + ki): init: y[vi] = 0; y[vi] += x[vi, vk]
              =>      for io, ko: block dot.nest(vio = io, reduce vko = ko):
                                    init: for ii in 0..4: block dot.init(vi = vio*4 + ii): y[vi] = 0
                                    for ii, ki: block dot(vi = vio*4 + ii, reduce vk = vko*8 + ki): y[vi] += x[vi, vk]
    """
    nest = find_loop(function, loop)
    what = f"cannot make a block of the nest of {nest.var.name}"
    inside = blocks(nest)
    _require_blocks(function, nest, inside, what)
    reduced = {v for b in inside for a in b.reduce for v in variables_of(a.binding)}
    around = loops_around(function.body, nest)
    used = {n for n in preorder(nest) if isinstance(n, Var)}
    outer = [s for s in around if s.var in used]
    init, body = _without_init(function, nest, [s for s in outer if s.var in reduced], what)
    axes = tuple(
        Axis(Var(f"v{s.var.name}"), AxisKind.REDUCE if s.var in reduced else AxisKind.SPATIAL, s.var) for s in outer
    )
    values: dict[Expr, Expr] = {s.var: a.var for s, a in zip(outer, axes, strict=True)}
    name = unique_block(function, f"{inside[-1].name}.nest")
    start = None if init is None else substitute_expressions(init, values)
    made = Block(name, axes, substitute_expressions(body, values), start)
    evidence = (f"the nest uses the loops {', '.join(s.var.name for s in outer) or 'around it not at all'}",)
    return Step(function.replace(body=replace(function.body, nest, made)), name, evidence)


def _require_blocks(function: Function, nest: For, inside: list[Block], what: str) -> None:
    within = {s for b in inside for s in statements(b)}
    if not inside:
        raise refusal(function, what, nest, why="it holds no block", fix="take a loop around a block")
    for s in statements(nest):
        if isinstance(s, Store) and s not in within:
            why = f"a store to {s.buffer.name} in it belongs to no block, so its axes are not known"
            raise refusal(function, what, s, why=why, fix="take a loop inside it")


def _without_init(function: Function, nest: For, reduced: list[For], what: str) -> tuple[Stmt | None, Stmt]:
    """(the init of the sums over the loops in `reduced`, the nest without it)."""
    variables = {s.var for s in reduced}
    found = [b for b in blocks(nest) if b.init is not None and any(_bound(a, variables) for a in b.reduce)]
    if not found:
        return None, nest
    if len(found) > 1:
        names = " and ".join(b.name for b in found)
        fix = f'decompose_reduction("{found[0].name}", {reduced[0].var.name}) first'
        raise refusal(function, what, nest, why=f"{names} start sums in it, which one init cannot", fix=fix)
    whole = decompose_block(reduced[0].replace(body=nest), found[0])
    assert isinstance(whole, Seq)
    *first, rest = whole.body
    assert isinstance(rest, For)
    return (first[0] if len(first) == 1 else Seq(tuple(first))), rest.body


def _bound(axis: Axis, variables: set[Var]) -> bool:
    return bool(variables_of(axis.binding) & variables)


def tensorize(function: Function, loop: Var, instruction: str) -> Step:
    """The nest from the loop down runs as an instruction of the machine, which must do the same as the nest, up to
    names (target/instructions.py lists them). Whether the target has it is checked when the program is built.

    for l in 0..8, q in 0..2: block dot(vj = j*8 + l, reduce vk = k*2 + q): y[vj] += i32(x[vk]) * i32(w[j, k, l, q])
              =>      instruct x86.avx2.dot_i16 = l in 0..8: for q in 0..2: block dot(…): …
    """
    nest = find_loop(function, loop)
    what = f"cannot run the nest of {nest.var.name} as {instruction}"
    if instruction not in INSTRUCTIONS:
        why, fix = "there is no such instruction", f"take one of {', '.join(INSTRUCTIONS)}"
        raise refusal(function, what, nest, why=why, fix=fix)
    row = INSTRUCTIONS[instruction]
    around = loops_around(function.body, nest)
    try:
        tiles = match(nest, row, around).tiles
    except Mismatch as wrong:
        raise _does_not_fit(function, nest, around, row, wrong, what) from None
    _require_apart(function, nest, tiles, row, what)
    made: Stmt = nest.replace(kind=LoopKind.INSTRUCTION, instruction=row, grain=1, backward=None)
    for inner in [
        s for s in statements(nest) if isinstance(s, For) and s is not nest and s.kind is not LoopKind.SERIAL
    ]:
        made = replace(made, inner, inner.replace(kind=LoopKind.SERIAL))
    shown = ", ".join(f"{name} is {_text(tile, row)}" for name, tile in tiles.items())
    evidence = (f"the nest is the program of {row}: {shown}", *((row.note,) if row.note else ()))
    return Step(function.replace(body=replace(function.body, nest, made)), None, evidence)


def _text(tile: Tile, instruction: Instruction) -> str:
    place = f"{tile.buffer.name}[{', '.join(str(i) for i in tile.indices)}]"
    repeated = all(tile.count != r.lanes for r in instruction.registers)
    number = "1 element" if tile.count == 1 else f"{tile.count} elements"
    return f"{number} from {place} on" + (", repeated" if repeated else "")


def _require_apart(function: Function, nest: For, tiles: dict[str, Tile], row: Instruction, what: str) -> None:
    """Refuses if another operand is a view of the accumulator's memory."""
    memory, own = Memory(function), tiles[row.accumulator.name].buffer
    for b in [t.buffer for name, t in tiles.items() if name != row.accumulator.name]:
        if memory.of(b) is memory.of(own):
            why = f"{b.name} and {own.name} are views of the same memory"
            raise refusal(function, what, nest, why=why, fix="copy one of them first")


def _does_not_fit(
    function: Function, nest: For, around: list[For], row: Instruction, wrong: Mismatch, what: str
) -> UserError:
    """The refusal, with the instructions that would fit, or what the nest must look like."""
    fitting = [other.name for other in INSTRUCTIONS.values() if _fits(nest, other, around)]
    fix = f"it does what {' and '.join(fitting)} {'does' if len(fitting) == 1 else 'do'}"
    if not fitting:
        program = " ".join(row.nest.split())
        started = isinstance(wrong.at, Block) and wrong.at.init is not None
        first = f'decompose_reduction("{wrong.at.name}", …) first; ' if started and isinstance(wrong.at, Block) else ""
        fix = f"{first}the nest must be {program}"
    return refusal(function, what, wrong.at, why=wrong.why, fix=fix, part=_marked(wrong.at))


def _fits(nest: For, instruction: Instruction, around: list[For]) -> bool:
    try:
        match(nest, instruction, around)
    except Mismatch:
        return False
    return True


def _marked(at: Stmt) -> str | None:
    return at.name if isinstance(at, Block) else None
