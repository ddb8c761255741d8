"""The evaluator of expressions: plain Python over NumPy values, the oracle of everything below.

    evaluate(n * 2 + 1, {n: 5})                       -> 11
    evaluate(exp(x) / y, {x: array, y: array})        -> an array, element by element

Index arithmetic on Python integers stays in Python integers; anything else goes through NumPy in the element type of
the expression. A subclass of the environment (`loads`) tells what a node of a higher level means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.core.walk import postorder
from tilewright.expr import meaning
from tilewright.expr.nodes import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from tilewright.report.errors import InternalError

Loads = Callable[[Expr, tuple[Any, ...]], Any]


def evaluate(root: Expr, symbols: Mapping[Var, Any], loads: Loads | None = None) -> Any:
    """The value of `root`, given values for its variables: Python numbers, NumPy scalars, or arrays of one shape.

    `loads(node, children)` computes nodes this level does not know, from the values of their children.
    """
    if isinstance(root, Var) or (isinstance(root, Const) and root.dtype.is_int):  # most sizes
        return _value(root, {}, symbols, loads)
    values: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for node in postorder((root,)):
            assert isinstance(node, Expr)
            values[node] = _value(node, values, symbols, loads)
    return values[root]


def _value(node: Expr, values: dict[Expr, Any], symbols: Mapping[Var, Any], loads: Loads | None) -> Any:
    match node:
        case Const(value, dtype):
            return value if dtype.is_int and dtype.bits == 64 else dtype.numpy.type(value)
        case Var(name, _):
            if node not in symbols:
                raise InternalError(f"no value for the variable {name}")
            return symbols[node]
        case Binary(a, b) | Compare(a, b) | And(a, b) | Or(a, b):
            return _apply(type(node).__name__, values[a], values[b], a.dtype)
        case Not(a):
            return np.logical_not(values[a])
        case Select(c, a, b):
            condition = values[c]
            if isinstance(condition, bool | np.bool_):
                return values[a] if condition else values[b]
            return np.where(condition, values[a], values[b])
        case Cast(a, dtype):
            return meaning.convert(np.asarray(values[a], a.dtype.numpy), dtype)[()]
        case Call(fn, args):
            arrays = [np.asarray(values[x], x.dtype.numpy) for x in args]
            result = np.asarray(fn.meaning(*arrays))
            return result.astype(node.dtype.numpy)[()]
        case Ramp(base, stride, count):
            return values[base] + np.arange(count) * values[stride]
        case Broadcast(a, count):
            return np.repeat(np.asarray(values[a], a.dtype.numpy), count)
        case Shuffle(a, b, picked):
            return np.concatenate([values[a], values[b]])[list(picked)]
    if loads is None:
        raise InternalError(f"{type(node).__name__} is no expression that this evaluator knows")
    return loads(node, tuple(values[c] for c in node.children() if isinstance(c, Expr)))


def _apply(name: str, a: Any, b: Any, dtype: Any) -> Any:
    """One operator; Python integers and truth values stay as they are."""
    if isinstance(a, int) and isinstance(b, int):
        return (
            meaning.to_dtype(result, dtype)
            if not isinstance(result := meaning.fold(name, a, b, dtype), bool)
            else result
        )
    result = meaning.OPERATORS[name](np.asarray(a, dtype.numpy), np.asarray(b, dtype.numpy))
    return np.asarray(result)[()]
