"""What a machine is able to do, as far as its instruction set says it: registers, masks, products, memory operands."""

from __future__ import annotations

from typing import Final

from ..expr import dtypes
from ..expr.dtypes import DType
from .features import LENGTHS, fuses
from .host import architecture_of

SHORTEST_LANES: Final = 4
"""f32 elements in the shortest vector registers, those of SSE and NEON: lanes of vectors that are worth making of what
is left over, and the side of the squares in which vectors are transposed."""


class Abilities:
    """What follows from a target's `triple`, its `features` and the bits of its widest vectors, `vector_bits`."""

    __slots__ = ()

    triple: str
    features: frozenset[str]
    vector_bits: int

    @property
    def architecture(self) -> str:
        """`x86_64`, `aarch64`, `riscv64` or `wasm32`."""
        return architecture_of(self.triple)

    def has(self, feature: str) -> bool:
        """Whether the machine has the feature of this LLVM name."""
        return feature in self.features

    @property
    def addresses(self) -> int:
        """Places in memory that general registers can hold, that of the stack among them: as many as there are, on
        x86-64; half of them on AArch64, whose loads add an index or a displacement to a register, not both, and on
        RISC-V, whose loads of vectors add neither. On WebAssembly as many as on the machine that usually runs it."""
        return {"x86_64": 16, "aarch64": 32 // 2, "riscv64": 32 // 2, "wasm32": 16}[self.architecture]

    @property
    def has_fma(self) -> bool:
        """Fused multiply-add of f32 and f64 vectors."""
        return fuses(self.features)

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether a multiply-add takes one lane of a vector, such as NEON's, as its element: LLVM loads elements of
        rows ahead in vectors there."""
        return self.architecture == "aarch64" and self.vector_bits == SHORTEST_LANES * dtypes.f32.bits

    @property
    def casts_saturate(self) -> bool:
        """Whether LLVM converts vectors of floats to integers as vectors where numbers beyond the range become its
        ends, and NaN becomes 0; else it takes them lane by lane."""
        return self.architecture != "x86_64"

    @property
    def operates_on_memory(self) -> bool:
        """Whether arithmetic takes an operand from memory."""
        return self.architecture == "x86_64"

    @property
    def loaded_ahead(self) -> int:
        """Elements beside the one in use that LLVM loads ahead into vector registers: two where each has to be
        broadcast into one (SVE), three where a multiply-add takes one lane of a vector."""
        if self.multiplies_by_lane:
            return 3
        return 2 if self.architecture == "aarch64" else 0

    @property
    def has_f16c(self) -> bool:
        """Conversion between f16 and f32 vectors."""
        return self.has("f16c") or self.has("neon")

    @property
    def has_f16(self) -> bool:
        """Arithmetic on f16 vectors."""
        return self.has("avx512fp16") or self.has("fullfp16")

    @property
    def has_bf16_dot(self) -> bool:
        """Products of bf16 pairs summed into f32 lanes."""
        return self.has("avx512bf16") or self.has("bf16")

    @property
    def has_i8_dot(self) -> bool:
        """Products of four 8-bit integers summed into i32 lanes: VNNI in either encoding, or Arm's dot product."""
        return self.has("avx512vnni") or self.has("avxvnni") or self.has("dotprod")

    @property
    def has_masks(self) -> bool:
        """Loads, stores and arithmetic under a mask register for every vector width and element size."""
        return {"avx512vl", "avx512bw"} <= self.features or self.has("v") or self._has_length

    def masks_loads(self, dtype: DType) -> bool:
        """Whether vectors of this type are loaded under a mask, whose other elements are not touched: AVX does so for
        those of 32 and 64 bits."""
        return self.has_masks or (self.has("avx") and dtype.bits >= 32)

    @property
    def _has_length(self) -> bool:
        """Whether vectors are SVE's, of a known length."""
        return not self.features.isdisjoint(LENGTHS)

    @property
    def length_attribute(self) -> str:
        """The attribute of functions by which LLVM takes vectors to be of the target's length, where they could be of
        another: in units of 128 bits."""
        units = self.vector_bits // 128
        return f"vscale_range({units},{units})" if self._has_length else ""
