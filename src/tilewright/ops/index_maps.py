"""The specification of a contraction: named axes, and for each operand dimension a sum of axes.

    "ik,kj->ij"                                       single letters, one for each dimension
    "n g c i*2+a j*2+b, g o c a b -> n g o i j"       names between blanks; a dimension may be a sum of strided axes

    spec    := operand ("," operand)* "->" axis*
    operand := index*
    index   := term ("+" term)*
    term    := axis | axis "*" integer

Axes that the output does not name are reduced, in the order of their first appearance. `parse` reads the text,
`resolve` adds the extents of all axes, which the operands' shapes give, and `check_inside` requires every sum to stay
inside its dimension.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from tilewright.core.node import Interned
from tilewright.expr.nodes import Const, Expr, Le
from tilewright.graph.op import LARGEST, TypeContext
from tilewright.ops.checks import ONE, ZERO
from tilewright.types.tensor import TensorType

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TERM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\*([0-9]+))?")


class SpecError(ValueError):
    """A specification that is none, with what is wrong in the user's terms."""


class Affine(Interned):
    """The index along one operand dimension: the sum of axis * stride over its terms. Strides are at least 1."""

    terms: tuple[tuple[str, int], ...]

    @property
    def axis(self) -> str | None:
        """The axis when the index is that axis alone, else None."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 else None

    def at(self, values: Mapping[str, Expr]) -> Expr:
        """The index at the point where the axes have these values."""
        total: Expr = ZERO
        for axis, stride in self.terms:
            total = total + values[axis] * stride
        return total

    def __str__(self) -> str:
        return "+".join(axis if stride == 1 else f"{axis}*{stride}" for axis, stride in self.terms)


class Spec(Interned):
    """A specification: for each operand an index for each dimension, the output's axes, and the reduced axes."""

    operands: tuple[tuple[Affine, ...], ...]
    output: tuple[str, ...]
    reduce: tuple[str, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes: the output's, then the reduced ones."""
        return self.output + self.reduce

    @property
    def has_windows(self) -> bool:
        """Whether a dimension of an operand is indexed by several axes, or by multiples of one."""
        return any(index.axis is None for operand in self.operands for index in operand)

    @property
    def shares_factors(self) -> bool:
        """Whether there are two operands and each element of both is a factor of several sums: of matrix products and
        convolutions, not of windows of each channel."""
        found = [{axis for index in operand for axis, _ in index.terms} for operand in self.operands]
        return len(found) == 2 and not any(own.issuperset(self.output) for own in found)

    @property
    def summed(self) -> str | None:
        """The last reduced axis that indexes a dimension of each of two operands by itself: an instruction may add up
        several of its terms. None where there is none."""
        alone = [{index.axis for index in operand} for operand in self.operands]
        able = [axis for axis in self.reduce if len(alone) == 2 and all(axis in own for own in alone)]
        return able[-1] if able else None

    def __str__(self) -> str:
        operands = ", ".join(" ".join(str(i) for i in indices) for indices in self.operands)
        return f"{operands} -> {' '.join(self.output)}"


class IndexMaps(Interned):
    """A contraction with its sizes: the specification, and the extent of each of `spec.axes`."""

    spec: Spec
    extents: tuple[Expr, ...]

    def extent(self, axis: str) -> Expr:
        return self.extents[self.spec.axes.index(axis)]

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The output's shape."""
        return self.extents[: len(self.spec.output)]

    @property
    def reduce_extents(self) -> tuple[Expr, ...]:
        """The extents of the reduced axes."""
        return self.extents[len(self.spec.output) :]

    def index(self, operand: int, point: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index into an operand at a point: one value for each of `spec.axes`."""
        values = dict(zip(self.spec.axes, point, strict=True))
        return tuple([i.at(values) for i in self.spec.operands[operand]])


@lru_cache(maxsize=4096)
def parse(text: str) -> Spec:
    """The specification that the text means. Raises SpecError."""
    left, arrow, right = text.partition("->")
    if not arrow:
        raise SpecError(f'"{text}" has no "->" before the output\'s axes')
    parts = [part.strip() for part in (*left.split(","), right)]
    named = any(re.search(r"[\s*+0-9_]", part) for part in parts)
    split = [part.split() if named else list(part) for part in parts]
    operands = tuple(tuple(_index(word, text) for word in words) for words in split[:-1])
    output = tuple(split[-1])
    seen = list(dict.fromkeys(axis for indices in operands for i in indices for axis, _ in i.terms))
    for axis in output:
        if _NAME.fullmatch(axis) is None:
            raise SpecError(f'"{axis}" in the output of "{text}" is no axis')
        if axis not in seen:
            raise SpecError(f'the output axis {axis} of "{text}" is in no operand')
    if len(set(output)) != len(output):
        raise SpecError(f'the output of "{text}" names an axis twice')
    return Spec(operands, output, tuple([axis for axis in seen if axis not in output]))


def _index(word: str, text: str) -> Affine:
    """One dimension's index; terms of the same axis add up."""
    strides: dict[str, int] = {}
    for term in word.split("+"):
        match = _TERM.fullmatch(term)
        if match is None or match[2] == "0" * len(match[2] or "1"):
            raise SpecError(f'"{word}" in "{text}" is no sum of axes with strides from 1, such as i*2+a')
        strides[match[1]] = strides.get(match[1], 0) + int(match[2] or 1)
        if strides[match[1]] > LARGEST:
            raise SpecError(f'"{word}" in "{text}" has the stride {strides[match[1]]}; the largest is {LARGEST:,}')
    return Affine(tuple(strides.items()))


def resolve(
    context: TypeContext, spec: Spec, inputs: Sequence[TensorType], sizes: Sequence[tuple[str, Expr]]
) -> IndexMaps:
    """The extents of all axes: from the dimensions that an axis indexes alone, and from `sizes`; those of one axis must
    be equal."""
    extents: dict[str, Expr] = {}
    for axis, extent in sizes:
        if axis not in spec.axes:
            raise context.error(f'sizes has the axis {axis}, which "{spec}" has not')
        _know(context, extents, axis, extent)
    for indices, type in zip(spec.operands, inputs, strict=True):
        for index, extent in zip(indices, type.shape, strict=True):
            if index.axis is not None:
                _know(context, extents, index.axis, extent)
    unknown = [axis for axis in spec.axes if axis not in extents]
    if unknown:
        fix = f"give them: sizes=({', '.join(f'({axis!r}, …)' for axis in unknown)},)"
        raise context.error(f'no dimension of an operand gives the extent of {", ".join(unknown)} in "{spec}"', fix)
    return IndexMaps(spec, tuple([extents[axis] for axis in spec.axes]))


def _know(context: TypeContext, extents: dict[str, Expr], axis: str, extent: Expr) -> None:
    """The axis has this extent, which must be the one known of it; a constant is kept rather than a symbol."""
    known = extents.get(axis)
    if known is not None and known is not extent:
        context.require_equal(known, extent, f"the sizes of axis {axis}")
    if known is None or isinstance(extent, Const):
        extents[axis] = extent


def check_inside(context: TypeContext, maps: IndexMaps, inputs: Sequence[TensorType]) -> None:
    """Every sum of axes stays inside its dimension at the last point of the axes."""
    for n, (indices, type) in enumerate(zip(maps.spec.operands, inputs, strict=True)):
        for d, index in enumerate(indices):
            if index.axis is None and not _is_inside(maps, index, type.shape[d]):
                end: Expr = ONE
                for axis, stride in index.terms:
                    end = end + (maps.extent(axis) - 1) * stride
                context.require(
                    Le(end, type.shape[d]), f"the index {index} leaves dimension {d} of operand {n}, {type}"
                )


def _is_inside(maps: IndexMaps, index: Affine, extent: Expr) -> bool:
    """The quick proof, from numbers; an axis without points leaves no index."""
    terms = [(maps.extent(axis), stride) for axis, stride in index.terms]
    if any(e is ZERO for e, _ in terms):
        return True
    last = [(int(e.value) - 1) * stride for e, stride in terms if isinstance(e, Const)]
    return isinstance(extent, Const) and len(last) == len(terms) and sum(last) < extent.value
