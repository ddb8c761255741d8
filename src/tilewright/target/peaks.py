"""Peaks and bandwidths: what bounds the time of any kernel on a machine.

time >= max(flops / fma_gflops, bytes from each level / that level's GB/s), the roofline (Williams, Waterman and
Patterson, "Roofline: an insightful visual performance model for multicore architectures", 2009).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .features import Vectors


@dataclass(frozen=True, slots=True)
class Peaks:
    """Upper bounds. `fma_gflops` (f32) and `fma_gflops_f64` are of one core; an FMA counts as two operations.

    `cache_gbs` has for each cache level, nearest first, what one core reads from it in GB/s (10^9 bytes);
    `memory_gbs` is what one core reads from memory and `memory_gbs_all` what all cores together do. `measured` tells
    a calibration from the model's estimate.
    """

    fma_gflops: float
    fma_gflops_f64: float
    cache_gbs: tuple[float, ...]
    memory_gbs: float
    memory_gbs_all: float
    measured: bool

    def to_numbers(self) -> dict[str, list[float]]:
        """A measurement as JSON says it; `from_numbers` reads it back."""
        return {
            "fma": [self.fma_gflops, self.fma_gflops_f64],
            "caches": list(self.cache_gbs),
            "memory": [self.memory_gbs, self.memory_gbs_all],
        }

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, object], levels: int) -> Peaks | None:
        """The measurement that `numbers` hold for a machine of `levels` caches; None when they hold none."""
        match numbers:
            case {"fma": [f32, f64], "caches": [*caches], "memory": [one, together]} if len(caches) == levels:
                rates = [x for x in (f32, f64, *caches, one, together) if isinstance(x, float)]
                if len(rates) == levels + 4 and all(math.isfinite(rate) and rate > 0 for rate in rates):
                    return cls(rates[0], rates[1], tuple(rates[2:-2]), rates[-2], rates[-1], measured=True)
        return None


def estimate_peaks(vectors: Vectors, levels: int, ghz: float) -> Peaks:
    """What a usual core of this vector width and clock does: two multiply-adds and one and a half loads a cycle.

    Caches past the first deliver 24, 10, 8 … bytes a cycle; memory 16 GB/s to one core and 32 to all.
    """
    cycle = vectors.bits // 8
    beyond = [24.0, 10.0] + [8.0] * levels
    return Peaks(
        fma_gflops=2 * 2 * (vectors.bits / 32) * ghz,
        fma_gflops_f64=2 * 2 * (vectors.bits / 64) * ghz,
        cache_gbs=tuple(ghz * rate for rate in [1.5 * cycle, *beyond][:levels]),
        memory_gbs=16.0,
        memory_gbs_all=32.0,
        measured=False,
    )
