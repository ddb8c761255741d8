"""The schedule of convolutions that keep channels apart: a channel's rows with their zeros lie in the first cache, and
a tile of rows by a vector of columns is summed up in registers.

    for c:
      q = the channel's rows with their zeros                  of large images only those of a row of tiles
      for tiles of R rows, vectors of columns:
        t[R, lanes] = 0
        for b, a, r: t[r] += q[row of r at a, columns at b] * w[c, a, b]      a row is loaded once for all a
        y[…] = f(t)

Where rows are held, a tile is few rows, and a channel's rows are not copied: those that the tile meets are loaded into
registers as they lie, zeros around them, and the columns of a place are shuffled out of them:

      for tiles of R rows, vectors of columns:
        q[rows, lanes and more] = the rows with their zeros, in registers
        for r, a, b: t[r] += q[row of r at a, every second from b] * w[c, a, b]

Tall tiles of few weights need no copy, either: a row of the image is loaded for each column of the window, with its
zeros, and serves all sums of the tile:

      for tiles of R rows, vectors of columns:
        for b: q[rows, lanes] = the rows from column b on, in registers
          for a, r: t[r] += q[row of r at a] * w[c, a, b]

Where f calls functions like exp, the sums of a channel go to the stack, and f runs over them as one row afterwards:
then many of its vectors are under way at a time, two or four by instructions side by side, and each is full but for the
last.

Where a loop is no multiple of its tile, the last tile is moved back: what it does again, it does alike.
"""

from __future__ import annotations

from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Function
from tilewright.plan.facts.contraction import begun, plain_contraction
from tilewright.plan.price.sizes import LARGE
from tilewright.plan.tile.loops import extent, inside, loop_of, loops_of, parts
from tilewright.plan.window.depthwise_choice import (
    Choice,
    Held,
    Windows,
    choose,
    column_taps,
    find_windows,
    row_taps,
    trim_rows,
)
from tilewright.plan.window.depthwise_together import apply_together, find_together
from tilewright.plan.window.depthwise_transposed import apply_turned, are_turned
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

TOGETHER = {1: 1.0, 2: 0.95, 4: 0.9}
"""What a vector of a function like exp takes, measured, where so many are computed an instruction of each at a time:
processors do not look ahead as far as its chain of instructions is long."""

FEW = 4
"""So many vectors of a row are written out: the places of zeros in them are numbers then."""


def schedule_depthwise(function: Function, target: Target) -> Schedule | None:
    """The schedule of a kernel with one such convolution, of sizes known to the compiler; None for any other."""
    start = plain_contraction(function)
    windows = None if start is None else find_windows(*start)
    if start is None or windows is None:
        return None
    together = find_together(*start, windows, target)
    if together is not None:
        return apply_together(begun(function, start[0]), start[1], windows, together)
    if are_turned(*start, windows, target):
        return apply_turned(begun(function, start[0]), start[1], windows, target)
    return apply_choice(begun(function, start[0]), windows, choose(windows, target))


def apply_choice(s: Schedule, w: Windows, choice: Choice) -> Schedule:
    """The steps that a choice stands for."""
    last = s.cache_write(w.block) if choice.epilogue_apart or w.out.scope is Scope.ARGUMENT else w.last
    whole = None
    if choice.epilogue_apart:
        _set_apart(s, w, last)
    elif w.width < choice.lanes and last == w.last and _stays_along_columns(s, w):
        whole, last = last, s.cache_write(last)
    near, images = None, set[str]()
    if w.source.scope is not Scope.ARGUMENT:
        pad = s.unite(w.source.name)
        if choice.rows >= w.height and choice.held is Held.COLUMN:
            trim_rows(s, w)
        images = {ld.buffer.name for ld in loads(find_block(s.func, pad))}
        if choice.planes and choice.held is Held.COPIED:
            _split_columns(s, w)
        near = pad, s.cache_write(pad) if choice.held is Held.COPIED else None
    outer, tiles = _tiles(s, w, choice, last)
    if whole is not None:
        s.compute_at(whole, tiles[-1])
    s.compute_at(w.block, tiles[-1])
    _sum(s, w, choice)
    if whole is not None:
        _in_whole_vectors(s, whole, choice)
    if near is not None:
        hold(s, w, choice, near, outer, tiles)
    _write_out(s, last, choice)
    if choice.epilogue_apart:
        _in_one_row(s, w.last, choice)
    for image in images:
        _ask_ahead(s, w, choice, image, last, [outer, *tiles])
    if near is not None and choice.held is not Held.COPIED and len(tiles) > 1:
        _apart_at_edges(s, tiles[-1])
    s.parallel(outer)
    return s


def hold(s: Schedule, w: Windows, choice: Choice, near: tuple[str, str | None], outer: Var, tiles: list[Var]) -> None:
    """Puts the rows with their zeros where the sums read them."""
    pad, copy = near
    if copy is None:
        load = _load_rows if choice.held is Held.ROWS else _load_padded
        load(s, w, choice, pad, tiles[-1])
        return
    s.compute_at(copy, tiles[0] if choice.by_rows else outer)
    s.compact(w.source.name)
    s.set_scope(w.source.name, "stack")
    if choice.planes:  # rows begin where cache lines do
        s.storage_align(w.source.name, len(w.source.shape) - 1, choice.line, 0)
    _bring_near(s, w, choice, pad, copy)


def _ask_ahead(s: Schedule, w: Windows, choice: Choice, image: str, last: str, loops: list[Var]) -> None:
    """What comes next of an image is brought near: while a copied channel is summed up, the next one; when a tall tile
    is stored, its share of what the next row of tiles meets, which is a little of many rows. `loops` are those over
    channels, rows of tiles and tiles."""
    channels, tiles = loops[:2]
    if choice.next_ahead:
        (places,) = column_taps(s, w)
        s.prefetch(image, channels, 1, places, apart=choice.line)
    elif choice.held is Held.COLUMN and len(loops) > 2 and extent(s, tiles) > 1:
        row, lane = loop_of(s, last, -2), loop_of(s, last, -1)
        s.reorder(row, lane)
        s.prefetch(image, tiles, 1, row)


def _apart_at_edges(s: Schedule, columns: Var) -> None:
    """The vectors at the edges of the image by themselves: those between need no masks."""
    count = extent(s, columns)
    if count > 2:
        parts(s, columns, (1, count - 1))
    else:
        s.unroll(columns)


def _set_apart(s: Schedule, w: Windows, sums: str) -> None:
    """The epilogue runs over a channel, whose sums lie on the stack."""
    loops = s.get_loops(sums)
    channels = _channels(s, sums)
    s.reorder(channels, *(v for v in loops if v is not channels))
    s.reverse_compute_at(w.last, channels)
    s.compact(w.out.name)
    s.set_scope(w.out.name, "stack")


def _in_one_row(s: Schedule, block: str, choice: Choice) -> None:
    """The epilogue of a channel, in vectors that go on where a row of the image ends: of several registers, whose
    chains of instructions are then under way together, where that does not compute many places twice."""
    places = s.fuse(loop_of(s, block, -2), loop_of(s, block, -1))
    count = extent(s, places)
    fitting = [n for n in TOGETHER if n == 1 or n * choice.lanes <= count]
    together = min(fitting, key=lambda n: -(-count // (n * choice.lanes)) * n * TOGETHER[n])
    s.vectorize(s.split(places, together * choice.lanes, tail="shift")[1])


def _stays_along_columns(s: Schedule, w: Windows) -> bool:
    """Whether the epilogue reads, beside the sums, nothing that differs from column to column: it may then run on
    columns that do not exist."""
    found = find_block(s.func, w.last)
    column = found.spatial[-1].var
    others = [ld for ld in loads(found) if ld.buffer is not w.out]
    return not any(column in variables_of(i) for ld in others for i in ld.indices)


def _in_whole_vectors(s: Schedule, block: str, choice: Choice) -> None:
    """The epilogue of rows shorter than a vector: on whole vectors, in registers. Of less than a vector it would take
    two halves."""
    row, column = loop_of(s, block, -2), loop_of(s, block, -1)
    _, lane = s.split(column, choice.lanes, tail="mask")
    _in_registers(s, block, lane, choice)
    s.vectorize(lane)
    s.unroll(row)


def _in_registers(s: Schedule, block: str, lane: Var, choice: Choice) -> None:
    """What a block stores lies in registers, in vectors that it fills beyond the last column."""
    (made,) = stored_buffers(find_block(s.func, block))
    s.compact(made.name)
    s.set_scope(made.name, "register")
    at = ", ".join(f"d{n}" for n in range(len(made.shape) - 1))
    s.transform_layout(made.name, f"{at}, n -> {at}, n // {choice.lanes}, n % {choice.lanes}")
    s.pad(block, lane)


def _split_columns(s: Schedule, w: Windows) -> None:
    """The columns that one place of the window meets lie side by side."""
    step, rank = w.steps[1], len(w.source.shape)
    at = ", ".join(f"d{n}" for n in range(rank - 1))
    s.transform_layout(w.source.name, f"{at}, w -> {at}, w % {step}, w // {step}", pad=0)


def _tiles(s: Schedule, w: Windows, choice: Choice, block: str) -> tuple[Var, list[Var]]:
    """The nest that is stored last, in tiles: the loop over channels, and the loops over tiles."""
    m, n = loop_of(s, block, -2), loop_of(s, block, -1)
    outer = _channels(s, block)
    around = [v for v in s.get_loops(block) if v not in (m, n, outer)]
    if not choice.epilogue_apart:
        around = [outer, *around]
    mo, mi = s.split(m, choice.rows, tail="shift")
    if w.width < choice.lanes:
        s.reorder(*around, mo, mi, n)
        return outer, [mo]
    s.reorder(*around, mo, n, mi)
    return outer, [mo, s.split(n, choice.lanes, tail="shift")[0]]


def _channels(s: Schedule, block: str) -> Var:
    """The longest of the loops that are not over an image's rows and columns."""
    image = loop_of(s, block, -2), loop_of(s, block, -1)
    return max((v for v in s.get_loops(block) if v not in image), key=lambda v: extent(s, v))


def _sum(s: Schedule, w: Windows, choice: Choice) -> None:
    """A tile's sums in registers: columns of the window outermost, so that a row is loaded once for all its rows; where
    the rows that they meet are held, one row of sums after the other."""
    found = find_block(s.func, w.block)
    r, c = loop_of(s, w.block, -2), loop_of(s, w.block, -1)
    columns, others = column_taps(s, w), row_taps(s, w)
    single = [v for v in others if extent(s, v) == 1]
    rows = [v for v in others if v not in single]
    lane = c
    if w.width < choice.lanes:
        _, lane = s.split(c, choice.lanes, tail="mask")
    if choice.held is not Held.ROWS:
        rows = _by_steps(s, rows, w.steps[0])
    order = (r, *rows, *columns) if choice.held is Held.ROWS else (*columns, *rows, r)
    s.reorder(*single, *order, lane)
    (sums,) = stored_buffers(found)
    s.compact(sums.name)
    s.set_scope(sums.name, "register")
    if w.width < choice.lanes:
        at = ", ".join(f"d{n}" for n in range(len(sums.shape) - 1))
        s.transform_layout(sums.name, f"{at}, n -> {at}, n // {choice.lanes}, n % {choice.lanes}")
        s.pad(w.block, lane)
    s.vectorize(lane)
    for loop in (*rows, r):
        s.unroll(loop)
    if choice.unroll_columns:
        for loop in columns:
            s.unroll(loop)


def _by_steps(s: Schedule, rows: list[Var], step: int) -> list[Var]:
    """The loops over the rows of a window in an order in which neighbours of a tile meet the same rows of the image one
    after the other: those that are as many rows apart as windows move. Of few rows there are registers for all."""
    if step == 1 or not rows or extent(s, rows[-1]) <= 2 * step:
        return rows
    *others, last = rows
    return [*others, *reversed(s.split(last, step, tail="mask"))]


def _load_rows(s: Schedule, w: Windows, choice: Choice, pad: str, tile: Var) -> None:
    """The rows that a tile meets are loaded into registers as they lie, in whole vectors, with the zeros around."""
    s.compute_at(pad, tile)
    s.compact(w.source.name)
    s.set_scope(w.source.name, "register")
    row, column = loop_of(s, pad, -2), loop_of(s, pad, -1)
    beyond = extent(s, column) % choice.lanes
    vectors, lane = s.split(column, choice.lanes, tail="mask")
    at = ", ".join(f"d{n}" for n in range(len(w.source.shape) - 1))
    s.transform_layout(w.source.name, f"{at}, n -> {at}, n // {choice.lanes}, n % {choice.lanes}")
    if beyond:
        s.pad(pad, lane)
    s.vectorize(lane)
    s.unroll(vectors)
    s.unroll(row)
    s.guard(pad)
    found = find_block(s.func, pad)
    parts(s, row, _for_all_tiles(inside(found, found.spatial[-2].var, 1), w, choice))


def _load_padded(s: Schedule, w: Windows, choice: Choice, pad: str, tile: Var) -> None:
    """The rows that a column of the window meets are loaded into registers, with the zeros around them."""
    (column,) = column_taps(s, w)
    s.compute_at(pad, column)
    s.compact(w.source.name)
    s.set_scope(w.source.name, "register")
    row, lane = loop_of(s, pad, -3 if choice.planes else -2), loop_of(s, pad, -1)
    s.vectorize(lane)
    s.unroll(row)
    s.guard(pad)
    found = find_block(s.func, pad)
    parts(s, row, _for_all_tiles(inside(found, found.spatial[-3 if choice.planes else -2].var, 1), w, choice))


def _bring_near(s: Schedule, w: Windows, choice: Choice, pad: str, copy: str) -> None:
    """The rows are copied in vectors, through a register with the zeros around them: no masks where there are none."""
    row, column = loop_of(s, copy, -3 if choice.planes else -2), loop_of(s, copy, -1)
    columns = extent(s, column)
    planes = loops_of(s, copy, -2) if choice.planes else []
    width = choice.copied
    vectors, lane = s.split(column, width, tail="shift")
    if planes:
        s.reorder(vectors, *planes, lane)
    (between,) = {b.name for b in stored_buffers(find_block(s.func, pad))}
    s.compute_at(pad, vectors)
    s.compact(between)
    s.set_scope(between, "register")
    s.vectorize(lane)
    if planes:
        _in_order(s, between, pad, choice)
    s.vectorize(loop_of(s, pad, -1))
    s.guard(pad)
    found = find_block(s.func, pad)
    rows = inside(found, found.spatial[-3 if choice.planes else -2].var, 1)
    first, end = inside(found, found.spatial[-1].var, w.steps[1] if choice.planes else 1)
    count = -(-columns // width)
    starts = [min(n * width, columns - width) for n in range(count)]
    whole = [n for n, at in enumerate(starts) if first <= at and at + width <= end]
    written_out = count <= FEW
    if written_out:
        s.unroll(vectors)
    for plane in planes:
        s.unroll(plane)
    if choice.by_rows:
        rows = _for_all_tiles(rows, w, choice) if planes else (0, LARGE)
    image = parts(s, row, rows)[1]
    if whole and not written_out:
        held = blocks(find_loop(s.func, image))[-1].name
        parts(s, s.get_loops(held)[-2 - len(planes)], (whole[0], whole[-1] + 1))


def _in_order(s: Schedule, between: str, pad: str, choice: Choice) -> None:
    """What is between memory and its planes lies as in memory, so that it is loaded in whole vectors."""
    (made,) = stored_buffers(find_block(s.func, pad))
    at = ", ".join(f"d{n}" for n in range(len(made.shape) - 2))
    s.transform_layout(between, f"{at}, p, w -> {at}, w, p")
    plane, column = s.get_loops(pad)[-2:]
    s.reorder(column, plane)
    s.unroll(s.split(s.fuse(column, plane), choice.lanes)[0])


def _for_all_tiles(rows: tuple[int, int], w: Windows, choice: Choice) -> tuple[int, int]:
    """The rows of a tile that lie between two rows of the image for every tile."""
    last = (w.height - choice.rows) * w.steps[0]
    return rows[0], max(rows[1] - last, rows[0])


def _write_out(s: Schedule, block: str, choice: Choice) -> None:
    """The epilogue over a tile, written out, in vectors along the columns: a row shorter than one is stored under a
    mask or, where that is slow, in two halves that overlap."""
    row, lane = loop_of(s, block, -2), loop_of(s, block, -1)
    lanes = choice.lanes
    while lanes > extent(s, lane):
        lanes //= 2
    if choice.masked_stores and lanes < extent(s, lane) < choice.lanes:
        _, lane = s.split(lane, choice.lanes, tail="mask")
    elif lanes < extent(s, lane):
        vectors, lane = s.split(lane, lanes, tail="shift")
        s.unroll(vectors)
    s.vectorize(lane)
    s.unroll(row)
