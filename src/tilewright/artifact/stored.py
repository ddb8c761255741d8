"""What was compiled of a model file before: its key in the store, and how it is found there, without the compiler.

The key of an entry is the content of the model's file, the sizes that its dimensions are fixed at, the target, the
compiler itself and the settings it heeds; the entry names the files with external data by their content, too. So an
entry is found only if compiling again would give the same.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from tilewright.core import extensions
from tilewright.core.reading import LENIENT, Reading
from tilewright.core.switches import Switches
from tilewright.report import settings
from tilewright.report.errors import UserError
from tilewright.runtime.bundle import Bundle, Source
from tilewright.runtime.program import Program
from tilewright.store import Damaged, Json, Store, digest
from tilewright.store.files import map_file
from tilewright.target import Target
from tilewright.target.machine import llvm_stamp

_SETTLED_NS = 2_000_000_000
"""A file that was written less than so long ago may be written again without its times telling."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A model file and how it is compiled: what decides which entry of the store is its. `hashed` gives the SHA-256 of
    its content; `reading` says how it is read."""

    path: str
    model: Source
    hashed: Callable[[], str]
    target: Target
    switches: Switches
    sizes: Mapping[str, int]
    store: Store
    reading: Reading

    @staticmethod
    def of_file(
        path: str | os.PathLike[str],
        target: Target,
        switches: Switches,
        sizes: Mapping[str, int],
        reading: Reading = LENIENT,
    ) -> Stored:
        """Raises UserError for a file that cannot be read."""
        name, store = os.fspath(path), Store.default()
        model = Source("", map_file(name, "model file").data)
        return Stored(name, model, _hashed(name, model, store), target, switches, sizes, store, reading)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the model's file."""
        return self.hashed()

    @property
    def key(self) -> str:
        """The key of the entry."""
        return digest(
            model=self.sha256,
            compiled=stamp_of(self.target, self.switches),
            strict=self.reading.strict,
            seed=self.reading.seed,
            shapes=repr(self.reading.shapes),
            dims=" ".join(f"{dim}={size}" for dim, size in sorted(self.sizes.items())),
        )

    def find(self) -> Program | None:
        """The program that the store holds, unless its external data changed or the entry does not fit."""
        entry = self.store.map(self.key) if self.store.is_on else None
        return None if entry is None else self.program_in(entry)

    def program_in(self, entry: memoryview) -> Program | None:
        """The program in an entry; None where it, or a file that it refers to, is not what it should be."""
        try:
            bundle = Bundle(entry)
            sources = self._sources(bundle.sources)
            return None if sources is None else replace(bundle.program(0, sources), files=self.files_of(sources))
        except (Damaged, UserError):
            return None

    def files_of(self, sources: Iterable[Source]) -> tuple[str, ...]:
        """The absolute paths of the model's file and of those that hold its weights."""
        path = os.path.abspath(self.path)
        return tuple({path: None} | {os.path.join(os.path.dirname(path), s.path): None for s in sources if s.path})

    def _sources(self, rows: list[tuple[str, str]]) -> list[Source] | None:
        """The files an entry refers to, or None when one of them is not what it was."""
        if all(not path for path, _ in rows):
            return [self.model for _ in rows]
        from tilewright.frontends.onnx.external import (
            ExternalFiles,  # brings the front end along, for these models only
        )

        external = ExternalFiles.of_model(self.path)
        sources: list[Source] = []
        for path, expected in rows:
            source = self.model if not path else Source(path, external.get(path, self.path).data)
            if path and source.digest() != expected:
                return None
            sources.append(source)
        return sources


def _hashed(path: str, model: Source, store: Store) -> Callable[[], str]:
    """The SHA-256 of a model's file. Without a store it is computed on demand."""
    if not store.is_on:
        return cache(model.digest)
    known = _digest_of(path, model, store)
    return lambda: known


class MadeFrom(Mapping[str, Json]):
    """What a program says of the model file that it was compiled from: `model`, its name, and `sha256`, which is only
    found where it is asked for."""

    def __init__(self, stored: Stored) -> None:
        self._found: dict[str, Callable[[], Json]] = {
            "model": lambda: os.path.basename(stored.path),
            "sha256": stored.hashed,
        }

    def __getitem__(self, key: str) -> Json:
        return self._found[key]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def files_with_weights(path: str) -> list[str]:
    """The files beside a model's own that hold its weights. Raises UserError for a file that is no model."""
    from tilewright.frontends.onnx.file import open_model  # imports the front end

    return [file.path for file in open_model(path).files()[1:] if file.path is not None]


def _digest_of(path: str, model: Source, store: Store) -> str:
    """The SHA-256 of a model's file. Reading hundreds of megabytes takes longer than all else, so it is kept in the
    store for as long as the system says that the file is the same: its place, size, and the times of its last changes,
    of which users cannot set the second."""
    try:
        status = os.stat(path)
    except OSError:
        return model.digest()
    key = digest(
        file=os.path.realpath(path),
        place=f"{status.st_dev} {status.st_ino} {status.st_size}",
        times=f"{status.st_mtime_ns} {status.st_ctime_ns}",
    )
    known = store.get(key)
    if known is not None and len(known) == hashlib.sha256().digest_size:
        return known.hex()
    found = model.digest()
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED_NS:
        store.put(key, bytes.fromhex(found))
    return found


def stamp_of(target: Target, switches: Switches) -> str:
    """Text that differs whenever a module may be compiled to another program."""
    return digest(
        target=target.fingerprint(),
        compiler=compiler_version(),
        winograd=settings.WINOGRAD.read(),
        strassen=settings.STRASSEN.read(),
        check=settings.CHECK.read(),
        level=switches.level,
        off=" ".join(sorted(switches.off)),
        precision=switches.precision,
        choices=switches.choices,
        tuned=switches.tuned.stamp,
        extensions=extensions.stamp(),
    )


@cache
def compiler_version() -> str:
    """Text that differs whenever the compiler may make other code: its files and LLVM's."""
    files = "".join(sorted(_sources_in(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    return f"{llvm_stamp()} {hashlib.sha256(files.encode()).hexdigest()}"


def _sources_in(folder: str, within: str = "") -> Iterator[str]:
    """A line for each Python file in a folder and those inside it: its place, size, and when it was written."""
    for entry in os.scandir(folder):
        if entry.name.endswith(".py"):
            status = entry.stat()
            yield f"{within}{entry.name} {status.st_size} {status.st_mtime_ns}\n"
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _sources_in(entry.path, f"{within}{entry.name}/")
