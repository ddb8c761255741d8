"""Text for what a function, a class or an object of a program does: part of the key of what is compiled with it.

    code_of(snake)        the same in each process that runs the same code, another one where anything that it uses is

Followed are the bytecode of functions, their defaults, what they close over, and the functions, classes and values of
their own program that they name, in this module or another. What is of this package or of a library is known by its
name and version. What no text can be given for (an open file, say) belongs to this process alone, and so does the key.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

OWN = __name__.partition(".")[0]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_NOT_CODE = frozenset({"__dict__", "__weakref__", "__module__", "__abstractmethods__", "_abc_impl", "__slots__"})


def is_own(kind: Any) -> bool:
    """Whether a class or a function is of this package."""
    return _package_of(kind) == OWN


def code_of(thing: object, *settings: object) -> str:
    """The name of a function, a class or an object of a program, and a digest of what it does with these settings."""
    named: Any = thing if hasattr(thing, "__qualname__") else type(thing)
    lines = _Reader(_package_of(named)).lines((thing, *settings))
    digest = hashlib.sha256("\n".join(lines).encode("utf-8", "backslashreplace")).hexdigest()
    return f"{named.__module__}.{named.__qualname__} {digest}"


def _package_of(thing: Any) -> str:
    return str(getattr(thing, "__module__", None) or "").partition(".")[0]


class _Reader:
    """Walks what belongs to the packages of a program; each object once."""

    def __init__(self, package: str) -> None:
        self.packages = {package, "__main__", ""} - {OWN}  # "": functions that Python itself has generated
        self._seen: dict[int, tuple[int, object]] = {}

    def lines(self, thing: object) -> Iterator[str]:
        """Lines that differ where what they are of does something else."""
        if isinstance(thing, _PLAIN):
            yield repr(thing)
        elif isinstance(thing, tuple):
            yield f"{len(thing)} parts"
            yield from self._all(thing)
        elif isinstance(thing, set | frozenset):
            yield from (type(thing).__name__, *sorted("\n".join(self.lines(part)) for part in thing))
        elif id(thing) in self._seen:
            yield f"object {self._seen[id(thing)][0]}"
        else:
            self._seen[id(thing)] = len(self._seen), thing
            yield from self._object(thing)

    def _all(self, things: Iterable[object]) -> Iterator[str]:
        for thing in things:
            yield from self.lines(thing)

    def _object(self, thing: Any) -> Iterator[str]:
        match thing:
            case list():
                yield from self._all(("list", tuple(thing)))
            case dict():
                yield from self._all(("dict", tuple(thing.items())))
            case FunctionType():
                yield from self._function(thing)
            case CodeType():
                yield from self._code(thing)
            case ModuleType():
                yield _library(thing.__name__)
            case BuiltinFunctionType():
                yield f"{thing.__module__}.{thing.__qualname__}"
            case MethodType():
                yield from self._all((thing.__func__, thing.__self__))
            case staticmethod() | classmethod():
                yield from self.lines(thing.__func__)
            case property():
                yield from self._all((thing.fget, thing.fset))
            case functools.partial():
                yield from self._all((thing.func, thing.args, thing.keywords))
            case Enum():
                yield from self._all((type(thing), thing.name, thing.value))
            case type():
                yield from self._class(thing)
            case _ if callable(getattr(thing, "__wrapped__", None)):
                yield from self.lines(thing.__wrapped__)
            case _:
                yield from self._instance(thing)

    def _is_of_program(self, thing: Any) -> bool:
        return _package_of(thing) in self.packages

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield f"{function.__module__}.{function.__qualname__}"
        if not self._is_of_program(function):
            yield _library(function.__module__)
            return
        yield from self._all((function.__code__, function.__defaults__, function.__kwdefaults__))
        yield from self.lines(function.__annotations__)
        yield from self._all(cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell))
        yield from self._named(function.__code__, function.__globals__)

    def _named(self, code: CodeType, names: dict[str, Any]) -> Iterator[str]:
        """What a function names of its module, and of modules of its program."""
        for inner in _codes(code):
            for name in inner.co_names:
                thing = names.get(name)
                if name not in names:
                    continue
                yield name
                yield from self.lines(thing)
                if isinstance(thing, ModuleType) and thing.__name__.partition(".")[0] in self.packages:
                    yield from self._all(vars(thing)[n] for n in inner.co_names if n in vars(thing))

    def _code(self, code: CodeType) -> Iterator[str]:
        yield hashlib.sha256(code.co_code).hexdigest()
        yield from self._all((code.co_names, code.co_varnames, code.co_freevars, code.co_consts))

    def _class(self, kind: type) -> Iterator[str]:
        yield f"{kind.__module__}.{kind.__qualname__}"
        if not self._is_of_program(kind):
            yield _library(kind.__module__)
            return
        yield from self._all(kind.__bases__)
        is_record = is_own(type(kind))  # whose class holds what this package put there, too
        for name, value in vars(kind).items():
            made = is_record and name.startswith("_") and name != "__annotations__"
            if name not in _NOT_CODE and not made:
                yield name
                yield from self.lines(value)

    def _instance(self, thing: Any) -> Iterator[str]:
        """The class and the state of an object; arrays by what they hold, objects of this package by their text."""
        kind = type(thing)
        yield from self.lines(kind)
        if hasattr(thing, "tobytes") and hasattr(thing, "dtype"):
            yield f"{thing.dtype}{thing.shape} {hashlib.sha256(thing.tobytes()).hexdigest()}"
        elif self._is_of_program(kind):
            slots = [n for c in kind.__mro__ for n in getattr(c, "__slots__", ()) if hasattr(thing, n)]
            yield from self._all({**getattr(thing, "__dict__", {}), **{n: getattr(thing, n) for n in slots}}.items())
        else:
            text = repr(thing)
            yield f"{text} in process {os.getpid()}" if " at 0x" in text else text


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of those within it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _library(module: str) -> str:
    """The name of a module with what tells its version: that of its package, else when its file was written."""
    package = sys.modules.get(module.partition(".")[0])
    version = getattr(package, "__version__", None)
    if version is None and module.partition(".")[0] not in sys.stdlib_module_names:
        try:
            version = os.stat(getattr(sys.modules.get(module), "__file__", None) or "").st_mtime_ns
        except OSError:
            version = ""
    return f"{module} {version or ''}"
