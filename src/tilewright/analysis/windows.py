"""Reductions over windows of each channel of an image by itself, recognised in a loops function.

    y[vn, vc, vi, vj] += x[vn, vc, vi*2 + va, vj*2 + vb] * w[vc, va, vb]          a depthwise convolution, columns last
    y[vn, vi, vj, vc] += x[vn, vi*2 + va, vj*2 + vb, vc] * w[va, vb, vc]          the same, channels last
    y[vn, vc, vi, vj] max= x[vn, vc, vi*2 + va, vj*2 + vb]                        a pool: the maximum, minimum or sum

The image is the buffer that both spatial axes index; all other axes of the result count images and channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from tilewright.analysis.contractions import Contraction
from tilewright.analysis.iterations import accumulation
from tilewright.analysis.memory import writers_of
from tilewright.analysis.products import factors_of, last_block
from tilewright.analysis.sizes import USUAL, known
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Expr, Max, Min, Var
from tilewright.expr.variables import variables_of
from tilewright.expr.work import Work, work_of
from tilewright.loops.edit import allocations, blocks, loads, loops_around
from tilewright.loops.nodes import Block, Buffer, Function, Load, Store
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
class Windows:
    """A reduction over windows: its block, its result and source, and the last block that its result reaches (itself
    if that is the kernel's result). Sizes: `images` times `channels` planes of `rows` x `columns` results. A term takes
    `instructions` instructions: two for a maximum of floats, which propagates NaN. `finite` says that no weight is
    infinite. Where columns are innermost and each channel, the block's axis `channel`, has weights of its own, `own` is
    the contraction whose broadcast operand these are."""

    block: str
    out: Buffer
    source: Buffer
    last: str
    rows: Side
    columns: Side
    images: int
    channels: int
    channel: int | None
    products: bool
    instructions: int
    finite: bool
    epilogue: Epilogue
    own: Contraction | None = field(default=None, compare=False)

    @property
    def channels_last(self) -> bool:
        """Whether channels are innermost."""
        return self.channel is not None and self.channel > self.columns.axis

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


def find_windows(function: Function, found: Contraction | None) -> Windows | None:
    """The only reduction of a function, everything inlined, as sums of products of an image and of weights that rows
    and columns of the result do not index. `found` is the function's contraction, if it is one."""
    block, extents = _reduction(function)
    factors = factors_of(block) if block is not None else None
    if block is None or block.init is None or factors is None or len(extents) < len(block.axes):
        return None
    spatial = [a.var for a in block.spatial]
    moving = [v for v in spatial if known(extents[v]) != 1]
    for image, weights in (factors, factors[::-1]):
        last = weights.moves(spatial[-1])  # channels last
        *others, row, column = spatial[:-1] if last else spatial
        if weights.moves(row) or weights.moves(column) or not all(map(image.moves, moving)):
            continue
        if not last:
            both = [v for v in others if image.dimension(v) is not None and weights.dimension(v) is not None]
            own = max(both, key=lambda v: known(extents[v]), default=None)
            several = found is not None and any(v in moving for v in others)
            return _windows(function, block, image.load, extents, own, found if both else None) if several else None
        contiguous = all(f.load.indices[-1] is spatial[-1] and f.dimension(spatial[-1]) is not None for f in factors)
        alone = not any(v in moving and weights.moves(v) for v in others)
        if contiguous and alone and image.buffer.dtype is weights.buffer.dtype and _is_copied(function, image.buffer):
            return _windows(function, block, image.load, extents, spatial[-1])
    return None


def find_pool(function: Function) -> Windows | None:
    """The only reduction of a function as one over windows without weights: columns are innermost, and rows, columns or
    images may be dynamic. Values with several readers are not inlined."""
    block, extents = _reduction(function)
    summed = None if block is None else accumulation(block.replace(init=None))
    read = [] if summed is None else list(loads(summed.term))
    return _windows(function, block, read[0], extents) if block is not None and len(read) == 1 else None


def _reduction(function: Function) -> tuple[Block | None, Extents]:
    """The only block that reduces, where it stores each result of at least three axes at its own point, and the extents
    of the axes that are bound to loops."""
    reducing = [b for b in blocks(function.body) if b.reduce]
    block = reducing[0] if len(reducing) == 1 else None
    if block is None or not isinstance(block.body, Store) or len(block.spatial) < 3 or block.where is not None:
        return None, {}
    if block.body.indices != tuple(a.var for a in block.spatial):
        return None, {}
    loops = {loop.var: loop for loop in loops_around(function.body, block)}
    return block, {a.var: loops[a.binding].extent for a in block.axes if a.binding in loops}


def _windows(
    function: Function,
    block: Block,
    load: Load,
    extents: Extents,
    channel: Var | None = None,
    own: Contraction | None = None,
) -> Windows | None:
    """The record of a block whose windows slide along the two innermost axes and dimensions or, where `channel` is the
    innermost, along the two before it. None if another axis indexes them, if there are more terms than positions of the
    window, if there is a single row or column, or for types that no template adds up."""
    assert isinstance(block.body, Store)
    out, spatial = block.body.buffer, [a.var for a in block.spatial]
    inner = 1 if channel is spatial[-1] else 0
    image = len(spatial) - 2 - inner, len(spatial) - 1 - inner
    weights = [ld.buffer for ld in loads(block) if ld.buffer not in (out, load.buffer)]
    wide = load.buffer.dtype is out.dtype and out.dtype.is_float and out.dtype.bits >= 32
    if len(load.indices) < 2 + inner or (weights and not wide) or out.dtype.is_bool or load.buffer.dtype.is_bool:
        return None
    rows, columns = (_side(block, load, axis, axis - len(spatial) + len(load.indices), extents) for axis in image)
    last = last_block(function, block, out)
    if rows is None or columns is None or last is None or min(rows.size, columns.size) < 2:
        return None
    counts = [known(extents[a.var]) if a.var in extents else 1 for a in block.axes]
    if 0 in counts or rows.kernel * columns.kernel != prod(counts[len(spatial) :]):
        return None
    planes = prod(count for n, count in enumerate(counts[: len(spatial)]) if n not in image)
    place = None if channel is None else spatial.index(channel)
    channels = 1 if place is None else counts[place]
    return Windows(
        block=block.name,
        out=out,
        source=load.buffer,
        last=last.name,
        rows=rows,
        columns=columns,
        images=planes // channels,
        channels=channels,
        channel=place,
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


def _is_copied(function: Function, source: Buffer) -> bool:
    """Whether an image is an argument or a padded copy of one, without computation: each row of a window loads it
    again."""
    if source not in allocations(function.body):
        return source.scope is Scope.ARGUMENT
    writers = writers_of(function, source)
    values = [b.body.value for b in writers if isinstance(b.body, Store)]
    return len(values) == len(writers) and all(isinstance(v, Load) or not variables_of(v) for v in values)


def _epilogue(last: Block, block: Block, out: Buffer, image: tuple[int, ...]) -> Epilogue:
    """What the last block computes from each result, if it is another block than the reduction."""
    if last is block:
        return Epilogue(Work(), True, True)
    moved = [frozenset[Var]().union(*map(variables_of, ld.indices)) for ld in loads(last) if ld.buffer is not out]
    row, column = ([last.axes[n].var in used for used in moved] for n in image)
    assert isinstance(last.body, Store)
    return Epilogue(work_of(last.body.value), not any(column), not any((*row, *column)))
