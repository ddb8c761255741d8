"""What the programs of a library need of a machine, as rows that its code asks for (native/machine.py).

On x86-64 a row is what CPUID is asked: leaf, sub-leaf, register, bit, the registers that the system must save, and,
instead of the bit, the least that the register's low byte may be. On AArch64 it is the number of an auxiliary value,
and a bit of it in the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.codegen.image import X86_64, Image
from tilewright.target import Target
from tilewright.target.cpuid import AVX10, AVX10_VERSION_LEAF, CPUID, PLACES, XGETBV, Place
from tilewright.target.hwcap import BITS

CPUID_NAME, XGETBV_NAME = "tilewright_cpuid", "tilewright_xgetbv"

_EBX = 1
_XGETBV_AT = 64


@dataclass(frozen=True, slots=True)
class Need:
    """A feature that a target has, and the words of its row."""

    feature: str
    words: tuple[int, int, int, int, int, int]


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
        for place in BITS.get(feature, ()):
            yield Need(feature, (place.word, 0, 0, place.bit, 0, 0))


def needs_text(needs: Sequence[Need]) -> str:
    """The rows as LLVM IR."""
    rows = [f"%need {{ {', '.join(f'i32 {word}' for word in need.words)} }}" for need in needs]
    return f"@needs = internal constant [{len(rows)} x %need] [{', '.join(rows)}]\n"


def question_image() -> Image:
    """The code that asks an x86-64 processor."""
    code = CPUID.ljust(_XGETBV_AT, b"\xcc") + XGETBV
    return Image(X86_64, code, b"", 0, {CPUID_NAME: 0, XGETBV_NAME: _XGETBV_AT}, {}, {})
