"""Where the time of a call goes: kernels timed by the program itself, set against what the machine could do.

A profiled call notes when each kernel began and ended, and each thread in each parallel loop (codegen/profile.py).
Profiled and plain calls alternate, which shows the cost of profiling. Of the profiled calls the faster half counts,
and every figure is a mean over these: so the times of kernels and of the gaps between them add up to the call.

A kernel's bound is the time that its operations take at the peak of the threads in use, or its bytes from the nearest
caches that hold all of them, whichever is longer (the roofline: see target/peaks.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.codegen.profile import EVENT, HEAD, PART, TOTAL, words
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Expr, Var
from tilewright.runtime.program import Program, Site
from tilewright.runtime.subnormals import Subnormals
from tilewright.store import Json
from tilewright.target import Target

ROOM = 1 << 14
"""Events that a lane keeps; of a call with more, the last ones are missing in the timeline, not in the totals."""

LEAST_CALLS = 3
"""Profiled calls at least."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a thread did from `begin` to `end`, in seconds since the call began: kernel `site`, or, where that is None,
    its part of a parallel loop."""

    thread: int
    site: int | None
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class SiteTime:
    """The calls of a kernel at one place of the program, in one call of the program: how many, their seconds in all,
    the operations and bytes of all of them (None where they depend on sizes that the call computes), the seconds that
    the roofline allows for these, what planning expects of these sizes on one core (None where it cannot tell), and how
    evenly threads shared the work (the mean of their busy times over the longest; None where one thread did it)."""

    site: Site
    calls: int
    seconds: float
    flops: int | None
    bytes: int | None
    bound: float | None
    predicted: float | None
    balance: float | None

    @property
    def gflops(self) -> float | None:
        """Billions of operations a second."""
        return None if self.flops is None or not self.seconds else self.flops / self.seconds / 1e9

    @property
    def gbs(self) -> float | None:
        """Billions of bytes a second."""
        return None if self.bytes is None or not self.seconds else self.bytes / self.seconds / 1e9

    @property
    def roofline(self) -> float | None:
        """The share of what the machine could do at best."""
        return None if self.bound is None or not self.seconds else self.bound / self.seconds

    def record(self) -> dict[str, Json]:
        """The row as JSON says it."""
        names: dict[str, Json] = {
            "kernel": self.site.kernel,
            "template": self.site.template,
            "operators": list(self.site.operators),
            "source": list(self.site.source),
        }
        return names | {
            "calls": self.calls,
            "seconds": self.seconds,
            "flops": self.flops,
            "bytes": self.bytes,
            "gflops": self.gflops,
            "gbs": self.gbs,
            "roofline": self.roofline,
            "predicted_seconds": self.predicted,
            "balance": self.balance,
        }


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a call of a program. `seconds` is a profiled call, `plain_seconds` one without notes; `sites` are
    in the order of the program; `events` is the timeline of the fastest profiled call, `threads` how many it could use,
    `sizes` those of its symbols, `subnormals` the subnormal numbers that it met."""

    sites: tuple[SiteTime, ...]
    seconds: float
    plain_seconds: float
    calls: int
    threads: int
    events: tuple[Event, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    subnormals: Subnormals | None = None

    @property
    def between(self) -> float:
        """The seconds of a call that no kernel had: checks of arrays, sizes, the way from one kernel to the next."""
        return self.seconds - sum(row.seconds for row in self.sites)

    @property
    def overhead(self) -> float:
        """The cost of profiling, as a part of a plain call."""
        return self.seconds / self.plain_seconds - 1

    def record(self) -> dict[str, Json]:
        """The profile as JSON says it, without its timeline."""
        return {
            "threads": self.threads,
            "calls": self.calls,
            "seconds": self.seconds,
            "plain_seconds": self.plain_seconds,
            "between_seconds": self.between,
            "kernels": [row.record() for row in self.sites],
            "subnormals": None if self.subnormals is None else self.subnormals.record(),
        }

    def timeline(self) -> dict[str, Json]:
        """The timeline in the trace event format that Perfetto (ui.perfetto.dev) and chrome://tracing open: times in
        microseconds, a row for each thread."""
        rows: list[Json] = [
            {
                "ph": "M",
                "name": "thread_name",
                "pid": 1,
                "tid": n,
                "args": {"name": "caller" if n == 0 else f"worker {n}"},
            }
            for n in range(self.threads)
        ]
        for event in self.events:
            row = None if event.site is None else self.sites[event.site]
            place: dict[str, Json] = {"pid": 1, "tid": event.thread, "ts": event.begin * 1e6}
            place |= {"dur": (event.end - event.begin) * 1e6, "ph": "X"}
            if row is None:
                rows.append({**place, "name": "part of a loop", "cat": "thread"})
            else:
                about = {
                    key: part for key, part in row.record().items() if key in ("template", "source", "flops", "bytes")
                }
                rows.append({**place, "name": row.site.kernel, "cat": "kernel", "args": about})
        return {"displayTimeUnit": "ns", "traceEvents": rows}


class Recorder:
    """Records of profiled calls of one program, and what they come to."""

    def __init__(self, sites: Sequence[Site], threads: int) -> None:
        self._sites = sites
        self._threads = threads
        self._words = np.zeros(words(len(sites), ROOM, threads), np.int64)

    @property
    def address(self) -> int:
        """Where the entry point is to write."""
        return int(self._words.ctypes.data)

    def clear(self) -> None:
        """An empty record, ready for a call."""
        self._words[:HEAD] = 0
        self._words[:3] = len(self._sites), ROOM, self._threads
        self._words[HEAD : HEAD + TOTAL * len(self._sites)] = 0
        for lane in range(self._threads):
            self._words[self._lane(lane)] = 0

    def totals(self) -> np.ndarray[Any, Any]:
        """For each site, how often it was reached and its nanoseconds."""
        return self._words[HEAD : HEAD + TOTAL * len(self._sites)].reshape(-1, TOTAL).copy()

    def events(self) -> np.ndarray[Any, Any]:
        """Rows of thread, site, begin and end (nanoseconds), thread by thread in the order of their ends."""
        rows = []
        for lane in range(self._threads):
            at = self._lane(lane)
            count = min(int(self._words[at]), ROOM)
            found = self._words[at + HEAD : at + HEAD + count * EVENT].reshape(-1, EVENT)
            rows.append(np.column_stack([np.full(count, lane), found]))
        return np.concatenate(rows)

    def _lane(self, lane: int) -> int:
        return HEAD + TOTAL * len(self._sites) + lane * (HEAD + EVENT * ROOM)


@dataclass(frozen=True, slots=True)
class _Call:
    """A profiled call: its nanoseconds, the totals of its sites, its events, and when it began."""

    took: int
    totals: np.ndarray[Any, Any]
    events: np.ndarray[Any, Any]
    began: int


def measure(
    call: Callable[[], object],
    noting: Callable[[Recorder], AbstractContextManager[None]],
    recorder: Recorder,
    seconds: float,
) -> tuple[list[_Call], list[int]]:
    """Calls `noting` the time of each kernel, and the nanoseconds of plain ones, in turns for so many seconds, after
    one of each."""
    call()
    with noting(recorder):
        call()
    calls: list[_Call] = []
    others: list[int] = []
    end = time.perf_counter() + seconds
    while len(calls) < LEAST_CALLS or time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        others.append(time.perf_counter_ns() - start)
        recorder.clear()
        with noting(recorder):
            start = time.perf_counter_ns()
            call()
            took = time.perf_counter_ns() - start
        calls.append(_Call(took, recorder.totals(), recorder.events(), start))
    return calls, others


def evaluate_calls(
    calls: Sequence[_Call],
    plain: Sequence[int],
    program: Program,
    expected: Sequence[float | None],
    sizes: Mapping[Var, int],
    threads: int,
    subnormals: Subnormals | None = None,
) -> Profile:
    """What measured calls of a program come to; `expected` are the seconds that planning expects of each place, `sizes`
    those of the interface's symbols in these calls."""
    faster = sorted(calls, key=lambda call: call.took)[: max(len(calls) // 2, 1)]
    mean = np.mean([call.totals for call in faster], axis=0)
    shares = [_shares(call.events) for call in faster]
    rows = []
    for n, site in enumerate(program.sites):
        count, seconds = round(mean[n, 0]), float(mean[n, 1]) * 1e-9
        flops, moved = (_known(e, sizes, count) for e in (site.flops, site.bytes))
        bound = bound_seconds(flops, moved, count, program.target, threads)
        one = expected[n]
        predicted = None if one is None else one * count
        found = [share[n] for share in shares if n in share]
        balance = float(np.mean(found)) if found else None
        rows.append(SiteTime(site, count, seconds, flops, moved, bound, predicted, balance))
    names = {symbol.name: size for symbol, size in sizes.items()}
    usual = sorted(plain)[: max(len(plain) // 2, 1)]
    seconds, alone = (float(np.mean(times)) * 1e-9 for times in ([call.took for call in faster], usual))
    return Profile(tuple(rows), seconds, alone, len(calls), threads, _timeline(faster[0]), names, subnormals)


def _timeline(call: _Call) -> tuple[Event, ...]:
    """The events of a call, in seconds since it began."""
    rows = [[int(word) for word in row] for row in call.events]
    began = call.began
    return tuple(
        Event(lane, None if site == PART else site, (begin - began) * 1e-9, (end - began) * 1e-9)
        for lane, site, begin, end in rows
    )


def _known(work: Expr | None, sizes: Mapping[Var, int], calls: int) -> int | None:
    return None if work is None else int(evaluate(work, sizes)) * calls


def bound_seconds(flops: int | None, moved: int | None, calls: int, target: Target, threads: int) -> float | None:
    """The least seconds for so many operations and bytes, in so many calls."""
    if flops is None or moved is None or not calls:
        return None
    peaks, cores = target.peaks, min(threads, target.cores)
    rate = min(peaks.memory_gbs * cores, peaks.memory_gbs_all)
    for cache, gbs in zip(target.caches, peaks.cache_gbs, strict=True):
        copies = max(target.threads // cache.shared, 1)
        if moved / calls <= cache.bytes * min(copies, cores):
            rate = gbs * cores
            break
    return max(flops / (target.fma_gflops * cores), moved / rate) * 1e-9


def _shares(events: np.ndarray[Any, Any]) -> dict[int, float]:
    """How evenly threads shared each site's loops: the mean of their busy times over the longest."""
    kernels = events[events[:, 1] != PART]
    parts = events[events[:, 1] == PART]
    if not len(parts):
        return {}
    order = kernels[np.argsort(kernels[:, 2])]
    place = np.searchsorted(order[:, 2], parts[:, 2], side="right") - 1
    inside = (place >= 0) & (parts[:, 2] <= order[np.maximum(place, 0), 3])
    busy: dict[int, dict[int, int]] = {}
    for (lane, _, begin, end), at in zip(parts[inside], order[place[inside]], strict=True):
        lanes = busy.setdefault(int(at[1]), {})
        lanes[int(lane)] = lanes.get(int(lane), 0) + int(end - begin)
    return {site: sum(lanes.values()) / len(lanes) / max(max(lanes.values()), 1) for site, lanes in busy.items()}
