"""Choices as JSON: the fields of a dataclass by name, nested ones and enumerations included.

record_of(Choice(RegisterTile(6, 4, 16), …))  ==  {"tile": {"rows": 6, "vectors": 4, "lanes": 16}, …}
choice_of(Choice, record)                     ==  the choice again
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tilewright.report.errors import UserError

T = TypeVar("T")


def record_of(choice: Any) -> Any:
    """The value as JSON says it: numbers, texts, None, lists, and records of the fields that tell two choices apart."""
    if dataclasses.is_dataclass(choice) and not isinstance(choice, type):
        return {f.name: record_of(getattr(choice, f.name)) for f in dataclasses.fields(choice) if f.compare}
    if isinstance(choice, Enum):
        return choice.value
    if isinstance(choice, list | tuple):
        return [record_of(c) for c in choice]
    return choice


def choice_of(kind: type[T], record: Any) -> T:
    """The choice of a type that a record stands for. UserError for fields that are missing, unknown or of another
    type."""
    made: T = _read(kind, record, kind.__name__)
    return made


def _read(kind: Any, record: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if record is None and type(None) in arguments:
            return None
        (kind,) = [a for a in arguments if a is not type(None)]
        return _read(kind, record, where)
    if origin is tuple:
        if not isinstance(record, list | tuple):
            raise _wrong(where, record, "a list")
        each = [arguments[0]] * len(record) if arguments[-1:] == (...,) else arguments
        if len(each) != len(record):
            raise _wrong(where, record, f"{len(each)} values")
        return tuple([_read(k, r, f"{where}[{n}]") for n, (k, r) in enumerate(zip(each, record, strict=True))])
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, record, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [e.value for e in kind]
        if record not in values:
            raise _wrong(where, record, f"one of {', '.join(map(str, values))}")
        return kind(record)
    if kind is float and isinstance(record, int) and not isinstance(record, bool):
        return float(record)
    if type(record) is not kind:
        raise _wrong(where, record, getattr(kind, "__name__", str(kind)))
    return record


def _read_fields(kind: Any, record: Any, where: str) -> Any:
    if not isinstance(record, Mapping):
        raise _wrong(where, record, "fields by name")
    hints = get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(record) - set(fields))
    missing = [n for n, f in fields.items() if n not in record and f.default is dataclasses.MISSING]
    if unknown or missing:
        what = f"there is no {', '.join(unknown)}" if unknown else f"{', '.join(missing)} is missing"
        raise UserError(
            f"{where} is no choice that this template knows", why=what, fix=f"its fields are {', '.join(fields)}"
        )
    return kind(**{name: _read(hints[name], value, f"{where}.{name}") for name, value in record.items()})


def _wrong(where: str, record: Any, wanted: str) -> UserError:
    return UserError(f"{where} is {record!r}", why=f"it has to be {wanted}")
