"""Small images are laid side by side: vectors along a row of few places are nearly empty.

    y: f32[4, 512, 2, 2] = contract(x, w, spec="n c i+k j+l, o c k l -> n o i j", …)
    =>
    u: f32[512, 3, 3, 4, 2, 2] = contract(x, spec="n c i+k j+l -> c k l n i j", …)          what each place multiplies
    v: f32[512, 4, 2, 2] = contract(w, u, spec="o c k l, c k l n i j -> o n i j")           a product: 16 columns
    y = transpose(v, perm=(1, 0, 2, 3))

The columns are all axes of the result that one operand alone has; the other operand, the larger one for small images,
is read as it lies. Gradients of weights are such products, too: places are then terms, and places of the window are
columns. It is a matter of price: what is laid out is written and read, and vectors hold more. Contractions with
constants are left to other passes, which pack them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.index_maps import Affine, IndexMaps, Spec
from tilewright.target import Target
from tilewright.target.transfer import reread_seconds, rewrite_seconds


def lay_columns(module: Module, target: Target) -> Module:
    """The module with such operands laid out where that is cheaper."""
    return over_graphs(module, lambda m, f: _Columns(m, f, target).rewrite())


@dataclass(frozen=True, slots=True)
class _Laid:
    """The operand to lay out, and its axes in order: those of batches, terms and columns; `rows` are the axes of the
    result that the other operand alone has."""

    operand: int
    batch: tuple[str, ...]
    terms: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[str, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        return (*self.batch, *self.terms, *self.columns)

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.batch, *self.rows, *self.columns)


class _Columns(Edit):
    """A function while operands are laid out."""

    def __init__(self, module: Module, function: GraphFunction, target: Target) -> None:
        super().__init__(module, function)
        self.target, self.lanes = target, target.lanes(f32)

    def rewrite(self) -> Module:
        for node in self.function.nodes:
            made = self._laid(node) if isinstance(node.attrs, ContractAttributes) else None
            if made is None or not self.replace(node, (made,)):
                self.keep(node)
        return self.finish()

    def _laid(self, node: Node) -> Value | None:
        """The value of a contraction over an operand that is laid out; None where it stays."""
        assert isinstance(node.attrs, ContractAttributes)
        maps, inputs = maps_of(node), list(self.inputs(node))
        if any(self.held(v) is not None or v.type.dtype is not f32 for v in (*inputs, *node.outputs)):
            return None
        laid = _find(maps)
        if laid is None or not _count(maps, (*laid.axes, *laid.rows)) or not self._pays(maps, laid):
            return None
        self.source = node.source
        spec = maps.spec
        operands: list[tuple[Affine, ...]] = list(spec.operands)
        operands[laid.operand] = tuple([Affine(((a, 1),)) for a in laid.axes])
        product = Spec(tuple(operands), laid.output, ())
        copied = self._copied(inputs[laid.operand], maps, laid)
        if copied is None:
            return None
        inputs[laid.operand] = copied
        found = self._add("contract", tuple(inputs), {"spec": str(product)}, node.outputs[0].name)
        if found is None or laid.output == spec.output:
            return found
        perm = tuple([laid.output.index(a) for a in spec.output])
        return self._add("transpose", (found,), {"perm": perm}, node.outputs[0].name)

    def _copied(self, value: Value, maps: IndexMaps, laid: _Laid) -> Value | None:
        indices = maps.spec.operands[laid.operand]
        axes = [i.axis for i in indices]
        if None not in axes:
            return self._add("transpose", (value,), {"perm": tuple([axes.index(a) for a in laid.axes])}, "columns")
        sizes = tuple([(a, maps.extent(a)) for a in laid.axes if a not in axes])
        own = Spec((indices,), laid.axes, ())
        return self._add("contract", (value,), {"spec": str(own), "sizes": sizes}, "columns")

    def _add(self, op: str, inputs: tuple[Value, ...], attrs: dict[str, object], name: str) -> Value | None:
        node = self.typed(op, inputs, attrs, name)
        return None if node is None else self.add(node).outputs[0]

    def _pays(self, maps: IndexMaps, laid: _Laid) -> bool:
        """Whether the multiply-adds that fuller vectors save take longer than to lay the operand out, and to bring the
        result into its order."""
        core = self.target.core
        all_axes = _count(maps, (*laid.batch, *laid.terms, *laid.columns, *laid.rows))
        before, after = (self._filled(_count(maps, a)) for a in (_last_run(maps, laid), laid.columns))
        saved = all_axes * core.fma_cycles / self.lanes * (1 / before - 1 / after)
        moved = self._moved(maps, laid.axes, laid.columns)
        if _has_places(maps, laid):  # turn-places would move the result
            saved = min(saved, self._moved(maps, laid.output, laid.columns))
        if laid.output != maps.spec.output:
            moved += self._moved(maps, laid.output, _last_run(maps, laid))
        return moved < saved

    def _filled(self, extent: int) -> float:
        """The part of the lanes that vectors along an axis use."""
        return extent / (-(-extent // self.lanes) * self.lanes)

    def _moved(self, maps: IndexMaps, axes: tuple[str, ...], last: tuple[str, ...]) -> float:
        """Cycles to write and to read so many elements, element by element where those of places are few."""
        core, elements = self.target.core, _count(maps, axes)
        bytes = elements * f32.bytes
        seconds = reread_seconds(bytes, bytes, self.target) + rewrite_seconds(bytes, bytes, self.target)
        together = min(_extent(maps, last[-1]), self.lanes)
        steps = elements / together * (core.load_cycles + core.store_cycles)
        return max(steps, seconds * core.hertz) + core.kernel_seconds * core.hertz


def _find(maps: IndexMaps) -> _Laid | None:
    """How to lay an operand out; None where the result's last axis is in the other operand, or nothing is gained by
    more columns than these."""
    spec = maps.spec
    if len(spec.operands) != 2 or not spec.output or not all(isinstance(maps.extent(a), Const) for a in spec.axes):
        return None
    own = [{axis for i in indices for axis, _ in i.terms} for indices in spec.operands]
    alone = [n for n in range(2) if spec.output[-1] in own[n] and spec.output[-1] not in own[1 - n]]
    if len(alone) != 1:
        return None
    (n,) = alone
    other = [i.axis for i in spec.operands[1 - n]]
    if None in other or len(set(other)) != len(other) or not own[n] | own[1 - n] <= {*spec.axes}:
        return None
    columns = tuple([a for a in spec.output if a in own[n] and a not in own[1 - n]])
    laid = _Laid(
        n,
        tuple([a for a in spec.output if a in own[n] and a in own[1 - n]]),
        spec.reduce,
        columns,
        tuple([a for a in spec.output if a not in own[n]]),
    )
    if not laid.rows or not laid.terms or not set(laid.terms) <= own[n] & own[1 - n]:
        return None
    return None if _last_run(maps, laid) == laid.columns else laid


def _last_run(maps: IndexMaps, laid: _Laid) -> tuple[str, ...]:
    """The columns at the end of the result that vectors run along as it is: those that stand alone and together in the
    operand, too."""
    spec = maps.spec
    order = [i.axis for i in spec.operands[laid.operand]]
    run: tuple[str, ...] = (spec.output[-1],)
    if run[0] not in order:
        return run
    while len(run) < len(laid.columns):
        before, place = spec.output[len(spec.output) - len(run) - 1], order.index(run[0])
        if before not in laid.columns or not place or order[place - 1] != before:
            break
        run = (before, *run)
    return run


def _has_places(maps: IndexMaps, laid: _Laid) -> bool:
    """Whether columns are places of a window."""
    sums = [i.terms for i in maps.spec.operands[laid.operand] if i.axis is None]
    return all(any(axis in laid.columns for axis, _ in terms[1:]) for terms in sums) and bool(sums)


def _count(maps: IndexMaps, axes: tuple[str, ...]) -> int:
    return math.prod([_extent(maps, a) for a in axes])


def _extent(maps: IndexMaps, axis: str) -> int:
    extent = maps.extent(axis)
    assert isinstance(extent, Const)
    return int(extent.value)
