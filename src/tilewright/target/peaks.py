"""What the caches and the memory of a machine deliver.

time >= max(flops / fma_gflops, bytes from each level / that level's GB/s), the roofline (Williams, Waterman and
Patterson, "Roofline: an insightful visual performance model for multicore architectures", 2009). The flops are those of
the core (`Target.fma_gflops`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .core import settle_rates


@dataclass(frozen=True, slots=True)
class Peaks:
    """Upper bounds in GB/s (10^9 bytes a second), how much is kept, and how long the first byte takes.

    cache_gbs         for each cache level, nearest first: what one core reads from it, streaming
    store_gbs         for each cache level: what one core writes to it, streaming over lines that it holds already
    memory_gbs        what one core reads from memory
    memory_store_gbs  what one core writes to memory by plain stores (which read the line first)
    memory_gbs_all    what all cores together read from memory
    memory_tile_gbs   what one core reads from memory line by line, with eight vectors of products on each line before
                      the next: what waits for a line keeps the loads behind it from beginning
    memory_asked_gbs  the same where each line is prefetched a page ahead
    last_share        the share of the last cache's bytes in which a core finds again what it read: others, of this
                      machine or of other guests of its hypervisor, keep the rest
    cache_ns          for each cache level: the nanoseconds from a load to its use, where nothing was fetched before
    memory_ns         the same from memory; both are always the family's
    """

    cache_gbs: tuple[float, ...]
    store_gbs: tuple[float, ...]
    memory_gbs: float
    memory_store_gbs: float
    memory_gbs_all: float
    memory_tile_gbs: float
    memory_asked_gbs: float
    last_share: float
    cache_ns: tuple[float, ...]
    memory_ns: float

    def __post_init__(self) -> None:
        settle_rates(self)

    def replace(self, **changes: Any) -> Peaks:
        """These peaks with `changes`. Raises TypeError for an unknown name, ValueError for a number that makes no sense
        or a row that has not one number for each cache."""
        rows: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in changes.items()}
        out = dataclasses.replace(self, **rows)
        if {len(out.cache_gbs), len(out.store_gbs), len(out.cache_ns)} != {len(self.cache_gbs)}:
            raise ValueError(
                f"cache_gbs, store_gbs and cache_ns have a number for each of {len(self.cache_gbs)} caches"
            )
        return out

    def record(self) -> dict[str, Any]:
        """The peaks as JSON says them; `from_record` reads them back."""
        rows = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in rows.items()}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Peaks:
        """The peaks that `record` made a record of. Raises TypeError or ValueError for anything else."""
        rows: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in record.items()}
        return Peaks(**rows)
