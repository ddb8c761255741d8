"""Instruction-set features by LLVM's names: what each implies, the x86-64 levels, and the vector registers they give.

A set of features is closed when it holds all that its members imply. Machine models hold closed sets only, so one
question (`"avx2" in features`) is enough anywhere above.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_X86_IMPLIES: Final[dict[str, tuple[str, ...]]] = {
    "64bit": (),
    "cmov": (),
    "cx8": (),
    "fxsr": (),
    "mmx": (),
    "sse": (),
    "sse2": ("sse",),
    "sse3": ("sse2",),
    "ssse3": ("sse3",),
    "sse4.1": ("ssse3",),
    "sse4.2": ("sse4.1",),
    "crc32": (),
    "cx16": ("cx8",),
    "popcnt": (),
    "sahf": (),
    "aes": ("sse2",),
    "pclmul": ("sse2",),
    "sha": ("sse2",),
    "sha512": ("avx2",),
    "sm3": ("avx",),
    "sm4": ("avx2",),
    "sse4a": ("sse3",),
    "fma4": ("avx", "sse4a"),
    "xop": ("fma4",),
    "gfni": ("sse2",),
    "avx": ("sse4.2",),
    "avx2": ("avx",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "bmi": (),
    "bmi2": (),
    "lzcnt": (),
    "movbe": (),
    "xsave": (),
    "vaes": ("avx2", "aes"),
    "vpclmulqdq": ("avx", "pclmul"),
    "avxvnni": ("avx2",),
    "avxvnniint8": ("avx2",),
    "avxvnniint16": ("avx2",),
    "avxifma": ("avx2",),
    "avxneconvert": ("avx2",),
    "avx512f": ("avx2", "f16c", "fma"),
    "avx512bw": ("avx512f",),
    "avx512cd": ("avx512f",),
    "avx512dq": ("avx512f",),
    "avx512vl": ("avx512f",),
    "avx512bf16": ("avx512bw",),
    "avx512bitalg": ("avx512bw",),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "avx512ifma": ("avx512f",),
    "avx512vbmi": ("avx512bw",),
    "avx512vbmi2": ("avx512bw",),
    "avx512vnni": ("avx512f",),
    "avx512vp2intersect": ("avx512f",),
    "avx512vpopcntdq": ("avx512f",),
    "avx10.1": (
        *("avx512bf16", "avx512bitalg", "avx512cd", "avx512fp16", "avx512ifma"),
        *("avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq"),
    ),
    "avx10.2": ("avx10.1",),
    "amx-tile": (),
    "amx-avx512": ("amx-tile", "avx10.2"),
    "amx-bf16": ("amx-tile",),
    "amx-fp16": ("amx-tile",),
    "amx-int8": ("amx-tile",),
}
_ARM_IMPLIES: Final[dict[str, tuple[str, ...]]] = {
    "fp-armv8": (),
    "neon": ("fp-armv8",),
    "crc": (),
    "lse": (),
    "rdm": ("neon",),
    "aes": ("neon",),
    "sha2": ("neon",),
    "dotprod": ("neon",),
    "fullfp16": ("fp-armv8",),
    "fp16fml": ("fullfp16",),
    "bf16": ("neon",),
    "i8mm": ("neon",),
    "sve": ("fullfp16", "neon"),
    "sve2": ("sve",),
    "sve256": ("sve",),
    "sve512": ("sve",),
}
LENGTHS: Final = {"sve256": 256, "sve512": 512}
"""Features that say how many bits a vector of SVE has, exactly. LLVM is told by another attribute."""

_RISCV_IMPLIES: Final[dict[str, tuple[str, ...]]] = {
    "64bit": (),
    "m": (),
    "a": (),
    "f": (),
    "d": ("f",),
    "c": (),
    "zihintpause": (),
    "v": ("d",),
    "zvl256b": ("v",),
    "zvl512b": ("zvl256b",),
    "zvl1024b": ("zvl512b",),
}
_WASM_IMPLIES: Final[dict[str, tuple[str, ...]]] = {"simd128": ()}
_IMPLIES: Final = {
    "x86_64": _X86_IMPLIES,
    "aarch64": _ARM_IMPLIES,
    "riscv64": _RISCV_IMPLIES,
    "wasm32": _WASM_IMPLIES,
}

_V1: Final = ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse2")
_V2: Final = (*_V1, "cx16", "crc32", "popcnt", "sahf", "sse4.2")
_V3: Final = (*_V2, "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4: Final = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512vl")

ARCHITECTURES: Final = tuple(_IMPLIES)
"""The architectures that have a machine model, by the first word of their triples."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The registers that arithmetic runs in: the width of one in bits, and how many there are."""

    bits: int
    registers: int


def close(architecture: str, features: Iterable[str]) -> frozenset[str]:
    """`features` and all that they imply."""
    implies = _IMPLIES[architecture]
    out: set[str] = set()
    pending = list(features)
    while pending:
        feature = pending.pop()
        if feature not in out:
            out.add(feature)
            pending += implies.get(feature, ())
    return frozenset(out)


def remove(architecture: str, features: frozenset[str], feature: str) -> frozenset[str]:
    """`features` without `feature` and without all that imply it."""
    return frozenset(kept for kept in features if feature not in close(architecture, (kept,)))


def fuses(features: frozenset[str]) -> bool:
    """Whether there are fused multiply-adds of f32 and f64: `d` is RISC-V's double precision."""
    return not features.isdisjoint(("fma", "neon", "d"))


def known_features(architecture: str) -> tuple[str, ...]:
    """The features that a target's text may add or take away, sorted."""
    return tuple(sorted(_IMPLIES[architecture]))


RV64GC: Final = close("riscv64", ("64bit", "m", "a", "d", "c", "zihintpause"))
"""What Linux takes for granted on RISC-V (RVA20 without its smaller parts). Machines without `zihintpause` run its only
instruction as one that does nothing."""

LEVELS: Final[dict[str, frozenset[str]]] = {
    name: close("x86_64", features)
    for name, features in (("x86-64", _V1), ("x86-64-v2", _V2), ("x86-64-v3", _V3), ("x86-64-v4", _V4))
}
"""The levels of x86-64, lowest first. LLVM has a processor of each name, with exactly these features."""


BASE: Final[dict[str, frozenset[str]]] = {
    "x86_64": LEVELS["x86-64"],
    "aarch64": close("aarch64", ("neon",)),
    "riscv64": RV64GC,
    "wasm32": frozenset(("simd128",)),
}
"""What no machine of an architecture lacks: how functions call one another is made of these, and LLVM's least processor
has them."""


def choose_cpu(architecture: str, features: frozenset[str]) -> str:
    """The LLVM processor to compile for: the highest one that assumes nothing beyond `features`.

    A processor's name brings its features along, and under a hypervisor the name may promise what the machine refuses.
    """
    if architecture != "x86_64":
        return {"riscv64": "generic-rv64"}.get(architecture, "generic")
    fitting = [name for name, level in LEVELS.items() if level <= features]
    return fitting[-1] if fitting else "x86-64"


def choose_vectors(architecture: str, features: frozenset[str]) -> Vectors:
    """The widest registers `features` give. SVE whose length they do not say counts as NEON. RISC-V's vectors
    are as long as is certain: 128 bits (`v`), or more (`zvl256b`); without them, four of the 32 scalars take the place
    of one."""
    if architecture == "aarch64":
        return Vectors(max((bits for name, bits in LENGTHS.items() if name in features), default=128), 32)
    if architecture == "riscv64":
        longest = [bits for bits in (256, 512, 1024) if f"zvl{bits}b" in features]
        return Vectors(max(longest, default=128), 32 if "v" in features else 8)
    if "avx512f" in features:
        return Vectors(512, 32)
    return Vectors(256 if "avx" in features else 128, 16)
