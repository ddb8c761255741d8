"""Transposed convolutions: for each phase of the stride, a convolution by the taps that reach it.

    x[i] reaches y[i*stride + tap]:      y[q*stride + phase] = sum of x[q - t] * w[t*stride + phase] over t

With a stride of s, outputs s apart see the same taps, each s-th one, and inputs that lie beside each other: a
convolution of stride 1, the phases of an output being further channels of it (Shi et al., "Is the deconvolution layer
the same as a convolutional layer?", 2016). No zeros are multiplied. Where the kernel is no multiple of the stride, its
first phases have a tap more than the others: a convolution each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.build.windows import Windows, padded


def convolve_transposed(
    b: Emit,
    x: Tensor,
    w: Tensor,
    view: Windows,
    group: int,
    low: Sequence[Expr],
    high: Sequence[Expr],
    extra: Sequence[int],
) -> Tensor:
    """The gradient of the convolution of these windows with regard to its input, without bias: `low` and `high` are cut
    off the full result, which has so many `extra` elements behind. w: input channels, output channels of a group,
    window."""
    # Between the taps of a dilated kernel lie no inputs or several: of a stride, too, the zeros are written.
    apart = [s if d > 1 else 1 for s, d in zip(view.strides, view.dilations, strict=True)]
    x = _spread(b, x, apart)
    reach = zip(x.shape[2:], view.strides, apart, view.spans(), low, high, extra, strict=True)
    dimensions = [
        _Dimension(k, s // a, d, extent, cut, simplify((extent - 1) * (s // a) + span + e - cut - after))
        for (extent, s, a, span, cut, after, e), k, d in zip(reach, view.kernel, view.dilations, strict=True)
    ]
    return _by_phases(b, x, w, dimensions, group)


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One of the spatial dimensions: `taps` that lie `dilation` apart, of an image of `extent`, and which part of the
    full result is wanted: so many from `cut` on. The dilation is 1, or the stride is."""

    taps: int
    stride: int
    dilation: int
    extent: Expr
    cut: Expr
    wanted: Expr

    @property
    def first(self) -> int:
        """The phase of the first output, among those of the full result: 0 where only a call knows it, and the outputs
        before the first wanted one are computed, too."""
        first = simplify(self.cut % self.stride)
        return int(first.value) if isinstance(first, Const) else 0

    @property
    def phases(self) -> list[_Phases]:
        """Of the outputs from the first one on, those of as many taps that begin at the same input."""
        most = self.taps % self.stride
        edges = {self.first, self.stride, most, self.stride + most, self.first + self.stride}
        ends = sorted(e for e in edges if self.first <= e <= self.first + self.stride)
        found = []
        for phase, end in pairwise(ends):
            later, begin = divmod(phase, self.stride)
            found.append(_Phases(begin, end - phase, self.taps // self.stride + (begin < most), later))
        return found

    @property
    def before(self) -> Expr:
        """How many outputs are computed before the first that is wanted."""
        return simplify(self.cut % self.stride - self.first)

    @property
    def places(self) -> Expr:
        """How many outputs of a phase are computed."""
        return simplify((self.before + self.wanted + (self.stride - 1)) // self.stride)

    def taps_of(self, phases: _Phases) -> tuple[int, int, int]:
        """The taps of some phases in the kernel: the first one, how many, and the step between them. The last ones come
        first, but where there is one for each phase, or several of several."""
        if phases.count == 1:
            return phases.first + (phases.taps - 1) * self.stride, phases.taps, -self.stride
        return phases.first, (phases.taps - 1) * self.stride + phases.count, 1

    def padding(self, phases: _Phases) -> tuple[Expr, Expr]:
        """Before the image and behind it: negative where its ends are read by none of these phases."""
        low = simplify((phases.taps - 1) * self.dilation - self.cut // self.stride - phases.later)
        return low, simplify(self.places + (phases.taps - 1) * self.dilation - self.extent - low)


@dataclass(frozen=True, slots=True)
class _Phases:
    """So many phases from the first on, of as many taps each, that begin so many inputs later than the first."""

    first: int
    count: int
    taps: int
    later: int

    @property
    def is_mixed(self) -> bool:
        """Whether there are several phases of several taps, which lie between each other."""
        return self.count > 1 and self.taps > 1


def _by_phases(b: Emit, x: Tensor, w: Tensor, dimensions: Sequence[_Dimension], group: int) -> Tensor:
    """The wanted part of the result, without bias."""
    kernel = b.reshape(w, (group, w.shape[0] // group, *w.shape[1:]))
    parts = {p: _convolved(b, x, kernel, dimensions, p) for p in product(*(d.phases for d in dimensions))}
    for n in reversed(range(len(dimensions))):
        joined: dict[tuple[_Phases, ...], list[Tensor]] = {}
        for phases, part in parts.items():
            joined.setdefault(phases[:n], []).append(part)
        parts = {rest: b.concat(found, 4 + 2 * n) for rest, found in joined.items()}
    (y,) = parts.values()
    channels = group * w.shape[1]
    whole = b.reshape(y, (x.shape[0], channels, *(d.places * d.stride for d in dimensions)))
    starts: list[Size] = [0, 0, *(d.before for d in dimensions)]
    return b.slice(whole, starts, [x.shape[0], channels, *(d.wanted for d in dimensions)], clamped=True)


def _convolved(
    b: Emit, x: Tensor, kernel: Tensor, dimensions: Sequence[_Dimension], phases: Sequence[_Phases]
) -> Tensor:
    """Some phases of each dimension: [images, groups, outputs of a group, and for each dimension places, phases].

    kernel      [groups, inputs of a group, outputs of a group, taps…]
    """
    n = len(dimensions)
    if not all(p.taps for p in phases):
        both = (e for d, p in zip(dimensions, phases, strict=True) for e in (d.places, p.count))
        return b.broadcast(b.scalar(0, x.dtype), (x.shape[0], kernel.shape[0], kernel.shape[2], *both))
    pads = [d.padding(p) for d, p in zip(dimensions, phases, strict=True)]
    source = padded(b, x, [low for low, _ in pads], [high for _, high in pads])
    image = b.reshape(source, (x.shape[0], *kernel.shape[:2], *source.shape[2:]))
    filters = _filters(b, kernel, dimensions, phases)
    places = [d.places for d in dimensions]
    index = " ".join(f"q{k}+t{k}" + (f"*{d.dilation}" if d.dilation > 1 else "") for k, d in enumerate(dimensions))
    q, t = (" ".join(f"{a}{k}" for k in range(n)) for a in "qt")
    sizes = [(f"q{k}", size) for k, size in enumerate(places)]
    sums = b.contract(f"n g c {index}, g o c {t} -> n g o {q}", image, filters, sizes=sizes)
    apart = b.reshape(sums, (*image.shape[:2], *(p.count for p in phases), kernel.shape[2], *places))
    return b.transpose(apart, (0, 1, 2 + n, *(e for k in range(n) for e in (3 + n + k, 2 + k))))


def _filters(b: Emit, kernel: Tensor, dimensions: Sequence[_Dimension], phases: Sequence[_Phases]) -> Tensor:
    """The kernel of some phases, turned round: [groups, phases and outputs of a group, inputs of a group, taps…]."""
    n = len(dimensions)
    rest = kernel.shape[:3]
    rules = [d.taps_of(p) for d, p in zip(dimensions, phases, strict=True)]
    first, count, step = zip(*rules, strict=True)
    part = b.slice(kernel, [0, 0, 0, *first], [*rest, *count], [1, 1, 1, *step], clamped=True)
    if all(p.count == 1 for p in phases):
        return b.transpose(part, (0, 2, 1, *range(3, 3 + n)))
    for axis, (d, p) in reversed([*enumerate(zip(dimensions, phases, strict=True), 3)]):
        if p.is_mixed:
            part = _every(b, part, axis, d.stride, p)
    split = b.reshape(part, (*rest, *(e for p in phases for e in (p.taps, p.count))))
    moved = b.transpose(split, (0, *range(4, 4 + 2 * n, 2), 2, 1, *range(3, 3 + 2 * n, 2)))
    outputs = math.prod(p.count for p in phases) * kernel.shape[2]
    return b.reshape(moved, (kernel.shape[0], outputs, *moved.shape[2 + n :]))


def _every(b: Emit, kernel: Tensor, axis: int, stride: int, phases: _Phases) -> Tensor:
    """Of an axis the taps of each phase, a stride apart, the last ones first: two axes, taps and phases."""
    found = []
    for n in range(phases.count):
        starts, steps, sizes = [0] * kernel.rank, [1] * kernel.rank, list(kernel.shape)
        starts[axis], steps[axis], sizes[axis] = n + (phases.taps - 1) * stride, -stride, const(phases.taps)
        part = b.slice(kernel, starts, sizes, steps, clamped=True)
        found.append(b.reshape(part, (*part.shape[: axis + 1], 1, *part.shape[axis + 1 :])))
    return b.concat(found, axis + 1)


def _spread(b: Emit, x: Tensor, strides: Sequence[int]) -> Tensor:
    """stride - 1 zeros between neighbouring elements of the spatial dimensions."""
    if math.prod(strides) == 1:
        return x
    shape: list[Size] = list(x.shape[:2])
    high: list[Size] = [0, 0]
    full: list[Size] = list(x.shape[:2])
    sizes: list[Size] = list(x.shape[:2])
    for extent, stride in zip(x.shape[2:], strides, strict=True):
        shape += [extent, 1]
        high += [0, stride - 1]
        full.append(extent * stride)
        sizes.append((extent - 1) * stride + 1)
    split = b.reshape(x, shape)
    wide = b.reshape(b.pad(split, [0] * split.rank, high), full)
    return b.slice(wide, [0] * x.rank, sizes, clamped=True)
