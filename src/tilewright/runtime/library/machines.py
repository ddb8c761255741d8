"""What the programs of a library need of a machine, as rows that code asks CPUID for (native/machine.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.image import X86_64, Image
from tilewright.target import Target
from tilewright.target.cpuid import AVX10, AVX10_VERSION_LEAF, CPUID, PLACES, XGETBV, Place

CPUID_NAME, XGETBV_NAME = "tilewright_cpuid", "tilewright_xgetbv"

_EBX = 1
_XGETBV_AT = 64


@dataclass(frozen=True, slots=True)
class Need:
    """A feature that a target has, where CPUID tells it, and, where that is a number, the least."""

    feature: str
    place: Place
    least: int = 0


def needs_of(target: Target) -> list[Need]:
    """What code for a target needs, in the order of CPUID's leaves."""
    needs = []
    for feature in sorted(target.features):
        if feature in PLACES:
            needs.append(Need(feature, PLACES[feature]))
        elif feature.startswith("avx10."):
            version = int(feature.removeprefix("avx10."))
            needs.append(Need(feature, AVX10))
            needs.append(Need(feature, Place(AVX10_VERSION_LEAF, 0, _EBX, 0, AVX10.saved), version))
    return sorted(needs, key=lambda need: (need.place.leaf, need.place.subleaf, need.least))


def needs_text(needs: Sequence[Need]) -> str:
    """The rows as LLVM IR."""
    rows = []
    for need in needs:
        place = need.place
        words = (place.leaf, place.subleaf, place.register, place.bit, place.saved, need.least)
        rows.append(f"%need {{ {', '.join(f'i32 {word}' for word in words)} }}")
    return f"@needs = internal constant [{len(rows)} x %need] [{', '.join(rows)}]\n"


def question_image() -> Image:
    """The code that asks an x86-64 processor."""
    code = CPUID.ljust(_XGETBV_AT, b"\xcc") + XGETBV
    return Image(X86_64, code, b"", 0, {CPUID_NAME: 0, XGETBV_NAME: _XGETBV_AT}, {}, {})
