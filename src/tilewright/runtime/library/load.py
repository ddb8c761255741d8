"""Libraries run from Python, through ctypes alone: as any other program runs them, by their C interface."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr.dtypes import DTYPES
from tilewright.report import settings
from tilewright.report.errors import RuntimeFault, TilewrightError, UserError
from tilewright.report.nearest import suggest
from tilewright.runtime.library.codes import INTERFACE, MOST_RANK, Code
from tilewright.runtime.library.exports import exported_names

Array = np.ndarray[Any, Any]

_FAULTS = (Code.FAULT, Code.MEMORY)


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.c_int64 * MOST_RANK),
    )


class _Port(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("shape", ctypes.c_char_p),
        ("element_bytes", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )


@dataclass(frozen=True, slots=True)
class LibraryPort:
    """An input or an output of a library: its name, the name of its element type, and its shape, with None where a call
    decides the size; `text` has the names of such sizes."""

    name: str
    type: str
    shape: tuple[int | None, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{self.text}"


def load(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    threads: int = 1,
) -> Library:
    """The library in a file that `save_library` wrote; `name` is that of its functions (default: the only one that the
    file has), `weights` the file of its weights, if it has one. Calls use up to so many threads, and as much memory as
    TILEWRIGHT_MEMORY_LIMIT says.

    Raises UserError for a file that is no such library, and where this machine cannot run it. The file holds machine
    code: load only what you would run.
    """
    place = os.path.abspath(os.fspath(path))
    ending = "_interface"
    names = [n.removesuffix(ending) for n in exported_names(place) if n.endswith(ending)]
    if name is None and len(names) == 1:
        (name,) = names
    if name is None or name not in names:
        why = (
            f"it has {', '.join(names) or 'none of its functions'}" if name else f"it has {', '.join(names) or 'none'}"
        )
        raise UserError(f"cannot load {place} as a model", why=why, fix='name one: load(path, name="model")')
    _check_loaded(place)
    try:
        library = ctypes.CDLL(place, mode=ctypes.DEFAULT_MODE)
    except OSError as error:
        raise UserError(f"cannot load {place}", why=str(error)) from None
    version = library[f"{name}_interface"]()
    if version != INTERFACE:
        why = f"it has version {version} of the C interface, this one has {INTERFACE}"
        raise UserError(f"cannot load {place}", why=why, fix="write the library again")
    return Library(library, name, threads, None if weights is None else os.fspath(weights))


_loaded: dict[str, tuple[int, int, int]] = {}
"""The files that were loaded by their paths: device, inode and the time of their last change."""


def _check_loaded(place: str) -> None:
    """Raises UserError where another file has the path of one that was loaded: the system would give that one again."""
    status = os.stat(place)
    found = status.st_dev, status.st_ino, status.st_mtime_ns
    if _loaded.setdefault(place, found) != found:
        raise UserError(
            f"cannot load {place}",
            why="this process has loaded another library of that path, which the system would give again",
            fix="write the library under another name, or load it in another process",
        )


class Library:
    """A library that was loaded. `inputs` and `outputs` say names and types; calling it runs it. Each thread that calls
    has a context of its own."""

    def __init__(self, library: ctypes.CDLL, name: str, threads: int, weights: str | None) -> None:
        self._library, self.name, self._wanted, self._weights = library, name, threads, weights
        functions: dict[str, tuple[Any, int]] = {
            "open": (ctypes.c_int, 1),
            "close": (None, 1),
            "error": (ctypes.c_char_p, 1),
        }
        functions |= {"inputs": (ctypes.c_int64, 0), "outputs": (ctypes.c_int64, 0), "result": (ctypes.c_void_p, 2)}
        functions |= {"input": (ctypes.c_int, 2), "output": (ctypes.c_int, 2), "set_threads": (ctypes.c_int, 2)}
        functions |= {"sizes": (ctypes.c_int, 3), "run": (ctypes.c_int, 3), "set_limit": (ctypes.c_int, 2)}
        numbered = ("input", "output")
        self._call: dict[str, Any] = {}
        for function, (result, count) in functions.items():
            found = library[f"{name}_{function}"]
            found.restype = result
            found.argtypes = [ctypes.c_void_p] * count
            if function in numbered:
                found.argtypes = [ctypes.c_int64, ctypes.c_void_p]
            elif count == 2:
                found.argtypes = [ctypes.c_void_p, ctypes.c_int64]
            self._call[function] = found
        self._beside = hasattr(library, f"{name}_load_weights")
        if weights is not None and not self._beside:
            why = "it was written without weights="
            raise UserError("the library holds its weights", why=why, fix="load it without a file of weights")
        self.inputs = self._ports("input")
        self.outputs = self._ports("output")
        self._own = threading.local()
        self._context()

    def _ports(self, kind: str) -> tuple[LibraryPort, ...]:
        found = []
        for number in range(self._call[f"{kind}s"]()):
            port = _Port()
            self._check(self._call[kind](number, ctypes.byref(port)), None)
            shape = tuple(None if n < 0 else n for n in port.dims[: port.rank])
            found.append(LibraryPort(port.name.decode(), port.type.decode(), shape, port.shape.decode()))
        return tuple(found)

    def _context(self) -> _Context:
        """The context of the thread that asks."""
        context: _Context | None = getattr(self._own, "context", None)
        if context is None:
            place = ctypes.c_void_p()
            code = self._call["open"](ctypes.byref(place))
            context = _Context(place, self._call["close"])
            self._check(code, place)
            if self._weights is not None:
                path = ctypes.c_char_p(os.fsencode(self._weights))
                self._check(self._library[f"{self.name}_load_weights"](place, path), place)
            elif self._beside:
                raise UserError(
                    "there are no weights", why="the library has them in a file", fix="load(path, weights=…)"
                )
            self._check(self._call["set_threads"](place, self._wanted), place)
            limit = settings.MEMORY_LIMIT.read()
            if limit:
                self._check(self._call["set_limit"](place, limit), place)
            self._own.context = context
        return context

    def _check(self, code: int, context: ctypes.c_void_p | None) -> None:
        """Raises the error of a code."""
        if code:
            raise error_of(Code(code), self._call["error"](context).decode("utf-8", "replace"))

    def __call__(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs the program on arrays in order; the results are fresh arrays.

        Raises UserError for arrays that do not fit, RuntimeFault when the program meets a value it must not go on with.
        """
        if len(arrays) != len(self.inputs):
            fix = f"its inputs are {', '.join(map(str, self.inputs)) or 'none'}"
            raise UserError(f"{len(arrays)} inputs were given, and the library takes {len(self.inputs)}", fix=fix)
        given = [_as_input(port, array) for port, array in zip(self.inputs, arrays, strict=True)]
        context = self._context().place
        inputs = (_Array * max(len(given), 1))(*(_array_of(a) for a in given))
        outputs = (_Array * max(len(self.outputs), 1))()
        self._check(self._call["sizes"](context, inputs, outputs), context)
        results = [_empty(port, out) for port, out in zip(self.outputs, outputs, strict=False)]
        for out, result in zip(outputs, results, strict=False):
            out.data = None if result is None else result.ctypes.data
        self._check(self._call["run"](context, inputs, outputs), context)
        return tuple(
            self._copy(context, n, outputs[n]) if result is None else result for n, result in enumerate(results)
        )

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Runs the program on arrays by name; returns the outputs by name."""
        names = [port.name for port in self.inputs]
        for name in feeds:
            if name not in names:
                raise UserError(f"no input is called {name}", fix=suggest(str(name), names, "inputs"))
        missing = [str(port) for port in self.inputs if port.name not in feeds]
        if missing:
            raise UserError(f"missing {'input' if len(missing) == 1 else 'inputs'}: {', '.join(missing)}")
        results = self(*(feeds[name] for name in names))
        return dict(zip((port.name for port in self.outputs), results, strict=True))

    def _copy(self, context: ctypes.c_void_p, n: int, out: _Array) -> Array:
        """A result of a size that the call computed."""
        shape = tuple(out.dims[: out.rank])
        result: Array = np.empty(shape, DTYPES[self.outputs[n].type].numpy)
        if result.nbytes:
            ctypes.memmove(result.ctypes.data, self._call["result"](context, n), result.nbytes)
        return result


class _Context:
    """A context, closed with this object."""

    def __init__(self, place: ctypes.c_void_p, close: Any) -> None:
        self.place, self._close = place, close

    def __del__(self) -> None:
        self._close(self.place)


def error_of(code: Code, text: str) -> TilewrightError:
    """The error for what a library answers."""
    what, _, place = text.partition("\nat:   ")
    family = RuntimeFault if code in _FAULTS else UserError
    return family(what, where=place or None)


def _as_input(port: LibraryPort, value: Any) -> Array:
    wanted = DTYPES[port.type].numpy
    array = np.asarray(value)
    if array.dtype != wanted:
        why = f"an array of {array.dtype} came, and {port} was expected"
        raise UserError(f"input {port.name} has the wrong element type", why=why, fix=f"np.asarray(…, {str(wanted)!r})")
    if array.ndim > MOST_RANK:
        raise UserError(f"input {port.name} has the rank {array.ndim}, and arrays of a library have up to {MOST_RANK}")
    return np.require(array, requirements=("C", "A"))


def _array_of(array: Array) -> _Array:
    return _Array(array.ctypes.data, array.nbytes, array.ndim, (ctypes.c_int64 * MOST_RANK)(*array.shape))


def _empty(port: LibraryPort, out: _Array) -> Array | None:
    """Memory for a result; None where the call computes its size."""
    shape: Sequence[int] = out.dims[: out.rank]
    return None if any(n < 0 for n in shape) else np.empty(tuple(shape), DTYPES[port.type].numpy)
