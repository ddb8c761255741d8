"""How a convolution is run that keeps channels apart, where channels are the innermost axis: what it is, and its tile,
in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import allocations, blocks, loops_around
from tilewright.loops.nodes import Block, Buffer, Function, Load, Store
from tilewright.plan.facts.contraction import Operand, factors_of
from tilewright.plan.price.sizes import known
from tilewright.plan.window.depthwise_choice import MOST_TERMS, calls_functions, last_block, side_along
from tilewright.schedule.find import stored_buffers
from tilewright.schedule.nests import extent_of
from tilewright.target import Target
from tilewright.types.scopes import Scope

LEAST_CHANNELS = 4
"""Fewer channels are not worth a vector."""

MOST_COLUMNS = 7
"""The most sums of a tile for each sixteen registers: so many, what a row of the image holds for them, and weights fill
them; and images shrink from 224 by halves to 7."""

HIDING_SUMS = 4
"""More sums than so many for each vector of the image hide that it comes from the second cache."""

FEW_SUMS = 4
"""Where a vector of the image meets fewer sums of a row of the window than so many, asking whether a row lies in the
image takes as long as the sums."""


@dataclass(frozen=True, slots=True)
class InnerWindows:
    """A sum over windows of rows and columns for each of `channels`, the innermost axis: its block, the buffers it
    fills and slides over, and the block that its result ends in (its own where that is the kernel's
    result); `calls` says that this one calls functions like exp. Axes of the result at the places `image` have `height`
    and `width` values, and index the dimensions of the source at the places `source_image`. Along each of the two a
    place is `steps` apart from the next, and a window has `taps` places, `apart` from each other: the values of the
    axes of `block.reduce` at the places `tap_axes`, None where a window has one."""

    block: str
    out: Buffer
    source: Buffer
    last: str
    calls: bool
    image: tuple[int, int]
    source_image: tuple[int, int]
    channels: int
    height: int
    width: int
    steps: tuple[int, int]
    taps: tuple[int, int]
    apart: tuple[int, int]
    tap_axes: tuple[int | None, int | None]


class Order(Enum):
    """What an iteration of the outermost loop is: a vector of CHANNELS, for the whole image; or a row of tiles, of ROWS
    of the image, and each of them for vector after vector of channels."""

    CHANNELS = "channels"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class InnerChoice:
    """`columns` x `vectors` of `lanes` channels are a tile; tiles run in an `order`. Rows at the edges of the image
    have loops of their own, or (not `rows_apart`) each row of a window asks. An epilogue runs over one vector after the
    other or, `in_pairs`, over those of two columns as one."""

    columns: int
    vectors: int
    lanes: int
    order: Order
    rows_apart: bool
    in_pairs: bool


def find_inner_windows(function: Function) -> InnerWindows | None:
    """The only accumulation of a function as a sum over windows, channels innermost, all sizes known; None for any
    other."""
    reducing = [b for b in blocks(function.body) if b.reduce]
    block = reducing[0] if len(reducing) == 1 else None
    store = None if block is None else block.body
    if block is None or not isinstance(store, Store) or block.init is None or block.where is not None:
        return None
    loops = loops_around(function.body, block)
    if [a.binding for a in block.axes] != [loop.var for loop in loops]:
        return None
    extents = {a.var: known(extent_of(loop)) for a, loop in zip(block.axes, loops, strict=True)}
    spatial = tuple(a.var for a in block.spatial)
    factors = factors_of(store)
    plain = (
        store.indices == spatial and len(spatial) > 2 and store.buffer.dtype.is_float and store.buffer.dtype.bits >= 32
    )
    if factors is None or not plain or any(f.buffer.dtype is not store.buffer.dtype for f in factors):
        return None
    last = last_block(function, block, store.buffer)
    source = _image(factors, spatial, extents)
    if last is None or source is None or not _is_moved_alone(function, source.buffer):
        return None
    return _windows(block, store, source, last, extents)


def _image(factors: tuple[Operand, Operand], spatial: tuple[Var, ...], extents: dict[Var, int]) -> Operand | None:
    """The factor that is the image: all axes of the result but the channels move it, and none the weights; channels lie
    side by side in both."""
    *others, channel = spatial
    moving = [v for v in others if extents[v] != 1]
    for source, weights in (factors, factors[::-1]):
        apart = all(source.moves(v) and not weights.moves(v) for v in moving)
        if apart and all(f.load.indices[-1] is channel and f.dimension(channel) is not None for f in factors):
            return source
    return None


def _is_moved_alone(function: Function, source: Buffer) -> bool:
    """Whether an image that the function itself makes is one with zeros around it, no value of it computed: each row of
    a window loads it again."""
    if source not in allocations(function.body):
        return source.scope is Scope.ARGUMENT
    writers = [b for b in blocks(function.body) if source in stored_buffers(b)]
    values = [b.body.value for b in writers if isinstance(b.body, Store)]
    return len(values) == len(writers) and all(isinstance(v, Load) or not variables_of(v) for v in values)


def _windows(block: Block, store: Store, source: Operand, last: Block, extents: dict[Var, int]) -> InnerWindows | None:
    """The block as a sum over windows, where two axes of the result slide windows that all terms are places of."""
    spatial = tuple(a.var for a in block.spatial)
    sliding = [n for n, v in enumerate(spatial[:-1]) if extents[v] != 1 and source.dimension(v) is None]
    if len(sliding) != 2:
        return None
    index = source.load.indices
    places = [next(d for d, i in enumerate(index) if spatial[n] in variables_of(i)) for n in sliding]
    sides = [side_along(source.load, d, spatial[n], extents) for d, n in zip(places, sliding, strict=True)]
    known_sides = [s for s in sides if s is not None]
    depth = prod(extents[a.var] for a in block.reduce)
    sizes = [extents[v] for v in spatial]
    if len(known_sides) != 2 or min(sizes) < 1 or sizes[-1] < LEAST_CHANNELS or depth > MOST_TERMS:
        return None
    (s0, t0, a0), (s1, t1, a1) = known_sides
    taps = [[n for n, a in enumerate(block.reduce) if a.var in variables_of(index[d])] for d in places]
    row, column = (next((n for n in of if extents[block.reduce[n].var] != 1), None) for of in taps)
    if t0 * t1 != depth:
        return None
    names = block.name, store.buffer, source.buffer, last.name, calls_functions(last)
    at = (sliding[0], sliding[1]), (places[0], places[1])
    size = sizes[-1], sizes[sliding[0]], sizes[sliding[1]]
    steps = (s0, s1), (t0, t1), (a0, a1)
    return InnerWindows(*names, *at, *size, *steps, (row, column))


def choose_inner(w: InnerWindows, target: Target) -> InnerChoice | None:
    """The tile; None where channels fill no vectors, and the machine has no masks."""
    lanes = _lanes(w, target)
    if lanes is None:
        return None
    most = MOST_COLUMNS * (target.vector_registers // 16)
    tiles = -(-w.width // most)
    columns = -(-w.width // tiles)
    room = w.steps[1] == 1 and 2 * columns <= most
    vectors = 2 if room and w.channels % (2 * lanes) == 0 else 1
    rows_apart = w.taps[1] < FEW_SUMS * w.steps[1] and tiles <= (1 if w.calls else 2)
    in_pairs = w.calls and tiles == 1 and vectors == 1 and columns % 2 == 0 and w.channels % lanes == 0
    return InnerChoice(columns, vectors, lanes, _order(w, columns, target), rows_apart, in_pairs)


def _lanes(w: InnerWindows, target: Target) -> int | None:
    """So many channels are a vector: as many as the machine has lanes or, where channels are fewer or would leave some
    beyond the last vector, and there are no masks, the most that divide them."""
    lanes = target.lanes(w.out.dtype)
    if target.has_masks:
        while lanes // 2 >= w.channels:
            lanes //= 2
        return lanes
    while w.channels % lanes:
        lanes //= 2
    return lanes if lanes >= LEAST_CHANNELS else None


def _order(w: InnerWindows, columns: int, target: Target) -> Order:
    """Vector by vector, where what a row of tiles meets for a tile stays in the first cache until the next row of them,
    or comes from the second one beside enough sums. Of columns that lie a multiple of many lines apart few find room in
    the sets of a cache: then channels are read and stored in the order in which they lie."""
    first, second = target.caches[:2]
    met = (columns - 1) * w.steps[1] + (w.taps[1] - 1) * w.apart[1] + 1
    column = w.channels * w.out.dtype.bytes
    near = w.taps[0] * met < first.room(column)
    small = w.height * w.width * (1 + w.steps[0] * w.steps[1]) * column <= second.bytes
    hidden = small and columns * w.taps[1] > HIDING_SUMS * met
    return Order.CHANNELS if near or hidden else Order.ROWS
