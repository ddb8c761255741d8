"""Loads and stores: the address of an element, and vectors that lie contiguously, at a stride, or anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.emitter import Emitter
from tilewright.codegen.types import element_type, memory_type, value_type, vector_of
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Broadcast, Const, Expr, Ramp, const
from tilewright.loops.nodes import Buffer


@dataclass(frozen=True, slots=True)
class Address:
    """The flat index of an access: a scalar `base`; or lanes at base + n*stride; or a vector `index` of any indices."""

    base: Expr | None
    stride: Expr | None
    index: tuple[tuple[Expr, Expr], ...] = ()
    lanes: int = 1


def strides(shape: tuple[Expr, ...]) -> list[Expr]:
    """The row-major strides of a shape, in elements."""
    result: list[Expr] = [const(1)]
    for extent in reversed(shape[1:]):
        result.append(extent * result[-1])
    return list(reversed(result[: len(shape)]))


def address(shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> Address:
    """The address of `indices` in a row-major array of this shape."""
    lanes = max((i.lanes for i in indices), default=1)
    terms = list(zip(indices, strides(shape), strict=True))
    base: Expr = const(0)
    step: Expr = const(0)
    general: list[tuple[Expr, Expr]] = []
    for index, stride in terms:
        match index:
            case Ramp(first, each, _):
                base, step = base + first * stride, step + each * stride
            case Broadcast(a, _):
                base = base + a * stride
            case _ if index.lanes == 1:
                base = base + index * stride
            case _:
                general.append((index, stride))
    if general:
        return Address(base, step, tuple(general), lanes)
    return Address(base, step if lanes > 1 else None, (), lanes)


class Memory(Emitter):
    """Loads and stores. `pointers` holds the SSA name of each buffer."""

    pointers: dict[Buffer, str]

    def emit(self, root: Expr) -> str:
        """The value of an expression (see expressions.py)."""
        raise AssertionError("given by the subclass")

    def pointer(self, buffer: Buffer, index: str) -> str:
        element = memory_type(buffer.dtype)
        return self.fresh(f"getelementptr inbounds {element}, ptr {self.pointers[buffer]}, i64 {index}")

    def prepare(self, shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> tuple[Address, list[Expr]]:
        """The address, and the expressions that must be computed before it is used."""
        place = address(shape, indices)
        needed = [e for e in (place.base, place.stride) if e is not None]
        return place, needed + [e for pair in place.index for e in pair]

    def load(self, buffer: Buffer, place: Address) -> str:
        """The element, or the lanes, at an address whose parts have been computed."""
        dtype, lanes = buffer.dtype, place.lanes
        if not place.index and (lanes == 1 or _is(place.stride, 1)):
            assert place.base is not None
            memory = vector_of(memory_type(dtype), lanes)
            at = self.pointer(buffer, self.value(place.base))
            return self._from_memory(self.fresh(f"load {memory}, ptr {at}, align {dtype.bytes}"), dtype, lanes)
        if not place.index and _is(place.stride, 0):
            assert place.base is not None
            at = self.pointer(buffer, self.value(place.base))
            one = self._from_memory(self.fresh(f"load {memory_type(dtype)}, ptr {at}, align {dtype.bytes}"), dtype, 1)
            return self.splat(one, element_type(dtype), lanes)
        if not place.index and _is(place.stride, 2):
            return self._from_memory(self._every_second(buffer, place), dtype, lanes)
        memory = vector_of(memory_type(dtype), lanes)
        vector = "poison"
        for lane, index in enumerate(self._lane_indices(place)):
            one = self.fresh(f"load {memory_type(dtype)}, ptr {self.pointer(buffer, index)}, align {dtype.bytes}")
            vector = self.fresh(f"insertelement {memory} {vector}, {memory_type(dtype)} {one}, i32 {lane}")
        return self._from_memory(vector, dtype, lanes)

    def _every_second(self, buffer: Buffer, place: Address) -> str:
        """Lanes two elements apart: the two contiguous vectors that span them, and no element beyond, shuffled."""
        assert place.base is not None
        lanes, element = place.lanes, memory_type(buffer.dtype)
        memory = vector_of(element, lanes)
        first = self.value(place.base)
        second = self.fresh(f"add i64 {first}, {lanes - 1}")
        low, high = (
            self.fresh(f"load {memory}, ptr {self.pointer(buffer, at)}, align {buffer.dtype.bytes}")
            for at in (first, second)
        )
        places = [2 * n if 2 * n < lanes else lanes + 2 * n - (lanes - 1) for n in range(lanes)]
        mask = ", ".join(f"i32 {n}" for n in places)
        return self.fresh(f"shufflevector {memory} {low}, {memory} {high}, <{lanes} x i32> <{mask}>")

    def store(self, buffer: Buffer, place: Address, value: str) -> None:
        """Writes a value of as many lanes as the address has."""
        dtype, lanes = buffer.dtype, place.lanes
        if dtype.is_bool:
            value = self.fresh(f"zext {value_type(dtype, lanes)} {value} to {vector_of('i8', lanes)}")
        memory = vector_of(memory_type(dtype), lanes)
        if not place.index and (lanes == 1 or _is(place.stride, 1)):
            assert place.base is not None
            at = self.pointer(buffer, self.value(place.base))
            self.lines.append(f"  store {memory} {value}, ptr {at}, align {dtype.bytes}")
            return
        for lane, index in enumerate(self._lane_indices(place)):
            one = self.fresh(f"extractelement {memory} {value}, i32 {lane}")
            at = self.pointer(buffer, index)
            self.lines.append(f"  store {memory_type(dtype)} {one}, ptr {at}, align {dtype.bytes}")

    def _from_memory(self, loaded: str, dtype: DType, lanes: int) -> str:
        if not dtype.is_bool:
            return loaded
        zero = self.splat_literal("0", "i8", lanes)
        return self.fresh(f"icmp ne {vector_of('i8', lanes)} {loaded}, {zero}")

    def _lane_indices(self, place: Address) -> list[str]:
        """The flat index of each lane, as scalars."""
        assert place.base is not None
        assert place.stride is not None
        base, step = self.value(place.base), self.value(place.stride)
        result = []
        for lane in range(place.lanes):
            at = base
            if lane and not _is(place.stride, 0):
                moved = self.fresh(f"mul i64 {step}, {lane}")
                at = self.fresh(f"add i64 {at}, {moved}")
            for index, stride in place.index:
                one = self.fresh(
                    f"extractelement {value_type(dtypes.index, place.lanes)} {self.value(index)}, i32 {lane}"
                )
                scaled = self.fresh(f"mul i64 {one}, {self.value(stride)}")
                at = self.fresh(f"add i64 {at}, {scaled}")
            result.append(at)
        return result


def _is(e: Expr | None, number: int) -> bool:
    return isinstance(e, Const) and e.value == number
