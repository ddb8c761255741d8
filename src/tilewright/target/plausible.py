"""What is believed of a measurement. A figure that is not keeps its estimate, and its origin says why.

What disturbs a measurement makes it too slow, never too fast. So a figure that is better than its estimate is believed
up to what no processor does, and one that is worse by more than `RATIO` is not: the family's estimate is seldom wrong
by more. Figures are held against each other, too: a level of memory delivers no less than a farther one, a load takes
no longer than in a stream, an instruction that adds several products takes no less than a multiply-add of its width.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from .core import DOTS, UNITS, Figures, rounded
from .families import is_generic
from .instructions import INSTRUCTIONS
from .origins import KEPT, MEASURED, UNSETTLED, Origin, Origins, Source
from .target import Target

RATIO: Final = 3.0
"""How many times worse than its estimate a figure may be."""

RATIOS: Final[Mapping[str, float]] = {
    "ghz": 2.5,
    "gather_cycles": 8.0,  # what microcode does against leaks of data takes several times as long
    "dots": 5.0,  # one family's instruction may be another's loop of microcode
    "fork_seconds": 20.0,
    "wake_seconds": 50.0,
    # What others use, too.
    "last_share": 32.0,
    **dict.fromkeys(("memory_gbs", "memory_store_gbs", "memory_gbs_all", "memory_tile_gbs", "memory_asked_gbs"), 8.0),
}
"""Where estimates are worse."""

BETTER: Final = 10.0
"""How many times better than its estimate a figure may be, where `LIMITS` has none: clocks that jump do that."""

GENERIC: Final = 2.0
"""How much further figures may be from the generic rows, which are of no processor."""

LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "ghz": (0.4, 8.0),
    "fma_cycles": (0.24, 4.0),
    "fma_latency": (1.9, 16.0),
    "load_cycles": (0.24, 4.0),
    "store_cycles": (0.24, 8.0),
    "add_beside_cycles": (0.0, 4.0),
    "chain": (1.0, 4.0),
    "subnormal_cycles": (0.0, 1000.0),
    "last_share": (0.0, 1.0),
}
"""What no processor is outside of; these alone bound the last three."""

_UNBOUND: Final = ("add_beside_cycles", "chain", "subnormal_cycles")
_MORE_IS_BETTER: Final = ("GHz", "GB/s", "share")
_SLACK: Final = 1.15
"""Measurements that should be in order may be out of it by so much."""


def put_into(target: Target, measured: Figures, kept: Collection[str] = ()) -> Target:
    """`target` with the figures `measured` that are believed, cycles in two digits and the others in three; what is not
    believed keeps its estimate. Those `kept` were measured too often in vain to be measured again."""
    figures = {name: value for name, value in measured.items() if value is not None}
    doubts = dict(_doubts(target, figures))
    if "ghz" in doubts:
        doubts |= dict.fromkeys(_cycles(target), f"its clock is not believed: {doubts['ghz']}")
    values = target.figures()
    cycles = _cycles(target)
    known = {name: rounded(value, 2 if name in cycles else 3) for name, value in figures.items() if name in values}
    believed = {name: value for name, value in known.items() if name not in doubts}
    origins = dict.fromkeys(believed, MEASURED)
    for name in [name for name in known if name in doubts]:
        origins[name] = Origin(Source.DOUBTED, f"measured {known[name]:g}, but {doubts[name]}")
    for name in [name for name in values if name in measured and measured[name] is None]:
        origins[name] = Origin(Source.UNSETTLED, KEPT if name in kept else UNSETTLED)
    return _replaced(target, _ordered({**values, **believed}, believed, target), origins)


def _cycles(target: Target) -> frozenset[str]:
    """The figures that are counted by the clock."""
    names = (name for name in target.figures() if name != "ghz")
    return frozenset(name for name in names if UNITS.get(name.split(".")[0]) in ("cycles", "×"))


def _doubts(target: Target, figures: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """The figures that are not believed, and why."""
    estimates = target.figures()
    for name, value in figures.items():
        kind = name.split(".")[0]
        least, most = LIMITS.get(kind, (0.0, float("inf")))
        if not least <= value <= most:
            yield name, f"no processor is outside of {least:g} to {most:g}"
        elif kind not in _UNBOUND and name in estimates:
            more = UNITS.get(kind, "GB/s") in _MORE_IS_BETTER
            good, usual = (value, estimates[name]) if more else (estimates[name], value)
            ratio = RATIOS.get(kind, RATIO) * (GENERIC if is_generic(target.family) else 1)
            if good * ratio < usual or good > BETTER * usual:
                yield name, f"the estimate is {estimates[name]:g}"
    yield from _unordered(figures, len(target.caches))
    yield from _too_fast(figures)


def _unordered(figures: Mapping[str, float], levels: int) -> Iterator[tuple[str, str]]:
    """Levels that deliver more than a nearer one."""
    for kind, memory in (("cache_gbs", "memory_gbs"), ("store_gbs", "memory_store_gbs")):
        names = [name for name in (*(f"{kind}.{n}" for n in range(1, levels + 1)), memory) if name in figures]
        for near, far in itertools.pairwise(names):
            if figures[far] > _SLACK * figures[near]:
                yield near, f"{far} is {figures[far]:.3g}"
    if figures.get("memory_gbs_all", 0.0) * _SLACK < figures.get("memory_gbs", 0.0):
        yield "memory_gbs_all", f"one core reads {figures['memory_gbs']:.3g}"


def _ordered(values: Mapping[str, float], believed: Mapping[str, float], target: Target) -> dict[str, float]:
    """`values`, with estimates raised that a measured figure proves to be too slow: those of levels nearer than a
    measured one, and those of the loads and stores of a stream."""
    out = dict(values)
    levels, core = range(len(target.caches), 0, -1), (("load_cycles", "cache_gbs"), ("store_cycles", "store_gbs"))
    for kind, farther in (("cache_gbs", "memory_gbs"), ("store_gbs", "memory_store_gbs")):
        most = believed.get(farther, 0.0)
        for name in (f"{kind}.{level}" for level in levels):
            out[name] = out[name] if name in believed else max(out[name], most)
            most = max(most, believed.get(name, 0.0))
    for name, kind in core:
        if name not in believed and f"{kind}.1" in believed:
            out[name] = min(out[name], rounded(target.vector_bits / 8 * out["ghz"] / out[f"{kind}.1"], 2))
    out["memory_gbs_all"] = max(out["memory_gbs_all"], out["memory_gbs"])
    for name in {"memory_tile_gbs", "memory_asked_gbs"} - set(believed):  # products between lines make none faster
        out[name] = min(out[name], out["memory_gbs"])
    return out


def _too_fast(figures: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Instructions that take less than a multiply-add of their width."""
    widths = {}
    for name, value in figures.items():
        row = INSTRUCTIONS.get(name.removeprefix(DOTS))
        if row is not None and ".fma_" in row.name:
            widths[row.bits] = value
    for name, value in figures.items():
        row = INSTRUCTIONS.get(name.removeprefix(DOTS))
        if row is not None and not row.has_tiles and value * _SLACK < widths.get(row.bits, 0.0):
            yield name, f"a multiply-add of {row.bits} bits takes {widths[row.bits]:.3g}"


def _replaced(target: Target, values: Mapping[str, float], origins: Mapping[str, Origin]) -> Target:
    """`target` with all its figures as given."""

    def row(record: dict[str, object]) -> dict[str, object]:
        out: dict[str, object] = {}
        for name, value in record.items():
            if isinstance(value, Mapping):
                out[name] = {key: values[f"{name}.{key}"] for key in value}
            elif isinstance(value, list):
                out[name] = tuple(values[f"{name}.{n}"] for n in range(1, len(value) + 1))
            else:
                out[name] = values[name]
        return out

    core = target.core.replace(**row(target.core.record()))
    peaks = target.peaks.replace(**row(target.peaks.record()))
    return dataclasses.replace(target, core=core, peaks=peaks, origins=Origins.by_name(origins))
