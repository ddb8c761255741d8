"""The inputs of a call, made of what the command line says: files, values, and random data for the rest.

    --input x=@x.npy               the array in the file
    --input @inputs.npz            the arrays in the file, by their names
    --input x=[[1, 2], [3, 4]]     the values, as JSON writes them
    --input x=0.5                  all elements of x

Symbolic dimensions get their sizes from the arrays that are given, then from `--size`; the others get sizes that suit
the graph (`cli/examples.py`), and 1 where there is none to look at, as for compiled files. Random integers are
inside of what they index, otherwise 0 or 1.
Files are read without unpickling, and mapped, so that one that claims absurd sizes takes no memory.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.cli.examples import Examples, examples_of
from tilewright.core.walk import preorder
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Var
from tilewright.graph.nodes import GraphFunction
from tilewright.report import settings
from tilewright.report.errors import UserError
from tilewright.report.nearest import nearest
from tilewright.runtime.interface import Port

Array = np.ndarray[Any, Any]

_ZIP = b"PK\x03\x04"
INTEGERS = (0, 1)
"""The least and the greatest random integer where no graph says otherwise: masks, and kinds of tokens."""

Graph = Callable[[], GraphFunction | None]
"""Gives the graph that a program was compiled from, when it is asked for; None where there is none."""


def no_graph() -> GraphFunction | None:
    """There is nothing to look at."""
    return None


@dataclass(slots=True)
class Feeds:
    """The arrays of a call by name; where each came from; the sizes of dimensions, and which of these were assumed."""

    arrays: dict[str, Array] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)


def make_feeds(
    ports: Sequence[Port],
    inputs: Sequence[str],
    sizes: Sequence[str],
    random: bool,
    seed: int,
    graph: Graph = no_graph,
) -> Feeds:
    """The feeds for `ports` from the words of `--input` and `--size`; without `random`, all inputs must be given.
    `graph` is asked for where sizes or integers are to be chosen."""
    feeds = Feeds()
    values: dict[str, Array] = {}
    for word in inputs:
        for port, array, origin in _read_input(word, ports):
            if port.name in feeds.origins:
                raise UserError(f"input {port.name} is given twice", where=f"--input {word}", fix="give it once")
            feeds.origins[port.name] = origin
            if array.ndim == 0 and port.type.rank and origin == "given":
                values[port.name] = array
            else:
                feeds.arrays[port.name] = array
    missing = [port for port in ports if port.name not in feeds.origins]
    if missing and not random:
        raise _missing(missing)
    known = _look(graph, missing, ports) if missing or values else None
    _choose_sizes(feeds, ports, _read_sizes(sizes, ports), bool(missing or values), known)
    for n, port in enumerate(ports):
        if port.name in values:
            feeds.arrays[port.name] = np.full(_shape(port, feeds.sizes), values[port.name])
        elif port.name not in feeds.arrays:
            found = None if known is None else known.range_of(port.name, feeds.sizes)
            low, high = found or INTEGERS
            generator = np.random.default_rng([seed, n])
            feeds.arrays[port.name] = _random(port, _shape(port, feeds.sizes), generator, low, high)
            feeds.origins[port.name] = f"random{'' if found is None else f' from {low} to {high}'}, seed {seed}"
    feeds.arrays = {port.name: feeds.arrays[port.name] for port in ports}
    return feeds


def files_given(inputs: Sequence[str]) -> list[str]:
    """The files that the words of `--input` name."""
    return [word.partition("@")[2] for word in inputs if word.startswith("@") or "=@" in word]


def _missing(ports: Sequence[Port]) -> UserError:
    first = ports[0].name
    return UserError(
        f"missing {'input' if len(ports) == 1 else 'inputs'}: {', '.join(map(str, ports))}",
        fix=f"give --input {first}=@{first}.npy, or --random for random data",
    )


def _read_input(word: str, ports: Sequence[Port]) -> list[tuple[Port, Array, str]]:
    """The inputs that one word of `--input` gives, each with where it came from."""
    if word.startswith("@"):
        path = word[1:]
        held = [(_find_port(name, ports, word), a) for name, a in _read_archive(path, word).items()]
        return [(port, _restore(a, port.dtype), path) for port, a in held]
    name = max((p.name for p in ports if word.startswith(f"{p.name}=")), key=len, default=word.partition("=")[0])
    if "=" not in word:
        raise UserError(
            f"cannot use --input {word}", why="it has no =", fix=f"write --input {word}=@{word}.npy, or {word}=VALUE"
        )
    port, text = _find_port(name, ports, word), word[len(name) + 1 :]
    if text.startswith("@"):
        return [(port, _restore(_read_array(text[1:], word), port.dtype), text[1:])]
    return [(port, _parse_value(text, port, word), "given")]


def _find_port(name: str, ports: Sequence[Port], word: str) -> Port:
    for port in ports:
        if port.name == name:
            return port
    near = nearest(name, [port.name for port in ports]) or (ports[0].name if ports else "")
    raise UserError(
        f"no input is called {name!r}",
        where=f"--input {word}",
        why=f"the inputs are {', '.join(map(str, ports))}" if ports else "the model takes no inputs",
        fix=f"write --input {near}=@{near}.npy" if ports else "leave it out",
    )


def _read_array(path: str, word: str) -> Array:
    try:
        with open(path, "rb") as file:
            is_archive = file.read(len(_ZIP)) == _ZIP
        if not is_archive:
            array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
            return array
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, word, "a .npy file, as numpy.save writes it", error) from None
    raise UserError(
        f"cannot use {path} for one input",
        where=f"--input {word}",
        why=f"it holds arrays with names of their own: {', '.join(_read_archive(path, word)) or 'none'}",
        fix=f"write --input @{path} to give them by their names",
    )


def _read_archive(path: str, word: str) -> dict[str, Array]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise _unreadable(path, word, "a .npz file, as numpy.savez writes it", error) from None


def _unreadable(path: str, word: str, form: str, error: Exception) -> UserError:
    if isinstance(error, OSError) and error.strerror:
        return UserError(f"cannot read {path}", where=f"--input {word}", why=error.strerror)
    if os.path.exists(path) and os.path.getsize(path) == 0:
        return UserError(f"cannot read {path}", where=f"--input {word}", why="it is empty", fix=f"give {form}")
    return UserError(f"cannot read {path}", where=f"--input {word}", why=f"it is not {form}, or it is damaged")


def _restore(array: Array, dtype: DType) -> Array:
    """An array of a type that NumPy's files do not know (bf16, i4 …) comes back from them as raw bytes."""
    return array.view(dtype.numpy) if array.dtype.kind == "V" and array.dtype.itemsize == dtype.bytes else array


def _parse_value(text: str, port: Port, word: str) -> Array:
    """The array that JSON (or `nan`, `inf`) writes, in the input's element type, which must hold its values."""
    try:
        array = np.asarray(_parse_number_or_list(text))
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise UserError(
            f"cannot use --input {word}",
            why=f"{text!r} is no number and no list of numbers",
            fix=f"write {port.name}=0.5, {port.name}=[1,2,3], or {port.name}=@{port.name}.npy for a file",
        )
    with np.errstate(all="ignore"):
        converted = array.astype(port.dtype.numpy)
        held = converted == array if port.dtype.code is None else converted.astype(array.dtype) == array
    if not port.dtype.is_float and not bool(np.all(held)):
        whole = f"whole numbers from {port.dtype.min} to {port.dtype.max}"
        held = "true and false" if port.dtype.is_bool else whole
        raise UserError(f"cannot use --input {word}", why=f"{port} holds {held}")
    return converted


def _parse_number_or_list(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return float(text)


def _read_sizes(words: Sequence[str], ports: Sequence[Port]) -> dict[str, int]:
    """The sizes that `--size` gives, each checked to name a dimension of an input."""
    known = list(dict.fromkeys(symbol.name for symbol in _symbols(ports)))
    sizes: dict[str, int] = {}
    for word in (part for words_ in words for part in words_.split(",")):
        name, equals, text = word.partition("=")
        name, text = name.strip(), text.strip()
        if not equals or not text.isascii() or not text.isdigit() or int(text[:20]) >= 2**63:
            why = f"{text!r} is no whole number from 0" if equals else "it has no ="
            raise UserError(f"cannot use --size {word}", why=why, fix=f"write --size {name or 'n'}=32")
        if name not in known:
            raise UserError(
                f"no dimension is called {name!r}",
                where=f"--size {word}",
                why=f"the dimensions are {', '.join(known)}" if known else "all dimensions of the inputs are fixed",
                fix=f"write --size {nearest(name, known) or known[0]}={text}" if known else "leave it out",
            )
        sizes[name] = int(text)
    return sizes


def _look(graph: Graph, missing: Sequence[Port], ports: Sequence[Port]) -> Examples | None:
    """What the graph says of sizes and integers, where there are any to choose."""
    if not _symbols(ports) and not any(port.dtype.is_int for port in missing):
        return None
    found = graph()
    return None if found is None else examples_of(found)


def _choose_sizes(
    feeds: Feeds, ports: Sequence[Port], sizes: Mapping[str, int], needed: bool, known: Examples | None
) -> None:
    """Puts the sizes that the given arrays have into `feeds`, and, where `needed`, all others."""
    for port in ports:
        array = feeds.arrays.get(port.name)
        if array is None or array.ndim != port.type.rank:
            continue
        for axis, (extent, count) in enumerate(zip(port.shape, array.shape, strict=True)):
            if not isinstance(extent, Var):
                continue
            if sizes.get(extent.name, count) != count:
                raise UserError(
                    f"--size {extent.name}={sizes[extent.name]} does not fit input {port.name}",
                    why=f"dimension {axis} of its shape {array.shape} is {count}",
                    fix=f"leave --size {extent.name} out, or give another {port.name}",
                )
            feeds.sizes.setdefault(extent.name, count)
    chosen = {} if known is None else known.sizes({**sizes, **feeds.sizes})
    for symbol in _symbols(ports) if needed else ():
        if symbol.name not in feeds.sizes:
            if symbol.name not in sizes:
                feeds.assumed.append(symbol.name)
            feeds.sizes[symbol.name] = sizes.get(symbol.name, chosen.get(symbol.name, max(1, symbol.least or 0)))


def _symbols(ports: Sequence[Port]) -> list[Var]:
    """The symbols in the shapes, in order, each once."""
    return list(dict.fromkeys(v for port in ports for d in port.shape for v in preorder((d,)) if isinstance(v, Var)))


def _shape(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input to make; UserError where it would take more memory than may be taken."""
    shape = tuple(int(evaluate(d, {v: sizes[v.name] for v in _symbols([port])})) for d in port.shape)
    wanted = port.dtype.bytes
    for extent in shape:
        wanted *= max(extent, 0)
    limit = settings.MEMORY_LIMIT.read() or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if wanted > limit:
        raise UserError(
            f"input {port.name} is too large to make",
            why=f"the shape {shape} of {port} takes {wanted:,} bytes, and the limit is {limit:,}",
            fix=f"take smaller sizes, or set {settings.MEMORY_LIMIT.name}",
        )
    return shape


def _random(port: Port, shape: tuple[int, ...], generator: np.random.Generator, low: int, high: int) -> Array:
    """Random data: floats from the standard normal distribution, integers from `low` to `high` as far as the type
    holds them, truth values of a coin."""
    if port.dtype.is_float:
        wide = np.float64 if port.dtype.bits == 64 else np.float32
        numbers = generator.standard_normal(shape, wide)
        return (numbers if port.dtype.signed else np.abs(numbers)).astype(port.dtype.numpy, copy=False)
    if port.dtype.is_bool:
        low, high = INTEGERS
    low, high = (min(max(end, int(port.dtype.min)), int(port.dtype.max)) for end in (low, high))
    return generator.integers(low, high, shape, np.int64, endpoint=True).astype(port.dtype.numpy)
