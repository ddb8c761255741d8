"""Nodes of constants: evaluated by their meaning at once, or, where weights decide their inputs, each time that their
results are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.constants import Held, Pending, Step, read
from tilewright.graph.evaluate import check_count, check_result
from tilewright.graph.nodes import Node
from tilewright.graph.op import Pattern
from tilewright.types.room import Room

Array = np.ndarray[Any, Any]


def evaluated(node: Node, given: tuple[Held, ...]) -> tuple[Array, ...]:
    """The results of a node for these inputs, as contiguous arrays. RuntimeFault where it fails."""
    with np.errstate(all="ignore"):
        results = results_of(node, tuple([read(constant) for constant in given]))
    return tuple([np.ascontiguousarray(r).reshape(r.shape) for r in results])


def later(node: Node, given: tuple[Held, ...]) -> tuple[Held, ...]:
    """The results of a node that depend on weights, evaluated each time that they are read."""
    step = Step(node, given, is_view=node.op.pattern is Pattern.VIEW)

    def make(n: int) -> Callable[[Room], Array]:
        return lambda _: evaluated(node, given)[n]

    types = [(v.type.dtype.numpy, v.type.static_shape() or ()) for v in node.outputs]
    return tuple([Pending(dtype, shape, make(n), True, step, n) for n, (dtype, shape) in enumerate(types)])


def results_of(node: Node, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """The results by the meaning; those of a program's operator may be of other types than it says."""
    results = node.op.compute(inputs, node.attrs.evaluated({}))
    if node.op.is_added:
        check_count(node, results)
        for value, array in zip(node.outputs, results, strict=True):
            check_result(node, value, array, {})
    return results
