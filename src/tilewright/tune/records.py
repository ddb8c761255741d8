"""What tuning found, kept in the store: one entry for a machine and a version of the compiler.

    found = Records.of(store, target, compiler)      those of this machine; empty where there are none
    found.keep([record])                             into the entry, beside what other processes put there meanwhile
    found.tuned()                                    the choices, as a compilation takes them

A record says of one kernel, by its key, which choice was found and how it was confirmed, or that none is better than
the default, and what was measured, so that a later run goes on where this one ended. A record that cannot be read is
dropped. As text, a record is a line of JSON: what two people tuned merges line by line.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tilewright.core.tuned import UNTUNED, Tuned
from tilewright.report.errors import UserError
from tilewright.store import Store, digest
from tilewright.store.keys import is_key
from tilewright.target import Target

FORM = 1
"""The version of the form of a record."""

HEAD = b'{"tuning": 1}\n'
"""The first line of an entry, by which it is known."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a kernel: its key, a name to read, the template and the choice that were found (None: the
    default is kept), the seconds of a call by default and, by the median of pairs, as found, how many of `pairs` of
    runs it won, and the ratio to the default's time of each choice that was measured, by `name_of` that choice; calls
    had so many threads."""

    key: str
    kernel: str
    template: str = ""
    choice: Any = None
    default_seconds: float = 0.0
    seconds: float = 0.0
    wins: int = 0
    pairs: int = 0
    measured: Mapping[str, float] = field(default_factory=dict)
    threads: int = 1

    @property
    def is_better(self) -> bool:
        """Whether it names a choice that beat the default."""
        return self.choice is not None

    def line(self) -> str:
        """The record as a line of JSON."""
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False)

    @staticmethod
    def parse(line: str | bytes) -> Record:
        """The record of a line. Raises ValueError, KeyError or TypeError for what is none."""
        row = json.loads(line)
        found = Record(
            key=str(row["key"]),
            kernel=str(row["kernel"]),
            template=str(row["template"]),
            choice=row["choice"],
            default_seconds=float(row["default_seconds"]),
            seconds=float(row["seconds"]),
            wins=int(row["wins"]),
            pairs=int(row["pairs"]),
            measured={str(name): float(ratio) for name, ratio in dict(row["measured"]).items()},
            threads=int(row.get("threads", 1)),
        )
        if not is_key(found.key) or not 0 <= found.wins <= found.pairs:
            raise ValueError("its key or its counts are wrong")
        return found


def name_of(template: str, choice: Any) -> str:
    """A short name of a choice: the same in every process."""
    return digest(template=template, choice=json.dumps(choice, sort_keys=True))[:16]


class Records(Mapping[str, Record]):
    """The records of a machine and a compiler, by the keys of kernels. What other processes keep meanwhile is seen by
    `keep`."""

    def __init__(self, store: Store, key: str, rows: Mapping[str, Record]) -> None:
        self._store, self._key, self._rows = store, key, dict(rows)

    @staticmethod
    def of(store: Store, target: Target, compiler: str) -> Records:
        """Those in a store for a target; what cannot be read is left out."""
        key = digest(kind="tuning", machine=machine_of(target), compiler=compiler, form=FORM)
        return Records(store, key, _read(store.get(key) if store.is_on else None))

    def __getitem__(self, key: str) -> Record:
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def keep(self, records: Iterable[Record]) -> bool:
        """Adds records, in place of those of the same kernels; whether they were kept in the store, too."""
        fresh = {record.key: record for record in records}
        with locked(self._store, self._key):
            self._rows = _read(self._store.get(self._key) if self._store.is_on else None) | self._rows | fresh
            return self._store.is_on and self._store.put(self._key, HEAD, self.text().encode())

    def text(self) -> str:
        """All records as text, a line each."""
        return "".join(f"{self._rows[key].line()}\n" for key in sorted(self._rows))

    def tuned(self) -> Tuned:
        """The choices that were found to be better."""
        rows = {key: {"template": r.template, "choice": r.choice} for key, r in self._rows.items() if r.is_better}
        return Tuned(rows, digest(choices=json.dumps(rows, sort_keys=True))) if rows else UNTUNED


def read_text(text: str, where: str) -> list[Record]:
    """The records of a text, as `Records.text` writes it. UserError for a line that is none."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(Record.parse(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                why = f"line {number} is no record: {error}"
                fix = "give a file that `tilewright tune export` wrote"
                raise UserError("cannot read tuning records", where=where, why=why, fix=fix) from None
    return found


def machine_of(target: Target) -> str:
    """What of a target decides how fast code is, but for the rates that are measured again from time to time."""
    row = target.record()
    kept = ("triple", "cpu", "model", "vector_bits", "vector_registers", "features", "caches")
    return json.dumps({name: row[name] for name in kept}, sort_keys=True)


def _read(content: bytes | None) -> dict[str, Record]:
    """The records in an entry; damaged lines are dropped."""
    found: dict[str, Record] = {}
    for line in (content or b"").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            record = Record.parse(line)
            found[record.key] = record
    return found


@contextlib.contextmanager
def locked(store: Store, key: str) -> Iterator[None]:
    """Holds a lock that belongs to an entry; where there can be none, the last one to write wins."""
    try:
        if store.path is None:
            raise OSError
        store.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(store.path / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def without_choice(record: Record) -> Record:
    """The record of a kernel whose choice is not kept, with all that was measured."""
    return replace(record, template="", choice=None, seconds=0.0, wins=0, pairs=0)
