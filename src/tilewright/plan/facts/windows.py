"""Reductions over windows of each channel of an image by itself, recognised in a loops function.

    y[vn, vc, vi, vj] += x[vn, vc, vi*2 + va, vj*2 + vb] * w[vc, va, vb]          a depthwise convolution, columns last
    y[vn, vi, vj, vc] += x[vn, vi*2 + va, vj*2 + vb, vc] * w[va, vb, vc]          the same, channels last
    y[vn, vc, vi, vj] max= x[vn, vc, vi*2 + va, vj*2 + vb]                        a pool: the maximum, minimum or sum

The image is the buffer that both spatial axes index; all other axes of the result count images and channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Expr, Max, Min, Var
from tilewright.expr.variables import variables_of
from tilewright.expr.work import Work, work_of
from tilewright.loops.edit import allocations, blocks, loads, loops_around
from tilewright.loops.nodes import Block, Buffer, Function, Load, Store
from tilewright.plan.facts.contraction import Contraction, Operand, factors_of
from tilewright.plan.price.sizes import USUAL, known
from tilewright.schedule.facts.iterations import accumulation, extent_of
from tilewright.schedule.find import writers_of
from tilewright.types.scopes import Scope

Extents = Mapping[Var, Expr]


@dataclass(frozen=True, slots=True)
class Side:
    """Windows along one dimension of an image. The result has `size` places along the block's axis `axis`. The source
    is indexed in its dimension `dimension` by place*stride + position*dilation. The `kernel` positions are those of the
    reduce axis `term`; None for a single position. If it is `dynamic`, `size` is an assumption."""

    axis: int
    dimension: int
    size: int
    stride: int
    kernel: int
    dilation: int
    term: int | None
    dynamic: bool

    def reach(self, places: int) -> int:
        """The extent of the source, in elements, from the first to the last that `places` of the result read."""
        return (places - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    def has_tail(self, size: int) -> bool:
        """Whether tiles of so many places may pass the last one."""
        return self.dynamic or self.size % size != 0

    def met(self, places: int) -> int:
        """How many elements of that extent are read: fewer if stride or dilation leave some out."""
        return len({n * self.stride + k * self.dilation for n in range(places) for k in range(self.kernel)})


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The computation between a finished sum and its store: the `work` for a vector of results. With `same_columns`,
    its other operands are the same for all columns; with `same_places`, for all rows, too."""

    work: Work
    same_columns: bool
    same_places: bool

    @property
    def calls(self) -> bool:
        """Whether it calls functions that take many instructions."""
        return self.work.chained > 0


@dataclass(frozen=True, slots=True)
class OwnWeights:
    """Weights of each channel by itself, where columns are innermost: a factor of the products of a contraction.
    Channels are the `axis` of its block, and the `dimension` of the image."""

    contraction: Contraction
    axis: int
    dimension: int


@dataclass(frozen=True, slots=True)
class Windows:
    """A reduction over windows: its block, its result and source, and the last block that its result reaches (itself
    if that is the kernel's result). Sizes: `images` times `channels` planes of `rows` x `columns` results. A term takes
    `instructions` instructions: two for a maximum of floats, which propagates NaN. `finite` says that no weight is
    infinite; `own` are the weights, where columns are innermost and each channel has its own."""

    block: str
    out: Buffer
    source: Buffer
    last: str
    rows: Side
    columns: Side
    images: int
    channels: int
    channels_last: bool
    products: bool
    instructions: int
    finite: bool
    epilogue: Epilogue
    own: OwnWeights | None = field(default=None, compare=False)

    @property
    def padded(self) -> bool:
        """Whether the kernel pads the image itself."""
        return self.source.scope is not Scope.ARGUMENT

    @property
    def dynamic(self) -> bool:
        """Whether the height or width of images is dynamic."""
        return self.rows.dynamic or self.columns.dynamic

    @property
    def terms(self) -> int:
        """Positions of a window."""
        return self.rows.kernel * self.columns.kernel

    @property
    def dilated(self) -> bool:
        """Whether the dilation is more than 1."""
        return max(self.rows.dilation, self.columns.dilation) > 1


def find_windows(function: Function, found: Contraction | None) -> Windows | None:
    """The only reduction of a function, everything inlined, as sums of products with weights over windows. `found` is
    the function's contraction, if it is one."""
    return (None if found is None else _in_planes(function, found)) or _channels_last(function)


def _in_planes(function: Function, found: Contraction) -> Windows | None:
    """Products whose image has columns innermost."""
    block, vector, axes = found.block, found.vector, found.block.axes
    row = len(block.spatial) - 2
    if found.rows is not None or row < 1 or len(vector.load.indices) < 2 or found.broadcast.moves(axes[row].var):
        return None
    if vector.buffer.dtype is not found.out.dtype or not _is_wide_float(found.out):
        return None
    outer = [n for n in found.batch if n != row]
    if all(known(found.extents[n]) == 1 for n in outer):
        return None
    both = {n: vector.dimension(axes[n].var) for n in outer if found.broadcast.dimension(axes[n].var) is not None}
    owned = [OwnWeights(found, axis, dimension) for axis, dimension in both.items() if dimension is not None]
    own = max(owned, key=lambda o: known(found.extents[o.axis]), default=None)
    extents = {a.var: e for a, e in zip(axes, found.extents, strict=True)}
    return _windows(function, block, vector.load, extents, None if own is None else own.axis, own)


def find_pool(function: Function) -> Windows | None:
    """The only reduction of a function as one over windows without weights: columns are innermost, and rows, columns or
    images may be dynamic. Values with several readers are not inlined."""
    reducing = [b for b in blocks(function.body) if b.reduce]
    summed = accumulation(reducing[0].replace(init=None)) if len(reducing) == 1 else None
    read = [] if summed is None else list(loads(summed.term))
    if summed is None or len(read) != 1 or len(reducing[0].spatial) < 3 or len(read[0].indices) < 2:
        return None
    (block,), (load,), out = reducing, read, summed.buffer
    if out.dtype.is_bool or load.buffer.dtype.is_bool or summed.target != tuple(a.var for a in block.spatial):
        return None
    return _windows(function, block, load, _extents_of(function, block), None)


def _channels_last(function: Function) -> Windows | None:
    """Products whose image and weights have channels innermost."""
    reducing = [b for b in blocks(function.body) if b.reduce]
    block = reducing[0] if len(reducing) == 1 else None
    store = None if block is None else block.body
    if block is None or not isinstance(store, Store) or block.init is None or block.where is not None:
        return None
    extents, spatial, factors = _extents_of(function, block), tuple(a.var for a in block.spatial), factors_of(store)
    if factors is None or store.indices != spatial or len(spatial) < 3 or len(extents) < len(block.axes):
        return None
    if not _is_wide_float(store.buffer) or any(f.buffer.dtype is not store.buffer.dtype for f in factors):
        return None
    source = _image(factors, spatial, extents)
    if source is None or not _is_copied(function, source.buffer):
        return None
    index = source.load.indices
    sliding = [n for n, v in enumerate(spatial[:-1]) if known(extents[v]) != 1 and source.dimension(v) is None]
    if len(sliding) != 2:
        return None
    places = [(n, next(d for d, i in enumerate(index) if spatial[n] in variables_of(i))) for n in sliding]
    return _windows(function, block, source.load, extents, len(spatial) - 1, places=places)


def _windows(
    function: Function,
    block: Block,
    load: Load,
    extents: Extents,
    channel: int | None,
    own: OwnWeights | None = None,
    places: Sequence[tuple[int, int]] | None = None,
) -> Windows | None:
    """The record of a block whose windows slide along the axes and dimensions at these `places`, or the two innermost.
    None if another axis indexes them, if there are more terms than positions of the window, or if there is a single row
    or column."""
    assert isinstance(block.body, Store)
    axes, rank = len(block.spatial), len(load.indices)
    places = ((axes - 2, rank - 2), (axes - 1, rank - 1)) if places is None else places
    out, image = block.body.buffer, tuple(axis for axis, _ in places)
    rows, columns = (_side(block, load, axis, dimension, extents) for axis, dimension in places)
    last = last_block(function, block, out)
    if rows is None or columns is None or last is None or min(rows.size, columns.size) < 2:
        return None
    counts = {n: known(extents[a.var]) for n, a in enumerate(block.axes) if a.var in extents}
    if 0 in counts.values() or rows.kernel * columns.kernel != prod(counts[n] for n in range(axes, len(block.axes))):
        return None
    planes = prod(count for n, count in counts.items() if n < axes and n not in image)
    channels = 1 if channel is None else counts[channel]
    weights = [ld.buffer for ld in loads(block) if ld.buffer not in (out, load.buffer)]
    return Windows(
        block=block.name,
        out=out,
        source=load.buffer,
        last=last.name,
        rows=rows,
        columns=columns,
        images=planes // channels,
        channels=channels,
        channels_last=channel == axes - 1,
        products=bool(weights),
        instructions=2 if out.dtype.is_float and isinstance(block.body.value, Max | Min) else 1,
        finite=bool(weights) and all(buffer.finite for buffer in weights),
        epilogue=_epilogue(last, block, out, image),
        own=own,
    )


def _side(block: Block, load: Load, axis: int, dimension: int, extents: Extents) -> Side | None:
    """The windows along a dimension that is indexed by axis*stride + term*dilation; None where it is not."""
    place = block.axes[axis].var
    index = polynomial(load.indices[dimension])
    factors = {m[0]: c for m, c in index.items() if len(m) == 1}
    stride, extent = factors.pop(place, 0), extents.get(place)
    moved = [i for i in load.indices if place in variables_of(i)]
    if stride < 1 or len(moved) != 1 or extent is None or len(factors) > 1 or any(len(m) != 1 for m in index):
        return None
    dynamic = not isinstance(extent, Const)
    size = USUAL if dynamic else known(extent)
    if not factors:
        return Side(axis, dimension, size, stride, 1, 1, None, dynamic)
    ((term, dilation),) = factors.items()
    found = [n for n, axis in enumerate(block.axes) if axis.var is term and axis in block.reduce]
    if not found or dilation < 1 or not isinstance(kernel := extents.get(block.axes[found[0]].var), Const):
        return None
    return Side(axis, dimension, size, stride, known(kernel), dilation, found[0], dynamic)


def _extents_of(function: Function, block: Block) -> Extents:
    """The extents of the axes that are bound to loops."""
    loops = {loop.var: loop for loop in loops_around(function.body, block)}
    return {a.var: extent_of(loops[a.binding]) for a in block.axes if a.binding in loops}


def _is_wide_float(buffer: Buffer) -> bool:
    return buffer.dtype.is_float and buffer.dtype.bits >= 32


def _image(factors: tuple[Operand, Operand], spatial: tuple[Var, ...], extents: Extents) -> Operand | None:
    """The factor that is the image: all axes of the result index it, and of these only channels index the weights;
    channels are contiguous in both."""
    *others, channel = spatial
    moving = [v for v in others if known(extents[v]) != 1]
    for source, weights in (factors, factors[::-1]):
        alone = all(source.moves(v) and not weights.moves(v) for v in moving)
        if alone and all(f.load.indices[-1] is channel and f.dimension(channel) is not None for f in factors):
            return source
    return None


def _is_copied(function: Function, source: Buffer) -> bool:
    """Whether an image is an argument or a padded copy of one, without computation: each row of a window loads it
    again."""
    if source not in allocations(function.body):
        return source.scope is Scope.ARGUMENT
    writers = writers_of(function, source)
    values = [b.body.value for b in writers if isinstance(b.body, Store)]
    return len(values) == len(writers) and all(isinstance(v, Load) or not variables_of(v) for v in values)


def last_block(function: Function, block: Block, out: Buffer) -> Block | None:
    """The last block that the result reaches: the only one that reads it, element by element."""
    if out.scope is Scope.ARGUMENT:
        return block
    readers = [b for b in blocks(function.body) if any(ld.buffer is out for ld in loads(b)) and b is not block]
    if len(readers) != 1 or out not in allocations(function.body):
        return None
    (reader,) = readers
    points = tuple(a.var for a in reader.axes)
    if reader.reduce or reader.where is not None or not isinstance(reader.body, Store) or reader.body.indices != points:
        return None
    return reader if all(ld.indices == points for ld in loads(reader) if ld.buffer is out) else None


def _epilogue(last: Block, block: Block, out: Buffer, image: tuple[int, ...]) -> Epilogue:
    """What the last block computes from each result, if it is another block than the reduction."""
    if last is block:
        return Epilogue(Work(), True, True)
    moved = [frozenset[Var]().union(*map(variables_of, ld.indices)) for ld in loads(last) if ld.buffer is not out]
    row, column = ([last.axes[n].var in used for used in moved] for n in image)
    assert isinstance(last.body, Store)
    return Epilogue(work_of(last.body.value), not any(column), not any((*row, *column)))
