"""Loads and stores: the address of an element, and vectors that are contiguous, strided, or gathered.

Under a mask, vectors that are certainly inside their buffer are read whole: results in masked-off lanes are ignored.
(Integers are frozen: a lane that was never written must not decide a division.) Registers are written whole, too, so
that they stay registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tilewright.codegen.emitter import Emitter
from tilewright.codegen.masked import Lanes
from tilewright.codegen.types import element_type, memory_type, value_type, vector_of
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, const
from tilewright.loops.address import (
    Address,
    address,
    every_second,
    is_inside,
    is_number,
    is_one,
    steps_of,
    taking_turns,
)
from tilewright.loops.nodes import Buffer
from tilewright.types.scopes import Scope

Source = tuple[str, int, int]
"""The elements from the second number to the third of the buffer at a pointer."""

ANYWHERE = 1 << 62
"""More elements than any buffer has."""

LOCALITY: Final = {1: 3, 2: 1}
"""LLVM's word for the first of the caches that are prefetched into. The one between these is `prefetcht1` on x86, which
goes into the first cache, too, on Sapphire Rapids."""


class Memory:
    """Loads and stores. `pointers` holds the SSA name of each buffer, `parts` that of the whole whose part a buffer is;
    `origins` says from which memory the values in `out.loaded` come, and `readers` which of them come from the buffer
    at a pointer. While `copying`, loaded values are stored unchanged: then registers can hold two masks where one would
    do."""

    def __init__(self, out: Emitter) -> None:
        self.out, self.lanes = out, Lanes(out)
        self.pointers: dict[Buffer, str] = {}
        self.parts: dict[Buffer, str] = {}
        self.origins: dict[Expr, frozenset[Source]] = {}
        self.readers: dict[str, set[tuple[Expr, Source]]] = {}
        self.copying = False

    def remember(self, e: Expr, value: str, sources: frozenset[Source]) -> None:
        """Keeps a value for as long as the memory it comes from stays as it is."""
        self.out.loaded[e] = value
        self.origins[e] = sources
        for source in sources:
            self.readers.setdefault(source[0], set()).add((e, source))

    def forget(self) -> None:
        """Forgets all loaded values."""
        self.out.loaded, self.origins, self.readers = {}, {}, {}

    def overwritten(self, place: Source) -> None:
        """Forgets values loaded from these elements: they were overwritten."""
        readers = self.readers.get(place[0], set())
        changed = [(e, source) for e, source in readers if source[1] <= place[2] and place[1] <= source[2]]
        readers.difference_update(changed)
        for e, _ in changed:
            self.out.loaded.pop(e, None)

    def source(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Source:
        """The elements that an access may touch."""
        if buffer in self.parts:
            return self.parts[buffer], -ANYWHERE, ANYWHERE
        place, pointer = address(buffer.shape, indices), self.pointers[buffer]
        if not isinstance(place.base, Const) or place.index:
            return pointer, -ANYWHERE, ANYWHERE
        if place.lanes == 1:
            return pointer, place.offset, place.offset
        if place.at:
            return pointer, place.offset + min(place.at), place.offset + max(place.at)
        if not isinstance(place.stride, Const):
            return pointer, -ANYWHERE, ANYWHERE
        last = place.offset + int(place.stride.value) * (place.lanes - 1)
        return pointer, min(place.offset, last), max(place.offset, last)

    def pointer(self, buffer: Buffer, place: Address) -> str:
        """The address of the first lane, which must be inside the buffer unless no other access shares its base."""
        element, start = memory_type(buffer.dtype), self.pointers[buffer]
        if isinstance(place.base, Const):
            return self._constant_place(element, start, place.offset, buffer.scope is Scope.REGISTER)
        shared = self.out.once(f"getelementptr {element}, ptr {start}, i64 {self.out.value(place.base)}")
        if place.offset == 0:
            return shared
        return self.out.once(f"getelementptr {element}, ptr {shared}, i64 {place.offset}")

    def _constant_place(self, element: str, start: str, offset: int, register: bool) -> str:
        """The address of a numbered element; of a register's once for the function."""
        if offset == 0:
            return start
        if not register:
            return self.out.once(f"getelementptr {element}, ptr {start}, i64 {offset}")
        instruction = f"getelementptr inbounds {element}, ptr {start}, i64 {offset}"
        name = self.out.scopes[0].get(instruction)
        if name is None:
            name = self.out.scopes[0][instruction] = f"%v{self.out.names()}"
            self.out.allocas.append(f"  {name} = {instruction}")
        return name

    def prepare(self, shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> tuple[Address, list[Expr]]:
        """The address, and the expressions that must be computed before it is used."""
        place = address(shape, indices)
        needed = [e for e in (place.base, place.stride) if e is not None]
        return place, needed + [e for pair in place.index for e in pair]

    def load(self, buffer: Buffer, place: Address) -> str:
        """The element, or the lanes, at an address whose parts have been computed."""
        dtype, lanes = buffer.dtype, place.lanes
        if self.lanes.mask is not None and not is_one(place) and not is_inside(buffer, place):
            return self._from_memory(self._load_lanes(buffer, place), dtype, lanes)
        if (
            self.lanes.mask is not None
            and dtype.is_int
            and lanes > 1
            and is_number(place.stride, 1)
            and not place.index
        ):
            return self.out.fresh(f"freeze {vector_of(memory_type(dtype), lanes)} {self._whole(buffer, place)}")
        if not place.index and (lanes == 1 or is_number(place.stride, 1)):
            return self._from_memory(self._whole(buffer, place), dtype, lanes)
        if not place.index and is_number(place.stride, 0):
            at = self.pointer(buffer, place)
            one = self._from_memory(
                self.out.fresh(f"load {memory_type(dtype)}, ptr {at}, align {dtype.bytes}"), dtype, 1
            )
            return self.out.splat(one, element_type(dtype), lanes)
        runs = taking_turns(place)
        if runs and self.lanes.mask is None:
            return self._from_memory(self._in_turns(buffer, place, runs), dtype, lanes)
        memory = vector_of(memory_type(dtype), lanes)
        vector = "poison"
        for lane, at in enumerate(self._lane_pointers(buffer, place)):
            one = self.out.fresh(f"load {memory_type(dtype)}, ptr {at}, align {dtype.bytes}")
            vector = self.out.fresh(f"insertelement {memory} {vector}, {memory_type(dtype)} {one}, i32 {lane}")
        return self._from_memory(vector, dtype, lanes)

    def _in_turns(self, buffer: Buffer, place: Address, runs: Sequence[int]) -> str:
        """A load of runs that take turns, the first elements before the second ones: each is loaded whole."""
        kind, each = memory_type(buffer.dtype), place.lanes // len(runs)
        one = replace(place, at=(), stride=const(1), lanes=each)
        parts = [self._whole(buffer, replace(one, offset=place.offset + begin)) for begin in runs]
        while len(parts) > 1:
            half, lanes = len(parts) // 2, vector_of(kind, each)
            mask = ", ".join(f"i32 {n + each * q}" for n in range(each) for q in range(2))
            pairs = zip(parts[:half], parts[half:], strict=True)
            shuffles = (f"shufflevector {lanes} {a}, {lanes} {b}, <{2 * each} x i32> <{mask}>" for a, b in pairs)
            parts, each = [self.out.fresh(text) for text in shuffles], 2 * each
        return parts[0]

    def _every_second(self, buffer: Buffer, place: Address) -> str:
        """A masked load with stride 2: the two contiguous vectors that span it, shuffled. Only elements of active lanes
        are read."""
        lanes, memory = place.lanes, vector_of(memory_type(buffer.dtype), place.lanes)
        places = every_second(lanes)
        parts = []
        for begin, at in ((0, place), (lanes, replace(place, offset=place.offset + lanes - 1))):
            wanted = {p - begin: n for n, p in enumerate(places) if begin <= p < begin + lanes}
            held = self.lanes.moved([wanted.get(n) for n in range(lanes)])
            parts.append(self.lanes.load_contiguous(buffer.dtype, lanes, self.pointer(buffer, at), held))
        mask = ", ".join(f"i32 {n}" for n in places)
        return self.out.fresh(f"shufflevector {memory} {parts[0]}, {memory} {parts[1]}, <{lanes} x i32> <{mask}>")

    def store(self, buffer: Buffer, place: Address, value: str, whole: bool = False) -> None:
        """Writes a value of as many lanes as the address has. Under a mask, `whole` says that masked-off lanes of a
        register may be overwritten."""
        dtype, lanes = buffer.dtype, place.lanes
        if dtype.is_bool:
            value = self.out.fresh(f"zext {value_type(dtype, lanes)} {value} to {vector_of('i8', lanes)}")
        memory = vector_of(memory_type(dtype), lanes)
        if self.lanes.mask is not None:
            if buffer.scope is not Scope.REGISTER or not is_number(place.stride, 1) or not is_inside(buffer, place):
                self._store_lanes(buffer, place, value)
                return
            if not whole:
                call, other = self.lanes.loaded_over(value), self._whole(buffer, place)
                value = self.out.fresh(f"{call}{other})") if call else self.lanes.blend(dtype, lanes, value, other)
        if not place.index and (lanes == 1 or is_number(place.stride, 1)):
            at = self.pointer(buffer, place)
            self.out.lines.append(f"  store {memory} {value}, ptr {at}, align {dtype.bytes}")
            return
        for lane, at in enumerate(self._lane_pointers(buffer, place)):
            one = self.out.fresh(f"extractelement {memory} {value}, i32 {lane}")
            self.out.lines.append(f"  store {memory_type(dtype)} {one}, ptr {at}, align {dtype.bytes}")

    def prefetch(self, buffer: Buffer, place: Address, level: int) -> None:
        """Prefetches the cache line of an element into the caches from a level on; its address may be invalid."""
        self.out.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.out.lines.append(
            f"  call void @llvm.prefetch.p0(ptr {self.pointer(buffer, place)}, i32 0, i32 {LOCALITY[level]}, i32 1)"
        )

    def _whole(self, buffer: Buffer, place: Address) -> str:
        """The contents of contiguous memory, in the type of the memory."""
        at = self.pointer(buffer, place)
        memory = vector_of(memory_type(buffer.dtype), place.lanes)
        return self.out.fresh(f"load {memory}, ptr {at}, align {buffer.dtype.bytes}")

    def _load_lanes(self, buffer: Buffer, place: Address) -> str:
        """The active lanes, in the buffer's own type."""
        if self.copying and not place.index and is_number(place.stride, 2):
            return self._every_second(buffer, place)
        if place.index or not is_number(place.stride, 1):
            return self.lanes.gather(buffer.dtype, place.lanes, self._pointers(buffer, place))
        return self.lanes.load_contiguous(buffer.dtype, place.lanes, self.pointer(buffer, place))

    def _store_lanes(self, buffer: Buffer, place: Address, value: str) -> None:
        """Writes the active lanes."""
        if place.index or not is_number(place.stride, 1):
            self.lanes.scatter(buffer.dtype, place.lanes, self._pointers(buffer, place), value)
        else:
            self.lanes.store_contiguous(buffer.dtype, place.lanes, self.pointer(buffer, place), value)

    def _pointers(self, buffer: Buffer, place: Address) -> str:
        """The address of each lane, as a vector."""
        lanes, index = place.lanes, vector_of("i64", place.lanes)
        start = self.pointer(buffer, place)
        steps = "<" + ", ".join(f"i64 {n}" for n in place.at or range(lanes)) + ">"
        if place.at:
            return self.out.fresh(f"getelementptr {memory_type(buffer.dtype)}, ptr {start}, {index} {steps}")
        assert place.stride is not None
        at = self.out.fresh(f"mul {index} {steps}, {self.out.splat(self.out.value(place.stride), 'i64', lanes)}")
        for each, stride in place.index:
            scaled = self.out.fresh(
                f"mul {index} {self.out.value(each)}, {self.out.splat(self.out.value(stride), 'i64', lanes)}"
            )
            at = self.out.fresh(f"add {index} {at}, {scaled}")
        return self.out.fresh(f"getelementptr {memory_type(buffer.dtype)}, ptr {start}, {index} {at}")

    def _from_memory(self, loaded: str, dtype: DType, lanes: int) -> str:
        if not dtype.is_bool:
            return loaded
        zero = self.out.splat_literal("0", "i8", lanes)
        return self.out.fresh(f"icmp ne {vector_of('i8', lanes)} {loaded}, {zero}")

    def _lane_pointers(self, buffer: Buffer, place: Address) -> list[str]:
        """The address of each lane, as scalars."""
        element, first = memory_type(buffer.dtype), self.pointer(buffer, place)
        result, steps = [], steps_of(place)
        for lane in range(place.lanes):
            at = first
            if steps:
                at = self.out.fresh(f"getelementptr {element}, ptr {at}, i64 {steps[lane]}") if steps[lane] else at
            elif lane and place.stride is not None:
                moved_by = self.out.fresh(f"mul i64 {self.out.value(place.stride)}, {lane}")
                at = self.out.fresh(f"getelementptr {element}, ptr {at}, i64 {moved_by}")
            for index, stride in place.index:
                vector = value_type(dtypes.index, place.lanes)
                one = self.out.fresh(f"extractelement {vector} {self.out.value(index)}, i32 {lane}")
                scaled = self.out.fresh(f"mul i64 {one}, {self.out.value(stride)}")
                at = self.out.fresh(f"getelementptr {element}, ptr {at}, i64 {scaled}")
            result.append(at)
        return result
