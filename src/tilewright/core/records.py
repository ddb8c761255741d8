"""Values of dataclasses as records of JSON: the fields by name, nested ones and enumerations included.

record_of(Choice(RegisterTile(6, 4, 16), …))  ==  {"tile": {"rows": 6, "vectors": 4, "lanes": 16}, …}
choice_of(Choice, record)                     ==  the choice again
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from tilewright.report.errors import UserError


def record_of(choice: Any) -> Any:
    """The value as JSON says it: numbers, texts, None, lists, and records of fields."""
    if dataclasses.is_dataclass(choice):
        return {f.name: record_of(getattr(choice, f.name)) for f in dataclasses.fields(choice)}
    if isinstance(choice, list | tuple):
        return [record_of(c) for c in choice]
    return choice.value if isinstance(choice, Enum) else choice


def choice_of(kind: Any, record: Any, where: str = "") -> Any:
    """The value of a type (a dataclass of choices, or one of a field's, found at `where`) that a record stands for.
    UserError for fields that are missing, unknown or of another type."""
    arguments, where = get_args(kind), where or kind.__name__
    if get_origin(kind) in (Union, types.UnionType):
        return None if record is None else choice_of(arguments[0], record, where)
    if get_origin(kind) is tuple:
        if not isinstance(record, list | tuple):
            raise _wrong(where, record, "a list")
        each = arguments[:1] * len(record) if Ellipsis in arguments else arguments
        if len(each) != len(record):
            raise _wrong(where, record, f"{len(each)} values")
        return tuple([choice_of(k, r, f"{where}[{n}]") for n, (k, r) in enumerate(zip(each, record, strict=True))])
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, record, where)
    if issubclass(kind, Enum):
        values = [e.value for e in kind]
        if record not in values:
            raise _wrong(where, record, f"one of {', '.join(map(str, values))}")
        return kind(record)
    if kind is float and type(record) is int:
        return float(record)
    if type(record) is not kind:
        raise _wrong(where, record, kind.__name__)
    return record


def _read_fields(kind: Any, record: Any, where: str) -> Any:
    if not isinstance(record, Mapping):
        raise _wrong(where, record, "fields by name")
    hints, fields = _hints(kind), {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(record.keys() - fields.keys())
    missing = [n for n, f in fields.items() if n not in record and f.default is dataclasses.MISSING]
    if unknown or missing:
        what = f"there is no {', '.join(unknown)}" if unknown else f"{', '.join(missing)} is missing"
        fix = f"its fields are {', '.join(fields)}"
        raise UserError(f"{where} is no choice that this template knows", why=what, fix=fix)
    return kind(**{name: choice_of(hints[name], value, f"{where}.{name}") for name, value in record.items()})


_hints = cache(get_type_hints)


def _wrong(where: str, record: Any, wanted: str) -> UserError:
    return UserError(f"{where} is {record!r}", why=f"it has to be {wanted}")
