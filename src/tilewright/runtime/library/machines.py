"""What the programs of a library need of a machine, as rows that its code asks for (native/machine.py).

On x86-64 a row is what CPUID is asked: leaf, sub-leaf, register, bit, the registers that the system must save, and,
instead of the bit, the least that the register's low byte may be. On AArch64 and RISC-V it is the number of an
auxiliary value, and a bit of it in the same place; or, behind all of these, the most and the least bytes of a vector in
the last two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.codegen.image import X86_64, Image
from tilewright.target import Target
from tilewright.target.cpuid import AVX10, AVX10_VERSION_LEAF, CPUID, PLACES, TILES, XGETBV, Place
from tilewright.target.hwcap import VECTOR_BYTES, bits_of

CPUID_NAME, XGETBV_NAME = "tilewright_cpuid", "tilewright_xgetbv"

_EBX = 1
_XGETBV_AT = 64
_BEHIND_ALL = 0x7FFF_FFFF
"""A number that no auxiliary value has: vectors are asked for their length when it is known that there are any."""

VECTORS: Final[Mapping[str, tuple[str, int]]] = {"riscv64": ("+v", 8), "aarch64": ("+sve", 16)}
"""How LLVM is told that there are vectors that tell their length, and the bytes of the unit of it, `vscale`."""


@dataclass(frozen=True, slots=True)
class Need:
    """A feature that a target has, and the words of its row."""

    feature: str
    words: tuple[int, int, int, int, int, int]

    @property
    def is_tiles(self) -> bool:
        """Whether it takes tile registers, which a process has to ask the system for."""
        return self.feature in PLACES and bool(PLACES[self.feature].saved & TILES)


def needs_of(target: Target) -> list[Need]:
    """What code for a target needs, such that the same is asked for as seldom as can be."""
    found = _cpuid_needs(target) if target.architecture == "x86_64" else _auxiliary_needs(target)
    return sorted(found, key=lambda need: (need.words[0], need.words[1], need.words[5]))


def _cpuid_needs(target: Target) -> Iterator[Need]:
    for feature in sorted(target.features):
        if feature in PLACES:
            yield Need(feature, (*PLACES[feature], 0))
        elif feature.startswith("avx10."):
            version = int(feature.removeprefix("avx10."))
            yield Need(feature, (*AVX10, 0))
            yield Need(feature, (*Place(AVX10_VERSION_LEAF, 0, _EBX, 0, AVX10.saved), version))


def _auxiliary_needs(target: Target) -> Iterator[Need]:
    for feature in sorted(target.features):
        for place in bits_of(target.architecture).get(feature, ()):
            yield Need(feature, (place.word, 0, 0, place.bit, 0, 0))
        if feature in VECTOR_BYTES:
            least, most = VECTOR_BYTES[feature]
            yield Need(feature, (_BEHIND_ALL, 0, 0, 0, most, least))


def needs_text(needs: Sequence[Need]) -> str:
    """The rows as LLVM IR."""
    rows = [f"%need {{ {', '.join(f'i32 {word}' for word in need.words)} }}" for need in needs]
    return f"@needs = internal constant [{len(rows)} x %need] [{', '.join(rows)}]\n"


def length_text(base: Target) -> str:
    """The function that asks vectors for their bytes, as LLVM IR: only code with these can."""
    feature, unit = VECTORS[base.architecture]
    return f"""
declare i64 @llvm.vscale.i64()
define internal i64 @vector_bytes() noinline "target-features"="{base.feature_text},{feature}" {{
  %units = call i64 @llvm.vscale.i64()
  %bytes = mul i64 %units, {unit}
  ret i64 %bytes
}}
"""


def question_image() -> Image:
    """The code that asks an x86-64 processor."""
    code = CPUID.ljust(_XGETBV_AT, b"\xcc") + XGETBV
    return Image(X86_64, code, b"", 0, {CPUID_NAME: 0, XGETBV_NAME: _XGETBV_AT}, {}, {})
