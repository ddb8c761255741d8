"""A contest: one problem, solved by us, by the peers, and beside them a reference whose time ours is a share of.

All take turns in one race, so every figure printed is a ratio of times from the same rounds. A reference is a limit of
the machine (scaled to the problem's work) or another program of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.engines import Call, open_ours, open_peers, set_threads
from benchmarks.failures import Failures, name_case
from benchmarks.limits import Limit
from benchmarks.problems import Problem, WrongResult
from benchmarks.timing import PAUSE_SECONDS, THREADS_PAUSE_SECONDS, Ratio, Samples, compare, race
from tilewright.report.errors import InternalError, UserError

PEERS = ("numpy", "torch", "onnxruntime", "openvino")
T = TypeVar("T")

COMPILE_SECONDS = 0.15
"""What compiling one contraction may take."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure: cases whose name has a match of `only`, in `rounds` rounds of turns of `turn_seconds`."""

    rounds: int = 12
    turn_seconds: float = 0.004
    only: str = ""
    quick: bool = False

    @property
    def is_partial(self) -> bool:
        """Whether a part of the cases is enough: a quick run for which none were chosen."""
        return self.quick and not self.only

    def wants(self, name: str) -> bool:
        return re.search(self.only, name) is not None


@dataclass(slots=True)
class Run:
    """A run under way: `step` hears of each case that ended, `failures` knows what failed."""

    options: Options
    step: Callable[[str], object]
    failures: Failures = field(default_factory=Failures)

    def attempt(self, name: str, measure: Callable[[], T]) -> T | None:
        """What `measure` returns; None, and a failure noted, where compiling fails or ours is wrong."""
        try:
            return measure()
        except (WrongResult, UserError, InternalError) as error:
            self.failures.cases.append((name, str(error).partition("\nfix:")[0].replace("\n", "; ")))
            return None
        finally:
            self.step(name)


@dataclass(frozen=True, slots=True)
class Reference:
    """A program to be compared with; ours takes a share of one when it takes `scale` times as long as a call of it."""

    call: Call
    scale: float = 1.0

    @staticmethod
    def limit(limit: Limit, work: float) -> Reference:
        """The least time for `work`: operations or bytes, as the limit counts them."""
        return Reference(limit.call, work / limit.work)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The samples of a contest: ours, the references' (scaled) and the peers' by name, and how long compiling took."""

    ours: Samples
    references: Mapping[str, Samples]
    peers: Mapping[str, Samples]
    compile_seconds: float

    def share(self, reference: str) -> Ratio:
        """The reference's time over ours."""
        return compare(self.references[reference], self.ours)

    def over(self, peer: str) -> Ratio | None:
        """How many times longer a peer took; None where it took no part."""
        return compare(self.peers[peer], self.ours) if peer in self.peers else None

    def over_fastest(self) -> Ratio | None:
        """How many times longer the fastest peer took; None without peers."""
        if not self.peers:
            return None
        return compare(min(self.peers.values(), key=lambda samples: samples.best), self.ours)


def hold(
    problem: Problem,
    threads: int,
    run: Run,
    refer: Callable[[Problem], Mapping[str, Reference]] = lambda problem: {},
) -> Outcome:
    """Opens a problem with every engine, checks the results, and races those that are right beside what `refer` gives.
    Raises WrongResult where ours is wrong."""
    set_threads(threads)
    ours, seconds = open_ours(problem, threads)
    case, options = name_case(problem.name, threads), run.options
    peers = open_peers(problem, threads, lambda why: run.failures.peers.append((case, why)))
    references = refer(problem)
    programs = {"ours": ours} | {f"as {n}": r.call for n, r in references.items()} | peers
    pause = PAUSE_SECONDS if threads == 1 else THREADS_PAUSE_SECONDS
    taken = race(programs, options.rounds, options.turn_seconds, pause)
    return Outcome(
        taken["ours"],
        {n: taken[f"as {n}"].scaled(r.scale) for n, r in references.items()},
        {n: taken[n] for n in peers},
        seconds,
    )


def percent(share: float) -> str:
    return f"{share:.0%}"


def times(ratio: Ratio | None) -> str:
    """A ratio of bests as a cell; a dash for none."""
    return "-" if ratio is None else f"{ratio.best:.2f}"


def milliseconds(seconds: float) -> str:
    """What compiling took, marked where it took too long."""
    return f"{1e3 * seconds:.0f} ms{'' if seconds <= COMPILE_SECONDS else ' !'}"


def against(outcome: Outcome, names: Sequence[str] = PEERS) -> tuple[list[str], dict[str, object]]:
    """The cells and the data of the peers: the fastest first, then each, as times ours."""
    ratios = {"fastest peer": outcome.over_fastest()} | {name: outcome.over(name) for name in names}
    data: dict[str, object] = {n: {"best": r.best, "median": r.median} for n, r in ratios.items() if r is not None}
    return [times(ratio) for ratio in ratios.values()], data


def numbers(words: str) -> tuple[int, ...]:
    """Numbers between commas."""
    return tuple(int(word) for word in words.split(","))
