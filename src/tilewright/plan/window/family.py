"""What all templates of windows share: which kernels they get, the record of a tile, and its price.

a tile        the longest of: multiply-adds and shuffles, loads and stores, the chain of one sum; then its epilogue
an image      read once and stored once, before tiles run or, if it is prefetched, while they run
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from tilewright.plan.facts.kernel import Facts
from tilewright.plan.facts.windows import Windows
from tilewright.plan.price.transfer import reread_seconds, rewrite_seconds
from tilewright.plan.template import ChoiceT, Template
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class WindowTemplate(Template[Windows, ChoiceT]):
    """A way to run a reduction over the windows of each channel."""

    @abstractmethod
    def fits(self, w: Windows) -> bool:
        """Whether the template is for such windows."""

    def recognise(self, facts: Facts) -> Windows | None:
        return facts.windows if facts.windows is not None and self.fits(facts.windows) else None

    def begin(self, facts: Facts) -> Schedule:
        return facts.begin_windows()


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile in numbers, and how many the kernel has (`count`). In vectors: `terms` that it sums up; `loads` of the
    image, across two cache lines unless `aligned`; vectors `filled` with padding before; weights that it loads;
    shuffles; stores; vectors that its epilogue runs over, the instructions of `beside` of them interleaved; `spills` to
    the stack. `branches` counts its tests of its place in the image, and the iterations of its loops; `waits` are
    cycles in which it waits for a cache behind the first."""

    count: float
    terms: float
    loads: float
    stores: float
    epilogues: float
    weights: float = 0.0
    shuffles: float = 0.0
    beside: int = 1
    spills: float = 0.0
    filled: float = 0.0
    aligned: bool = False
    branches: int = 0
    waits: float = 0.0


def kernel_seconds(w: Windows, tile: Tile, target: Target, late: float | None = None, further: float = 0.0) -> float:
    """Seconds of a kernel that computes its tiles, and for `further` cycles, while images arrive. It waits for a part
    of them, `late`: what is not hidden, where nothing else is said."""
    core, results = target.core, w.images * w.channels * w.rows.size * w.columns.size
    source, made = results * w.rows.stride * w.columns.stride * w.source.dtype.bytes, results * w.out.dtype.bytes
    read = reread_seconds(source, source + made, target)
    busy = (tile.count * _tile_cycles(w, tile, target) + further) / core.hertz
    late = core.unhidden if late is None else late
    stored = rewrite_seconds(made, source + made, target)
    return core.kernel_seconds + stored + max(busy, read) + late * min(busy, read)


def _tile_cycles(w: Windows, tile: Tile, target: Target) -> float:
    """Cycles of a tile whose operands are in the first cache, but for what it waits."""
    core = target.core
    term = core.fma_cycles if w.products else core.add_cycles * w.instructions
    shuffled = tile.shuffles * core.shuffle2_cycles
    arithmetic = max(tile.terms * term + shuffled / 2, shuffled) + tile.filled * core.add_cycles
    moved = tile.loads * load_cycles(target, tile.aligned) + tile.weights * core.broadcast_cycles
    moved += tile.stores * core.store_cycles + tile.spills * core.load_cycles
    constants = w.epilogue.work.chained * core.load_cycles / tile.beside  # sums are in registers
    epilogue = epilogue_cycles(w, tile.beside, target) + constants
    # The latency of max and min is about a cycle, a third of a multiply-add's.
    chain = w.terms * core.fma_latency * (1 if w.products else w.instructions / 3)
    # Loads that are issued early wait in registers: the more of these, the less often a unit waits for a latency.
    busy = max(arithmetic, moved, chain) + core.fma_latency / target.vector_registers * min(arithmetic, moved)
    return busy + (1 + tile.branches) * core.add_cycles + tile.epilogues * epilogue + tile.waits


def vector_bytes(target: Target) -> int:
    """The bytes of a vector."""
    return target.vector_bits // 8


def load_cycles(target: Target, aligned: bool = False) -> float:
    """Cycles of loading a vector from the first cache: a load across two lines counts twice."""
    across = 0.0 if aligned else vector_bytes(target) / target.caches[0].line
    return target.core.load_cycles * (1 + across)


def epilogue_cycles(w: Windows, beside: int, target: Target) -> float:
    """Cycles of an epilogue per vector, with the instructions of `beside` vectors interleaved: these share the latency
    of a long chain."""
    core, work = target.core, w.epilogue.work
    chain = 1 + (core.chain - 1) / beside
    return work.chained * core.add_cycles * chain + work.divides * core.divide_cycles + work.roots * core.sqrt_cycles


def copied_cycles(vectors: float, shuffles: float, room: int, target: Target) -> float:
    """Cycles of copying vectors, with `shuffles` for each, into `room` bytes. What does not fit the first cache goes to
    the second one and comes back."""
    core = target.core
    each = max(load_cycles(target) + core.store_cycles, shuffles * core.shuffle_cycles)
    return vectors * (each + stack_cycles(room, target, stores=True))


def stack_cycles(room: int, target: Target, stores: bool = False) -> float:
    """The further cycles of a vector of `room` bytes on the stack. The first cache keeps as many as it holds: nothing
    streams past between a copy and the tiles that read it."""
    if room <= target.caches[0].bytes or len(target.caches) < 2:
        return 0.0
    rate = (target.peaks.store_gbs if stores else target.peaks.cache_gbs)[1]
    return vector_bytes(target) / rate * target.core.ghz


def even_sizes(extent: int, most: int) -> list[int]:
    """Sizes of tiles, at most `most`: for each number of tiles, the smallest size with which they cover the extent."""
    return [size for size in range(min(most, extent), 0, -1) if size == -(-extent // -(-extent // size))]
