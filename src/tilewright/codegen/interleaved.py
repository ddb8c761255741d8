"""Lanes apart, between which the lanes of other accesses lie: whole vectors and shuffles, not single elements.

    a = x[ramp(i, 4, 8)]           memory     0 1 2 3  4 5 6 7  …  28 29 30 31        a: 0 4 8 … 28
    b = x[ramp(i + 1, 4, 8)]                                                          b: 1 5 9 … 29
    c = x[ramp(i + 2, 4, 8)]
    d = x[ramp(i + 3, 4, 8)]

Four such vectors are the columns of matrices of 4 x 4 elements, a matrix to each 128 bits of a register, of which
memory holds the rows: one after the other here, anywhere apart where a larger array is transposed. Loads are looked for
in statements that follow each other; four stores must be neighbours. No element is touched that the four do not touch.
Where lanes are four apart, a vector four elements further is the same one moved by a lane.

    x[ramp(i, 2, 16)] = a          Vectors that are stored into each other's gaps, as many as their lanes are apart, are
    x[ramp(i + 1, 2, 16)] = b      woven: they fill one piece of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.codegen.expressions import Expressions
from tilewright.codegen.memory import Address, address
from tilewright.codegen.types import memory_type, vector_of
from tilewright.expr.nodes import Const, Expr
from tilewright.loops.edit import loads_of
from tilewright.loops.nodes import Buffer, Load, Stmt, Store

SIDE = 4
"""The side of the matrices: so many elements lie next to each other, in as many vectors."""

Group = dict[int, Load]
"""Loads of one buffer that differ by a constant number of elements, by that number."""


def runs(body: Sequence[Stmt]) -> Iterator[tuple[Stmt, ...]]:
    """The statements in order, neighbouring stores together."""
    found: list[Stmt] = []
    for s in body:
        if found and not (isinstance(s, Store) and isinstance(found[-1], Store)):
            yield tuple(found)
            found = []
        found.append(s)
    if found:
        yield tuple(found)


def _suits(buffer: Buffer, place: Address) -> bool:
    """Whether an access is one of whole registers' worth of elements, four or more apart."""
    stride = isinstance(place.stride, Const) and place.stride.value >= SIDE
    plain = not place.index and not loads_of(place.base)
    return stride and plain and place.lanes in (4, 8, 16) and buffer.dtype.bits == 32


def _stride(place: Address) -> int:
    """The elements from one lane to the next, of an access that suits."""
    assert isinstance(place.stride, Const)
    return int(place.stride.value)


def load_groups(run: Sequence[Stmt]) -> list[tuple[Buffer, Address, Group]]:
    """The loads of a run that may belong together."""
    found: dict[tuple[Buffer, Expr, Expr | None, int], Group] = {}
    places: dict[tuple[Buffer, Expr, Expr | None, int], Address] = {}
    for e in dict.fromkeys(load for s in run if isinstance(s, Store) for load in loads_of(s.value)):
        place = address(e.buffer.shape, e.indices)
        if _suits(e.buffer, place):
            key = (e.buffer, place.base, place.stride, place.lanes)
            found.setdefault(key, {})[place.offset] = e
            places[key] = place
    return [(key[0], places[key], found[key]) for key in found if len(found[key]) >= SIDE]


def stored_together(run: Sequence[Stmt]) -> list[Store] | None:
    """The stores at the beginning of a run that fill each other's gaps, in order, none of which reads what they write:
    four whose lanes are any distance apart, or as many as that. None for others."""
    first = run[0]
    if not isinstance(first, Store) or len(run) == 1 or first.buffer.dtype.is_bool:
        return None
    place = address(first.buffer.shape, first.indices)
    number = SIDE if _suits(first.buffer, place) else _woven(place)
    stores = [s for s in run[:number] if isinstance(s, Store) and s.buffer is first.buffer]
    if not number or len(stores) != number:
        return None
    places = [address(s.buffer.shape, s.indices) for s in stores]
    if places != [Address(place.base, place.offset + n, place.stride, (), place.lanes) for n in range(number)]:
        return None
    reads = any(load.buffer is first.buffer for s in stores for load in loads_of(s.value))
    return None if reads else stores


def _woven(place: Address) -> int:
    """How many vectors at this distance fill one piece of memory; 0 where others do."""
    plain = isinstance(place.stride, Const) and place.stride.value in (2, SIDE) and not place.index
    return _stride(place) if plain and place.lanes > 1 and not loads_of(place.base) else 0


class Interleaved(Expressions):
    """Emits such loads and stores."""

    def load_together(self, run: Sequence[Stmt]) -> None:
        """Loads what the statements of a run load together; they find it there."""
        if self.mask is not None or len(run) == 1:
            return
        for buffer, place, group in load_groups(run):
            known: dict[int, str] = {}
            for offset in sorted(group):
                if offset in known:
                    continue
                if all(offset + n in group for n in range(SIDE)):
                    self.emit(place.base)
                    columns = self._load_four(buffer, place, offset)
                    known.update({offset + n: column for n, column in enumerate(columns)})
                elif offset - SIDE in known and _stride(place) == SIDE:
                    known[offset] = self._moved(buffer, place, offset, known[offset - SIDE])
            for offset, value in known.items():
                load = group[offset]
                self.remember(load, value, frozenset((self.source(buffer, load.indices),)))

    def store_together(self, stores: Sequence[Store]) -> None:
        """Stores values that fill each other's gaps."""
        buffer = stores[0].buffer
        place, needed = self.prepare(buffer.shape, stores[0].indices)
        columns = [self.emit(s.value) for s in stores]
        for e in needed:
            self.emit(e)
        if _suits(buffer, place):
            self._store_transposed(buffer, place, columns)
        else:
            self._store_woven(buffer, place, columns)
        for s in stores:
            self.overwritten(self.source(buffer, s.indices))

    def _store_woven(self, buffer: Buffer, place: Address, columns: Sequence[str]) -> None:
        """Vectors as far apart as they are many: their first lanes, then their second ones, and so on."""
        element, lanes = memory_type(buffer.dtype), place.lanes
        while len(columns) > 1:
            half = len(columns) // 2
            picked = [n // 2 + n % 2 * lanes for n in range(2 * lanes)]
            pairs = zip(columns[:half], columns[half:], strict=True)
            columns = [self._shuffled(a, b, picked, element, lanes) for a, b in pairs]
            lanes *= 2
        at = self.pointer(buffer, Address(place.base, place.offset, None))
        self.lines.append(f"  store {vector_of(element, lanes)} {columns[0]}, ptr {at}, align {buffer.dtype.bytes}")

    def _store_transposed(self, buffer: Buffer, place: Address, columns: Sequence[str]) -> None:
        """Four vectors whose lanes are further apart, as rows of matrices."""
        element, lanes = memory_type(buffer.dtype), place.lanes
        rows = self._transposed(columns, element, lanes)
        for part in range(lanes // SIDE):
            for n, row in enumerate(rows):
                at = self._element(buffer, place, place.offset + (part * SIDE + n) * _stride(place))
                first = part * SIDE
                piece = self._shuffled(row, "poison", list(range(first, first + SIDE)), element, lanes)
                self.lines.append(f"  store <{SIDE} x {element}> {piece}, ptr {at}, align {buffer.dtype.bytes}")

    def _load_four(self, buffer: Buffer, place: Address, offset: int) -> list[str]:
        """The vectors at four offsets from this one on."""
        element, lanes = memory_type(buffer.dtype), place.lanes
        rows = []
        for n in range(SIDE):
            at = range(n, lanes, SIDE)
            pieces = [self._piece(buffer, place, offset + lane * _stride(place)) for lane in at]
            width = SIDE
            while len(pieces) > 1:
                both = list(range(2 * width))
                pieces = [
                    self._shuffled(a, b, both, element, width) for a, b in zip(pieces[::2], pieces[1::2], strict=True)
                ]
                width *= 2
            rows += pieces
        return self._transposed(rows, element, lanes)

    def _piece(self, buffer: Buffer, place: Address, offset: int) -> str:
        at = self._element(buffer, place, offset)
        return self.fresh(f"load <{SIDE} x {memory_type(buffer.dtype)}>, ptr {at}, align {buffer.dtype.bytes}")

    def _moved(self, buffer: Buffer, place: Address, offset: int, before: str) -> str:
        """The vector at an offset, out of the one four elements before it."""
        element, lanes = memory_type(buffer.dtype), place.lanes
        at = self._element(buffer, place, offset + SIDE * (lanes - 1))
        last = self.fresh(f"load {element}, ptr {at}, align {buffer.dtype.bytes}")
        vector = vector_of(element, lanes)
        end = self.fresh(f"insertelement {vector} poison, {element} {last}, i32 0")
        return self._shuffled(before, end, list(range(1, lanes + 1)), element, lanes)

    def _element(self, buffer: Buffer, place: Address, offset: int) -> str:
        """The address of an element as far from the base of an address."""
        return self.pointer(buffer, Address(place.base, offset, None))

    def _transposed(self, rows: Sequence[str], element: str, lanes: int) -> list[str]:
        """Each 4 x 4 elements of four vectors, transposed: pairs of elements first, then pairs of pairs."""
        groups = range(0, lanes, SIDE)
        a, b, c, d = rows
        halves = []
        for first, second in ((a, b), (c, d)):
            for start in (0, 2):
                picked = [g + start + n // 2 + (n % 2) * lanes for g in groups for n in range(SIDE)]
                halves.append(self._shuffled(first, second, picked, element, lanes))
        columns = []
        for low, high in ((halves[0], halves[2]), (halves[1], halves[3])):
            for start in (0, 2):
                picked = [g + start + n % 2 + (n // 2) * lanes for g in groups for n in range(SIDE)]
                columns.append(self._shuffled(low, high, picked, element, lanes))
        return columns

    def _shuffled(self, a: str, b: str, picked: Sequence[int], element: str, lanes: int) -> str:
        """The elements of these numbers of two vectors, counted through."""
        vector, mask = vector_of(element, lanes), ", ".join(f"i32 {n}" for n in picked)
        return self.fresh(f"shufflevector {vector} {a}, {vector} {b}, <{len(picked)} x i32> <{mask}>")
