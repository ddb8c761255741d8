"""Arguments of public functions: of a kind that the function takes, or a UserError that says what came.

check_kind("dims", dims, Mapping, "a mapping from names of dimensions to sizes", 'dims={"n": 1}')
"""

from __future__ import annotations

import math
import os
from operator import index
from typing import SupportsIndex

from tilewright.report.errors import UserError


def check_kind(name: str, value: object, kinds: type | tuple[type, ...], form: str, example: str) -> None:
    """UserError unless the value of an argument is of one of these kinds. A truth value is no number."""
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in _each(kinds)):
        return
    raise UserError(
        f"cannot use {_shown(value)} as {name}",
        why=f"a {type(value).__name__} came, and {name} is {form}",
        fix=f"write {example}",
    )


def path_of(value: object, name: str = "path") -> str:
    """The path of a file as text. UserError for what is no path."""
    check_kind(name, value, (str, os.PathLike), "the path of a file", f'{name}="model.tw", or a pathlib.Path')
    path = os.fspath(value)  # type: ignore[call-overload]
    check_kind(name, path, str, "the path of a file as text", f"{name}=os.fsdecode(…)")
    return str(path)


def check_seconds(seconds: object) -> None:
    """UserError unless it is a time for which something can be measured."""
    form, example = "a number of seconds from 0", "seconds=1.0"
    check_kind("seconds", seconds, (int, float), form, example)
    assert isinstance(seconds, int | float)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UserError(f"cannot measure for {seconds} seconds", why=f"seconds is {form}", fix=f"write {example}")


def check_size(size: object) -> None:
    """UserError unless it is the size of a dimension."""
    form, example = "a whole number from 0", 'sizes={"n": 1}'
    check_kind("a size", size, SupportsIndex, form, example)
    assert isinstance(size, SupportsIndex)
    if index(size) < 0:
        raise UserError(f"cannot use {size} as a size", why=f"a size is {form}", fix=f"write {example}")


def _each(kinds: type | tuple[type, ...]) -> tuple[type, ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _shown(value: object) -> str:
    """The value, where its text is short."""
    text = repr(value)
    return text if len(text) <= 60 and not text.startswith("<") else f"a {type(value).__name__}"
