"""Numbers of a few bits with scales: their values, and products with them while they are packed in bytes.

    w: f32[4096, 512] = dequantize(q: i4[4096, 512], s: f32[128, 512], axis=0, block=32)
    y: f32[3, 8, 64] = packed_product(x: f32[3, 4096], q: u32[8, 128, 4, 64], s: f32[8, 128, 64], bits=4, zero=8)

A scale, and a zero point where there is one, is for `block` numbers in a row along `axis`. Packed numbers are unsigned,
the first in the low bits of a word of 32. They lie in the order in which they are read: panels of columns, in these the
blocks of numbers with one scale, in these the words, each beside those of the panel's other columns: a vector of words
is one of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import cast
from tilewright.expr.dtypes import DType
from tilewright.expr.meaning import convert
from tilewright.expr.nodes import BitAnd, BitOr, Expr, Shl, Shr, binary, call, const
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import check_axis, check_kind, check_same_dtype, wide
from tilewright.ops.reduce import element_type
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]
Array = np.ndarray[Any, Any]


class DequantizeAttributes(Attributes):
    """`axis` and `block`: so many numbers in a row along the axis have one scale."""

    axis: int
    block: int


class Dequantize(Op):
    """out[…, k, …] = (q[…, k, …] - zero[…, k // block, …]) * scale[…, k // block, …], the difference an i32."""

    name = "dequantize"
    attributes = DequantizeAttributes
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: DequantizeAttributes) -> Types:
        if len(inputs) not in (2, 3):
            raise context.error(f"dequantize takes 2 or 3 inputs, not {len(inputs)}")
        q, scale, *zero = inputs
        check_kind(context, scale, "f", "the scales")
        if not q.dtype.is_int:
            raise context.error(f"dequantize takes integers, not {q}")
        check_axis(context, q, attrs.axis)
        if attrs.block < 1:
            raise context.error(f"a block of {attrs.block} numbers", "take 1 or more")
        for part in (scale, *zero):
            if part.rank != q.rank:
                raise context.error(f"{part} has another number of dimensions than {q}")
            for d in range(q.rank):
                covered = part.shape[d] * attrs.block if d == attrs.axis else part.shape[d]
                context.require_equal(covered, q.shape[d], f"the sizes of dimension {d} of blocks and of {q}")
        if zero:
            check_same_dtype(context, (q, *zero))
        return (TensorType(scale.dtype, q.shape),)

    def meaning(self, inputs: Arrays, attrs: DequantizeAttributes) -> Arrays:
        q, scale, *zero = inputs
        spread = [np.repeat(part, attrs.block, attrs.axis) for part in (scale, *zero)]
        whole = convert(q, dtypes.i32) - (convert(spread[1], dtypes.i32) if zero else 0)
        with np.errstate(all="ignore"):
            return (whole.astype(scale.dtype) * spread[0],)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        q, scale, *zero = inputs

        def element(*at: Expr) -> Expr:
            block = [i // attrs.block if d == attrs.axis else i for d, i in enumerate(at)]
            whole = cast(load(q, *at), dtypes.i32)
            if zero:
                whole = whole - cast(load(zero[0], *block), dtypes.i32)
            return cast(whole, scale.dtype) * load(scale, *block)

        build.compute("dequantize", outputs[0], element)


WORD = 32
"""The bits of a word of packed numbers."""


def numbers_of(word: Expr, zero: Expr, bits: int, dtype: DType) -> list[Expr]:
    """The numbers in a word (u32), the first from its low bits, less a zero point (f32, of at most 255): without
    conversions. Each byte of the word is moved to the low end of the fraction of a power of two, and a number masked
    there; subtracting that power and the zero point is exact.

        from_bits(word >> 8 & 15 << 4 | bits(2^19)) - (2^19 + zero)            the number in bits 12 to 15 less zero
    """
    each, found = 8 // bits, []
    for n in range(WORD // bits):
        moved = binary(Shr, word, n // each * 8) if n >= each else word
        place = n % each * bits
        power = 2.0 ** (23 - place)
        held = binary(BitAnd, moved, ((1 << bits) - 1) << place)
        whole = call("from_bits", binary(BitOr, held, int(np.float32(power).view(np.uint32))))
        found.append(cast(whole - (zero + power), dtype))
    return found


class PackedAttributes(Attributes):
    """`bits` of a packed number; `zero`, what is subtracted from each where there are no zero points."""

    bits: int
    zero: int = 0


class PackedProduct(Op):
    """y[m, p, j] = the sum over blocks b of scale[p, b, j] times the sum over the block's k of x[m, k] times
    (number - zero)."""

    name = "packed_product"
    rereads = True
    known_by_axes = True
    attributes = PackedAttributes
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: PackedAttributes) -> Types:
        if len(inputs) not in (3, 4):
            raise context.error(f"packed_product takes 3 or 4 inputs, not {len(inputs)}")
        if attrs.bits not in (1, 2, 4, 8):
            raise context.error(f"numbers of {attrs.bits} bits do not fill words", "take bits=1, 2, 4 or 8")
        if not 0 <= attrs.zero <= dtypes.u8.max:
            raise context.error(f"a zero point {attrs.zero}", "take 0 to 255")
        x, q, scale, *zero = inputs
        if [p.rank for p in inputs] != [2, 4, 3, 3][: len(inputs)] or q.dtype is not dtypes.u32:
            shown = ", ".join(map(str, inputs))
            raise context.error(f"packed_product takes x[m, k], u32[panels, blocks, words, n] and scales, not {shown}")
        check_kind(context, x, "f", "x")
        check_same_dtype(context, (x, scale))
        panels, blocks, count, columns = q.shape
        context.require_equal(x.shape[1], blocks * count * (WORD // attrs.bits), "the numbers of a row and of a column")
        _check_blocks(context, q, (scale, *zero))
        for part in zero:
            if part.dtype is not dtypes.u8:
                raise context.error(f"zero points are u8, not {part}")
        return (TensorType(x.dtype, (x.shape[0], panels, columns)),)

    def meaning(self, inputs: Arrays, attrs: PackedAttributes) -> Arrays:
        x, scale = inputs[0], inputs[2]
        kept = wide(element_type(x)).numpy
        sums = _block_sums(x.astype(kept), _numbers(inputs, attrs).astype(kept))
        return ((sums * scale.astype(kept)).sum(2, dtype=kept).astype(x.dtype),)

    def squares(self, inputs: Arrays, attrs: PackedAttributes) -> Array:
        """The sums of the squares of the terms, in f64."""
        x, scale, numbers = (np.square(a, dtype=np.float64) for a in (inputs[0], inputs[2], _numbers(inputs, attrs)))
        return np.asarray((_block_sums(x, numbers) * scale).sum(2))

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x, q, scale, *zero), (y,) = inputs, outputs
        _, blocks, count, _ = q.shape
        each, kept = WORD // attrs.bits, wide(y.dtype)
        sums = build.temporary("sums", dtype=kept, shape=(x.shape[0], *scale.shape))
        whole = y if y.dtype is kept else build.temporary("whole", dtype=kept, shape=y.shape)

        def add_terms(total: Expr, m: Expr, p: Expr, b: Expr, j: Expr, k: Expr) -> Expr:
            centre: Expr = const(attrs.zero, dtypes.f32)
            if zero:
                centre = cast(cast(load(zero[0], p, b, j), dtypes.i32), dtypes.f32)
            numbers = numbers_of(load(q, p, b, k, j), centre, attrs.bits, kept)
            terms = [cast(load(x, m, (b * count + k) * each + n), kept) * number for n, number in enumerate(numbers)]
            return total + reduce(add, terms)

        def add_block(total: Expr, m: Expr, p: Expr, j: Expr, b: Expr) -> Expr:
            return total + load(sums, m, p, b, j) * cast(load(scale, p, b, j), kept)

        build.accumulate("sums", sums, [count], init=0, update=add_terms)
        build.accumulate("packed_product", whole, [blocks], init=0, update=add_block)
        if whole is not y:
            build.compute("rounded", y, lambda *at: cast(load(whole, *at), y.dtype))


class DigitProduct(Op):
    """y[m, p, j] = the sum over blocks b of scale[p, b, j] times step[m, b] times the sum over the block's k of x[m, k]
    times (number - zero), where x are whole numbers of 24 bits and `total` their sums over blocks.

    x comes as its digits of eight bits, the last signed: u32[m, words, numbers in a byte, 3], four digits of one place
    to a word, those that meet the numbers of one place in each byte of a word of q. So a word of q is multiplied by a
    digit of all its numbers in as many instructions as a byte holds numbers. Sums are of 32 bits, and exact where the
    largest x is at most `largest_whole(bits, block)`.
    """

    name = "digit_product"
    rereads = True
    known_by_axes = True
    attributes = PackedAttributes
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: PackedAttributes) -> Types:
        if len(inputs) not in (5, 6):
            raise context.error(f"digit_product takes 5 or 6 inputs, not {len(inputs)}")
        if attrs.bits not in (1, 2, 4):
            raise context.error(f"numbers of {attrs.bits} bits", "take bits=1, 2 or 4")
        digits, step, total, q, scale, *zero = inputs
        ranks, kinds = [4, 2, 2, 4, 3, 3], [dtypes.u32, None, dtypes.i32, dtypes.u32, None, dtypes.u8]
        wrong = [
            p
            for p, rank, dtype in zip(inputs, ranks, kinds, strict=False)
            if p.rank != rank or p.dtype is not (dtype or p.dtype)
        ]
        if wrong:
            shown = ", ".join(map(str, inputs))
            raise context.error(
                f"digit_product takes digits, steps, sums, u32[panels, blocks, words, n] and scales, not {shown}"
            )
        check_kind(context, step, "f", "the steps")
        check_same_dtype(context, (step, scale))
        panels, blocks, count, columns = q.shape
        places, parts = 8 // attrs.bits, "the sizes of digits and of words"
        for have, want in zip(digits.shape[1:], (blocks * count, const(places), const(DIGITS)), strict=True):
            context.require_equal(have, want, parts)
        for part in (step, total):
            context.require_equal(part.shape[0], digits.shape[0], parts)
            context.require_equal(part.shape[1], blocks, parts)
        _check_blocks(context, q, (scale, *zero))
        return (TensorType(step.dtype, (digits.shape[0], panels, columns)),)

    def meaning(self, inputs: Arrays, attrs: PackedAttributes) -> Arrays:
        _, step, _, q, scale, *zero = inputs
        whole = _wholes(inputs, attrs)
        kept = wide(element_type(scale)).numpy
        numbers = _numbers((whole, q, scale, *zero), attrs).astype(kept)
        sums = _block_sums(whole.astype(kept), numbers) * step.astype(kept)[:, None, :, None]
        return ((sums * scale.astype(kept)).sum(2, dtype=kept).astype(scale.dtype),)

    def squares(self, inputs: Arrays, attrs: PackedAttributes) -> Array:
        """The sums of the squares of the terms, in f64."""
        _, step, _, q, scale, *zero = inputs
        whole = _wholes(inputs, attrs)
        x, numbers = (np.square(a, dtype=np.float64) for a in (whole, _numbers((whole, q, scale, *zero), attrs)))
        steps, scales = (np.square(a, dtype=np.float64) for a in (step, scale))
        return np.asarray((_block_sums(x, numbers) * steps[:, None, :, None] * scales).sum(2))

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (digits, step, total, q, scale, *zero), (y,) = inputs, outputs
        _, blocks, count, _ = q.shape
        sums = build.temporary("sums", dtype=dtypes.u32, shape=(digits.shape[0], *scale.shape))

        def add_terms(so_far: Expr, m: Expr, p: Expr, b: Expr, j: Expr, k: Expr) -> Expr:
            parts = bytes_of(load(q, p, b, k, j), attrs.bits)
            return so_far + dot_of_digits(parts, lambda r, s: load(digits, m, b * count + k, const(r), const(s)))

        def add_block(so_far: Expr, m: Expr, p: Expr, j: Expr, b: Expr) -> Expr:
            centre: Expr = const(attrs.zero, dtypes.i32)
            if zero:
                centre = cast(load(zero[0], p, b, j), dtypes.i32)
            whole = cast(load(sums, m, p, b, j), dtypes.i32) - centre * load(total, m, b)
            return so_far + cast(whole, y.dtype) * (load(scale, p, b, j) * load(step, m, b))

        build.accumulate("sums", sums, [count], init=0, update=add_terms)
        build.accumulate("digit_product", y, [blocks], init=0, update=add_block)


def _check_blocks(context: TypeContext, q: TensorType, parts: Sequence[TensorType]) -> None:
    """Scales and zero points have an element for each column of each block of words."""
    panels, blocks, _, columns = q.shape
    for part in parts:
        for d, size in enumerate((panels, blocks, columns)):
            context.require_equal(part.shape[d], size, f"the sizes of dimension {d} of {part} and of the blocks")


DIGITS = 3
"""The digits of eight bits of a whole number."""


def largest_whole(bits: int, block: int) -> int:
    """The largest whole number whose products with unsigned numbers of a block add up to less than 32 bits."""
    most = ((1 << 31) - 1) // (block * ((1 << bits) - 1))
    return min(most, (1 << 8 * DIGITS - 1) - 1)


def are_floats(bits: int, block: int) -> bool:
    """Whether whole numbers of a block stand for floats as well as these: they go to 2^20 at least, and what is rounded
    off is less than what sums of floats are off by."""
    return largest_whole(bits, block) >= 1 << 20


def bytes_of(word: Expr, bits: int) -> list[Expr]:
    """The numbers in a word as bytes: first those in the low bits of each byte."""
    mask = ((1 << bits) - 1) * 0x01010101
    places = range(0, 8, bits)
    return [binary(BitAnd, binary(Shr, word, place) if place else word, mask) for place in places]


def dot_of_digits(parts: Sequence[Expr], digit: Callable[[int, int], Expr]) -> Expr:
    """The sum of the products of bytes by whole numbers, whose digits of place s that meet the part r are
    `digit(r, s)`: the highest digits first, eight bits further left for each next one."""
    total: Expr = const(0, dtypes.u32)
    for s in reversed(range(DIGITS)):
        if s < DIGITS - 1:
            total = binary(Shl, total, 8)
        for r, part in enumerate(parts):
            pair = (part, digit(r, s)) if s == DIGITS - 1 else (digit(r, s), part)
            total = call("dot_bytes", total, *pair)
    return total


def _wholes(inputs: Arrays, attrs: PackedAttributes) -> Array:
    """The whole numbers of a digit product, [m, k], from their digits."""
    digits, _, _, q, *_ = inputs
    quads = np.stack([digits >> np.uint32(8 * n) & np.uint32(255) for n in range(4)], 2).astype(np.int64)
    whole = (quads << np.arange(0, 8 * DIGITS, 8)).sum(-1)
    half = 1 << 8 * DIGITS - 1
    shape = len(digits), q.shape[1] * q.shape[2] * WORD // attrs.bits
    return np.asarray(((whole + half) % (2 * half) - half).reshape(shape))


def _numbers(inputs: Arrays, attrs: PackedAttributes) -> Array:
    """The numbers less their zero points, [panels, blocks, k, n]."""
    _, q, _, *zero = inputs
    parts = [q >> place & ((1 << attrs.bits) - 1) for place in range(0, WORD, attrs.bits)]
    whole = np.stack(parts, 3).reshape(*q.shape[:2], q.shape[2] * len(parts), q.shape[3]).astype(np.int32)
    return np.asarray(whole - (zero[0].astype(np.int32)[:, :, None] if zero else attrs.zero))


def _block_sums(x: Array, numbers: Array) -> Array:
    """The sums of x times the numbers of each block, [m, panels, blocks, n]."""
    return np.asarray(np.einsum("mbk,pbkj->mpbj", x.reshape(len(x), *numbers.shape[1:3]), numbers))


for _op in (Dequantize(), PackedProduct(), DigitProduct()):
    register(_op)
