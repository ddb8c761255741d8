"""A compiled program as one container of bytes, and back.

The manifest holds the interface (types as text), the messages of run-time checks, and where each constant lies: in the
container itself, or, for a weight that the compiler left as it was, at an offset of the model's file. So an entry of
the store is small and its weights stay mapped. Everything is checked when it is read: a container that does not fit,
or a model file that is not the one it was made from, is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.statements import FaultMessage
from tilewright.compiler.compiled import Compiled
from tilewright.expr.dtypes import DTYPES, from_numpy
from tilewright.expr.nodes import Var
from tilewright.expr.parse import parse
from tilewright.expr.text import show
from tilewright.report.errors import UserError
from tilewright.runtime.interface import Interface, Port
from tilewright.store import Damaged, pack, unpack
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """A file that constants may lie in: its path relative to the model's folder ("" for the model itself) and bytes."""

    path: str
    data: Any

    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def array(self) -> Array:
        return np.frombuffer(self.data, np.uint8)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a container held."""

    interface: Interface
    code: tuple[bytes, ...]
    faults: tuple[FaultMessage, ...]
    constants: tuple[Array, ...]


def encode(compiled: Compiled, sources: Sequence[Source]) -> bytes:
    """The container of a compiled program. Constants that lie in one of the sources are only referred to."""
    blobs: dict[str, bytes | memoryview] = {f"code {n}": part for n, part in enumerate(compiled.code)}
    rows: list[dict[str, Any]] = []
    for n, name in enumerate(compiled.constants):
        array = compiled.module.constants[name]
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        row: dict[str, Any] = {"dtype": dtype.name, "shape": list(array.shape)}
        found = _locate(array, sources)
        if found is None:
            blobs[f"constant {n}"] = np.ascontiguousarray(array).tobytes()
        else:
            row |= {"source": found[0], "offset": found[1]}
        rows.append(row)
    interface = compiled.interface
    manifest: dict[str, Any] = {
        "symbols": [s.name for s in interface.symbols],
        "inputs": [_port(p, interface) for p in interface.inputs],
        "outputs": [_port(p, interface) for p in interface.outputs],
        "objects": len(compiled.code),
        "faults": [[f.text, [d.name for d in f.dtypes]] for f in compiled.faults],
        "constants": rows,
        "sources": [[s.path, s.digest()] for s in sources],
    }
    return pack(manifest, blobs)


def _locate(array: Array, sources: Sequence[Source]) -> tuple[int, int] | None:
    """(which source, at what offset) the bytes of an array lie in."""
    if not array.nbytes or not array.flags.c_contiguous:
        return None
    address = array.__array_interface__["data"][0]
    for n, source in enumerate(sources):
        whole = source.array()
        start = whole.__array_interface__["data"][0]
        if start <= address and address + array.nbytes <= start + whole.nbytes:
            return n, address - start
    return None


def _port(port: Port, interface: Interface) -> list[Any]:
    """A port as data: the symbols are called d0, d1 … there, since their own names may be no names of the language;
    dimensions that only a call knows are written as `?`."""
    late = interface.is_dynamic(port)
    names: dict[object, str] = {symbol: f"d{n}" for n, symbol in enumerate(interface.symbols)}
    return [port.name, port.dtype.name, ["?" if late else show(d, lambda v: names[v]) for d in port.shape]]


def sources_of(data: bytes | memoryview) -> list[tuple[str, str]]:
    """(path, SHA-256) of the files that a container refers to. Raises Damaged."""
    manifest, _ = unpack(data)
    try:
        rows: Any = manifest["sources"]
        return [(str(path), str(digest)) for path, digest in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged("the container holds no compiled program", why=str(error)) from error


def decode(data: bytes | memoryview, sources: Sequence[Source]) -> Loaded:
    """The program in a container. Raises Damaged when anything in it does not fit."""
    manifest, blobs = unpack(data)
    try:
        return _decode(manifest, blobs, sources)
    except (KeyError, TypeError, ValueError, IndexError, UserError) as error:
        raise Damaged("the container holds no compiled program", why=str(error)) from error


def _decode(manifest: Mapping[str, Any], blobs: Mapping[str, memoryview], sources: Sequence[Source]) -> Loaded:
    symbols = {f"d{n}": Var(str(name)) for n, name in enumerate(manifest["symbols"])}
    interface = Interface(
        tuple(_read_port(row, symbols) for row in manifest["inputs"]),
        tuple(_read_port(row, symbols) for row in manifest["outputs"]),
        tuple(symbols.values()),
    )
    faults = tuple(FaultMessage(text, tuple(DTYPES[d] for d in names)) for text, names in manifest["faults"])
    constants = tuple(_constant(n, row, blobs, sources) for n, row in enumerate(manifest["constants"]))
    code = tuple(bytes(blobs[f"code {n}"]) for n in range(manifest["objects"]))
    return Loaded(interface, code, faults, constants)


def _read_port(row: Sequence[Any], symbols: Mapping[str, Var]) -> Port:
    name, dtype, dims = row
    shape = [Var("late", least=None) if d == "?" else parse(d, symbols) for d in dims]
    return Port(name, TensorType.of(DTYPES[dtype], shape))


def _constant(n: int, row: Mapping[str, Any], blobs: Mapping[str, memoryview], sources: Sequence[Source]) -> Array:
    dtype, shape = DTYPES[row["dtype"]].numpy, tuple(int(d) for d in row["shape"])
    count = 1
    for extent in shape:
        count *= extent
    if "source" in row:
        offset, data = int(row["offset"]), sources[row["source"]].data
        if offset < 0 or offset + count * dtype.itemsize > len(data):
            raise ValueError(f"constant {n} lies outside its file")
        return np.frombuffer(data, dtype, count, offset).reshape(shape)
    return np.frombuffer(blobs[f"constant {n}"], dtype, count).reshape(shape)
