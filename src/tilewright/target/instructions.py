"""Instructions that do more than one operation on each lane, described as data.

A row says what an instruction needs, what it computes and how LLVM spells it:

    x86.avx2.dot_i16    needs avx2    registers a: i16[8, 2], b: i16[8, 2], acc: i32[8]

        for l in 0..8, q in 0..2:
          acc[l] += i32(a[l, q]) * i32(b[l, q])

        {0} = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> {a}, <16 x i16> {b})
        {1} = add <8 x i32> {acc}, {0}

The program is a nest of the loops language over the registers as arrays, their elements in row-major order. The last
register is the accumulator. Any other may be filled from memory whole, or by repeating a tail of its dimensions: `a`
from 16 contiguous elements, from two that every l gets, or from a single one. Integers wrap around,
in the program and in the machine: what saturates is not offered. `note` says how an instruction departs from its
program.

    x86.amx.dot_bf16    needs amx-bf16    registers a: bf16[16, 16, 2], b: bf16[16, 16, 2], acc: f32[16, 16], tiles

        for m in 0..16, n in 0..16, k in 0..16, q in 0..2:
          acc[m, n] += f32(a[m, k, q]) * f32(b[k, n, q])

A *tile* is a register of two dimensions: rows of 64 bytes. It is filled from memory, and stored, row by row: each row
is contiguous, and rows begin any constant number of elements apart. A buffer in registers holds tiles, one after the
other. Beside products there are instructions that clear and move tiles: their programs store a number, or elements of
another tile. Each of these has a variant for every smaller number of rows of its sums, which takes as much less time:
`x86.amx.dot_bf16.rows14` multiplies the 14 pixels of a row of an image. Variants are no rows of the table; `named`
knows them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Protocol

from ..core import extensions
from ..expr import dtypes
from ..expr.dtypes import DType
from ..report.errors import UserError


class Machine(Protocol):
    """What an instruction asks of a target."""

    @property
    def features(self) -> frozenset[str]: ...


TILE_ROWS: Final = 16
TILE_ROW_BYTES: Final = 64
TILE_REGISTERS: Final = 8
"""A whole tile of AMX, and how many there are (Intel's manual, volume 1, chapter 18: palette 1)."""

TILE_LATENCY: Final = 52
"""Cycles from one product of tiles to the next that adds to the same sums (Intel's optimization manual, chapter 20)."""


TILES_APART: Final = 2400
"""Cycles after which a product or a store of a tile waits, some 900 cycles, if none came before: on a Granite Rapids
(docs/findings.md)."""


@dataclass(frozen=True, slots=True)
class Register:
    """An operand of an instruction: its name in the program, its element type, and its shape as an array; the first
    dimension of a tile are its rows."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    is_tile: bool = False

    @property
    def lanes(self) -> int:
        return math.prod(self.shape)

    @property
    def row(self) -> int:
        """The elements of a row of a tile."""
        return math.prod(self.shape[1:])

    def fillings(self) -> tuple[int, ...]:
        """How many elements of memory can fill it: all, or, unless it is a tile, a tail of its dimensions, repeated."""
        if self.is_tile:
            return (self.lanes,)
        return tuple(math.prod(self.shape[n:]) for n in range(len(self.shape) + 1))

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """An instruction, for targets that have all features of one of the sets in `requires`. `nest` is its program;
    `llvm` are lines in which `{a}` stands for the register a and `{0}` for the result of the first line; the last line
    gives the accumulator, or, where there is none, the first register does. Of products of tiles, `clears` and `moves`
    name the instructions that do that with their sums."""

    name: str
    requires: tuple[tuple[str, ...], ...]
    registers: tuple[Register, ...]
    nest: str
    llvm: tuple[str, ...]
    note: str = ""
    clears: str = ""
    moves: str = ""

    @property
    def accumulator(self) -> Register:
        return self.registers[-1]

    @property
    def has_tiles(self) -> bool:
        """Whether its registers are tiles."""
        return self.accumulator.is_tile

    @property
    def adds_products(self) -> bool:
        """Whether it adds products of two registers to a third, and neither clears nor moves one."""
        return len(self.registers) == 3

    @property
    def program(self) -> str:
        """The text of the loops function that does the same."""
        body = "".join(f"\n  {line}" for line in self.nest.split("\n"))
        return f"func meaning({', '.join(map(str, self.registers))}):{body}"

    def with_rows(self, rows: int) -> Instruction:
        """The variant of an instruction of tiles whose sums have so many rows, at most a tile's."""
        return _of_rows(self.name.partition(_ROWS)[0], rows)

    @property
    def bits(self) -> int:
        """The width of its registers."""
        return self.accumulator.lanes * self.accumulator.dtype.bits

    @property
    def conversions(self) -> tuple[str, ...]:
        """The lines that widen an operand."""
        return tuple([line for line in self.llvm if line.split()[0] in ("sext", "zext")])

    @property
    def products(self) -> tuple[str, ...]:
        """What it does beside conversions and other names of the same bits: the symbol or word of each line."""
        words = [line.split() for line in self.llvm if line.split()[0] not in ("sext", "zext", "bitcast")]
        return tuple([next((w.split("(")[0] for w in line if w.startswith("@")), line[0]) for line in words])

    def runs_with(self, features: frozenset[str]) -> bool:
        return any(features.issuperset(needed) for needed in self.requires)

    def runs_on(self, target: Machine) -> bool:
        return self.runs_with(target.features)

    def __str__(self) -> str:
        return self.name


_BF16_NOTE: Final = "the sum of a pair is rounded in a way of its own, and subnormal numbers count as zero"


def _dot(
    name: str,
    requires: tuple[tuple[str, ...], ...],
    types: tuple[DType, DType, DType],
    shape: tuple[int, int],
    llvm: tuple[str, ...],
    note: str = "",
) -> Instruction:
    """acc[l] += the sum over q of a[l, q] * b[l, q], in the accumulator's type."""
    a, b, acc = types
    registers = (Register("a", a, shape), Register("b", b, shape), Register("acc", acc, shape[:1]))
    nest = f"for l in 0..{shape[0]}, q in 0..{shape[1]}:\n  acc[l] += {acc}(a[l, q]) * {acc}(b[l, q])"
    return Instruction(name, requires, registers, nest, llvm, note)


def _pairs_of_i16(name: str, feature: str, lanes: int, symbol: str, a: DType, b: DType) -> Instruction:
    """Exact products of i16 pairs, added to i32 lanes; narrower integers are widened in the register."""
    wide, sums = f"<{2 * lanes} x i16>", f"<{lanes} x i32>"
    lines: list[str] = []
    used: list[str] = []
    for letter, dtype in (("a", a), ("b", b)):
        used.append(f"{{{letter}}}")
        if dtype is not dtypes.i16:
            used[-1] = f"{{{len(lines)}}}"
            lines.append(f"{'sext' if dtype.kind == 'i' else 'zext'} <{2 * lanes} x i8> {{{letter}}} to {wide}")
    lines.append(f"call {sums} @{symbol}({wide} {used[0]}, {wide} {used[1]})")
    lines.append(f"add {sums} {{acc}}, {{{len(lines) - 1}}}")
    return _dot(name, ((feature,),), (a, b, dtypes.i32), (lanes, 2), tuple(lines))


def _quads(
    name: str, requires: tuple[tuple[str, ...], ...], lanes: int, symbol: str, a: DType, b: DType
) -> Instruction:
    """Exact products of four 8-bit integers, added to i32 lanes."""
    sums, bytes_ = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
    call = f"call {sums} @{symbol}({sums} {{acc}}, {bytes_} {{a}}, {bytes_} {{b}})"
    return _dot(name, requires, (a, b, dtypes.i32), (lanes, 4), (call,))


def _pairs_of_bf16(name: str, feature: str, lanes: int, symbol: str) -> Instruction:
    """Products of bf16 pairs, added to f32 lanes."""
    bits, halves, sums = f"<{2 * lanes} x i16>", f"<{2 * lanes} x bfloat>", f"<{lanes} x float>"
    llvm = (
        f"bitcast {bits} {{a}} to {halves}",
        f"bitcast {bits} {{b}} to {halves}",
        f"call {sums} @{symbol}({sums} {{acc}}, {halves} {{0}}, {halves} {{1}})",
    )
    types = (dtypes.bf16, dtypes.bf16, dtypes.f32)
    return _dot(name, ((feature,),), types, (lanes, 2), llvm, _BF16_NOTE)


def _fma(name: str, feature: str, dtype: DType, lanes: int) -> Instruction:
    """acc[l] += a[l] * b[l], rounded once."""
    vector = f"<{lanes} x {'float' if dtype is dtypes.f32 else 'double'}>"
    call = f"call {vector} @llvm.fma.v{lanes}{dtype}({vector} {{a}}, {vector} {{b}}, {vector} {{acc}})"
    registers = tuple(Register(n, dtype, (lanes,)) for n in ("a", "b", "acc"))
    nest = f"for l in 0..{lanes}:\n  acc[l] += a[l] * b[l]"
    return Instruction(name, ((feature,),), registers, nest, (call,), "the product is not rounded")


def _tile(name: str, dtype: DType, rows: int, *inner: int) -> Register:
    """A tile of so many rows, which are arrays of these dimensions."""
    inner = inner or (TILE_ROW_BYTES // dtype.bytes,)
    return Register(name, dtype, (rows, *inner), is_tile=True)


def _tile_dot(name: str, mnemonic: str, types: tuple[DType, DType, DType], rows: int) -> Instruction:
    """acc[m, n] += the sum over k and q of a[m, k, q] * b[k, n, q], in the accumulator's type: a row of `b` has the
    terms of four bytes next to each other."""
    one, other, sums = types
    depth, columns = sums.bytes // one.bytes, TILE_ROW_BYTES // sums.bytes
    registers = (_tile("a", one, rows, columns, depth), _tile("b", other, columns, columns, depth))
    nest = (
        f"for m in 0..{rows}, n in 0..{columns}, k in 0..{columns}, q in 0..{depth}:\n"
        f"  acc[m, n] += {sums}(a[m, k, q]) * {sums}(b[k, n, q])"
    )
    sizes = f"i16 {rows}, i16 {TILE_ROW_BYTES}, i16 {TILE_ROW_BYTES}"
    call = f"call x86_amx @llvm.x86.{mnemonic}.internal({sizes}, x86_amx {{acc}}, x86_amx {{a}}, x86_amx {{b}})"
    beside = [_variant(f"{name.rpartition('.')[0]}.{kind}_{sums}", rows) for kind in ("zero", "move")]
    feature, note = ("amx-bf16", _BF16_NOTE) if sums.is_float else ("amx-int8", "")
    all_registers = (*registers, _tile("acc", sums, rows))
    return Instruction(_variant(name, rows), ((feature,),), all_registers, nest, (call,), note, *beside)


def _tile_move(name: str, dtype: DType, reads: bool, rows: int) -> Instruction:
    """acc[m, n] = 0, or acc[m, n] = a[m, n], which `reads`: between tiles and memory either way."""
    acc = _tile("acc", dtype, rows)
    value = "a[m, n]" if reads else "0.0" if dtype.is_float else "0"
    nest = f"for m in 0..{rows}, n in 0..{acc.shape[1]}:\n  acc[m, n] = {value}"
    call = f"call x86_amx @llvm.x86.tilezero.internal(i16 {rows}, i16 {TILE_ROW_BYTES})"
    registers, lines = ((_tile("a", dtype, rows), acc), ()) if reads else ((acc,), (call,))
    return Instruction(_variant(name, rows), (("amx-tile",),), registers, nest, lines)


def _tiles() -> Iterator[tuple[str, Callable[[int], Instruction]]]:
    """The names of instructions of tiles, and what makes them for so many rows."""
    i8, u8, i32, f32, bf16 = dtypes.i8, dtypes.u8, dtypes.i32, dtypes.f32, dtypes.bf16
    yield (name := "x86.amx.dot_bf16"), partial(_tile_dot, name, "tdpbf16ps", (bf16, bf16, f32))
    for (what, a), (other, b) in itertools.product((("u", u8), ("s", i8)), repeat=2):
        name = f"x86.amx.dot_{a}" if a is b else f"x86.amx.dot_{a}{b}"
        yield name, partial(_tile_dot, name, f"tdpb{what}{other}d", (a, b, i32))
    for dtype, (kind, reads) in itertools.product((f32, i32), (("zero", False), ("move", True))):
        yield (name := f"x86.amx.{kind}_{dtype}"), partial(_tile_move, name, dtype, reads)


_ROWS: Final = ".rows"
_TILES: Final = dict(_tiles())


def _variant(name: str, rows: int) -> str:
    return name if rows == TILE_ROWS else f"{name}{_ROWS}{rows}"


@cache
def _of_rows(name: str, rows: int) -> Instruction:
    return INSTRUCTIONS[name] if rows == TILE_ROWS else _TILES[name](rows)


def _rows() -> Iterator[Instruction]:
    i8, u8, i16, f32, f64 = dtypes.i8, dtypes.u8, dtypes.i16, dtypes.f32, dtypes.f64
    for feature, kind, bits in (
        ("fma", "x86.fma", 256),
        ("avx512f", "x86.avx512f", 512),
        ("neon", "aarch64.neon", 128),
    ):
        yield from (_fma(f"{kind}.fma_{t}", feature, t, bits // t.bits) for t in (f32, f64))
    for feature, lanes, symbol in (
        ("avx2", 8, "llvm.x86.avx2.pmadd.wd"),
        ("avx512bw", 16, "llvm.x86.avx512.pmaddw.d.512"),
    ):
        for what, a, b in (("i16", i16, i16), ("i16i8", i16, i8), ("i8", i8, i8), ("u8i8", u8, i8), ("u8", u8, u8)):
            yield _pairs_of_i16(f"x86.{feature}.dot_{what}", feature, lanes, symbol, a, b)
    vnni = (("avxvnni",), ("avx512vnni", "avx512vl"))
    yield _quads("x86.avxvnni.dot_u8i8", vnni, 8, "llvm.x86.avx512.vpdpbusd.256", u8, i8)
    yield _quads("x86.avxvnniint8.dot_i8", (("avxvnniint8",),), 8, "llvm.x86.avx2.vpdpbssd.256", i8, i8)
    yield _quads("x86.avxvnniint8.dot_u8", (("avxvnniint8",),), 8, "llvm.x86.avx2.vpdpbuud.256", u8, u8)
    yield _quads("x86.avx512vnni.dot_u8i8", (("avx512vnni",),), 16, "llvm.x86.avx512.vpdpbusd.512", u8, i8)
    yield _pairs_of_bf16("x86.avx512bf16.dot_bf16", "avx512bf16", 16, "llvm.x86.avx512bf16.dpbf16ps.512")
    dotprod, suffix = (("dotprod",),), "v4i32.v16i8"
    yield _quads("aarch64.dotprod.dot_i8", dotprod, 4, f"llvm.aarch64.neon.sdot.{suffix}", i8, i8)
    yield _quads("aarch64.dotprod.dot_u8", dotprod, 4, f"llvm.aarch64.neon.udot.{suffix}", u8, u8)
    yield _quads("aarch64.i8mm.dot_u8i8", (("i8mm",),), 4, f"llvm.aarch64.neon.usdot.{suffix}", u8, i8)
    yield _pairs_of_bf16("aarch64.bf16.dot_bf16", "bf16", 4, "llvm.aarch64.neon.bfdot.v4f32.v8bf16")
    yield from (made(TILE_ROWS) for made in _TILES.values())


INSTRUCTIONS: Final[dict[str, Instruction]] = {row.name: row for row in _rows()}
"""The instructions that programs may name."""

_OWN: Final = frozenset(INSTRUCTIONS)


def named(name: str) -> Instruction | None:
    """The instruction of this name, a row of the table or a variant with fewer rows; None where there is none."""
    whole, rows = name.partition(_ROWS)[::2]
    if whole in _TILES and rows in map(str, range(1, TILE_ROWS)):
        return _of_rows(whole, int(rows))
    return INSTRUCTIONS.get(name)


def byte_dots(target: Machine) -> dict[int, Instruction]:
    """What `dot_bytes` is on a machine's vectors, by the lanes of these: instructions that add up the products of four
    unsigned bytes and four signed ones."""
    found: dict[int, Instruction] = {}
    for row in INSTRUCTIONS.values():
        lanes, types = row.accumulator.lanes, tuple([register.dtype for register in row.registers])
        if types == (dtypes.u8, dtypes.i8, dtypes.i32) and row.registers[0].shape == (lanes, 4) and row.runs_on(target):
            found[lanes] = row
    return found


def register(instruction: Instruction) -> None:
    """Adds an instruction: programs may name it, and `tensorize` takes nests for it. Its rate is measured with those of
    the others, or estimated from its lines. UserError where a name is taken."""
    if instruction.name in INSTRUCTIONS:
        fix = "give it another name"
        raise UserError(f"there is an instruction {instruction.name} already", where="target.instructions", fix=fix)
    INSTRUCTIONS[instruction.name] = instruction
    extensions.add(f"instruction {instruction.name}", repr(instruction), for_kernels=True)


def unregister(name: str) -> None:
    """Takes away an instruction that was registered; nothing where there is none of that name."""
    if name not in _OWN:
        INSTRUCTIONS.pop(name, None)
        extensions.remove(f"instruction {name}")
