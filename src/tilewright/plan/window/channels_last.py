"""Windows with channels innermost: a vector is channels of one column, and a tile is some columns of a row.

    for vectors of channels:
      for rows, tiles of C columns:
        t[C, lanes] = 0
        for rows a of the window:
          q[columns, lanes] = the padded columns that the tile reads of a row of the image      in registers
          for c, b: t[c] += q[column of c at b] * w[a, b]
        y[…] = f(t)

The image is read in place. A row of the window loads each vector once for all columns of the tile that need it, and the
L1 cache keeps the rows that the next tiles read again. If columns are stored so far from each other that these rows do
not fit the sets of the L1 cache, the loop over channels runs inside the loops over tiles, so that reads are contiguous,
or the image of some vectors of channels is copied there first:

    for blocks of channels:
      p[rows, columns, channels] = the padded image
      for rows, tiles of C columns, vectors of channels: as above, with p for q

Tiles at the edges are unrolled or have loops of their own: it is then known which of their columns are padding.

Functions like exp are long chains of instructions. If an epilogue calls one, two vectors of a tile may be joined to one
vector of twice the length: the instructions of both are then interleaved, and each hides the other's latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product
from math import isqrt

from tilewright.analysis.known import limits
from tilewright.analysis.windows import Windows
from tilewright.expr.nodes import Var
from tilewright.loops.edit import loads
from tilewright.plan.tile.loops import MANY, WRITTEN_OUT, cut_at, edges_alone, extent, loop_of, ordered, write_out
from tilewright.plan.tile.next_tiles import prefetch_stored_later
from tilewright.plan.tile.registers import compute_near, keep_near, made_by
from tilewright.plan.window import family
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.transfer import byte_cycles, fits, memory, pieces_again_cycles, pieces_cycles, room_in


class Order(Enum):
    """The outermost loop. CHANNELS: an iteration computes a vector of channels of the whole image. ROWS: an iteration
    computes a row of tiles, and runs over all vectors of channels inside each tile. COLUMNS: it computes a column of
    tiles so."""

    CHANNELS = "channels"
    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class ChannelsLastChoice:
    """A tile is `columns` x `vectors` vectors of `lanes` channels; `order` is the order of tiles. Threads share blocks
    of `block` rows, unless that is 0. With `edges`, rows at the edges of the image have loops of their own; without,
    each row of a window is tested. An epilogue runs over one vector at a time or, `in_pairs`, over those of two columns
    joined to one. The padded image of the channels of so many tiles is `copied` before these are computed, unless that
    is 0: row by row of the image, one tile after another. With `ahead`, the elements of a cache line, what the next row
    of tiles is the first to read, and where it stores, is prefetched meanwhile."""

    columns: int
    vectors: int
    lanes: int
    order: Order
    block: int
    edges: bool
    in_pairs: bool
    copied: int
    ahead: int = 0


class ChannelsLast(family.WindowTemplate[ChannelsLastChoice]):
    """Depthwise convolutions whose image and weights have channels innermost."""

    name = "windows, channels last"
    choice = ChannelsLastChoice
    listed = frozenset({"ahead"})

    def fits(self, w: Windows) -> bool:
        return w.channels_last and w.products and w.terms > 1 and not w.dynamic

    def choices(self, shape: Windows, target: Target) -> Iterator[ChannelsLastChoice]:
        w, lanes = shape, _lanes(shape, target)
        most = min(target.vector_registers - 2, WRITTEN_OUT // w.columns.kernel)
        line = target.caches[0].line // w.source.dtype.bytes if _level(w, target) > 2 else 0
        for columns in family.even_sizes(w.columns.size, most) if lanes else ():
            tiles = -(-w.columns.size // columns)
            wide = [v for v in (2, 4) if v * columns <= most and w.channels % (v * lanes) == 0]
            pairs = w.epilogue.calls and tiles == 1 and columns % 2 == 0 and w.channels % lanes == 0
            ways = [(1, False), *((v, False) for v in wide), *([(1, True)] if pairs else [])]
            # Columns of tiles that overlap cannot be shared by threads.
            apart = tiles > 1 and w.columns.size % columns == 0
            orders = [o for o in Order if o is not Order.COLUMNS or apart]
            for order, (vectors, in_pairs) in product(orders, ways):
                programs = 3 * min(tiles, 3) * columns * vectors
                # With tiles at edges by themselves nothing is tested: so twice as much may be written out.
                alone = order is Order.CHANNELS and programs * w.columns.kernel <= 2 * WRITTEN_OUT
                block = _block(w, vectors * lanes) if order is Order.CHANNELS else 0
                ahead = 0 if order is Order.CHANNELS else line
                for edges in (False, True) if alone else (False,):
                    yield ChannelsLastChoice(columns, vectors, lanes, order, block, edges, in_pairs, 0, ahead)
            for vectors in (1, *wide):
                if copied := _copied(w, vectors * lanes, target):
                    yield ChannelsLastChoice(columns, vectors, lanes, Order.CHANNELS, 0, False, False, copied)

    def price(self, choice: ChannelsLastChoice, shape: Windows, target: Target) -> float:
        w, c, met = shape, choice, shape.columns.met(choice.columns)
        sums = c.columns * c.vectors
        arithmetic, brought = sums * w.terms * target.core.fma_cycles, _from_caches(w, c, met, target)
        spills = w.rows.kernel * max((met + c.columns) * c.vectors - target.vector_registers, 0) / 2
        tile = family.Tile(
            count=w.images * w.rows.size * -(-w.columns.size // c.columns) * -(-w.channels // (c.vectors * c.lanes)),
            terms=sums * w.terms,
            loads=(met + w.columns.kernel) * w.rows.kernel * c.vectors + _asked(w, c),
            stores=sums + spills,
            epilogues=sums,
            beside=2 if c.in_pairs else c.vectors,
            spills=spills,
            aligned=True,
            branches=_tests(w, c),
            waits=target.core.together(arithmetic, brought) - arithmetic,
        )
        late = 0.0 if c.ahead else None
        return family.kernel_seconds(w, tile, target, late, further=_pieces(w, c, target) + _copies(w, c, target))

    def apply(self, s: Schedule, shape: Windows, choice: ChannelsLastChoice) -> Schedule:
        w, c = shape, choice
        last = family.final_block(s, w)
        made, last = (last, str(s.cache_write(last))) if c.in_pairs else ("", last)
        pad = family.padded_rows(s, w) if w.padded or c.copied else ""
        shared, rows, columns, tile = _tiles(s, w, c, last)
        for block in (made, w.block) if made else (w.block,):
            s.compute_at(block, tile)
        positions, parts = _sum(s, w, c, tile), [shared]
        if made:
            _in_pairs(s, w, c, made, tile)
        write_out(s, last, tile, loop_of(s, last, -1) if w.epilogue.calls else _lane(s, last, c))
        if c.copied:
            around = s.get_loops(last)
            _copy(s, w, c, pad, around[around.index(rows) - 1])
        elif pad:  # what a tile reads of a row of the image is loaded into registers, padding included
            row = [tile, *positions][-1]
            compute_near(s, pad, row, "register")
            write_out(s, pad, row, _lane(s, pad, c))
            s.guard(pad)
        if c.ahead:
            _prefetch(s, w, c, pad, last, rows, tile)
        if pad and not c.copied:
            if extent(s, columns) > 1 and w.channels % c.lanes == 0:  # with masks, it would be one more copy of code
                alone = edges_alone(s, columns, shared is columns)
                parts = alone if shared is columns else parts
            if c.edges and shared is not rows and extent(s, rows) == w.rows.size:
                cut_at(s, rows, _rows_without_padding(s, w, pad))
        for loop in parts:
            s.parallel(loop)
        return s


def _lanes(w: Windows, target: Target) -> int:
    """The channels of a vector: the machine's lanes. Without masks, if channels are fewer or leave a tail, the largest
    width that divides them. 0 if they do not fill a vector of 128 bits."""
    lanes, least = target.lanes(w.out.dtype), 128 // w.out.dtype.bits
    if target.has_masks:
        while lanes // 2 >= w.channels:
            lanes //= 2
        return lanes if w.channels >= least else 0
    while w.channels % lanes:
        lanes //= 2
    return lanes if lanes >= least else 0


def _block(w: Windows, width: int) -> int:
    """The rows of a block; 0 unless there are more blocks than vectors of channels, and than images. At the end a
    thread waits for at most one block of another, and each block loads some rows again that its neighbour has loaded.
    The sum of both losses is least for the geometric mean of the image's rows and the window's."""
    most = isqrt(w.rows.size * w.rows.kernel)
    size = next((n for n in range(most, w.rows.kernel, -1) if w.rows.size % n == 0), w.rows.size)
    return size if w.rows.size // size > max(-(-w.channels // width), w.images) else 0


def _tests(w: Windows, c: ChannelsLastChoice) -> int:
    """Instructions of a tile that find out whether rows of a window are in the image: a loop over them, and, where that
    is not the same for the next tile, a comparison and a branch."""
    return 0 if c.edges else (3 if c.order is Order.CHANNELS else 1) * w.rows.kernel


def _asked(w: Windows, c: ChannelsLastChoice) -> float:
    """Prefetches of a tile: its share of lines of the image, and a vector for each of its sums."""
    if not c.ahead:
        return 0.0
    return c.columns * c.vectors * (w.rows.stride * w.columns.stride * c.lanes / c.ahead + 1)


def _from_caches(w: Windows, c: ChannelsLastChoice, met: int, target: Target) -> float:
    """Cycles to load the input of a tile from the second cache, or from the one behind it, beyond what an image takes
    that is read once. Columns are pieces of it: where their lines would not lie in a set of the first cache together
    (few, if columns lie far from each other), lines that are fetched ahead, or back, are gone before they are read: so
    much longer as there are more of them than have room. Where channels are outermost, the first cache may keep what
    the next rows read again, but not the rest of a line, which the next channels read; with the loop over channels
    inside, it is to keep rows and weights, or both are loaded. (Measured on a Zen 5: docs/findings.md.)"""
    if c.copied:
        return 0.0
    first, second = target.caches[:2]
    column, rows = w.channels * w.out.dtype.bytes, w.rows.kernel
    pieces, piece, room = rows * met, c.vectors * target.vector_bits / 8, first.room(column)
    whole = max(piece, first.line)
    crowded = max(pieces / room, 1.0)
    if c.order is Order.CHANNELS:
        read = w.rows.stride * w.columns.stride * c.columns
        image = w.rows.size * w.rows.stride * w.columns.size * w.columns.stride * column
        far = image * (w.images if w.images < MANY else 1) > second.bytes  # many images are outside of channels
        apart, level = 0.0, max(_level(w, target), 3)
        few = 2 * column >= target.page  # so few on a page that nothing follows them
        if image * w.images > second.bytes and (few or level == memory(target)):
            apart = pieces_again_cycles(read, column, _bytes(w), min(level, len(target.caches)), target)
        if (rows * w.columns.stride + 1) * w.columns.size <= room_in(room):
            return apart + read * (whole - piece) * byte_cycles(3 if far else 2, target)
        return apart + pieces * whole * crowded * byte_cycles(3 if crowded > 1 and far else 2, target)
    if c.order is Order.COLUMNS and (pieces + w.terms + c.columns) * column <= room_in(first.bytes):
        return 0.0
    return (pieces * (whole * crowded if crowded > 1 else piece) + w.terms * piece) * byte_cycles(2, target)


def _pieces(w: Windows, c: ChannelsLastChoice, target: Target) -> float:
    """Cycles in which columns of tiles wait for memory: what they read and store of a row is a piece that nothing has
    followed there, as far as rows are on pages of their own. To ask for the next row does not change that: it is wanted
    sooner than memory answers."""
    if c.order is not Order.COLUMNS or _level(w, target) < memory(target):
        return 0.0
    row, tiles = w.columns.size * w.channels * w.out.dtype.bytes, -(-w.columns.size // c.columns)
    pieces = w.images * w.rows.size * (1 + w.rows.stride) * tiles
    return pieces_cycles(pieces, row, memory(target), target)


def _level(w: Windows, target: Target) -> int:
    """The level that has the image and the result."""
    return fits(_bytes(w), target)


def _bytes(w: Windows) -> int:
    """Bytes of the image and the result."""
    result = w.images * w.rows.size * w.columns.size * w.channels * w.out.dtype.bytes
    return result * (1 + w.rows.stride * w.columns.stride)


def _copies(w: Windows, c: ChannelsLastChoice, target: Target) -> float:
    """Cycles to copy the image: its vectors are loaded, and stored with the padding around them. Of each column a piece
    is read that nothing was near before, as far as columns are on pages of their own. Nothing waits for a copy's loads
    from caches, which are many at a time: pieces from beyond the second one take as long, but not those from memory.
    (Measured on a Zen 3: images of which the last cache keeps a part.)"""
    if not c.copied:
        return 0.0
    channels, images, column = c.copied * c.vectors * c.lanes, w.images * w.channels, w.channels * w.out.dtype.bytes
    results = w.rows.size * w.columns.size
    read, stored = results * w.rows.stride * w.columns.stride, _bytes_copied(w, 1) / w.source.dtype.bytes
    vectors = read * family.load_cycles(target) + stored * target.core.store_cycles
    return images / c.lanes * vectors + pieces_again_cycles(images / channels * read, column, _bytes(w), 2, target)


def _tiles(s: Schedule, w: Windows, c: ChannelsLastChoice, block: str) -> tuple[Var, Var, Var, Var]:
    """Tiles the nest that stores the result. Threads share channels or images or, if both are few, blocks of rows.
    Returns the loops over tiles: the parallel one, those over rows and over columns, and the innermost."""
    width = c.vectors * c.lanes
    channels, lane = s.split(loop_of(s, block, -1), width, **({"tail": "mask"} if w.channels % width else {}))
    row, column = (loop_of(s, block, side.axis) for side in (w.rows, w.columns))
    others = [v for v in s.get_loops(block) if v not in (channels, lane, row, column)]
    columns, column = s.split(column, c.columns, tail="shift")
    if c.order is not Order.CHANNELS:
        outer = (row, columns) if c.order is Order.ROWS else (columns, row)
        s.reorder(*others, *outer, channels, column, lane)
        return outer[0], row, columns, channels
    if c.copied:
        blocks, channels = s.split(channels, c.copied)
        around = ordered({v: extent(s, v) for v in (*others, blocks)})
        s.reorder(*around, row, columns, channels, column, lane)
        return around[0], row, columns, channels
    around = ordered({v: extent(s, v) for v in (*others, channels)})
    if c.block:
        some, row = s.split(row, c.block)
        around = [some, *around]
    s.reorder(*around, row, columns, column, lane)
    return around[0], row, columns, columns


def _copied(w: Windows, width: int, target: Target) -> int:
    """The tiles of so many channels whose image is copied together: the most, by powers of two, that the first cache
    has room for; 0 if that is none, or leaves channels."""
    most = target.caches[0].bytes // _bytes_copied(w, width)
    copied = 1 << most.bit_length() >> 1
    while copied and w.channels % (copied * width):
        copied //= 2
    return copied


def _bytes_copied(w: Windows, channels: int) -> int:
    """The bytes of the padded image of so many channels."""
    return w.rows.met(w.rows.size) * w.columns.met(w.columns.size) * channels * w.source.dtype.bytes


def _copy(s: Schedule, w: Windows, c: ChannelsLastChoice, pad: str, blocks: Var) -> None:
    """Copies the image of a block of channels, with its padding in loops of its own."""
    compute_near(s, pad, blocks)
    lane = loop_of(s, pad, -1)
    s.vectorize(s.split(lane, c.lanes)[1] if c.vectors * c.copied > 1 else lane)
    if not w.padded:
        return
    s.guard(pad)
    found = find_block(s.func, pad)
    for side in (w.columns, w.rows):
        place = found.spatial[side.dimension]
        assert isinstance(place.binding, Var)
        cut_at(s, place.binding, limits(found.where, place.var))


def _prefetch(s: Schedule, w: Windows, c: ChannelsLastChoice, pad: str, last: str, rows: Var, tile: Var) -> None:
    """Tiles share what the next row of them is the first to read of the image, through `pad` if that is a block, and
    each asks for its own columns of the next row that `last` stores, in memory that was last used long ago."""
    image = next(ld.buffer for ld in loads(find_block(s.func, pad))) if pad else w.source
    s.attempt(s.prefetch, image.name, rows, 1, tile, apart=c.ahead, fresh=True)
    prefetch_stored_later(s, last, rows, loop_of(s, last, w.columns.axis))


def _sum(s: Schedule, w: Windows, c: ChannelsLastChoice, tile: Var) -> list[Var]:
    """Keeps a tile's sums in registers and unrolls a row of the window. Returns the loop over its rows, if there is
    one."""
    single, rows, columns = family.window_loops(s, w)
    s.reorder(*single, *rows, loop_of(s, w.block, w.columns.axis), *columns, loop_of(s, w.block, -1))
    keep_near(s, made_by(s, w.block), "register")
    write_out(s, w.block, tile, _lane(s, w.block, c), kept=rows)
    return rows


def _lane(s: Schedule, block: str, c: ChannelsLastChoice) -> Var:
    """The loop over the channels of a vector, where each register is a vector of its own."""
    lane = loop_of(s, block, -1)
    return s.split(lane, c.lanes)[1] if c.vectors > 1 else lane


def _in_pairs(s: Schedule, w: Windows, c: ChannelsLastChoice, block: str, tiles: Var) -> None:
    """The epilogue of a tile over vectors of two columns, from registers to registers."""
    names = dict.fromkeys(ld.buffer.name for ld in loads(find_block(s.func, block)))
    read = [str(s.cache_read(block, name)) for name in names if name != w.out.name]
    for name in read:
        s.compute_at(name, tiles)
    for name in (block, *read):
        keep_near(s, made_by(s, name), "register")
    for name in read:
        write_out(s, name, tiles, [v for v in s.get_loops(name) if extent(s, v) > 1][-1])
    pairs, lanes = s.split(s.fuse(loop_of(s, block, w.columns.axis), loop_of(s, block, -1)), 2 * c.lanes)
    s.vectorize(lanes)
    s.unroll(pairs)


def _rows_without_padding(s: Schedule, w: Windows, pad: str) -> tuple[int, ...]:
    """The first row whose window meets no padding, and the first one behind for which it does; none where all do."""
    found = find_block(s.func, pad)
    first, end = limits(found.where, found.spatial[w.rows.dimension].var)
    first, end = -(-first // w.rows.stride), (end - w.rows.reach(1)) // w.rows.stride + 1
    return (first, end) if first < end else ()
