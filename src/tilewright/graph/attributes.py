"""What attribute records hold: their fields read off the annotations, and values brought to the type of their field.

    class Slice(Attributes):
        starts: tuple[Expr, ...]
        steps: tuple[Expr, ...]

    Slice(starts=[0, n + 0], steps=(1, 1))    is    Slice((const(0), n), (const(1), const(1)))

Fields are int, float, bool, str, DType, an Enum, Expr, Const, TensorType, tuples of these, or one of these or None. One
table of these kinds serves records, printing and parsing, so that no operator needs code for any of it.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from tilewright.core.node import NodeMeta, derived, reference, scalar_key
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.report.errors import InternalError
from tilewright.types.tensor import TensorType

LEAVES: tuple[type, ...] = (bool, int, float, str, DType, Const, Expr, TensorType, Enum)


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field: a `leaf` class; or a tuple of `parts`, any number of the one part when `repeated`; in both
    cases None as well when `optional`."""

    leaf: type | None
    parts: tuple[Kind, ...] = ()
    repeated: bool = False
    optional: bool = False

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.parts)) + (", …" if self.repeated else "")
        return (self.leaf.__name__ if self.leaf else f"tuple of {inside}") + (" or none" if self.optional else "")


@functools.cache
def field_kinds(record: type) -> dict[str, Kind]:
    """The fields of a record class with their kinds, in order."""
    assert isinstance(record, NodeMeta)
    hints = typing.get_type_hints(record)
    return {field: _kind(hints[field], f"{record.__name__}.{field}") for field in record._fields}


def _kind(hint: Any, where: str) -> Kind:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (a for a in arguments if a is not type(None))
        kind = _kind(inner, where)
        return Kind(kind.leaf, kind.parts, kind.repeated, True)
    if origin is tuple:
        repeated = len(arguments) == 2 and arguments[1] is Ellipsis
        parts = arguments[:1] if repeated else arguments
        return Kind(None, tuple(_kind(a, where) for a in parts), repeated)
    if isinstance(hint, type) and issubclass(hint, LEAVES):
        return Kind(hint)
    names = ", ".join(c.__name__ for c in LEAVES)
    raise InternalError(f"{where}: no attribute can have the type {hint}", fix=f"take {names}, or tuples of them")


def fitted(value: Any, kind: Kind, where: str) -> Any:
    """`value` as a field of this kind holds it: numbers become constants, lists tuples, expressions are simplified.

    Raises InternalError for a value that is not of the kind.
    """
    if value is None and kind.optional:
        return None
    if kind.leaf is None:
        if isinstance(value, list | tuple) and (kind.repeated or len(value) == len(kind.parts)):
            each = kind.parts * len(value) if kind.repeated else kind.parts
            return tuple([fitted(v, k, where) for v, k in zip(value, each, strict=True)])
    else:
        result = _leaf(value, kind.leaf)
        if result is not None:
            return result
    raise InternalError(f"{where} takes {kind}, not {value!r}")


def _leaf(value: Any, leaf: type) -> Any:
    """`value` as an instance of a leaf class, or None when it has no such form."""
    is_int = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if leaf is Expr:
        return const(int(value)) if is_int else simplify(value) if isinstance(value, Expr) else None
    if leaf is int:
        return int(value) if is_int else None
    if leaf is float:
        return float(value) if is_int or isinstance(value, float | np.floating) else None
    if leaf is bool:
        return bool(value) if isinstance(value, bool | np.bool_) else None
    if issubclass(leaf, Enum) and not isinstance(value, leaf):
        return next((member for member in leaf if member.value == value), None)
    return value if isinstance(value, leaf) else None


def word(member: Enum) -> str:
    """The word that programs print for a member of an enumeration."""
    return str(member.value)


def expressions_in(values: tuple[Any, ...]) -> Iterator[Expr]:
    """The expressions in the fields of a record, those of shapes included."""
    for value in values:
        if isinstance(value, Expr):
            yield value
        elif isinstance(value, TensorType):
            yield from value.shape
        elif isinstance(value, tuple):
            yield from expressions_in(value)


def field_key(value: Any) -> Hashable:
    """The key by which values of a field are compared: floats by their bits, everything else by equality."""
    if isinstance(value, float):
        return scalar_key(value)
    if isinstance(value, tuple):
        return tuple([field_key(v) for v in value])
    key: Hashable = value
    return key


@typing.dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(derived, reference))
class RecordMeta(NodeMeta):
    """Brings the fields of a record to their kinds before the record is looked up or built."""

    if not typing.TYPE_CHECKING:

        def __call__(cls, *args, **kwargs):
            values = cls._bind(args, kwargs)
            kinds = field_kinds(cls)
            fields = [fitted(v, k, f"{cls.__name__}.{f}") for v, (f, k) in zip(values, kinds.items(), strict=True)]
            return super().__call__(*fields)
