"""Programs as one container of bytes, and back.

The manifest holds for each program its target, its interface (types as text), the messages of its run-time checks and
which constants it takes. A constant is stored in the container itself, once for all programs, or, where a permanent
file has it, as an offset of that file: entries of the store refer to the model's weights, which stay mapped. Everything
is checked when it is read: a container that does not fit is refused.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.abi import VERSION, FaultMessage
from tilewright.expr.dtypes import DTYPES, from_numpy
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.text import show
from tilewright.report.errors import UserError
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.program import Array, Program, Site
from tilewright.runtime.subnormals import check_denormals
from tilewright.store import Damaged, Json, parts_of, unpack
from tilewright.store.checksum import checksum
from tilewright.store.frame import FRAME_SIZE
from tilewright.store.pages import SPILL_START, SpillMap, release, rounded, spilled
from tilewright.target import Target
from tilewright.types.tensor import TensorType

_READ_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A file that may hold constants: its path relative to the model's folder ("" for the model itself), its bytes,
    and their SHA-256 where it is known."""

    path: str
    data: Any
    sha256: str = ""

    def digest(self) -> str:
        """The SHA-256 of the bytes; a mapped file is read part by part."""
        if self.sha256:
            return self.sha256
        state, view = hashlib.sha256(), memoryview(self.data)
        for start in range(0, len(view), _READ_BYTES):
            part = view[start : start + _READ_BYTES]
            state.update(part)
            release(part)
        return state.hexdigest()

    def array(self) -> Array:
        return np.frombuffer(self.data, np.uint8)


def encode(
    programs: Sequence[Program],
    sources: Sequence[Source] = (),
    about: Mapping[str, Json] | None = None,
    in_place: bool = False,
) -> list[bytes | memoryview]:
    """The container of programs, in parts that follow one another. Constants that one of the sources holds are only
    referred to. `about` is metadata that is read back with it. With `in_place`, constants that were spilled to a file
    come where they lie there, as far as that can be, so that an entry of the store can be made of it."""
    constants = _Constants(sources)
    blobs: dict[str, bytes | memoryview] = {}
    rows: list[Json] = []
    for n, program in enumerate(programs):
        blobs.update((f"code {n} {m}", part) for m, part in enumerate(program.code))
        rows.append(_program(program, [constants.row(a) for a in program.constants]))
    blobs.update(constants.blobs)
    manifest: dict[str, Json] = {
        "abi": VERSION,
        "about": dict(about or {}),
        "programs": rows,
        "sources": [[s.path, s.digest()] for s in sources],
    }
    spill = _spill_of(constants.blobs.values()) if in_place else None
    if spill is None:
        return parts_of(manifest, blobs)
    return parts_of(manifest, _as_spilled(blobs, spill), SPILL_START - FRAME_SIZE)


def _spill_of(blobs: Iterable[memoryview]) -> SpillMap | None:
    """The file of spilled arrays that has the most bytes of the blobs; None where none was spilled."""
    sizes: Counter[SpillMap] = Counter()
    for blob in blobs:
        found = spilled(blob)
        if found is not None:
            sizes[found[0]] += blob.nbytes
    return max(sizes, key=lambda spill: sizes[spill], default=None)


def _as_spilled(blobs: Mapping[str, bytes | memoryview], spill: SpillMap) -> dict[str, bytes | memoryview]:
    """The blobs in the order of their places in a file of spilled arrays, what lies there between them among them as
    blobs that nobody asks for; then all others."""
    places = {name: found[1] for name, blob in blobs.items() if (found := spilled(blob)) and found[0] is spill}
    made: dict[str, bytes | memoryview] = {}
    end, whole = SPILL_START, memoryview(spill)
    for name in sorted(places, key=lambda name: places[name]):
        if places[name] > end:
            made[f"unused {len(made)}"] = whole[end : places[name]]
        made[name] = blobs[name]
        end = places[name] + rounded(memoryview(blobs[name]).nbytes)
    return made | {name: blob for name, blob in blobs.items() if name not in places}


class _Constants:
    """The constants of all programs: equal ones are held once."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.blobs: dict[str, memoryview] = {}
        self._sources = sources
        self._known: dict[tuple[int, bytes], str] = {}

    def row(self, array: Array) -> dict[str, Json]:
        """Where an array is stored, its element type and its shape."""
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        row: dict[str, Json] = {"dtype": dtype.name, "shape": list(array.shape)}
        found = _locate(array, self._sources)
        if found is not None:
            return {**row, "source": found[0], "offset": found[1]}
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
        key = (array.nbytes, checksum(data))
        release(data)
        if key not in self._known:
            self._known[key] = f"constant {len(self._known)}"
            self.blobs[self._known[key]] = data
        return {**row, "blob": self._known[key]}


def _locate(array: Array, sources: Sequence[Source]) -> tuple[int, int] | None:
    """(which source, at what offset) holds the bytes of an array."""
    if not array.nbytes or not array.flags.c_contiguous:
        return None
    address = array.__array_interface__["data"][0]
    for n, source in enumerate(sources):
        whole = source.array()
        start = whole.__array_interface__["data"][0]
        if start <= address and address + array.nbytes <= start + whole.nbytes:
            return n, address - start
    return None


def _program(program: Program, constants: list[dict[str, Json]]) -> dict[str, Json]:
    interface = program.interface
    return {
        "target": program.target.record(),
        "symbols": [s.name for s in interface.symbols],
        "inputs": [_port(p, interface) for p in interface.inputs],
        "outputs": [_port(p, interface) for p in interface.outputs],
        "objects": len(program.code),
        "faults": [[f.text, [d.name for d in f.dtypes]] for f in program.faults],
        "constants": constants,
        "sites": [_site(site, interface) for site in program.sites],
        "denormals": program.denormals,
        "rooms": list(program.rooms),
        "arena": _number(program.arena, interface),
        "checked": program.checked,
        "uses": [list(sites) for sites in program.uses],
    }


def _port(port: Port, interface: Interface) -> list[Json]:
    """A port as data: the symbols are called d0, d1 … there, since their own names may be no names of the language;
    dimensions that come from data are written as `?`."""
    late = interface.is_dynamic(port)
    names: dict[object, str] = {symbol: f"d{n}" for n, symbol in enumerate(interface.symbols)}
    return [port.name, port.dtype.name, ["?" if late else show(d, lambda v: names[v]) for d in port.shape]]


def _number(e: Expr, interface: Interface) -> str:
    """A number over the symbols, as text that `_read_number` reads."""
    names: dict[object, str] = {symbol: f"d{n}" for n, symbol in enumerate(interface.symbols)}
    return show(e, lambda v: names[v])


def _site(site: Site, interface: Interface) -> list[Json]:
    work = [None if e is None else _number(e, interface) for e in (site.flops, site.bytes)]
    return [site.kernel, site.template, list(site.operators), list(site.source), *work, site.predicted]


def _read_site(row: Sequence[Any], symbols: Mapping[str, Var]) -> Site:
    kernel, template, operators, source, flops, moved, predicted = row
    work = [None if e is None else _read_number(e, symbols) for e in (flops, moved)]
    held, origin = (tuple(str(name) for name in part) for part in (operators, source))
    seconds = None if predicted is None else float(predicted)
    return Site(str(kernel), str(template), held, origin, work[0], work[1], seconds)


def _read_number(text: str, symbols: Mapping[str, Var]) -> Expr:
    """A size, or a number of operations or bytes."""
    if text.isdecimal() and text.isascii():
        return const(int(text))
    if text in symbols:
        return symbols[text]
    from tilewright.expr.parse import parse  # for sizes that are neither a number nor a symbol

    return parse(text, symbols)


class Bundle:
    """A container that was opened: what it says of itself, and its programs, each read when it is asked for."""

    def __init__(self, data: bytes | memoryview) -> None:
        """Raises Damaged for what is no container of programs."""
        manifest, self._blobs = unpack(data)
        top: Mapping[str, Any] = manifest
        try:
            self.abi = int(top["abi"])
            self.about: dict[str, Json] = dict(top["about"])
            self.sources = [(str(path), str(digest)) for path, digest in top["sources"]]
            """(path, SHA-256) of the files that hold constants."""
            self._programs: list[Mapping[str, Any]] = list(top["programs"])
            if self.abi == VERSION:
                self.targets = tuple(Target.from_record(row["target"]) for row in self._programs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _no_program(error) from error

    def program(self, n: int, sources: Sequence[Source] = ()) -> Program:
        """The program for the target of this number. Raises Damaged when anything in it does not fit."""
        try:
            return self._program(n, self._programs[n], sources)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, UserError) as error:
            raise _no_program(error) from error

    def _program(self, n: int, row: Mapping[str, Any], sources: Sequence[Source]) -> Program:
        symbols = {f"d{m}": Var(str(name)) for m, name in enumerate(row["symbols"])}
        interface = Interface(
            tuple(_read_port(port, symbols) for port in row["inputs"]),
            tuple(_read_port(port, symbols) for port in row["outputs"]),
            tuple(symbols.values()),
        )
        faults = tuple(FaultMessage(str(text), tuple(DTYPES[d] for d in names)) for text, names in row["faults"])
        sites = tuple(_read_site(site, symbols) for site in row["sites"])
        constants = tuple(self._constant(constant, sources) for constant in row["constants"])
        code = tuple(bytes(self._blobs[f"code {n} {m}"]) for m in range(row["objects"]))
        denormals = check_denormals(row["denormals"], self.targets[n])
        checked = row.get("checked", False) is True
        rooms = tuple(max(int(room), 0) for room in row["rooms"])
        made_of = (interface, code, faults, constants, self.targets[n], sites, self.about, denormals)
        arena = _read_number(str(row["arena"]), symbols)
        uses = tuple((int(first), int(last)) for first, last in row["uses"])
        return Program(*made_of, checked=checked, rooms=rooms, arena=arena, uses=uses)

    def _constant(self, row: Mapping[str, Any], sources: Sequence[Source]) -> Array:
        dtype, shape = DTYPES[row["dtype"]].numpy, tuple(int(d) for d in row["shape"])
        if min(shape, default=0) < 0:
            raise ValueError(f"a constant of shape {shape}")
        data = sources[row["source"]].data if "source" in row else self._blobs[row["blob"]]
        offset, count = int(row.get("offset", 0)), math.prod(shape)
        if offset < 0 or offset + count * dtype.itemsize > len(data):
            raise ValueError("a constant is outside its file")
        return np.frombuffer(data, dtype, count, offset).reshape(shape) if count else np.empty(shape, dtype)


def _read_port(row: Sequence[Any], symbols: Mapping[str, Var]) -> Port:
    name, dtype, dims = row
    shape = [Var("late", least=None) if d == "?" else _read_number(d, symbols) for d in dims]
    return Port(str(name), TensorType.of(DTYPES[dtype], shape))


def _no_program(error: Exception) -> Damaged:
    return Damaged("the container holds no compiled program", why=str(error))
