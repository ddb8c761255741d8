"""How a loop runs: parallel, vectorize, unroll, bind, annotate; and a nest as a whole: blockize, tensorize."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from tilewright.analysis.memory import Memory
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.decompose import decompose_block, summed_loops
from tilewright.loops.edit import blocks, loops_around, path_to, replace, statements, substitute_expressions
from tilewright.loops.instructions import Mismatch, Tile, match
from tilewright.loops.nodes import Axis, AxisKind, Block, For, Function, Load, LoopKind, Seq, Stmt, Store, seq
from tilewright.report.quantities import counted
from tilewright.schedule.facts import require_independent
from tilewright.schedule.find import primitive
from tilewright.schedule.step import Obstacle, Step, rewritten, unique_name
from tilewright.target.instructions import INSTRUCTIONS, Instruction, named

THREADS = tuple(f"{level}.{axis}" for level in ("blockIdx", "threadIdx") for axis in "xyz")

MOST_UNROLLED = 1024
"""The most iterations that unroll takes."""


@primitive("cannot make loop {loop} parallel")
def parallel(function: Function, loop: For) -> Step:
    """The iterations may run on several threads at once.

    for i in 0..n: b(i)      parallel(i)  =>      parallel i in 0..n: b(i)
    """
    return _independent(function, loop, LoopKind.PARALLEL, "make a loop outside or inside it parallel")


@primitive("cannot vectorize loop {loop}")
def vectorize(function: Function, loop: For) -> Step:
    """The iterations become the lanes of vectors. The extent must be a constant."""
    _require_constant(loop)
    return _independent(function, loop, LoopKind.VECTORIZE, "vectorize another loop")


def _independent(function: Function, loop: For, kind: LoopKind, fix: str, thread: str = "") -> Step:
    """The step that lets the iterations of a loop run in any order, by its kind."""
    evidence = require_independent(function, loop, fix)
    return rewritten(function, loop, loop.replace(kind=kind, thread=thread), None, *evidence)


@primitive("cannot unroll loop {loop}")
def unroll(function: Function, loop: For) -> Step:
    """The loop is unrolled. The extent must be a constant."""
    extent = _require_constant(loop)
    if extent > MOST_UNROLLED:
        why = f"it has {extent} iterations; at most {MOST_UNROLLED} are unrolled"
        raise Obstacle(loop, why, fix=f"split({loop.name}, 8) and unroll the inner loop")
    made = loop.replace(kind=LoopKind.UNROLL, thread="")
    return rewritten(function, loop, made, None, "the iterations keep their order")


def _require_constant(loop: For) -> int:
    if loop.size is None:
        raise Obstacle(loop, f"its extent {loop.extent} is dynamic", f'split({loop.name}, 8, tail="mask") first')
    return loop.size


@primitive("cannot bind loop {loop} to {thread}")
def bind(function: Function, loop: For, thread: str) -> Step:
    """The iterations become the threads, or the blocks of threads, along an axis of a GPU's grid."""
    if thread not in THREADS:
        raise Obstacle(loop, "there is no such axis", fix=f"the axes are {', '.join(THREADS)}")
    for other in path_to(function.body, loop):
        if isinstance(other, For) and other is not loop and other.thread == thread:
            raise Obstacle(other, f"loop {other.name} around it is bound to {thread}")
    return _independent(function, loop, LoopKind.THREAD, "bind another loop", thread)


@primitive('cannot note "{key}" on loop {loop}')
def annotate(function: Function, loop: For, key: str, value: int) -> Step:
    """Annotates a loop for the runtime. The only key is "grain": the fewest iterations of a parallel loop that a
    thread is given.

    parallel i in 0..n: …       annotate(i, "grain", 4)  =>       parallel i in 0..n grain 4: …
    """
    if key != "grain":
        raise Obstacle(loop, "nothing honours it", fix='the only key is "grain"')
    if loop.kind is not LoopKind.PARALLEL:
        raise Obstacle(loop, f"it is no parallel loop: its kind is {loop.kind.value}", f"parallel({loop.name}) first")
    if type(value) is not int or value < 1:
        raise Obstacle(loop, f"{value!r} is no number of iterations", fix="give it 1 or more")
    return rewritten(function, loop, loop.replace(grain=value), None, "it changes no result")


@primitive("cannot make a block of the nest of {loop}")
def blockize(function: Function, loop: For) -> Step:
    """The nest from the loop down becomes one block, whose axes are bound to the outer loops that it uses. The init of
    a sum over those loops becomes the block's own init. Returns its name: BLOCK.nest, after the last block in it.

    for io, ko, ii, ki: block dot(vi = io*4 + ii, reduce vk = ko*8 + ki): init: y[vi] = 0; y[vi] += x[vi, vk]
              =>      for io, ko: block dot.nest(vio = io, reduce vko = ko):
                                    init: for ii in 0..4: block dot.init(vi = vio*4 + ii): y[vi] = 0
                                    for ii, ki: block dot(vi = vio*4 + ii, reduce vk = vko*8 + ki): y[vi] += x[vi, vk]
    """
    inside = blocks(loop)
    if not inside:
        raise Obstacle(loop, "it holds no block", fix="take a loop around a block")
    within = {s for b in inside for s in statements(b)}
    for s in statements(loop):
        if isinstance(s, Store) and s not in within:
            why = f"a store to {s.buffer.name} in it belongs to no block, so its axes are not known"
            raise Obstacle(s, why, fix="take a loop inside it")
    outer = [s for s in loops_around(function.body, loop) if s.var in loop.variables()]
    summed = frozenset[Var]().union(*map(summed_loops, inside))
    init, body = _without_init(loop, [s for s in outer if s.var in summed])
    kinds = [AxisKind.REDUCE if s.var in summed else AxisKind.SPATIAL for s in outer]
    axes = tuple(Axis(Var(f"v{s.name}"), kind, s.var) for s, kind in zip(outer, kinds, strict=True))
    values: dict[Expr, Expr] = {s.var: a.var for s, a in zip(outer, axes, strict=True)}
    name = unique_name(function, f"{inside[-1].name}.nest")
    start = None if init is None else substitute_expressions(init, values)
    made = Block(name, axes, substitute_expressions(body, values), start)
    evidence = f"the nest uses the loops {', '.join(s.name for s in outer) or 'around it not at all'}"
    return rewritten(function, loop, made, name, evidence)


def _without_init(nest: For, reduced: Sequence[For]) -> tuple[Stmt | None, Stmt]:
    """(the init of the sums over the loops in `reduced`, the nest without it)."""
    variables = {s.var for s in reduced}
    found = [b for b in blocks(nest) if b.init is not None and summed_loops(b) & variables]
    if not found:
        return None, nest
    if len(found) > 1:
        names = " and ".join(b.name for b in found)
        fix = f'decompose_reduction("{found[0].name}", {reduced[0].name}) first'
        raise Obstacle(nest, f"{names} start sums in it, which one init cannot", fix)
    *first, rest = cast(Seq, decompose_block(reduced[0].replace(body=nest), found[0])).body
    return seq(*first), cast(For, rest).body


@primitive("cannot run the nest of {loop} as {instruction}")
def tensorize(function: Function, loop: For, instruction: str) -> Step:
    """The nest from the loop down runs as an instruction of the machine, which must do the same as the nest, up to
    names (target/instructions.py lists them). Whether the target has it is checked when the program is built.

    for l in 0..8, q in 0..2: block dot(vj = j*8 + l, reduce vk = k*2 + q): y[vj] += i32(x[vk]) * i32(w[j, k, l, q])
              =>      instruct x86.avx2.dot_i16 = l in 0..8: for q in 0..2: block dot(…): …
    """
    row = named(instruction)
    if row is None:
        raise Obstacle(loop, "there is no such instruction", f"take one of {', '.join(INSTRUCTIONS)}")
    around = loops_around(function.body, loop)
    try:
        tiles = match(loop, row, around).tiles
    except Mismatch as wrong:
        raise _does_not_fit(loop, around, row, wrong) from None
    memory, own = Memory(function.body), tiles[row.accumulator.name].buffer
    for other in [t.buffer for name, t in tiles.items() if name != row.accumulator.name]:
        if memory.of(other) is memory.of(own):
            raise Obstacle(loop, f"{other.name} and {own.name} are views of the same memory", "copy one of them first")
    made: Stmt = loop.replace(kind=LoopKind.INSTRUCTION, instruction=row, grain=1, backward=None)
    for inner in statements(loop.body):
        if isinstance(inner, For) and inner.kind is not LoopKind.SERIAL:
            made = replace(made, inner, inner.replace(kind=LoopKind.SERIAL))
    shown = ", ".join(f"{name} is {_text(tile, row)}" for name, tile in tiles.items())
    evidence = (f"the nest is the program of {row}: {shown}", *((row.note,) if row.note else ()))
    return rewritten(function, loop, made, None, *evidence)


def _text(tile: Tile, instruction: Instruction) -> str:
    repeated = ", repeated" if all(tile.count != r.lanes for r in instruction.registers) else ""
    return f"{counted(tile.count, 'element')} from {Load(tile.buffer, tile.indices)} on{repeated}"


def _does_not_fit(nest: For, around: list[For], row: Instruction, wrong: Mismatch) -> Obstacle:
    """The refusal, with the instructions that would fit, or what the nest must look like."""
    fitting: list[str] = []
    for other in INSTRUCTIONS.values():
        with suppress(Mismatch):
            match(nest, other, around)
            fitting.append(other.name)
    if fitting:
        return Obstacle(wrong.at, wrong.why, f"take {' or '.join(fitting)}, which it does")
    begun = wrong.at if isinstance(wrong.at, Block) and wrong.at.init is not None else None
    first = f'decompose_reduction("{begun.name}", …) first; ' if begun is not None else ""
    return Obstacle(wrong.at, wrong.why, f"{first}the nest must be {' '.join(row.nest.split())}")
