"""What all templates of windows share: which kernels they get, the record of a tile, its price, and its steps.

a tile        the longest of: multiply-adds and shuffles, loads and stores, the chain of one sum; then its epilogue
an image      read once and stored once, before tiles run or, if it is prefetched, while they run

Steps know blocks by name, and a tile by the loop that an iteration of is one:

final_block, padded_rows         the blocks that a tile ends and begins with
window_loops, trim_rows          the loops over a window
hold                             what a tile reads of rows, in registers
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from tilewright.analysis.known import limits
from tilewright.analysis.windows import Side, Windows
from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.contraction import both_limits
from tilewright.plan.template import ChoiceT, Template
from tilewright.plan.tile.loops import cut_at, extent, loop_of, write_out
from tilewright.plan.tile.registers import Lanes, lay_in_lanes
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.transfer import byte_cycles, reread_seconds, rewrite_seconds
from tilewright.types.scopes import Scope


class WindowTemplate(Template[Windows, ChoiceT]):
    """A way to run a reduction over the windows of each channel."""

    @abstractmethod
    def fits(self, w: Windows) -> bool:
        """Whether the template is for such windows."""

    def recognise(self, facts: Facts) -> Windows | None:
        return facts.windows if facts.windows is not None and self.fits(facts.windows) else None

    def begin(self, facts: Facts) -> Schedule:
        assert facts.windows is not None
        return facts.begin_inlined() if facts.windows.products else facts.begin_inlined(once=True)


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
    # The latency of max and min is about a cycle, a third of a multiply-add's. The next tile is under way beside this.
    chain = w.terms * core.fma_latency * (1 if w.products else w.instructions / 3) / 2
    # Loads that are issued early wait in registers: the more of these, the less often a unit waits for a latency.
    early = core.fma_latency / target.vector_registers * min(arithmetic, moved)
    busy = both_limits(max(arithmetic, moved), chain) + early
    return busy + (1 + tile.branches) * core.add_cycles + tile.epilogues * epilogue + tile.waits


def load_cycles(target: Target, aligned: bool = False) -> float:
    """Cycles of loading a vector from the first cache: a load across two lines counts twice."""
    across = 0.0 if aligned else target.vector_bits / 8 / target.caches[0].line
    return target.core.load_cycles * (1 + across)


def epilogue_cycles(w: Windows, beside: int, target: Target) -> float:
    """Cycles of an epilogue per vector, with the instructions of `beside` vectors interleaved: these share the latency
    of a long chain."""
    core, work = target.core, w.epilogue.work
    chain = 1 + (core.chain - 1) / beside
    return work.chained * core.add_cycles * chain + work.divides * core.divide_cycles + work.roots * core.sqrt_cycles


def stack_cycles(room: int, target: Target, stores: bool = False) -> float:
    """The further cycles of a vector of `room` bytes on the stack, which the second cache has where the first one is
    too small: all of that one is for them, since nothing streams past between a copy and the tiles that read it."""
    near = room <= target.caches[0].bytes or len(target.caches) < 2
    return 0.0 if near else target.vector_bits / 8 * byte_cycles(2, target, stores=stores)


def even_sizes(extent: int, most: int) -> list[int]:
    """Sizes of tiles, at most `most`: for each number of tiles, the smallest size with which they cover the extent."""
    return [size for size in range(min(most, extent), 0, -1) if size == -(-extent // -(-extent // size))]


def final_block(s: Schedule, w: Windows) -> str:
    """The block that tiles end in: of a kernel that stores its sums as they are, a new one that does."""
    return str(s.cache_write(w.block)) if w.out.scope is Scope.ARGUMENT else w.last


def padded_rows(s: Schedule, w: Windows) -> str:
    """The only block that makes the rows that windows read: padding and image or, without padding, a copy."""
    return str(s.unite(w.source.name) if w.padded else s.cache_read(w.block, w.source.name))


def window_loops(s: Schedule, w: Windows) -> tuple[list[Var], list[Var], list[Var]]:
    """The loops over a window: those of one iteration, those over its rows, those over its columns."""
    block = find_block(s.func, w.block)
    used = () if w.columns.term is None else variables_of(block.axes[w.columns.term].binding)
    loops = [v for axis in block.reduce for v in s.get_loops(w.block) if v in variables_of(axis.binding)]
    columns = [v for v in loops if v in used]
    single = [v for v in loops if v not in columns and extent(s, v) == 1]
    return single, [v for v in loops if v not in (*single, *columns)], columns


def trim_rows(s: Schedule, w: Windows) -> None:
    """Leaves rows of zeros out of sums, where all weights are finite: a tile that is the whole image knows the place of
    each. There are none where something else is around the image."""
    for loop in window_loops(s, w)[1] if w.finite else ():
        s.attempt(s.trim_sum, w.block, loop)


def hold(s: Schedule, w: Windows, pad: str, tile: Var, rows: int, lanes: int, image: Var | None = None) -> None:
    """What an iteration of `tile`, of tiles of so many `rows`, reads of padded rows is loaded into registers as it
    lies, in whole vectors. Rows of zeros, which differ from tile to tile, have loops of their own: parts of the loop
    over rows of the `image` or, where that is not given, of the one that loads them."""
    s.compute_at(pad, tile)
    write_out(s, pad, tile, lay_in_lanes(s, pad, Lanes(lanes, lanes)))
    if w.padded:
        s.guard(pad)
        cut_at(s, image or loop_of(s, pad, -2), rows_inside(s, pad, w.rows, -2, rows))


def rows_inside(s: Schedule, block: str, side: Side, axis: int, rows: int) -> tuple[int, int]:
    """The rows of a tile that lie inside the image for every tile of so many `rows`."""
    found = find_block(s.func, block)
    first, end = limits(found.where, found.spatial[axis].var)
    return first, max(end - (side.size - rows) * side.stride, first)
