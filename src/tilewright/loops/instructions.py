"""Which nests an instruction runs, and which memory becomes which of its registers.

    instruct x86.avx2.dot_i16 = l in 0..8:                    a    2 elements from x[i, k*2] on, repeated
      for q in 0..2:                                 =>       b    16 elements from w[j, k, 0, 0] on
        y[i, j*8 + l] += i32(x[i, k*2 + q])                   acc  8 elements from y[i, j*8] on
                       * i32(w[j, k, l, q])

A nest fits an instruction when it is the instruction's program up to names: as many loops of the same extents around
one accumulation of the same value, the factors of products and the terms of sums in any order, and each element read
or written moves through memory as the register's element moves through the register; the rows of a tile may be further
apart. A condition that is the same for all of the nest may stand around or inside it. What an instruction does not
accumulate, it stores: a number, or elements of another register.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from tilewright.core.node import Node
from tilewright.core.walk import preorder, substitute, transform
from tilewright.expr.build import conjunction
from tilewright.expr.linear import affine_in, polynomial
from tilewright.expr.nodes import Add, Call, Const, Expr, Mul, Var, const
from tilewright.expr.simplify import Facts, simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.faults import Fault
from tilewright.loops.nodes import Block, Buffer, For, Function, If, Instruct, Load, LoopKind, Seq, Stmt, Store
from tilewright.loops.parse import parse
from tilewright.target.instructions import TILE_REGISTERS, Instruction, Register
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class Tile:
    """The memory that fills a register: `count` elements from `indices` on, contiguous, or in contiguous rows of `row`
    that begin `apart` elements from one another."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    count: int
    row: int = 0
    apart: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """How a nest runs as an instruction: the memory of each register by name, and the condition under which it runs."""

    tiles: dict[str, Tile]
    where: Expr | None


class Mismatch(Exception):
    """Why a nest is not what an instruction does: a sentence, and the statement it is about."""

    def __init__(self, at: Stmt, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.why = why


@cache
def meaning(instruction: Instruction) -> Function:
    """What the instruction computes, as a function over its registers; it changes the last one."""
    return parse(instruction.program, instruction.name)


def match(loop: For, instruction: Instruction, around: Sequence[For] = ()) -> Match:
    """How the nest from `loop` down runs as the instruction; `around` are loops whose ranges may be used. Raises
    Mismatch where it is another program."""
    nest, wanted = _nest(loop, {s.var for s in around}), _program(instruction)
    _compare_loops(nest, wanted)
    where = _uniform(nest)
    ranges = {s.var: (s.begin, simplify(s.end - 1)) for s in (*around, *nest.loops)}
    matching = _Matching(instruction, nest, wanted, Facts(ranges))
    matching.statement()
    return Match(matching.tiles, where)


def check_instruction(loop: For, around: Sequence[For], memory: Callable[[Buffer], Buffer]) -> None:
    """A loop names an instruction if, and only if, it runs as one, and then its nest matches; the accumulator's memory
    is no other register's (`memory` says which buffer one is a view of). Raises Fault."""
    if (loop.kind is LoopKind.INSTRUCTION) != (loop.instruction is not None):
        says = "names an" if loop.instruction else "runs as no"
        raise Fault(loop, f"the loop {loop.var.name} {says} instruction")
    if loop.instruction is None:
        return
    what, fix = f"{loop.instruction} does not do what loop {loop.var.name} holds", "write for instead of instruct"
    try:
        tiles = match(loop, loop.instruction, around).tiles
    except Mismatch as wrong:
        raise Fault(loop, what, why=wrong.why, fix=fix) from None
    own = tiles.pop(loop.instruction.accumulator.name).buffer
    for tile in tiles.values():
        if memory(tile.buffer) is memory(own):
            raise Fault(loop, what, why=f"{tile.buffer.name} and {own.name} are views of the same memory", fix=fix)


@dataclass(frozen=True, slots=True)
class _Nest:
    """Loops around one statement `at`: a store, in `store` with indices and value over the loops' variables, as are
    the conditions under which it runs."""

    loops: tuple[For, ...]
    store: Store
    at: Stmt
    conditions: tuple[Expr, ...]


@cache
def _program(instruction: Instruction) -> _Nest:
    return _nest(meaning(instruction).body, set())


def _nest(stmt: Stmt, around: set[Var]) -> _Nest:
    loops: list[For] = []
    conditions: list[Expr] = []
    bound: dict[Node, Node] = {}
    while not isinstance(stmt, Store):
        match stmt:
            case Seq((only,)):
                stmt = only
            case For():
                if stmt.kind in (LoopKind.PARALLEL, LoopKind.THREAD):
                    raise Mismatch(stmt, f"{stmt.var.name} is a {stmt.kind.value} loop")
                loops.append(stmt)
                stmt = stmt.body
            case Block():
                bound.update({a.var: substitute(a.binding, bound) for a in stmt.axes})
                _require_plain(stmt, bound, around)
                conditions += [substitute(stmt.where, bound)] if stmt.where is not None else []
                stmt = stmt.body
            case If(cond, then, None):
                conditions.append(substitute(cond, bound))
                stmt = then
            case _:
                word = "several statements" if isinstance(stmt, Seq) else f"a statement {type(stmt).__name__}"
                raise Mismatch(stmt, f"expected one accumulation, found {word}")
    indices = tuple(substitute(i, bound) for i in stmt.indices)
    value = transform(stmt.value, _plain, dict(bound))
    return _Nest(tuple(loops), Store(stmt.buffer, indices, value), stmt, tuple(conditions))


def _require_plain(block: Block, bound: dict[Node, Node], around: set[Var]) -> None:
    """An `init` of the block runs before the nest: outside a loop `around` that it sums over."""
    summed = {n for a in block.reduce for n in preorder(bound[a.var])}
    if block.init is not None and not summed & around:
        raise Mismatch(block, f"block {block.name} has an init, which the instruction does not run")


def _uniform(nest: _Nest) -> Expr | None:
    """The condition of a nest, which is the same in all its iterations."""
    own = {s.var for s in nest.loops}
    for cond in nest.conditions:
        parts = set(preorder(cond))
        if own & parts or any(isinstance(n, Load) and n.buffer is nest.store.buffer for n in parts):
            raise Mismatch(nest.at, f"it runs only where {cond}, and an instruction runs as a whole or not at all")
    return conjunction(list(nest.conditions))


def _plain(node: Node) -> Node:
    """fma(a, b, c)  =>  c + a*b: whether the product is rounded is the instruction's business."""
    match node:
        case Call(fn, (a, b, c)) if fn.name == "fma":
            return Add(c, Mul(a, b))
    return node


def _compare_loops(nest: _Nest, wanted: _Nest) -> None:
    found, expected = ([s.extent for s in n.loops] for n in (nest, wanted))
    if found != expected:
        have = ", ".join(f"{s.var.name} of {e}" for s, e in zip(nest.loops, found, strict=True))
        want = ", ".join(f"{s.var.name} of {e}" for s, e in zip(wanted.loops, expected, strict=True))
        raise Mismatch(nest.loops[0], f"expected loops {want} iterations; found {have}")


def ill_supplied(e: Instruct) -> str | None:
    """Why an instruction cannot take its registers, or None."""
    for arg, register in zip(e.args, e.instruction.registers, strict=True):
        own = register is e.instruction.accumulator
        allowed = register.fillings()[:1] if own else register.fillings()
        if arg.dtype is not register.dtype or arg.lanes not in allowed:
            lanes = " or ".join(map(str, allowed))
            return f"{register.name} of {e.instruction} is {arg.dtype}x{arg.lanes}; it takes {register.dtype}x{lanes}"
    return None


class _Matching:
    """Compares the accumulation of a nest with that of an instruction; collects the tiles."""

    def __init__(self, instruction: Instruction, nest: _Nest, wanted: _Nest, facts: Facts) -> None:
        self.instruction = instruction
        self.nest = nest
        self.wanted = wanted
        self.facts = facts
        self.tiles: dict[str, Tile] = {}
        self.registers = {r.name: r for r in instruction.registers}
        self.own = Load(nest.store.buffer, nest.store.indices)

    def statement(self) -> None:
        wanted, found = self.wanted.store, self.nest.store
        self.expression(wanted.value, found.value)
        if wanted.buffer.name not in self.tiles:  # it is stored to alone
            self.element(Load(wanted.buffer, wanted.indices), self.own)

    def fail(self, why: str) -> Mismatch:
        return Mismatch(self.nest.at, why)

    def expression(self, wanted: Expr, found: Expr) -> None:
        """Compares two expressions; of sums and products also the other way round."""
        if isinstance(wanted, Load):
            self.element(wanted, found)
            return
        if isinstance(wanted, Const) and wanted is not found:
            raise self.fail(f"expected {wanted}, found {found}")
        alike = type(wanted) is type(found) and wanted.dtype is found.dtype
        parts, others = ([c for c in e.children() if isinstance(c, Expr)] for e in (wanted, found))
        if not alike or len(parts) != len(others):
            raise self.fail(f"expected {wanted}, found {found}")
        before = dict(self.tiles)
        try:
            for a, b in zip(parts, others, strict=True):
                self.expression(a, b)
        except Mismatch as first:
            self.tiles = before
            if not isinstance(wanted, Add | Mul):
                raise
            try:
                for a, b in zip(parts, reversed(others), strict=True):
                    self.expression(a, b)
            except Mismatch:
                raise first from None

    def element(self, wanted: Load, found: Expr) -> None:
        """An element of a register, and what is read in its place."""
        register = self.registers[wanted.buffer.name]
        own = register is self.instruction.accumulator
        if not isinstance(found, Load) or found.dtype is not register.dtype:
            raise self.fail(f"expected an element of {register}, found {found} of {found.dtype}")
        if own and found is not self.own:
            raise self.fail(f"expected {self.own}, which is stored to, as {wanted}; found {found}")
        if not own and any(isinstance(n, Load) and n.buffer is self.own.buffer for n in preorder(found)):
            raise self.fail(
                f"expected {wanted} not to depend on {self.own.buffer.name}, which is stored to; found {found}"
            )
        self._require_free(register, found.buffer)
        indices = tuple(simplify(i, self.facts) for i in found.indices)
        steps = self._steps(found.buffer, indices)
        row_major = _register_steps(register, wanted, [s.var for s in self.wanted.loops])
        options = row_major[:1] if own or register.is_tile else row_major
        apart = self._apart(wanted, found.buffer, steps, overlap=not own) if register.is_tile else None
        if apart is not None:
            steps = [row if each == apart else each for each, row in zip(steps, options[0], strict=True)]
        if steps not in options:
            raise self.fail(self._moves(wanted, found, options, steps))
        begins: dict[Node, Node] = {s.var: s.begin for s in self.nest.loops}
        first = tuple(simplify(substitute(i, begins), self.facts) for i in indices)
        count, row = register.fillings()[options.index(steps)], register.row if apart is not None else 0
        self.tiles[register.name] = Tile(found.buffer, first, count, row, apart or 0)

    def _require_free(self, register: Register, buffer: Buffer) -> None:
        """Tiles in registers leave two for what is multiplied."""
        if not register.is_tile or buffer.scope is not Scope.REGISTER:
            return
        count = math.prod(e.value if isinstance(e, Const) else 0 for e in buffer.shape) // register.lanes
        if count > TILE_REGISTERS - 2:
            raise self.fail(f"{buffer.name} has {count} tiles of {register}; {TILE_REGISTERS - 2} fit beside factors")

    def _apart(self, wanted: Load, buffer: Buffer, steps: list[int | None], overlap: bool) -> int | None:
        """How many elements of memory lie from one row of a tile to the next: at least a row's, unless rows may
        overlap; None where that is no one number, or where the tile is a register of its own."""
        place = [s.var for s in self.wanted.loops].index(wanted.indices[0])  # type: ignore[arg-type]
        apart, row = steps[place], self.registers[wanted.buffer.name].row
        if apart is None or apart < (1 if overlap else row) or buffer.scope is Scope.REGISTER:
            return None
        return apart

    def _steps(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[int | None]:
        """The elements that an access moves for a step of each loop; None where that is no one number."""
        place: Expr = const(0)
        for extent, index in zip(buffer.shape, indices, strict=True):
            place = place * extent + index
        address = polynomial(place)
        return [_step(address, s.var) for s in self.nest.loops]

    def _moves(self, wanted: Load, found: Load, options: list[list[int | None]], steps: list[int | None]) -> str:
        names = ", ".join(s.var.name for s in self.nest.loops)
        want = " or ".join(_listed(o) for o in options)
        return f"{wanted} is {found}: expected a step of {names} to move {want} elements, found {_listed(steps)}"


def _listed(steps: list[int | None]) -> str:
    shown = ", ".join("?" if s is None else str(s) for s in steps)
    return f"({shown})" if len(steps) > 1 else shown


def _step(address: dict[tuple[Expr, ...], int], var: Var) -> int | None:
    parts = affine_in(address, var)
    if parts is None or any(m for m in parts[0]):
        return None
    if any(var in variables_of(atom) for m in parts[1] for atom in m):
        return None
    return parts[0].get((), 0)


def _register_steps(register: Register, element: Load, loops: list[Var]) -> list[list[int | None]]:
    """How memory that fills a register may move with the loops: as the register does, or not with its first
    dimensions."""
    result: list[list[int | None]] = []
    for fixed in range(len(register.shape) + 1):
        steps: dict[Expr, int] = {}
        stride = 1
        for d in reversed(range(len(register.shape))):
            steps[element.indices[d]] = stride if d >= fixed else 0
            stride *= register.shape[d]
        result.append([steps.get(v, 0) for v in loops])
    return result
