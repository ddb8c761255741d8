"""Features of an x86-64 processor by LLVM's names, as the processor and the system's saved registers tell them.

The table says where CPUID tells each feature, and which registers the system must save across a switch of threads for
it to be used (Intel's manual, volume 2, CPUID; volume 1, 13.3, XCR0). Linux saves tile registers only for processes
that have asked for them; one that is refused has the features of a processor without tiles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from .code_pages import CodePages

Registers = tuple[int, int, int, int]
"""EAX, EBX, ECX, EDX."""

Ask = Callable[[int, int], Registers]
"""CPUID: from a leaf and its sub-leaf."""


class Place(NamedTuple):
    """Where a feature is told: leaf, sub-leaf, register and bit; and the bits of XCR0 it needs."""

    leaf: int
    subleaf: int
    register: int
    bit: int
    saved: int = 0


_EAX, _EBX, _ECX, _EDX = range(4)
_YMM: Final = 0b110
_ZMM: Final = 0b1110_0110
TILES: Final = 0b11 << 17
_EXTENDED: Final = 0x8000_0001


def _places(leaf: int, subleaf: int, register: int, saved: int, **bits: int) -> dict[str, Place]:
    """Features that one register tells, by their bits; `_` in a name stands for `-`."""
    return {name.replace("_", "-"): Place(leaf, subleaf, register, bit, saved) for name, bit in bits.items()}


PLACES: Final[Mapping[str, Place]] = {
    **_places(1, 0, _EDX, 0, cx8=8, cmov=15, mmx=23, fxsr=24, sse=25, sse2=26),
    **_places(1, 0, _ECX, 0, sse3=0, pclmul=1, ssse3=9, cx16=13, crc32=20, movbe=22, popcnt=23, aes=25),
    "sse4.1": Place(1, 0, _ECX, 19),
    "sse4.2": Place(1, 0, _ECX, 20),
    **_places(1, 0, _ECX, _YMM, fma=12, xsave=26, avx=28, f16c=29),
    **_places(7, 0, _EBX, 0, bmi=3, bmi2=8, sha=29),
    **_places(7, 0, _EBX, _YMM, avx2=5),
    **_places(7, 0, _EBX, _ZMM, avx512f=16, avx512dq=17, avx512ifma=21, avx512cd=28, avx512bw=30, avx512vl=31),
    **_places(7, 0, _ECX, 0, gfni=8),
    **_places(7, 0, _ECX, _YMM, vaes=9, vpclmulqdq=10),
    **_places(7, 0, _ECX, _ZMM, avx512vbmi=1, avx512vbmi2=6, avx512vnni=11, avx512bitalg=12, avx512vpopcntdq=14),
    **_places(7, 0, _EDX, _ZMM, avx512vp2intersect=8, avx512fp16=23),
    **_places(7, 0, _EDX, TILES, amx_bf16=22, amx_tile=24, amx_int8=25),
    **_places(7, 1, _EAX, _YMM, sha512=0, sm3=1, sm4=2, avxvnni=4, avxifma=23),
    **_places(7, 1, _EAX, _ZMM, avx512bf16=5),
    **_places(7, 1, _EAX, TILES, amx_fp16=21),
    **_places(7, 1, _EDX, _YMM, avxvnniint8=4, avxneconvert=5, avxvnniint16=10),
    **_places(0x1E, 1, _EAX, TILES, amx_avx512=7),
    **_places(_EXTENDED, 0, _ECX, 0, sahf=0, lzcnt=5, sse4a=6),
    **_places(_EXTENDED, 0, _ECX, _YMM, xop=11, fma4=16),
    "64bit": Place(_EXTENDED, 0, _EDX, 29),
}
"""All that features.py knows, but for the versions of AVX10."""

SAVES: Final = Place(1, 0, _ECX, 27)
"""The system saves registers as XCR0 says."""

AVX10: Final = Place(7, 1, _EDX, 19, _ZMM)
AVX10_VERSION_LEAF: Final = 0x24

CPUID: Final = bytes.fromhex("53 89 f8 89 f1 49 89 d0 0f a2 41 89 00 41 89 58 04 41 89 48 08 41 89 50 0c 5b c3")
"""push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx; cpuid; the four registers to [r8]; pop rbx; ret"""

XGETBV: Final = bytes.fromhex("31 c9 0f 01 d0 c3")
"""xor ecx, ecx; xgetbv; ret: the low half of XCR0"""

_XGETBV_AT: Final = 32

ASK_FOR_TILES: Final = (158, 0x1023, 18)
"""The call of Linux by which a process asks for tile registers, for all of its threads and for processes that it forks:
arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), which gives 0 (Documentation/arch/x86/xstate.rst)."""


def read_features() -> frozenset[str]:
    """The features of the processor that this runs on. Raises RuntimeFault where the system lets no memory
    become executable."""
    code = CodePages(_XGETBV_AT + len(XGETBV))
    code.write(0, CPUID)
    code.write(_XGETBV_AT, XGETBV)
    code.seal(0, _XGETBV_AT + len(XGETBV), executable=True)
    cpuid = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(code.address)
    xgetbv = ctypes.CFUNCTYPE(ctypes.c_uint32)(code.address + _XGETBV_AT)
    found = (ctypes.c_uint32 * 4)()

    def ask(leaf: int, subleaf: int) -> Registers:
        cpuid(leaf, subleaf, ctypes.addressof(found))
        return found[0], found[1], found[2], found[3]

    return find_features(ask, lambda: kept_for(xgetbv(), allow_tiles))


def allow_tiles() -> bool:
    """Asks Linux for tile registers. False where it refuses."""
    return bool(ctypes.CDLL(None, use_errno=True).syscall(*map(ctypes.c_long, ASK_FOR_TILES)) == 0)


def kept_for(registers: int, allow: Callable[[], bool]) -> int:
    """Of XCR0, what is saved for this process: tiles if they are there, and it is allowed to use them."""
    return registers & ~TILES if registers & TILES != TILES or not allow() else registers


def find_features(ask: Ask, saved: Callable[[], int]) -> frozenset[str]:
    """The features that a processor tells which answers CPUID so; `saved` is XCR0, asked where it is there."""
    told: dict[tuple[int, int], Registers] = {}

    def look(leaf: int, subleaf: int) -> Registers:
        if (leaf, subleaf) not in told:
            told[leaf, subleaf] = ask(leaf, subleaf) if _has_leaf(look, ask, leaf, subleaf) else (0, 0, 0, 0)
        return told[leaf, subleaf]

    def is_set(place: Place) -> bool:
        return bool(look(place.leaf, place.subleaf)[place.register] >> place.bit & 1)

    registers = saved() if is_set(SAVES) else 0
    found = {name for name, place in PLACES.items() if is_set(place) and place.saved & ~registers == 0}
    if is_set(AVX10) and AVX10.saved & ~registers == 0:
        version = look(AVX10_VERSION_LEAF, 0)[_EBX] & 0xFF
        found |= {f"avx10.{number}" for number in (1, 2) if version >= number}
    return frozenset(found)


def _has_leaf(look: Ask, ask: Ask, leaf: int, subleaf: int) -> bool:
    """Whether the processor knows a leaf: it answers others with those of another leaf."""
    if leaf & 0x7FFF_FFFF == 0:
        return True
    if leaf > look(leaf & 0x8000_0000, 0)[_EAX]:
        return False
    return subleaf == 0 or leaf != 7 or subleaf <= look(leaf, 0)[_EAX]
