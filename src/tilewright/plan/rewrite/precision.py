"""Which factors of a sum of f32 products are better rounded to bf16, in closed form.

Where the machine has products of bf16 pairs, both factors are, if the time saved pays for rounding the one that only a
call knows. Elsewhere products run in f32 whatever their factors are; the constant factor of few rows, though, is read
once for little work, and half the bytes take half the time. It is widened in registers.

Convolutions by windows with constant filters gain by pairs of channels (plan/dot/windows.py). A factor is left alone
where the sum is anything else than these, where nothing is gained, or next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.graph.nodes import Node
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Spec, parse
from tilewright.plan.dot.instruction import Dot, choose_dot
from tilewright.plan.dot.products import LEAST_ROWS
from tilewright.plan.dot.windows import choose_window_tile
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.price.kernels import START, CostModel
from tilewright.plan.tile.registers import choose_register_tile, hertz, tile_cycles, tile_registers
from tilewright.target import Target

PACK_CYCLES, STREAM_CYCLES, TURN_CYCLES = 0.5, 0.25, 0.5
"""Cycles to pack or to turn an element, and to bring a vector from the second cache."""

LEAST_GAIN = 1.1
"""How much faster a product must be."""

LEAST_SAVING = START
"""Seconds that it must be faster by."""

WIDENING = 1.0
"""Cycles to make a vector of f32 from bf16 that comes from memory, measured."""

ROUNDING = 6.0
"""Cycles to round a vector of f32 and to store it."""


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction of two plain tensors: the operand along the lanes (`vector`), and its extents."""

    vector: int
    batch: int
    rows: int
    columns: int
    terms: int
    depth: int
    """The extent of the reduced axis whose terms an instruction adds up."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A convolution: how many rows of how many positions, and of how many channels; the channels and the taps that an
    element of it sums up."""

    rows: int
    positions: int
    channels: int
    inputs: int
    taps: int


def pairs_of(target: Target) -> Dot | None:
    """The machine's products of bf16 pairs; None where it has none."""
    dot = choose_dot(dtypes.bf16, dtypes.bf16, dtypes.f32, target)
    return dot if dot is not None and dot.instruction is not None else None


def choose_rounded(node: Node, flow: Dataflow, model: CostModel, target: Target) -> tuple[int, ...]:
    """The operands of a contraction that are to be rounded to bf16."""
    found, dot = find_product(node, flow), pairs_of(target)
    if dot is None:
        return (found.vector,) if found is not None and _streams_better(node, found, flow, model, target) else ()
    if found is not None:
        return (0, 1) if _multiplies_better(node, found, dot, flow, model, target) else ()
    windows = find_windows(node, flow)
    if windows is None or not fits(windows, dot):
        return ()
    image = max(flow.elements(v) for v in node.inputs if v not in flow.constants)
    rounding = START + image * ROUNDING / target.lanes(dtypes.f32) / hertz(target)
    pairs = window_seconds(windows, dot, target)
    return (0, 1) if pays(direct_seconds(windows, target), pairs + rounding) else ()


def find_windows(node: Node, flow: Dataflow) -> Windows | None:
    """The convolution by windows that a contraction of f32 tensors is; None where its filters are no constant, or
    where it keeps channels apart."""
    attrs, out = node.attrs, node.outputs[0].type
    assert isinstance(attrs, ContractAttributes)
    spec = parse(attrs.spec)
    if len(node.inputs) != 2 or {out.dtype, *(v.type.dtype for v in node.inputs)} != {dtypes.f32} or not spec.output:
        return None
    filters = [n for n, v in enumerate(node.inputs) if v in flow.constants]
    if len(filters) != 1:
        return None
    own = [index.axis for index in spec.operands[filters[0]]]
    image = spec.operands[1 - filters[0]]
    alone = [index.axis for index in image if index.axis in spec.reduce and index.axis in own]
    channels = [axis for axis in spec.output if axis in own]
    moved = {axis for index in image for axis, _ in index.terms}
    if None in own or len(set(own)) != len(own) or len(alone) != 1 or len(channels) != 1 or channels[0] in moved:
        return None
    if spec.output[-1] not in {axis for axis, _ in image[-1].terms} or not set(spec.reduce) <= set(own):
        return None
    sizes = dict(zip(own, map(flow.extent, node.inputs[filters[0]].type.shape), strict=True))
    points, positions = flow.elements(node.outputs[0]), flow.extent(out.shape[-1])
    inputs, terms = sizes[alone[0]], math.prod(sizes[axis] for axis in spec.reduce)
    rows = max(points // (sizes[channels[0]] * positions), 1)
    return Windows(rows, positions, sizes[channels[0]], inputs, terms // inputs)


def fits(windows: Windows, dot: Dot) -> bool:
    """Whether the channels of a convolution fill the machine's products."""
    return windows.inputs % dot.depth == 0 and windows.channels >= dot.lanes


def window_seconds(windows: Windows, dot: Dot, target: Target) -> float:
    """The time of a convolution by products of pairs: those, its result turned back, its image woven."""
    terms = windows.inputs * windows.taps
    tile = choose_window_tile(windows.positions, windows.channels, terms, dot, target)
    whole = -(-windows.channels // tile.columns) * tile.columns
    cycles = tile_cycles(tile, windows.positions, whole, -(-terms // dot.depth), STREAM_CYCLES)
    cycles += windows.positions * (windows.channels * TURN_CYCLES + windows.inputs * PACK_CYCLES)
    return windows.rows * cycles / hertz(target)


def direct_seconds(windows: Windows, target: Target) -> float:
    """The time of a convolution in f32, the better of positions and channels along the lanes."""
    lanes, registers = target.lanes(dtypes.f32), tile_registers(target)
    sizes, terms = (windows.positions, windows.channels), windows.inputs * windows.taps
    rows, turned = (
        tile_cycles(choose_register_tile(*s, terms, registers, lanes), *s, terms) for s in (sizes[::-1], sizes)
    )
    turned += windows.positions * windows.channels * TURN_CYCLES
    return windows.rows * min(rows, turned) / hertz(target)


def find_product(node: Node, flow: Dataflow) -> Product | None:
    """The product that a contraction is; None where it is none of two f32 tensors, each dimension of which is an axis,
    or where its last axis moves both of them or none."""
    attrs, out = node.attrs, node.outputs[0].type
    assert isinstance(attrs, ContractAttributes)
    spec = parse(attrs.spec)
    types = [out.dtype, *(v.type.dtype for v in node.inputs)]
    if len(types) != 3 or set(types) != {dtypes.f32} or node.inputs[0] is node.inputs[1] or not spec.output:
        return None
    axes = [[index.axis for index in operand] for operand in spec.operands]
    if any(None in names or len(set(names)) != len(names) for names in axes):
        return None
    inner = [n for n, names in enumerate(axes) if spec.output[-1] in names]
    together = [axis for axis in spec.reduce if all(axis in names for names in axes)]
    if len(inner) != 1 or not together:
        return None
    return _sized(spec, axes, inner[0], together[-1], _extents(node, axes, flow))


def _extents(node: Node, axes: Sequence[Sequence[str | None]], flow: Dataflow) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for names, value in zip(axes, node.inputs, strict=True):
        found.update(zip(names, map(flow.extent, value.type.shape), strict=True))
    return found


def _sized(
    spec: Spec, axes: Sequence[Sequence[str | None]], vector: int, summed: str, extents: dict[str | None, int]
) -> Product:
    rows = max((extents[a] for a in spec.output if a not in axes[vector]), default=1)
    columns, points = extents[spec.output[-1]], math.prod(extents[a] for a in spec.output)
    terms = math.prod(extents[a] for a in spec.reduce)
    return Product(vector, max(points // max(rows * columns, 1), 1), rows, columns, terms, extents[summed])


def _streams_better(node: Node, found: Product, flow: Dataflow, model: CostModel, target: Target) -> bool:
    """Whether a constant that is read once for few rows is, in half the bytes."""
    weights = node.inputs[found.vector]
    if weights not in flow.constants or found.batch > 1:
        return False
    lanes, rate = target.lanes(dtypes.f32), hertz(target)
    tile = choose_register_tile(found.rows, found.columns, found.terms, tile_registers(target), lanes)
    plain, wide = (
        tile_cycles(tile, found.rows, found.columns, found.terms, traffic) / rate for traffic in (0.0, WIDENING)
    )
    bytes_in = model.transfer(weights)
    return pays(max(plain, bytes_in), max(wide, bytes_in / 2))


def _multiplies_better(node: Node, found: Product, dot: Dot, flow: Dataflow, model: CostModel, target: Target) -> bool:
    """Whether the machine's products of pairs save more than rounding the factors takes."""
    constant = [v in flow.constants for v in node.inputs]
    few = found.rows < LEAST_ROWS and not constant[found.vector]
    if few or found.columns < dot.lanes // 2 or found.depth < dot.depth:
        return False
    lanes, rate = target.lanes(dtypes.f32), hertz(target)
    read = sum(model.transfer(v) for v, known in zip(node.inputs, constant, strict=True) if known)
    sizes = (found.rows, found.columns)
    plain_tile = choose_register_tile(*sizes, found.terms, tile_registers(target), lanes)
    plain = found.batch * tile_cycles(plain_tile, *sizes, found.terms) / rate
    deep = -(-found.terms // dot.depth)
    dot_tile = choose_register_tile(*sizes, deep, target.vector_registers - dot.registers, dot.lanes)
    pairs = found.batch * tile_cycles(dot_tile, *sizes, deep) / rate
    rounded = [v for v, known in zip(node.inputs, constant, strict=True) if not known]
    rounding = sum(START + flow.elements(v) * ROUNDING / lanes / rate for v in rounded)
    return pays(max(plain, read), max(pairs, read / 2) + rounding)


def pays(plain: float, rounded: float) -> bool:
    """Whether a product is better in bf16: by a share of the `plain` seconds, and by what a call of a kernel takes."""
    return plain >= LEAST_GAIN * rounded and plain - rounded >= LEAST_SAVING
