"""Relocations: how a field of machine code or of a constant comes to the address that it stands for.

One row for each kind that LLVM emits for the code we generate (position independent, less than 2 GiB); any other kind
is an InternalError that names it. With S the symbol's address, A the addend and P the field's own address:

    x86-64    PC32, PLT32          32 bits     S + A - P
              PC64                 64 bits     S + A - P
    AArch64   PREL32, PREL64       32, 64      S + A - P
              CALL26, JUMP26       26 bits     (S + A - P) / 4
              ADR_PREL_PG_HI21     21 bits     pages of 4 KiB from P's to that of S + A
              ADD_ABS_LO12_NC      12 bits     the place of S + A in its page
              LDSTn_ABS_LO12_NC    12 bits     the same in units of n bits
    RISC-V    CALL_PLT             20, 12      S + A - P, of an auipc and the jalr behind it
              PCREL_HI20           20 bits     S + A - P, of an auipc
              PCREL_LO12_I, _S     12 bits     what is left of it: the symbol is the auipc's place
              ADD32, SUB32         32 bits     adds S + A to the field, or takes it away

(System V ABI, AMD64 supplement, 4.4; ELF for the Arm 64-bit architecture, 5.7; RISC-V ELF psABI, 8.4.) All are
differences of addresses, in a field or in the two that are added to it, or places in a page, so that what is linked
may be loaded at any page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright.codegen.image import AARCH64, RISCV, X86_64
from tilewright.report.errors import InternalError

_PAGE = 0xFFF


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of relocation is done: bytes of its field, and the field's value from what was there, S + A and P;
    None where it does not fit. `is_call`: the field is a call's or a jump's, which may go by way of a stub. `is_rest`:
    its symbol is the place of another field, and S + A and P are that one's."""

    name: str
    bytes: int
    value: Callable[[int, int, int], int | None]
    is_call: bool = False
    is_rest: bool = False


def _signed(bits: int) -> Callable[[int, int, int], int | None]:
    def value(_: int, target: int, place: int) -> int | None:
        return _fit(target - place, bits)

    return value


def _fit(number: int, bits: int) -> int | None:
    """A signed number in so many bits."""
    return number & (1 << bits) - 1 if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _branch(word: int, target: int, place: int) -> int | None:
    found = _fit(target - place >> 2, 26)
    return None if found is None or (target - place) % 4 else word & ~0x03FF_FFFF | found


def _pages(word: int, target: int, place: int) -> int | None:
    found = _fit((target >> 12) - (place >> 12), 21)
    return None if found is None else word & ~0x60FF_FFE0 | (found & 3) << 29 | found >> 2 << 5


def _in_page(shift: int) -> Callable[[int, int, int], int | None]:
    def value(word: int, target: int, _: int) -> int | None:
        found = target & _PAGE
        return None if found & (1 << shift) - 1 else word & ~(_PAGE << 10) | found >> shift << 10

    return value


def _upper(distance: int) -> int | None:
    """The upper 20 bits of a distance, such that a signed number of 12 bits is left."""
    return _fit(distance + 0x800 >> 12, 20)


def _auipc(word: int, target: int, place: int) -> int | None:
    found = _upper(target - place)
    return None if found is None else word & 0xFFF | found << 12


def _call(words: int, target: int, place: int) -> int | None:
    found = _upper(target - place)
    rest = target - place & 0xFFF
    return None if found is None else words & 0x000FFFFF_00000FFF | found << 12 | rest << 52


def _rest_of_load(word: int, target: int, place: int) -> int:
    return word & 0xFFFFF | (target - place & 0xFFF) << 20


def _rest_of_store(word: int, target: int, place: int) -> int:
    rest = target - place & 0xFFF
    return word & ~0xFE000F80 | (rest >> 5) << 25 | (rest & 31) << 7


def _sum(sign: int) -> Callable[[int, int, int], int | None]:
    def value(word: int, target: int, _: int) -> int:
        return word + sign * target & 0xFFFF_FFFF

    return value


KINDS: Final[dict[tuple[int, int], Kind]] = {
    (X86_64, 2): Kind("R_X86_64_PC32", 4, _signed(32)),
    (X86_64, 4): Kind("R_X86_64_PLT32", 4, _signed(32), is_call=True),
    (X86_64, 24): Kind("R_X86_64_PC64", 8, _signed(64)),
    (AARCH64, 260): Kind("R_AARCH64_PREL64", 8, _signed(64)),
    (AARCH64, 261): Kind("R_AARCH64_PREL32", 4, _signed(32)),
    (AARCH64, 275): Kind("R_AARCH64_ADR_PREL_PG_HI21", 4, _pages),
    (AARCH64, 277): Kind("R_AARCH64_ADD_ABS_LO12_NC", 4, _in_page(0)),
    (AARCH64, 278): Kind("R_AARCH64_LDST8_ABS_LO12_NC", 4, _in_page(0)),
    (AARCH64, 284): Kind("R_AARCH64_LDST16_ABS_LO12_NC", 4, _in_page(1)),
    (AARCH64, 285): Kind("R_AARCH64_LDST32_ABS_LO12_NC", 4, _in_page(2)),
    (AARCH64, 286): Kind("R_AARCH64_LDST64_ABS_LO12_NC", 4, _in_page(3)),
    (AARCH64, 299): Kind("R_AARCH64_LDST128_ABS_LO12_NC", 4, _in_page(4)),
    (AARCH64, 282): Kind("R_AARCH64_JUMP26", 4, _branch, is_call=True),
    (AARCH64, 283): Kind("R_AARCH64_CALL26", 4, _branch, is_call=True),
    (RISCV, 19): Kind("R_RISCV_CALL_PLT", 8, _call, is_call=True),
    (RISCV, 23): Kind("R_RISCV_PCREL_HI20", 4, _auipc),
    (RISCV, 24): Kind("R_RISCV_PCREL_LO12_I", 4, _rest_of_load, is_rest=True),
    (RISCV, 25): Kind("R_RISCV_PCREL_LO12_S", 4, _rest_of_store, is_rest=True),
    (RISCV, 35): Kind("R_RISCV_ADD32", 4, _sum(1)),
    (RISCV, 39): Kind("R_RISCV_SUB32", 4, _sum(-1)),
}
"""By ELF's numbers of the machine and of the relocation."""


def find_kind(machine: int, number: int) -> Kind:
    """The row of a relocation. Raises InternalError, which names it, where there is none."""
    kind = KINDS.get((machine, number))
    if kind is None:
        raise InternalError(
            f"the generated code has a relocation of an unknown kind: {number} of ELF machine {machine}",
            why="LLVM emits none of that kind for code that is independent of its place",
        )
    return kind


def relocate(part: bytearray, offset: int, kind: Kind, target: int, place: int) -> None:
    """Writes the field at `offset` of `part`, whose address is `place`, for S + A = `target`. Raises
    InternalError where it does not fit."""
    end = offset + kind.bytes
    value = None
    if end <= len(part):
        value = kind.value(int.from_bytes(part[offset:end], "little"), target, place)
    if value is None:
        raise InternalError(
            f"a relocation of the generated code does not fit: {kind.name}",
            why=f"it is for {target:#x} in a field at {place:#x}",
        )
    part[offset:end] = value.to_bytes(kind.bytes, "little")


def make_stub(machine: int, place: int, slot: int) -> bytes:
    """The stub at the address `place` for the slot at `slot`."""
    if machine == X86_64:  # jmp [rip + …]
        stub = bytearray(b"\xff\x25\0\0\0\0\xcc\xcc")
        relocate(stub, 2, KINDS[X86_64, 2], slot - 4, place + 2)
        return bytes(stub)
    if machine == RISCV:  # auipc t3, …; ld t3, …(t3); jr t3; nop
        stub = bytearray.fromhex("170e0000 033e0e00 67000e00 13000000")
        relocate(stub, 0, KINDS[RISCV, 23], slot, place)
        relocate(stub, 4, KINDS[RISCV, 24], slot, place)
        return bytes(stub)
    stub = bytearray.fromhex("10000090 100240f9 00021fd6 1f2003d5")  # adrp x16; ldr x16, [x16, …]; br x16; nop
    relocate(stub, 0, KINDS[AARCH64, 275], slot, place)
    relocate(stub, 4, KINDS[AARCH64, 286], slot, place + 4)
    return bytes(stub)


def make_jump(machine: int, place: int, target: int) -> bytes:
    """What may stand in place of a stub at `place` where the function is at a known distance: a jump to `target`."""
    if machine == X86_64:  # jmp …
        jump = bytearray(b"\xe9\0\0\0\0\xcc\xcc\xcc")
        relocate(jump, 1, KINDS[X86_64, 4], target - 4, place + 1)
        return bytes(jump)
    if machine == RISCV:  # auipc t3, …; jr …(t3); nop; nop
        jump = bytearray.fromhex("170e0000 67000e00 13000000 13000000")
        relocate(jump, 0, KINDS[RISCV, 19], target, place)
        return bytes(jump)
    jump = bytearray.fromhex("00000014 1f2003d5 1f2003d5 1f2003d5")  # b …; nop; nop; nop
    relocate(jump, 0, KINDS[AARCH64, 282], target, place)
    return bytes(jump)


def make_address(machine: int, place: int, target: int) -> bytes:
    """What may stand in place of a stub at `place`: a function without parameters that returns the address `target`."""
    if machine == X86_64:  # lea rax, [rip + …]; ret
        address = bytearray(b"\x48\x8d\x05\0\0\0\0\xc3")
        relocate(address, 3, KINDS[X86_64, 2], target - 4, place + 3)
        return bytes(address)
    if machine == RISCV:  # auipc a0, …; addi a0, a0, …; ret; nop
        address = bytearray.fromhex("17050000 13050500 67800000 13000000")
        relocate(address, 0, KINDS[RISCV, 23], target, place)
        relocate(address, 4, KINDS[RISCV, 24], target, place)
        return bytes(address)
    address = bytearray.fromhex("00000090 00000091 c0035fd6 1f2003d5")  # adrp x0; add x0, x0, …; ret; nop
    relocate(address, 0, KINDS[AARCH64, 275], target, place)
    relocate(address, 4, KINDS[AARCH64, 277], target, place + 4)
    return bytes(address)
