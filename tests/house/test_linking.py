"""Object files become one image: what is laid out where, field by field, and what becomes of damaged bytes."""

from __future__ import annotations

import ctypes
import random
import struct

import pytest

from linked import objects
from tilewright.codegen.elf import ObjectFile, read_object
from tilewright.codegen.image import AARCH64, ALIGNMENT, RISCV, X86_64, Image, decode
from tilewright.codegen.link import link
from tilewright.codegen.relocations import KINDS, find_kind, make_address, make_jump, make_stub, relocate
from tilewright.report.errors import InternalError
from tilewright.runtime.loader import load_code
from tilewright.store import Damaged
from tilewright.target import Target, native
from tilewright.target.code_pages import CodePages
from tilewright.target.host import current_host

ARM = Target.parse("aarch64")
linux_x86 = pytest.mark.skipif(current_host().triple != "x86_64-unknown-linux-gnu", reason="runs x86-64 code")


@pytest.fixture(scope="module")
def image() -> Image:
    return link(objects(native()), ["main"])


# --- where things lie ---------------------------------------------------------------------------------------------


def word(part: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", part, at)[0])


def page_by_arm(image: Image, at: int) -> int:
    """The page of 4 KiB that the adrp at `at` of the code gives, by the Arm architecture reference manual."""
    adrp = word(image.code, at)
    assert adrp & 0x9F000000 == 0x90000000, "adrp"
    pages = (adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3
    return (at & ~0xFFF) + (pages - ((pages & 1 << 20) << 1) << 12)


def low_by_arm(image: Image, at: int) -> int:
    """The bytes that the addition or load at `at` of the code adds."""
    then = word(image.code, at)
    immediate = then >> 10 & 0xFFF
    if then & 0xFF800000 == 0x91000000:
        return immediate
    assert then & 0x3B000000 == 0x39000000, "a load or store with an immediate"
    return immediate << (then >> 30 | (4 if then & 0x04800000 == 0x04800000 else 0))


def branched_to_by_arm(image: Image, at: int) -> int:
    bl = word(image.code, at)
    assert bl & 0x7C000000 == 0x14000000, "b or bl"
    distance = (bl & 0x03FFFFFF) - ((bl & 0x02000000) << 1)
    return at + 4 * distance


def places(parts: list[ObjectFile], image: Image) -> dict[tuple[int, int], int]:
    """Where each section of each object lies, found by its content (of code: by its length, in order)."""
    found: dict[tuple[int, int], int] = {}
    code = 0
    for n, part in enumerate(parts):
        for number, section in part.sections.items():
            if section.is_code and section.size:
                code = -(-code // section.alignment) * section.alignment
                found[n, number] = code
                code += section.size
            elif section.is_writable:
                found[n, number] = image.data_at
            elif section.size and not any(r.section == number for r in part.relocations):
                found[n, number] = image.constants_at + image.constants.index(bytes(section.content))
    return found


def test_every_field_of_arm_code_is_right() -> None:
    made = objects(ARM)
    parts, image = [read_object(data) for data in made], link(made, ["main"])
    where, kinds = places(parts, image), set()
    defined = {
        s.name: where[n, s.section] + s.offset
        for n, part in enumerate(parts)
        for s in part.symbols
        if s.is_global and s.section is not None
    }
    for n, part in enumerate(parts):
        for relocation in part.relocations:
            symbol, kind = part.symbols[relocation.symbol], find_kind(AARCH64, relocation.kind)
            place = symbol.section is None or where.get((n, symbol.section))
            if not part.sections[relocation.section].is_code or place is None:
                continue
            at = where[n, relocation.section] + relocation.offset
            wanted = defined.get(symbol.name) if symbol.section is None else place + symbol.offset + relocation.addend
            kinds.add(kind.name)
            if not kind.is_call:
                assert wanted is not None
                is_page = kind.name.endswith("PG_HI21")
                assert page_by_arm(image, at) == wanted & ~0xFFF if is_page else low_by_arm(image, at) == wanted & 0xFFF
            elif wanted is not None:
                assert branched_to_by_arm(image, at) == wanted
            else:
                stub = branched_to_by_arm(image, at)
                slot = page_by_arm(image, stub) + low_by_arm(image, stub + 4)
                assert slot == image.constants_at + image.imports[symbol.name]
                assert word(image.code, stub + 8) == 0xD61F0200, "br x16"
    assert {"R_AARCH64_CALL26", "R_AARCH64_ADR_PREL_PG_HI21", "R_AARCH64_ADD_ABS_LO12_NC"} <= kinds


@pytest.mark.parametrize(
    ("machine", "number", "before", "target", "place", "after"),
    [
        (X86_64, 2, 0, 0x1000, 0x1010, 0xFFFFFFF0),
        (X86_64, 4, 0, 0x2000, 0x1000, 0x1000),
        (X86_64, 24, 0, 0, 8, (1 << 64) - 8),
        (AARCH64, 260, 0, 0x10, 0x20, (1 << 64) - 16),
        (AARCH64, 261, 0, 0x20, 0x10, 0x10),
        (AARCH64, 283, 0x94000000, 0x1000, 0x1008, 0x97FFFFFE),  # bl -8
        (AARCH64, 282, 0x14000000, 0x1010, 0x1000, 0x14000004),  # b +16
        (AARCH64, 275, 0x90000000, 0x5123, 0x1FFC, 0x90000020),  # adrp x0, four pages on
        (AARCH64, 275, 0x90000003, 0x0FFF, 0x3000, 0xB0FFFFE3),  # adrp x3, three pages back
        (AARCH64, 277, 0x91000000, 0x5123, 0, 0x91048C00),  # add x0, x0, #0x123
        (AARCH64, 278, 0x39400000, 0x5123, 0, 0x39448C00),  # ldrb w0, [x0, #0x123]
        (AARCH64, 284, 0x79400000, 0x5122, 0, 0x79424400),  # ldrh w0, [x0, #0x122]
        (AARCH64, 285, 0xB9400000, 0x5124, 0, 0xB9412400),  # ldr w0, [x0, #0x124]
        (AARCH64, 286, 0xF9400000, 0x5128, 0, 0xF9409400),  # ldr x0, [x0, #0x128]
        (AARCH64, 299, 0x3DC00000, 0x5120, 0, 0x3DC04800),  # ldr q0, [x0, #0x120]
        (RISCV, 19, 0x000080E7_00000097, 0x12345, 0x1000, 0x345080E7_00011097),  # call 0x11345 on
        (RISCV, 19, 0x000080E7_00000097, 0x1000, 0x2801, 0x7FF080E7_FFFFE097),  # call 0x1801 back
        (RISCV, 23, 0x00000517, 0x2800, 0x1000, 0x00002517),  # auipc a0, 2
        (RISCV, 23, 0x00000517, 0x0FFF, 0x1000, 0x00000517),  # auipc a0, 0
        (RISCV, 24, 0x00052503, 0x2800, 0x1000, 0x80052503),  # lw a0, -2048(a0)
        (RISCV, 24, 0x00050513, 0x1123, 0x1000, 0x12350513),  # addi a0, a0, 0x123
        (RISCV, 25, 0x00A52023, 0x1FFF, 0x1000, 0xFEA52FA3),  # sw a0, -1(a0)
        (RISCV, 35, 0xFFFFFFFF, 3, 0x1000, 2),
        (RISCV, 39, 1, 3, 0x1000, 0xFFFFFFFE),
    ],
)
def test_fields(machine: int, number: int, before: int, target: int, place: int, after: int) -> None:
    kind = KINDS[machine, number]
    part = bytearray(b"\xee" * 4 + before.to_bytes(kind.bytes, "little") + b"\xee" * 4)
    relocate(part, 4, kind, target, place)
    assert int.from_bytes(part[4:-4], "little") == after
    assert part[:4] == part[-4:] == b"\xee" * 4


@pytest.mark.parametrize(
    ("machine", "number", "target"),
    [
        (X86_64, 2, 1 << 31),
        (X86_64, 4, -(1 << 31) - 1),
        (AARCH64, 261, 1 << 31),
        (AARCH64, 283, 1 << 27),
        (AARCH64, 283, 2),
        (AARCH64, 275, 1 << 32),
        (AARCH64, 284, 1),
        (AARCH64, 299, 8),
        (RISCV, 19, (1 << 31) - 0x800),
        (RISCV, 23, -(1 << 31) - 0x801),
    ],
)
def test_what_does_not_fit_is_named(machine: int, number: int, target: int) -> None:
    kind = KINDS[machine, number]
    with pytest.raises(InternalError, match=f"does not fit: {kind.name}"):
        relocate(bytearray(8), 0, kind, target, 0)
    with pytest.raises(InternalError, match=f"does not fit: {kind.name}"):
        relocate(bytearray(kind.bytes - 1), 0, kind, 0, 0)


def test_unknown_relocations_are_named() -> None:
    with pytest.raises(InternalError, match="42 of ELF machine 62"):
        find_kind(X86_64, 42)


def test_every_field_of_risc_v_code_is_right() -> None:
    """The pairs that make an address, and the calls, of linked code, by the RISC-V manual."""
    made = objects(Target.parse("riscv64"))
    parts, image = [read_object(data) for data in made], link(made, ["main"])
    where, kinds, pairs = places(parts, image), set(), 0
    for n, part in enumerate(parts):
        symbols = part.symbols
        for relocation in part.relocations:
            kind, symbol = find_kind(RISCV, relocation.kind), symbols[relocation.symbol]
            kinds.add(kind.name)
            if not part.sections[relocation.section].is_code:
                continue
            at = where[n, relocation.section] + relocation.offset
            if kind.is_call:
                place = called_by_risc_v(image, at)
                if symbol.name in image.imports:
                    slot = made_by_risc_v(image, place, place + 4)
                    assert slot == image.constants_at + image.imports[symbol.name]
                elif symbol.section is not None:
                    assert place == where[n, symbol.section] + symbol.offset
            elif kind.is_rest:
                assert symbol.section is not None
                first = where[n, symbol.section] + symbol.offset
                whole = next(r for r in part.relocations if r.offset == symbol.offset and r.section == symbol.section)
                aim = symbols[whole.symbol]
                assert aim.section is not None
                if (n, aim.section) in where:
                    wanted = where[n, aim.section] + aim.offset + whole.addend
                    assert made_by_risc_v(image, first, at) == wanted
                    pairs += 1
    assert pairs and {"R_RISCV_CALL_PLT", "R_RISCV_PCREL_HI20", "R_RISCV_PCREL_LO12_I"} <= kinds


def made_by_risc_v(image: Image, upper: int, lower: int) -> int:
    """The address that an auipc, and the addition, load or store at `lower`, make together."""
    first, then = word(image.code, upper), word(image.code, lower)
    assert first & 0x7F == 0x17, "auipc"
    rest = then >> 25 << 5 | then >> 7 & 31 if then & 0x5F == 0x03 | 0x20 else then >> 20
    distance = (first & 0xFFFFF000) + rest - ((rest & 0x800) << 1)
    return (upper + distance) & 0xFFFFFFFF


def called_by_risc_v(image: Image, at: int) -> int:
    assert word(image.code, at + 4) & 0x707F == 0x67, "jalr"
    return made_by_risc_v(image, at, at + 4)


def test_a_rest_of_no_field_is_refused() -> None:
    first, second = objects(Target.parse("riscv64"))
    read = read_object(second)
    upper = [r for r in read.relocations if find_kind(RISCV, r.kind).name == "R_RISCV_PCREL_HI20"]
    row = struct.pack("<QQ", upper[0].offset, upper[0].symbol << 32 | 23)
    at = second.index(row)
    moved = struct.pack("<QQ", upper[0].offset + 4, upper[0].symbol << 32 | 23)
    with pytest.raises(InternalError, match="rest of none"):
        link([first, second[:at] + moved + second[at + 16 :]], ["main"])


@pytest.mark.parametrize("place", [0x10000, 0x12FF0])
def test_what_stands_in_place_of_stubs_of_risc_v(place: int) -> None:
    target = 0x12804
    for made, first in ((make_jump, 0x67), (make_address, 0x13), (make_stub, 0x03)):
        image = Image(RISCV, bytes(place) + made(RISCV, place, target), b"", 0, {}, {}, {})
        assert len(image.code) == place + 16 and word(image.code, place + 4) & 0x7F == first
        assert made_by_risc_v(image, place, place + 4) == target


@linux_x86
def test_a_stub_jumps_by_its_slot() -> None:
    pages = CodePages(2 * ALIGNMENT)
    pages.write(0, make_stub(X86_64, 0, ALIGNMENT))
    pages.write(16, b"\xb8\x2a\0\0\0\xc3")  # mov eax, 42; ret
    pages.write(ALIGNMENT, (pages.address + 16).to_bytes(8, "little"))
    pages.seal(0, 64, executable=True)
    assert ctypes.CFUNCTYPE(ctypes.c_int)(pages.address)() == 42


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["native", "aarch64", "riscv64"])
def test_damaged_objects_are_refused_or_harmless(target: str) -> None:
    """Truncated files, and a thousand altered bits: an InternalError, or an image."""
    first, second = objects(Target.parse(target))
    table = struct.unpack_from("<Q", second, 40)[0]
    refused = 0
    for end in [*range(200), *range(200, len(second), 31), *range(table - 50, len(second))]:
        with pytest.raises(InternalError):
            link([first, second[:end]], ["main"])
    choose = random.Random(0)
    small = [*range(64), *range(table, len(second))]
    for turn in range(1000):
        damaged = bytearray(first if turn % 2 else second)
        places = range(len(damaged)) if turn % 4 < 2 or turn % 2 else small
        damaged[choose.choice(places)] ^= 1 << choose.randrange(8)
        try:
            link([damaged, second] if turn % 2 else [first, damaged], ["main"])
        except InternalError:
            refused += 1
    assert refused > 100


def test_damaged_images_are_refused_or_harmless(image: Image) -> None:
    small = Image(image.machine, image.code, bytes(64), 8, image.exports, {"memset": 8}, {"memset": 16})
    whole, refused, choose = small.encode(), 0, random.Random(1)
    for end in range(len(whole)):
        with pytest.raises(Damaged):
            decode(whole[:end])
    for _ in range(1000):
        damaged = bytearray(whole)
        damaged[choose.randrange(len(whole))] ^= 1 << choose.randrange(8)
        try:
            made = decode(damaged)
            assert all(0 <= place < len(made.code) for place in made.exports.values())
            assert all(0 <= place <= len(made.constants) - 8 for place in made.imports.values())
            assert all(0 <= place <= len(made.code) - 8 for place in made.stubs.values())
        except Damaged:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    "change",
    [
        {"exports": {"main": -1}},
        {"exports": {"main": 1 << 20}},
        {"imports": {"f": 4}, "stubs": {"f": 0}},
        {"imports": {"f": 1 << 20}, "stubs": {"f": 0}},
        {"imports": {"f": -8}, "stubs": {"f": 0}},
        {"imports": {"f": 8, "g": 8}, "stubs": {"f": 0, "g": 16}},
        {"imports": {"f": 8}, "stubs": {}},
        {"imports": {"f": 8}, "stubs": {"f": 3}},
        {"imports": {"f": 8}, "stubs": {"f": 96}},
        {"imports": {"f": 8}, "stubs": {"f": -16}},
        {"imports": {"f": 8, "g": 16}, "stubs": {"f": 16, "g": 16}},
        {"room": -1},
        {"room": 1 << 40},
        {"machine": 3},
    ],
)
def test_places_outside_are_refused(image: Image, change: dict[str, object]) -> None:
    fields: dict[str, object] = {"machine": image.machine, "room": 0, "exports": {"main": 0}, "imports": {}}
    fields["stubs"] = {}
    made = Image(code=image.code[:100], constants=bytes(64), **{**fields, **change})  # type: ignore[arg-type]
    with pytest.raises(Damaged, match="no machine code"):
        decode(made.encode())


def test_a_program_without_an_image_is_refused() -> None:
    for code in ((), (b"", b""), (b"\x7fELF",), (b"", b"", b"")):
        with pytest.raises(Damaged):
            load_code(code, native(), lambda _: {})
