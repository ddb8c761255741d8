"""Constant operands of contractions: what they come to for each element of the output.

y: i32[n, m] = contract(x, w, spec="ik,kj->ij")          w: i8[k, m]
sums[0, j] = the sum of w[k, j] over k                     i64[1, m], which broadcasts to y
"""

from __future__ import annotations

import numpy as np

from tilewright.graph.edit import Array
from tilewright.ops.index_maps import Spec


def axes_of(spec: Spec, operand: int) -> list[str] | None:
    """The axes that index an operand, each by itself; None where they are not, or where a reduced axis is missing."""
    axes = [index.axis for index in spec.operands[operand]]
    found = [axis for axis in axes if axis is not None]
    return None if len(set(found)) != len(axes) or not set(spec.reduce) <= set(found) else found


def sums_over(weights: Array, spec: Spec, operand: int) -> Array | None:
    """The sums of a constant operand over the reduced axes in i64, which broadcast to the output; None where it is not
    indexed by all of them, each by itself."""
    axes = axes_of(spec, operand)
    if axes is None:
        return None
    sums = weights.astype(np.int64).sum(tuple(n for n, a in enumerate(axes) if a in spec.reduce))
    return beside_output(sums, [a for a in axes if a not in spec.reduce], spec)


def same_over(numbers: Array, spec: Spec, operand: int) -> Array | None:
    """Numbers beside a constant operand which are the same for all places of the reduced axes, as what broadcasts to
    the output; None where they are not."""
    axes = axes_of(spec, operand)
    if axes is None or not numbers.size:
        return None
    first = numbers[tuple(slice(0, 1) if a in spec.reduce else slice(None) for a in axes)]
    if not np.array_equal(np.broadcast_to(first, numbers.shape), numbers):
        return None
    kept = [n for n, a in enumerate(axes) if a not in spec.reduce]
    return beside_output(first.reshape([first.shape[n] for n in kept]), [axes[n] for n in kept], spec)


def beside_output(array: Array, axes: list[str], spec: Spec) -> Array:
    """An array with a dimension for each of these axes, as what broadcasts to the output."""
    ordered = array.transpose([axes.index(a) for a in spec.output if a in axes])
    extents = dict(zip(axes, array.shape, strict=True))
    return ordered.reshape([extents.get(a, 1) for a in spec.output])
