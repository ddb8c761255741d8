"""Strided loads and stores become whole vectors and shuffles, where that takes a core less than single elements.

    a = x[ramp(i, 4, 8)]           memory     0 1 2 3  4 5 6 7  …  28 29 30 31        a: 0 4 8 … 28
    b = x[ramp(i + 1, 4, 8)]                                                          b: 1 5 9 … 29
    c = x[ramp(i + 2, 4, 8)]
    d = x[ramp(i + 3, 4, 8)]

Four such vectors are the columns of 4 x 4 matrices, one in each 128 bits of a register. Memory holds the rows of these
matrices: one after the other here, at any distance if a larger array is transposed, each at a place of its own where
rows beyond the last one are the last one (`min(ramp(i, 1, 8), n - 1) * 64`). Loads are searched in consecutive stores;
stores must be four neighbours. No element is touched that the four accesses do not touch. With a stride of four, the
vector four elements further on is the same one shifted by a lane.

    x[ramp(i, 2, 16)] = a          As many strided stores as their stride, each into the gaps of the others: the vectors
    x[ramp(i + 1, 2, 16)] = b      are interleaved and stored contiguously.

    x[ramp(i, 2, 16)]              The two vectors that span it, and no element beyond.
    t[ramp(3, 1, 16)]              Lanes of registers across vectors that were written whole are shuffled out of these:
                                   an unaligned load would send the registers through memory.
    x[j + ramp(0, 1, 16) % 4]      The same few neighbours again and again: one short vector.

Under a mask, only data that is certainly inside its buffer is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.nodes import Broadcast, Const, Expr, Ramp, Shuffle, const
from tilewright.loops.address import Address, address, every_second, is_inside, is_number, is_one, steps_of
from tilewright.loops.edit import loads_of
from tilewright.loops.known_lanes import lane_of, repeated
from tilewright.loops.nodes import COMPOUND, Buffer, Function, If, Load, Seq, Stmt, Store, seq
from tilewright.target import Target
from tilewright.types.scopes import Scope

Moves = dict[Node, Node]
"""The replacements of loads, and of expressions that contain them."""


def move_lanes(function: Function, target: Target) -> Function:
    """The function with such loads and stores."""
    body = _Mover(target).statement(function.body, False)
    return function if body is function.body else function.replace(body=body)


def _runs(body: Sequence[Stmt]) -> Iterator[tuple[Stmt, ...]]:
    """The statements in order, neighbouring stores together."""
    found: list[Stmt] = []
    for s in body:
        if found and not (isinstance(s, Store) and isinstance(found[-1], Store)):
            yield tuple(found)
            found = []
        found.append(s)
    if found:
        yield tuple(found)


def _fills_registers(buffer: Buffer, place: Address) -> bool:
    """Whether an access to a buffer of one dimension fills whole registers."""
    plain = len(buffer.shape) == 1 and not loads_of(place.base)
    return plain and place.lanes in (4, 8, 16) and buffer.dtype.bits == 32


def _suits(buffer: Buffer, place: Address) -> bool:
    """Whether an access fills whole registers with elements at a stride of four or more."""
    stride = isinstance(place.stride, Const) and place.stride.value >= 4
    return stride and not place.index and _fills_registers(buffer, place)


def _apart(buffer: Buffer, place: Address) -> tuple[Expr, ...]:
    """How far the lanes of a load are from its base, where they are rows that four such loads share; else nothing."""
    if _suits(buffer, place):
        return tuple([const(n * _stride(place)) for n in range(place.lanes)])
    if len(place.index) != 1 or not is_number(place.stride, 0) or not _fills_registers(buffer, place):
        return ()
    ((index, stride),) = place.index
    lanes = [lane_of(index, n) for n in range(place.lanes)]
    apart = [lane * stride for lane in lanes if lane is not None and not loads_of(lane)]
    return tuple(apart) if len(apart) == place.lanes else ()


def _stride(place: Address) -> int:
    """The elements from one lane to the next, of an access that suits."""
    assert isinstance(place.stride, Const)
    return int(place.stride.value)


def _interleaved(place: Address) -> int:
    """How many vectors at this stride fill contiguous memory; 0 where they cannot."""
    plain = isinstance(place.stride, Const) and place.stride.value in (2, 4) and not place.index
    return _stride(place) if plain and place.lanes > 1 and not loads_of(place.base) else 0


def _neighbours(place: Address, offset: int | Expr, lanes: int) -> tuple[Expr]:
    """The index of so many elements, from one on that is as far as this from the base of an address."""
    return (Ramp(place.base + offset, const(1), lanes),)


def _at(place: Address, offset: int) -> tuple[Expr]:
    return (place.base + offset,)


class _Mover:
    """Rewrites the statements of a function."""

    def __init__(self, target: Target) -> None:
        self.core = target.core
        self.memos: dict[bool, Moves] = {False: {}, True: {}}

    def statement(self, stmt: Stmt, masked: bool) -> Stmt:
        """A statement; `masked` where not all lanes need hold."""
        if isinstance(stmt, Seq):
            parts: list[Stmt] = []
            for run in _runs(stmt.body):
                together = len(run) > 1 and not masked
                parts += self.together(run) if together else [self.statement(s, masked) for s in run]
            same = len(parts) == len(stmt.body) and all(a is b for a, b in zip(parts, stmt.body, strict=True))
            return stmt if same else seq(*parts)
        inside = masked or (isinstance(stmt, If) and stmt.cond.lanes > 1)
        if type(stmt) not in COMPOUND:
            return self.moved(stmt, self.memos[masked], masked)
        made = [self.statement(c, inside) if isinstance(c, Stmt) else self.part(c, masked) for c in stmt.children()]
        return stmt.rebuild(tuple(made))

    def part(self, part: Node, masked: bool) -> Node:
        return self.expression(part, self.memos[masked], masked) if isinstance(part, Expr) else part

    def moved(self, stmt: Stmt, memo: Moves, masked: bool) -> Stmt:
        """A statement without statements in it."""
        if not stmt.kinds() & Load.bit:
            return stmt
        made = [self.expression(c, memo, masked) if isinstance(c, Expr) else c for c in stmt.children()]
        return stmt.rebuild(tuple(made))

    def expression(self, e: Expr, memo: Moves, masked: bool) -> Expr:
        loads = loads_of(e)
        if all(load.lanes == 1 for load in loads) or all(self.load(load, masked, memo) is load for load in loads):
            return e
        return transform(
            e, lambda node: self.load(node, masked, memo) if type(node) is Load else node, memo, _reads_nothing
        )

    def load(self, load: Load, masked: bool, memo: Moves) -> Expr:
        """What takes the place of one load: itself, or shuffles of whole vectors."""
        found = memo.get(load)
        if found is None:
            found = memo[load] = self.lanes(load, masked)
        assert isinstance(found, Expr)
        return found

    def lanes(self, load: Load, masked: bool) -> Expr:
        buffer = load.buffer
        if load.lanes == 1 or buffer.dtype.is_bool or len(buffer.shape) != 1:
            return load
        place = address(buffer.shape, load.indices)
        if is_one(place) or place.index or loads_of(place.base):
            return load
        if masked and (not is_inside(buffer, place) or (buffer.dtype.is_int and is_number(place.stride, 1))):
            return load
        across = _across(buffer, place)
        if across and self.pays(len({n // place.lanes for n in across}), place.lanes):
            return _shuffled_out(buffer, place, across)
        places = repeated(place.at)
        if places:
            few = Load(buffer, _neighbours(place, place.offset, max(places) + 1))
            return Shuffle(few, few, places)
        if is_number(place.stride, 2):
            first, second = (
                Load(buffer, _neighbours(place, place.offset + n, place.lanes)) for n in (0, place.lanes - 1)
            )
            return Shuffle(first, second, every_second(place.lanes))
        return load

    def pays(self, vectors: int, lanes: int, shuffles: int | None = None) -> bool:
        """Whether so many vectors that are loaded whole, with a shuffle for each unless there are others, take
        less than all lanes one by one, each of which is put into its vector, too."""
        whole = (
            vectors * self.core.load_cycles + (vectors if shuffles is None else shuffles) * self.core.shuffle2_cycles
        )
        return whole < lanes * (self.core.load_cycles + self.core.shuffle2_cycles)

    def together(self, run: Sequence[Stmt]) -> list[Stmt]:
        """Neighbouring stores: their loads first, then they themselves."""
        known = self.loaded_together(run)
        memo = {**known} if known else self.memos[False]
        parts = [self.moved(s, memo, False) for s in run]
        result: list[Stmt] = []
        n = 0
        while n < len(parts):
            stores = _stored_together(parts, n)
            result += [parts[n]] if stores is None else self.stored(stores)
            n += 1 if stores is None else len(stores)
        return result

    def loaded_together(self, run: Sequence[Stmt]) -> Moves:
        """What takes the place of loads that belong together, of buffers that the run does not write."""
        written = {s.buffer for s in run if isinstance(s, Store)}
        found: dict[tuple[Buffer, Expr, tuple[Expr, ...]], dict[int, Load]] = {}
        places: dict[tuple[Buffer, Expr, tuple[Expr, ...]], Address] = {}
        for e in dict.fromkeys(load for s in run if isinstance(s, Store) for load in loads_of(s.value)):
            if e.lanes == 1 or e.buffer in written:
                continue
            place = address(e.buffer.shape, e.indices)
            if apart := _apart(e.buffer, place):
                key = (e.buffer, place.base, apart)
                found.setdefault(key, {})[place.offset] = e
                places[key] = place
        moves: Moves = {}
        for key, group in found.items():
            if len(group) < 4:
                continue
            known: dict[int, Expr] = {}
            place, lanes = places[key], places[key].lanes
            for offset in sorted(group):
                if offset in known:
                    continue
                if all(offset + n in group for n in range(4)) and self.pays(lanes, 4 * lanes, lanes + 4):
                    columns = _load_four(key[0], place, offset, key[2])
                    known.update({offset + n: column for n, column in enumerate(columns)})
                elif offset - 4 in known and is_number(place.stride, 4):
                    known[offset] = _moved_by_a_lane(key[0], place, offset, known[offset - 4])
            moves.update((group[offset], value) for offset, value in known.items())
        return moves

    def stored(self, stores: Sequence[Store]) -> list[Stmt]:
        """What takes the place of stores that fill each other's gaps."""
        buffer = stores[0].buffer
        place = address(buffer.shape, stores[0].indices)
        columns = [s.value for s in stores]
        if not _suits(buffer, place):
            whole = _interleave(columns)
            return [Store(buffer, _neighbours(place, place.offset, whole.lanes), whole)]
        rows = _transposed(columns)
        made: list[Stmt] = []
        for part in range(0, place.lanes, 4):
            for n, row in enumerate(rows):
                piece = Shuffle(row, row, tuple(range(part, part + 4)))
                made.append(Store(buffer, _neighbours(place, place.offset + (part + n) * _stride(place), 4), piece))
        return made


def _reads_nothing(node: Node) -> bool:
    return isinstance(node, Expr) and not node.kinds & Load.bit


def _stored_together(run: Sequence[Stmt], start: int) -> list[Store] | None:
    """The stores at a place of a run that fill each other's gaps, in order, none of which reads what they write: four
    of any stride, or as many as their stride. None for others."""
    first = run[start]
    if not isinstance(first, Store) or first.value.lanes == 1 or first.buffer.dtype.is_bool:
        return None
    buffer = first.buffer
    place = address(buffer.shape, first.indices)
    number = 4 if _suits(buffer, place) else _interleaved(place)
    stores = [s for s in run[start : start + number] if isinstance(s, Store) and s.buffer is buffer]
    if not number or len(stores) != number or len(buffer.shape) != 1:
        return None
    places = [address(s.buffer.shape, s.indices) for s in stores]
    if places != [Address(place.base, place.offset + n, place.stride, (), place.lanes) for n in range(number)]:
        return None
    return None if any(load.buffer is buffer for s in stores for load in loads_of(s.value)) else stores


def _across(buffer: Buffer, place: Address) -> tuple[int, ...]:
    """The numbers of the elements of an access to a register whose lanes are spread over several vectors of as many
    lanes, all inside the buffer, or permuted within one vector; empty for any other access."""
    lanes, found = place.lanes, tuple(place.offset + n for n in steps_of(place))
    if buffer.scope is not Scope.REGISTER or not isinstance(place.base, Const):
        return ()
    if not found or found[0] == found[-1] or (is_number(place.stride, 1) and place.offset % lanes == 0):
        return ()
    vectors = {n // lanes for n in found}
    inside = all(is_inside(buffer, _vector(n, lanes)) for n in (min(vectors), max(vectors)))
    return found if inside else ()


def _vector(number: int, lanes: int) -> Address:
    """A vector of a buffer, counted from its start."""
    return Address(const(0), number * lanes, const(1), (), lanes)


def _shuffled_out(buffer: Buffer, place: Address, across: tuple[int, ...]) -> Expr:
    """The elements with these numbers, shuffled out of the vectors that hold them."""
    lanes = place.lanes
    numbers = sorted({p // lanes for p in across})
    vectors = [Load(buffer, _neighbours(place, n * lanes, lanes)) for n in numbers]
    if len(vectors) == 1:
        return Shuffle(vectors[0], vectors[0], tuple(p % lanes for p in across))
    result: Expr = vectors[0]
    picked = tuple(p % lanes if p // lanes == numbers[0] else lanes + p % lanes for p in across)
    known = {numbers[0], numbers[1]}
    result = Shuffle(result, vectors[1], picked)
    for number, vector in zip(numbers[2:], vectors[2:], strict=True):
        picked = tuple(p % lanes + lanes if p // lanes == number else n for n, p in enumerate(across))
        result = Shuffle(result, vector, picked)
        known.add(number)
    return result


def _interleave(columns: Sequence[Expr]) -> Expr:
    """The first lanes of vectors, then their second ones, and so on."""
    while len(columns) > 1:
        half, lanes = len(columns) // 2, columns[0].lanes
        picked = tuple(n // 2 + n % 2 * lanes for n in range(2 * lanes))
        columns = [Shuffle(a, b, picked) for a, b in zip(columns[:half], columns[half:], strict=True)]
    return columns[0]


def _load_four(buffer: Buffer, place: Address, offset: int, apart: Sequence[Expr]) -> list[Expr]:
    """The vectors at four offsets from this one on, with the lanes so far from the base."""
    rows: list[Expr] = []
    for n in range(4):
        pieces: list[Expr] = [Load(buffer, _neighbours(place, row + offset, 4)) for row in apart[n::4]]
        while len(pieces) > 1:
            both = tuple(range(2 * pieces[0].lanes))
            pieces = [Shuffle(a, b, both) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
        rows += pieces
    return _transposed(rows)


def _moved_by_a_lane(buffer: Buffer, place: Address, offset: int, before: Expr) -> Expr:
    """The vector at an offset, out of the one four elements before it."""
    last = Broadcast(Load(buffer, _at(place, offset + 4 * (place.lanes - 1))), place.lanes)
    return Shuffle(before, last, tuple(range(1, place.lanes + 1)))


def _transposed(rows: Sequence[Expr]) -> list[Expr]:
    """Each 4 x 4 elements of four vectors, transposed: pairs of elements first, then pairs of pairs."""
    lanes = rows[0].lanes
    groups = range(0, lanes, 4)
    a, b, c, d = rows
    pairs: list[Expr] = []
    for first, second in ((a, b), (c, d)):
        for start in (0, 2):
            picked = tuple(g + start + n // 2 + (n % 2) * lanes for g in groups for n in range(4))
            pairs.append(Shuffle(first, second, picked))
    columns: list[Expr] = []
    for low, high in ((pairs[0], pairs[2]), (pairs[1], pairs[3])):
        for start in (0, 2):
            picked = tuple(g + start + n % 2 + (n // 2) * lanes for g in groups for n in range(4))
            columns.append(Shuffle(low, high, picked))
    return columns
