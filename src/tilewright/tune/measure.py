"""Trials of candidates, from this process: those that are made here and elsewhere, and the one process that runs them.

    with Makers(target, processes) as makers, Trials(sizes, flush) as trials:
        programs = makers.make(task, [None, asked, …])  # bytes, or why not; None is the default
        trials.load(0, programs[0])
        trials.load(1, programs[1])                     # Loaded, or Failed: a crash, a hang, a wrong result
        trials.time([0, 1], rounds=5)

Nothing is made while something is timed. A candidate that ends the process, or keeps it for longer than `PATIENCE`,
costs that candidate alone: the others are loaded again, in another process.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType

from tilewright.analysis.structure import key_of
from tilewright.core.forced import Forced
from tilewright.core.processes import Companion, Ended, Workers
from tilewright.loops.transport import dumps, loads
from tilewright.report import settings
from tilewright.report.errors import UserError
from tilewright.target import Target
from tilewright.tune.parcels import Packed, Parcel, pack
from tilewright.tune.task import Maker, Task
from tilewright.tune.trial import Begin, Forget, Load, Loaded, Time

PATIENCE = 10.0
"""Seconds that a message may take beyond what its calls should."""

SLOWER = 4.0
"""How many times as long as the first call of a program its turns may take."""


class Failed(Exception):
    """A candidate that cannot be measured; the text says why."""


class Makers:
    """Processes that make programs of tasks, this one among them. A task is read once by each of them for all of its
    choices. Programs run on so many `threads`."""

    def __init__(self, target: Target, processes: int, threads: int = 1) -> None:
        alone = {settings.COMPILE_PROCESSES.name: "1"}
        self.threads, self._target = threads, target
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-")
        self._workers = Workers("tilewright.tune.measure:work", processes - 1, alone)
        self._task: tuple[Task, bytes] | None = None
        self.runner = Companion("tilewright.tune.trial:work", {settings.NUM_THREADS.name: "1"})
        """The process that runs what was made, for one kernel after another: it takes a while to begin."""

    def __enter__(self) -> Makers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.__exit__(kind, error, trace)
        self.runner.end()
        self._folder.cleanup()

    @property
    def pids(self) -> list[int]:
        """The processes beside this one."""
        return self._workers.pids

    def make(self, task: Task, asked: Sequence[Forced | None]) -> list[Parcel | str]:
        """The program of each choice, as an executable pickles, until nobody has it any more; why there is none, where
        a step is refused."""
        made: dict[int, Parcel | Alike | str] = {}
        self.make_each(task, asked, made.__setitem__)
        return [one for place in range(len(asked)) if not isinstance(one := made[place], Alike)]

    def make_each(
        self,
        task: Task,
        asked: Sequence[Forced | None],
        then: Callable[[int, Parcel | Alike | str], object],
        holder: str = "",
    ) -> None:
        """Calls `then` with the place of each choice and its program as soon as that is made, in the thread that has
        it. A process that made the same program before, for the same `holder`, does not make it again."""
        if self._task is None or self._task[0] is not task:
            self._task = task, dumps((task, self._target, self.threads))
        body = self._task[1]

        def made(place: int, answer: Packed | Alike | str) -> None:
            then(place, Parcel.of(answer) if isinstance(answer, Packed) else answer)

        jobs = [(place, body, one, self._folder.name, holder) for place, one in enumerate(asked)]
        batch = self._workers.begin(jobs, pickle.dumps, pickle.loads, lambda answer: made(*answer))
        batch.finish(lambda job: made(job[0], make(*job[1:])))


@dataclass(frozen=True, slots=True)
class Alike:
    """A program that somebody has: its digest."""

    digest: bytes


def make(body: bytes, asked: Forced | None, folder: str, holder: str = "") -> Packed | Alike | str:
    """The program of a choice, of a task and a target in transport's form; or why there is none."""
    maker = _maker(body)
    try:
        function = maker.schedule(asked)
        key = holder, key_of(function)
        if holder and key in maker.digests:
            return Alike(maker.digests[key])
        packed = pack(maker.compile(function), folder)
    except UserError as error:
        return error.why or error.what
    maker.digests[key] = packed.digest
    return packed


@lru_cache(maxsize=1)
def _maker(body: bytes) -> Maker:
    return Maker(*loads(body))


def work(job: bytes) -> bytes:
    """What another process makes of a task with its target, and a choice, with the place that the choice has."""
    place, *what = pickle.loads(job)
    return pickle.dumps((place, make(*what)))


class Trials:
    """Programs that run in a process of their own, or in the one that makers have for it. `sizes` are those of symbols
    by name; `flush` bytes are pushed through the caches before each call; inputs lie `shift` bytes behind a line."""

    def __init__(self, sizes: Mapping[str, int], flush: int, makers: Makers | None = None, shift: int = 0) -> None:
        self._begin = Begin(dict(sizes), flush, shift)
        own = Companion("tilewright.tune.trial:work", {settings.NUM_THREADS.name: "1"}) if makers is None else None
        self._process, self._own = own or makers.runner, own  # type: ignore[union-attr]
        self._loaded: dict[int, bytes] = {}
        self._seconds: dict[int, float] = {}
        self._fresh = True

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own is not None:
            self._own.end()

    @property
    def pid(self) -> int | None:
        """The process that runs the programs, where one was begun."""
        return self._process.pid

    def load(self, number: int, program: bytes) -> Loaded:
        """Runs a program once. Failed where it crashes, takes too long, or gives other results than the first one."""
        try:
            self._start()
            answer = self._ask(Load(number, program))
        except Ended as error:
            self._fresh = True
            raise Failed(f"it ended the process it ran in: {error}") from None
        if not isinstance(answer, Loaded):
            raise Failed("it cannot be called")
        if answer.wrong:
            raise Failed(answer.wrong)
        self._loaded[number], self._seconds[number] = program, answer.seconds
        return answer

    def time(self, numbers: Sequence[int], rounds: int, seed: int = 0) -> list[list[float]]:
        """The seconds of `rounds` calls of each program, in turns. Failed where one of them ends the process, or ended
        it when it was loaded again."""
        try:
            self._start()
            if not self._loaded.keys() >= set(numbers):
                raise Failed(f"one of {len(numbers)} could not be loaded again")
            calls = 2 * rounds * sum(self._seconds.get(number, 0.0) for number in numbers)
            answer = self._ask(Time(tuple(numbers), rounds, seed), PATIENCE + SLOWER * calls)
        except Ended as error:
            self._fresh = True
            raise Failed(f"one of {len(numbers)} ended the process they ran in: {error}") from None
        if not isinstance(answer, list):
            raise Failed("one of them cannot be called again")
        return answer

    def forget(self, numbers: Iterable[int]) -> None:
        """Programs that are not needed any more."""
        gone = tuple(n for n in numbers if self._loaded.pop(n, None) is not None)
        try:
            if gone and not self._fresh:
                self._ask(Forget(gone))
        except Ended:
            self._fresh = True

    def _start(self) -> None:
        """Begins a process where there is none, with all that was loaded but what ends the process now."""
        while self._fresh:
            self._ask(self._begin)
            self._fresh = False
            for number, program in list(self._loaded.items()):
                try:
                    self._ask(Load(number, program))
                except Ended:
                    del self._loaded[number]
                    self._fresh = True
                    break

    def _ask(self, message: object, patience: float | None = None) -> object:
        answer = self._process.ask(pickle.dumps(message), PATIENCE if patience is None else patience)
        return None if answer is None else pickle.loads(answer)
