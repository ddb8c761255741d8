"""Instructions on tiles, as values of LLVM's type for a tile.

LLVM gives them tile registers, configures these (`ldtilecfg`) before the first one of a function, and releases them
(`tilerelease`) when it returns. A buffer in registers is an array that LLVM splits into values, as those of vectors are
(sroa): what is read from it is cast to a tile. Other memory is read and written row by row. Of what products read, no
more is kept than there are registers beside their sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.codegen.emitter import Emitter
from tilewright.codegen.instructions import issue
from tilewright.codegen.memory import Memory
from tilewright.codegen.types import memory_type, suffix, vector_of
from tilewright.expr.nodes import Const, Expr
from tilewright.loops.address import Address
from tilewright.loops.nodes import Buffer, Instruct, Load
from tilewright.target.instructions import TILE_REGISTERS, TILE_ROW_BYTES, Instruction, Register
from tilewright.types.scopes import Scope


def store(out: Emitter, memory: Memory, emit: Callable[[Expr], str], place: Load, value: Instruct) -> None:
    """What an instruction makes of tiles goes to a place."""
    names: dict[str, str] = {}
    reads_own = any(f"{{{value.instruction.accumulator.name}}}" in line for line in value.instruction.llvm)
    if value.instruction.adds_products:
        read = [arg for arg in value.args if isinstance(arg, Load) and arg.buffer.scope is not Scope.REGISTER]
        _make_room(out, read, TILE_REGISTERS - _count_tiles(place, value.instruction))
    for register, arg in zip(value.instruction.registers, value.args, strict=True):
        if reads_own or register is not value.instruction.accumulator:
            assert isinstance(arg, Load)
            names[register.name] = _loaded(out, memory, emit, arg, register)
    result = issue(out, value.instruction, names)
    address = _address(memory, emit, place)
    at, (vector, kind) = memory.pointer(place.buffer, address), _vector(place)
    if place.buffer.scope is Scope.REGISTER:
        symbol = f"@llvm.x86.cast.tile.to.vector.{kind}"
        out.declarations.add(f"declare {vector} {symbol}(x86_amx)")
        whole = out.fresh(f"call {vector} {symbol}(x86_amx {result})")
        out.lines.append(f"  store {vector} {whole}, ptr {at}, align {place.dtype.bytes}")
    else:
        symbol, apart = "@llvm.x86.tilestored64.internal", _apart(place.buffer, address)
        out.declarations.add(f"declare void {symbol}(i16, i16, ptr, i64, x86_amx)")
        out.lines.append(
            f"  call void {symbol}({_size(value.instruction.accumulator)}, ptr {at}, i64 {apart}, x86_amx {result})"
        )
    source = memory.source(place.buffer, place.indices)
    memory.overwritten(source)
    memory.remember(place, result, frozenset((source,)))


def _count_tiles(place: Load, instruction: Instruction) -> int:
    """The tiles of a buffer in registers."""
    sizes = [int(n.value) for n in place.buffer.shape if isinstance(n, Const)]
    return math.prod(sizes) // instruction.accumulator.lanes


def _make_room(out: Emitter, read: list[Load], room: int) -> None:
    """Forgets tiles that were loaded from memory, so that with those that are read now there is `room` for all; first
    the one that was not used for longest."""
    out.tiles = [e for e in out.tiles if e in out.loaded and e not in read]
    while out.tiles and len(out.tiles) + len(read) > room:
        out.loaded.pop(out.tiles.pop(0))
    out.tiles += read


def _loaded(out: Emitter, memory: Memory, emit: Callable[[Expr], str], load: Load, register: Register) -> str:
    """The tile that memory fills; once where it stays as it is."""
    known = out.loaded.get(load)
    if known is not None:
        return known
    address = _address(memory, emit, load)
    at, (vector, kind) = memory.pointer(load.buffer, address), _vector(load)
    if load.buffer.scope is Scope.REGISTER:
        symbol = f"@llvm.x86.cast.vector.to.tile.{kind}"
        out.declarations.add(f"declare x86_amx {symbol}({vector})")
        whole = out.fresh(f"load {vector}, ptr {at}, align {load.dtype.bytes}")
        made = out.fresh(f"call x86_amx {symbol}({vector} {whole})")
    else:
        symbol, apart = "@llvm.x86.tileloadd64.internal", _apart(load.buffer, address)
        out.declarations.add(f"declare x86_amx {symbol}(i16, i16, ptr, i64)")
        made = out.fresh(f"call x86_amx {symbol}({_size(register)}, ptr {at}, i64 {apart})")
    memory.remember(load, made, frozenset((memory.source(load.buffer, load.indices),)))
    return made


def _size(register: Register) -> str:
    """The rows of a tile, and the bytes of each, as operands of LLVM's."""
    return f"i16 {register.shape[0]}, i16 {TILE_ROW_BYTES}"


def _address(memory: Memory, emit: Callable[[Expr], str], place: Load) -> Address:
    """Where the first element is, with all that it takes computed."""
    address, needed = memory.prepare(place.buffer.shape, place.indices)
    for e in needed:
        emit(e)
    return address


def _apart(buffer: Buffer, address: Address) -> int:
    """The bytes from one row of a tile in memory to the next."""
    row = TILE_ROW_BYTES // buffer.dtype.bytes
    return (address.at[row] if address.at else row) * buffer.dtype.bytes


def _vector(place: Load) -> tuple[str, str]:
    """LLVM's vector of all elements of a tile, and how names of intrinsics end for it."""
    return vector_of(memory_type(place.dtype), place.lanes), suffix(place.dtype, place.lanes)
