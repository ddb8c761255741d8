"""Masked memory accesses: masked-off lanes are neither read nor written, and load as zero.

Their addresses may be invalid, so no address here promises to be inside its object.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.codegen.emitter import Emitter
from tilewright.codegen.types import element_type, memory_type, suffix, value_type, vector_of
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Broadcast, Cast, Compare, Const, Expr, Lt, Max, Min, Ramp

Failing = tuple[str, int]
"""The lanes in which a check fails, as a mask, and how many lanes there are."""


class Lanes:
    """Loads and stores of vectors under `mask`, the SSA name of the active ones of `count` lanes; None if all are
    active. `latest` is
    the last load of neighbours under it: its result, the call but for what other lanes hold, and how many lines there
    were after it."""

    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.mask: str | None = None
        self.count = 1
        self.latest: tuple[str, str, int] | None = None

    @contextmanager
    def only(self, held: str, count: int) -> Iterator[None]:
        """Within the context, only these of the active lanes are active."""
        around, self.count = self.mask, count
        self.mask = held if around is None else self.out.fresh(f"and {_bits(count)} {held}, {around}")
        try:
            yield
        finally:
            self.mask = around

    def complement(self, held: str, count: int) -> str:
        """The lanes that are masked off."""
        return self.out.fresh(f"xor {_bits(count)} {held}, {self.out.splat_literal('true', 'i1', count)}")

    def any_lane(self, count: int) -> str:
        """Whether some lane is active."""
        assert self.mask is not None
        return self._any(self.mask, count)

    def _any(self, held: str, count: int) -> str:
        """Whether a mask holds in some lane."""
        name = f"@llvm.vector.reduce.or.v{count}i1"
        self.out.declarations.add(f"declare i1 {name}({_bits(count)})")
        return self.out.fresh(f"call i1 {name}({_bits(count)} {held})")

    def failing(self, held: str, lanes: int) -> tuple[str, Failing]:
        """(whether a condition holds in all active lanes, the active lanes in which it does not). One without lanes is
        the same in all."""
        count = lanes if self.mask is None else self.count
        vector = held if lanes > 1 else self.out.splat(held, element_type(dtypes.bool_), count)
        failing = self.complement(vector, count)
        if self.mask is not None:
            failing = self.out.fresh(f"and {_bits(count)} {failing}, {self.mask}")
        return self.out.fresh(f"xor i1 {self._any(failing, count)}, true"), (failing, count)

    def first(self, failing: Failing, value: str, dtype: DType) -> str:
        """What a vector has in the first lane in which a check fails."""
        held, count = failing
        self.out.declarations.add(f"declare i{count} @llvm.cttz.i{count}(i{count}, i1)")
        bits = self.out.fresh(f"bitcast {_bits(count)} {held} to i{count}")
        lane = self.out.fresh(f"call i{count} @llvm.cttz.i{count}(i{count} {bits}, i1 true)")
        return self.out.fresh(f"extractelement {value_type(dtype, count)} {value}, i{count} {lane}")

    def moved(self, lanes: list[int | None]) -> str:
        """The mask with its lanes permuted: each is the lane of the number given, or masked off."""
        count = len(lanes)
        picked = ", ".join(f"i32 {count if n is None else n}" for n in lanes)
        vector = _bits(count)
        return self.out.fresh(
            f"shufflevector {vector} {self.mask}, {vector} zeroinitializer, <{count} x i32> <{picked}>"
        )

    def load_contiguous(self, dtype: DType, lanes: int, at: str, held: str | None = None) -> str:
        """The elements from an address on; of the lanes of another mask, where one is given."""
        memory, name = _types(dtype, lanes, "load", "p0")
        self.out.declarations.add(f"declare {memory} {name}(ptr, {_bits(lanes)}, {memory})")
        where = f"ptr align {dtype.bytes} {at}, {_bits(lanes)} {held or self.mask}"
        call = f"call {memory} {name}({where}, {memory} "
        result = self.out.fresh(f"{call}zeroinitializer)")
        self.latest = (result, call, len(self.out.lines)) if held is None else None
        return result

    def store_contiguous(self, dtype: DType, lanes: int, at: str, value: str) -> None:
        """Writes the elements from an address on."""
        memory, name = _types(dtype, lanes, "store", "p0")
        self.out.declarations.add(f"declare void {name}({memory}, ptr, {_bits(lanes)})")
        held = self._unforeseen(lanes) if _may_be_truncated(dtype) else self.mask
        where = f"ptr align {dtype.bytes} {at}, {_bits(lanes)} {held}"
        self.out.lines.append(f"  call void {name}({memory} {value}, {where})")

    def _unforeseen(self, lanes: int) -> str:
        """The mask, hidden from LLVM's analysis. If LLVM 22 knows that a single lane is active, it stores a truncated
        integer in its former width, and overwrites the bytes after it (on x86)."""
        self.out.declarations.add("@all_lanes = private unnamed_addr constant i64 -1, align 8")
        whole = self.out.fresh(f"load volatile i{max(lanes, 8)}, ptr @all_lanes, align 8")
        if lanes < 8:
            whole = self.out.fresh(f"trunc i8 {whole} to i{lanes}")
        ones = self.out.fresh(f"bitcast i{lanes} {whole} to {_bits(lanes)}")
        return self.out.fresh(f"and {_bits(lanes)} {self.mask}, {ones}")

    def gather(self, dtype: DType, lanes: int, pointers: str) -> str:
        """The element at each of the addresses."""
        memory, name = _types(dtype, lanes, "gather", f"v{lanes}p0")
        at = vector_of("ptr", lanes)
        self.out.declarations.add(f"declare {memory} {name}({at}, {_bits(lanes)}, {memory})")
        where = f"{at} align {dtype.bytes} {pointers}, {_bits(lanes)} {self.mask}"
        return self.out.fresh(f"call {memory} {name}({where}, {memory} zeroinitializer)")

    def scatter(self, dtype: DType, lanes: int, pointers: str, value: str) -> None:
        """Writes the element at each of the addresses; of equal addresses, the last active lane wins."""
        memory, name = _types(dtype, lanes, "scatter", f"v{lanes}p0")
        at = vector_of("ptr", lanes)
        self.out.declarations.add(f"declare void {name}({memory}, {at}, {_bits(lanes)})")
        where = f"{at} align {dtype.bytes} {pointers}, {_bits(lanes)} {self.mask}"
        self.out.lines.append(f"  call void {name}({memory} {value}, {where})")

    def loaded_over(self, value: str) -> str | None:
        """The call that loads a value over others, but for these, where it was loaded by the last instruction: LLVM
        makes two of a load and a choice by a mask that it knows."""
        if self.latest is None or self.latest[0] != value or self.latest[2] != len(self.out.lines):
            return None
        return self.latest[1]

    def blend(self, dtype: DType, lanes: int, value: str, other: str) -> str:
        """The value in active lanes, the other value in masked-off lanes."""
        memory = vector_of(memory_type(dtype), lanes)
        return self.out.fresh(f"select {_bits(lanes)} {self.mask}, {memory} {value}, {memory} {other}")


def first_lanes(out: Emitter, cond: Compare) -> str | None:
    """The comparison of the lanes' numbers with a number from 0 to the number of lanes: a vector out of a table of
    ones followed by zeros. A vector can stay in a register or on the stack all through a loop, where a comparison
    would be made in every iteration. None for any other comparison."""
    number = _number_of_lanes(cond)
    if number is None:
        return None
    dtype, lanes = cond.a.dtype, cond.lanes
    element, vector = element_type(dtype), vector_of(element_type(dtype), lanes)
    name = f"@lanes.{suffix(dtype, lanes)}"
    items = ", ".join(f"{element} {-1 if n < lanes else 0}" for n in range(2 * lanes))
    out.declarations.add(f"{name} = private unnamed_addr constant [{2 * lanes} x {element}] [{items}], align 64")
    wide = out.value(number)
    if dtype is not dtypes.index:
        wide = out.fresh(f"zext {element} {wide} to i64")
    skipped = out.fresh(f"sub nuw nsw i64 {lanes}, {wide}")
    at = out.fresh(f"getelementptr inbounds {element}, ptr {name}, i64 {skipped}")
    ones = out.fresh(f"load {vector}, ptr {at}, align {dtype.bytes}")
    return out.fresh(f"icmp slt {vector} {ones}, zeroinitializer")


def _number_of_lanes(cond: Compare) -> Expr | None:
    """The number of lanes in `ramp(0, 1, lanes) < broadcast(number, lanes)` where it is clamped to what there are."""
    match cond:
        case Lt(Ramp(Const(0), Const(1), lanes), Broadcast(Cast(Min(Max(_, Const(0)), Const(most)), _) as number, _)):
            return number if most <= lanes else None
        case Lt(Ramp(Const(0), Const(1), lanes), Broadcast(Min(Max(_, Const(0)), Const(most)) as number, _)):
            return number if most <= lanes and number.dtype is dtypes.index else None
    return None


def _may_be_truncated(dtype: DType) -> bool:
    """Whether LLVM sees elements as integers that may come from wider ones."""
    return memory_type(dtype).startswith("i") and dtype.bits < 64


def _bits(lanes: int) -> str:
    return vector_of(element_type(dtypes.bool_), lanes)


def _types(dtype: DType, lanes: int, operation: str, place: str) -> tuple[str, str]:
    """The vector in memory, and the intrinsic that moves it."""
    stored = dtypes.i8 if dtype.is_bool else dtype
    return vector_of(memory_type(dtype), lanes), f"@llvm.masked.{operation}.{suffix(stored, lanes)}.{place}"
