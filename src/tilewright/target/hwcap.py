"""Where Linux tells the features of an AArch64 or RISC-V processor: bits of words that every process is given.

The numbers are those of the kernel's `asm/hwcap.h` and of `getauxval` (`elf.h`: AT_HWCAP, AT_HWCAP2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from .features import LENGTHS


class Bit(NamedTuple):
    """A bit of a word, which is known by its number among the auxiliary values."""

    word: int
    bit: int


_FIRST: Final = 16
_SECOND: Final = 26

BITS: Final[Mapping[str, tuple[Bit, ...]]] = {
    "fp-armv8": (Bit(_FIRST, 0),),
    "neon": (Bit(_FIRST, 1),),
    "aes": (Bit(_FIRST, 3), Bit(_FIRST, 4)),
    "sha2": (Bit(_FIRST, 5), Bit(_FIRST, 6)),
    "crc": (Bit(_FIRST, 7),),
    "lse": (Bit(_FIRST, 8),),
    "fullfp16": (Bit(_FIRST, 9), Bit(_FIRST, 10)),
    "rdm": (Bit(_FIRST, 12),),
    "dotprod": (Bit(_FIRST, 20),),
    "sve": (Bit(_FIRST, 22),),
    "fp16fml": (Bit(_FIRST, 23),),
    "sve2": (Bit(_SECOND, 1),),
    "sve256": (),
    "sve512": (),
    "i8mm": (Bit(_SECOND, 13),),
    "bf16": (Bit(_SECOND, 14),),
}
"""The bits of each feature that features.py knows on AArch64: all of them are set where it is there."""

RISCV_BITS: Final[Mapping[str, tuple[Bit, ...]]] = {
    "64bit": (),
    "zihintpause": (),
    **{letter: (Bit(_FIRST, ord(letter) - ord("a")),) for letter in "macfdv"},
    **{f"zvl{bits}b": () for bits in (256, 512, 1024)},
}
"""The same on RISC-V: a bit for each letter."""

_ANY: Final = 1 << 16

VECTOR_BYTES: Final[Mapping[str, tuple[int, int]]] = {
    **{f"zvl{bits}b": (bits // 8, _ANY) for bits in (256, 512, 1024)},
    **{name: (bits // 8, bits // 8) for name, bits in LENGTHS.items()},
}
"""The bytes that vectors have at least and at most where a feature is there. The processor tells them, not the system:
code for SVE of a length is for that one, code for RISC-V's vectors for longer ones, too."""

_BY_ARCHITECTURE: Final = {"aarch64": BITS, "riscv64": RISCV_BITS}


def bits_of(architecture: str) -> Mapping[str, tuple[Bit, ...]]:
    """The bits of the features of an architecture."""
    return _BY_ARCHITECTURE[architecture]
