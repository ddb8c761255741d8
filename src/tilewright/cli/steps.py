"""Results of quantised models, counted in steps: the integer that stands for an element is off by so many.

A result is quantised where its elements are integers of at most 16 bits, or, as DequantizeLinear makes them, such
integers (less a zero point) times a scale; transposed, reshaped and the like, where the scale is one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr.dtypes import DType
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module, Node, Value
from tilewright.report.quantities import counted
from tilewright.store import Json

Array = np.ndarray[Any, Any]

_NARROW = 16
"""How many bits the integers of quantised tensors have at most."""

_MOVES = frozenset({"transpose", "reshape", "slice", "concat", "broadcast"})
"""Operators that only move elements."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How many elements of a result differ from the exact ones by so many steps, the fewest steps first."""

    counts: tuple[tuple[int, int], ...]
    elements: int

    def told(self) -> str:
        """`3 of 640 elements differ: 2 by 1 step, 1 by 4 steps`."""
        differ = sum(count for _, count in self.counts)
        if not differ:
            return f"none of {counted(self.elements, 'element')} differs by a step"
        parts = ", ".join(f"{count} by {counted(steps, 'step')}" for steps, count in self.counts)
        return f"{differ} of {counted(self.elements, 'element')} differ: {parts}"

    def record(self) -> dict[str, Json]:
        """The same as JSON says it."""
        differ: list[Json] = [{"steps": steps, "elements": count} for steps, count in self.counts]
        return {"elements": self.elements, "differ": differ}


def count_steps(found: Array, exact: Array, step: Array) -> Steps | None:
    """The steps between two arrays, where one step is `step`; None where their shapes differ, or an element is not
    finite."""
    if found.shape != exact.shape:
        return None
    gaps = np.abs(found.astype(np.float64) - exact.astype(np.float64)) / np.abs(step.astype(np.float64))
    if not np.isfinite(gaps).all():
        return None
    steps, counts = np.unique(np.rint(gaps).astype(np.int64), return_counts=True)
    return Steps(tuple((int(s), int(c)) for s, c in zip(steps, counts, strict=True) if s), found.size)


def evaluate_with_steps(module: Module, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """(the results of a module in plain NumPy, the step of each one that is quantised), by name."""
    graph = module.graph
    scales = _scales(module)
    kept = {name: scale for name, scale in scales.items() if scale is not None}
    more = graph.replace(
        results=(*graph.results, *kept.values()),
        result_names=(*graph.result_names, *(f"step of {name}" for name in kept)),
    )
    found = evaluate(module.with_function(more), feeds)
    steps = {n: np.ones(()) if s is None else np.asarray(found.pop(f"step of {n}")) for n, s in scales.items()}
    return found, steps


def _scales(module: Module) -> dict[str, Value | None]:
    """The scale of each quantised result; None of those that are integers."""
    graph = module.graph
    makers = {value: node for node in graph.nodes for value in node.outputs}
    found: dict[str, Value | None] = {}
    for name, value in zip(graph.result_names, graph.results, strict=True):
        if _is_narrow(value.type.dtype):
            found[name] = None
        elif (scale := _scale(value, makers)) is not None:
            found[name] = scale
    return found


def _scale(value: Value, makers: Mapping[Value, Node]) -> Value | None:
    """What integers are multiplied by that a float value is made of."""
    node, moved = makers.get(value), False
    while node is not None and node.op.name in _MOVES and len(node.inputs) == 1:
        node, moved = makers.get(node.inputs[0]), True
    if node is None or node.op.name != "mul":
        return None
    for integers, scale in (node.inputs, node.inputs[::-1]):
        if _is_from_narrow(integers, makers) and not (moved and scale.type.rank):
            return scale
    return None


def _is_from_narrow(value: Value, makers: Mapping[Value, Node]) -> bool:
    """Whether a value is narrow integers, perhaps less a zero point, as floats."""
    node = makers.get(value)
    if node is None or node.op.name != "cast" or node.inputs[0].type.dtype.is_float:
        return False
    whole = node.inputs[0]
    inner = makers.get(whole)
    if inner is not None and inner.op.name == "sub":
        whole = inner.inputs[0]
        inner = makers.get(whole)
    if inner is not None and inner.op.name == "cast":
        whole = inner.inputs[0]
    return _is_narrow(whole.type.dtype)


def _is_narrow(dtype: DType) -> bool:
    return not dtype.is_float and not dtype.is_bool and dtype.bits <= _NARROW
