"""`measured(target)`: the target with what was measured of this machine, once, and kept in the store.

The probes and LLVM are loaded where there is something to measure, so that a program that was compiled before starts
without them. What is kept are the raw figures: which of them are believed is decided when they are read. What could not
be settled, because the machine was busy, is measured again by processes that start `PAUSE_SECONDS` later or more,
`TRIES` times in all. Then it is marked in the store as an estimate that is kept, until somebody asks for measuring
again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..report import settings
from ..report.errors import UserError
from ..report.progress import progress
from ..store import Json, Store, digest, pack, unpack
from .core import Figures, number_of
from .host import Host, current_host
from .machine import llvm_stamp
from .origins import Source
from .target import Target

MEASURING_VERSION: Final = 8
"""Rises when what the probes measure changes: what another version kept is not used."""

TRIES: Final = 3
"""How many processes measure figures that are not settled. Each takes 0.4 s for it, and changed figures invalidate
compiled code: a machine that is always busy must not pay for that for ever."""

PAUSE_SECONDS: Final = 3600.0
"""How long figures that are not settled stay as they are: programs that start one after the other take what the first
one compiled."""

PROBED: Final = ("x86_64", "aarch64")
"""Architectures that the probes are written for: their constraints of registers, and how a cache is emptied."""

_lock = threading.Lock()
_measured: dict[str, Kept] = {}


class Kept(NamedTuple):
    """Figures as the store keeps them, None for those that are not settled; how many processes measured them; the names
    of those that are not measured again: estimates stand for them; and when they were measured, in seconds since 1970.
    """

    figures: Figures
    tries: int
    estimated: tuple[str, ...]
    at: float

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to measure, or it is too soon. A clock that was put back makes nothing wait."""
        is_settled = all(value is not None or name in self.estimated for name, value in self.figures.items())
        return is_settled or (bool(self.figures) and 0 <= time.time() - self.at < PAUSE_SECONDS)


class Part(NamedTuple):
    """Figures that are measured together and kept under one key. `measure` finds them, by the names of
    `Target.figures`, None for those that are not settled, and raises MemoryError where there is no room for it."""

    name: str
    measure: Callable[[Target, Host], Figures]


def _measure_machine(target: Target, host: Host) -> Figures:
    from .measure import measure  # brings the probes along

    return measure(target, host)


MACHINE: Final = Part("machine", _measure_machine)
"""What a core does, and what caches and memory deliver."""


def measured(
    target: Target, store: Store | None = None, *, again: bool = False, parts: Sequence[Part] = (MACHINE,)
) -> Target:
    """`target` with the figures of this machine: those of `store` (the user's store if None), else measured now, in
    less than 0.4 s, and kept. With `again` they are measured in any case; what is not settled then stays as it was.

    Models of machines, targets that this machine cannot run and targets with rates given by hand stay as they are. So
    do those of an architecture without probes, and all where TILEWRIGHT_CALIBRATE is 0. A figure that is not plausible
    keeps its estimate (`Target.origin`). At last, rates of the file that TILEWRIGHT_MACHINE names are put in, whatever
    the target.
    """
    return overridden(_with_figures(target, store, again, parts))


def overridden(target: Target) -> Target:
    """`target` with the rates of the file that TILEWRIGHT_MACHINE names, if it does: `doctor --json` prints one. Raises
    UserError for a file that cannot be read or has other numbers than a target."""
    rates = settings.MACHINE.read()
    if rates is None:
        return target
    try:
        return target.with_rates(rates.record)
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"cannot use the rates of {rates.path} for {target.name}",
            where=f"the environment: {settings.MACHINE.name}",
            why=str(error),
            fix="take the form that `tilewright doctor --json` prints under `machine`, with what you change alone",
        ) from None


def _with_figures(target: Target, store: Store | None, again: bool, parts: Sequence[Part]) -> Target:
    host = current_host()
    here = target.name.startswith("native") and target.is_runnable_on(host) and target.architecture in PROBED
    if not here or not settings.CALIBRATE.read() or target.origins.named(Source.GIVEN):
        return target
    with _lock:
        place = store or Store.default()
        keys = {part: _key(part, target, host) for part in parts}
        missing = [part for part, key in keys.items() if again or not (key in _measured or _recall(key, place))]
        if missing:
            _measure({part: keys[part] for part in missing}, target, host, place, again)
        found = [_measured[key] for key in keys.values()]
    from .plausible import put_into

    figures = {name: value for kept in found for name, value in kept.figures.items()}
    return put_into(target, figures, [name for kept in found for name in kept.estimated])


def _measure(parts: Mapping[Part, str], target: Target, host: Host, store: Store, again: bool) -> None:
    """Measures parts and keeps them under their keys, and says so where stderr is a terminal: with `again` all of it,
    else what is not settled. A part for which there is no memory has no figures, and is not kept."""
    start = time.perf_counter()
    with progress("measuring this machine"):
        for part, key in parts.items():
            before = _kept(key, store) or Kept({}, 0, (), 0.0)
            try:
                found = {**part.measure(target, host)}
            except MemoryError:
                _measured[key] = before
                continue
            settled = {name: value for name, value in before.figures.items() if value is not None}
            found.update((name, value) for name, value in settled.items() if not again or found.get(name) is None)
            _measured[key] = made = _made(found, 1 if again else before.tries + 1)
            figures: dict[str, Json] = dict(made.figures)
            rest: dict[str, Json] = {"tries": made.tries, "estimated": list(made.estimated), "at": made.at}
            store.put(key, pack({"figures": figures, **rest}, {}))
    if sys.stderr is not None and sys.stderr.isatty():
        seconds = time.perf_counter() - start
        print(f"measured this machine in {seconds:.1f} s (tilewright doctor shows it)", file=sys.stderr)


def _made(figures: Figures, tries: int) -> Kept:
    """Figures that so many processes measured, as they are kept."""
    missing = [name for name, value in figures.items() if value is None]
    return Kept(figures, tries, tuple(missing) if tries >= TRIES else (), time.time())


def _recall(key: str, store: Store) -> bool:
    """Whether all figures are kept there, or as many as this machine has; they are then those of this process."""
    kept = _kept(key, store)
    if kept is None or not kept.is_done:
        return False
    _measured[key] = kept
    return True


def _kept(key: str, store: Store) -> Kept | None:
    """What is kept under a key; None for what makes no sense."""
    content = store.get(key)
    if content is None:
        return None
    try:
        record: Mapping[str, Any] = unpack(content)[0]
        figures = {name: None if value is None else number_of(name, value) for name, value in record["figures"].items()}
        estimated = tuple([str(name) for name in record.get("estimated", ())])
        at = number_of("at", record.get("at", 0))
        return Kept(figures, int(number_of("tries", record["tries"])), estimated, at)
    except (UserError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _key(part: Part, target: Target, host: Host) -> str:
    """What a measurement depends on. The caches say which buffers were read; the model identifies the machine."""
    return digest(
        kind="calibration",
        part=part.name,
        probes=MEASURING_VERSION,
        model=host.model,
        caches=repr(target.caches),
        cpu=target.cpu,
        tuned=target.model,
        features=target.feature_text,
        cores=target.cores,
        compiler=llvm_stamp(),
    )
