"""Numbered cases in processes of their own, with limits on time and memory: what came of each, whatever it did.

    for number, answer in answers(run, range(500), processes=2): …             what run(number) gives, or `Ended`
    for number, kind, text in outcomes(run, range(500), processes=2): …        where run(number) gives (kind, text)

A case runs in a process that was forked from this one, so that all that is imported here is there at once. After one
that ends its process, or takes too long, the next runs in another. This process must have no threads but its own when
it forks: a command imports this module before NumPy.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import select
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

MEMORY = "64M"
"""What a call may take for buffers, for results, and a model for its constants."""

Outcome = tuple[int, str, str]
Run = Callable[[int], Any]


@dataclass(frozen=True)
class Limits:
    """What a case may take: seconds of a processor, seconds of a `clock` without using a hundredth of a processor, and
    bytes of memory beside what was there; how many `cases` share a process."""

    processor: float = 20.0
    clock: float = 240.0
    bytes: int = 3 << 29
    cases: int = 50


@dataclass(frozen=True)
class Ended:
    """The answer of a case that ended its process: how."""

    how: str


@dataclass
class _Worker:
    """A process with its part of the cases: those that are left, and what it has said."""

    numbers: list[int]
    process: int
    answers: int
    errors: IO[bytes]
    said: bytes = b""
    began: float = field(default_factory=time.monotonic)
    used: float = 0.0


def outcomes(
    run: Callable[[int], tuple[str, str]], numbers: Iterable[int], processes: int = 1, limits: Limits | None = None
) -> Iterator[Outcome]:
    """What came of each case, as soon as it is known; one that ended its process is a `defect`."""

    def told(number: int) -> tuple[str, str]:
        kind, text = run(number)
        return kind, text[-4000:] if kind == "defect" else text[:1000]

    for number, answer in answers(told, numbers, processes, limits):
        yield (number, "defect", answer.how) if isinstance(answer, Ended) else (number, *answer)


def answers(
    run: Run, numbers: Iterable[int], processes: int = 1, limits: Limits | None = None
) -> Iterator[tuple[int, Any]]:
    """The answer of each case, as JSON holds it, as soon as it is known; `Ended` for one that ended its process."""
    limits = limits or Limits()
    waiting = list(numbers)
    workers: dict[int, _Worker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < processes:
                size = max(1, min(limits.cases, -(-len(waiting) // processes)))
                part, waiting = waiting[:size], waiting[size:]
                worker = _start(run, part, limits)
                workers[worker.answers] = worker
            ready, _, _ = select.select(list(workers), [], [], 1.0)
            for answers in [a for a in list(workers) if a in ready or _is_late(workers[a], limits)]:
                worker = workers[answers]
                if answers not in ready:
                    os.kill(worker.process, signal.SIGKILL)
                yield from _listen(worker)
                if worker.process == 0:
                    del workers[answers]
                    waiting = worker.numbers + waiting
    finally:
        for worker in workers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.process, signal.SIGKILL)
            os.waitpid(worker.process, 0)


def _is_late(worker: _Worker, limits: Limits) -> bool:
    """Whether a worker waits for what does not come. One that has to share its processor with many others is not late:
    it uses some, and has its limit."""
    if time.monotonic() - worker.began <= limits.clock:
        return False
    used = _processor_seconds(worker.process)
    if used - worker.used < limits.clock / 100:
        return True
    worker.began, worker.used = time.monotonic(), used
    return False


def _processor_seconds(process: int) -> float:
    """What a process has used of processors; 0 where the system does not tell."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _listen(worker: _Worker) -> Iterator[tuple[int, Any]]:
    """What a worker has said. Where it has ended, its case has, too, unless all are done; then `process` is 0."""
    part = os.read(worker.answers, 1 << 16)
    *lines, worker.said = (worker.said + part).split(b"\n")
    for line in lines:
        number, answer = json.loads(line)
        worker.began, worker.used = time.monotonic(), _processor_seconds(worker.process)
        worker.numbers.remove(number)
        yield number, answer
    if part:
        return
    os.close(worker.answers)
    _, status = os.waitpid(worker.process, 0)
    worker.process = 0
    worker.errors.seek(0)
    error = worker.errors.read()[-3000:].decode(errors="replace")
    worker.errors.close()
    if worker.numbers:
        yield worker.numbers.pop(0), Ended(f"{_ending(status)}\n{error}")


def _ending(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"ends the process with {os.WEXITSTATUS(status)}"
    ending = signal.Signals(os.WTERMSIG(status))
    if ending in (signal.SIGPROF, signal.SIGKILL):
        return "takes too long"
    return f"ends the process by {ending.name}"


def _start(run: Run, numbers: list[int], limits: Limits) -> _Worker:
    """A process that runs these cases."""
    if threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a process with threads cannot be forked: another thread may hold a lock for ever")
    heard, answers = os.pipe()
    errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the worker
    sys.stdout.flush()
    process = os.fork()
    if process:
        os.close(answers)
        return _Worker(list(numbers), process, heard, errors)
    os.close(heard)
    try:
        os.dup2(errors.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _limit(limits.bytes)
        for number in numbers:
            signal.setitimer(signal.ITIMER_PROF, limits.processor)
            answer = run(number)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _write(answers, json.dumps([number, answer]).encode() + b"\n")
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _limit(size: int) -> None:
    """Bounds the memory of this process, and lets it say where it is when a signal ends it."""
    faulthandler.enable(file=2)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    faulthandler.register(signal.SIGPROF, file=2, all_threads=False, chain=True)
    with contextlib.suppress(OSError, ValueError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + size, used + size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def prepare() -> None:
    """What bounds a case in this process and those that it forks, and keeps them apart from what this machine holds.
    Their files are in memory, where there is a place for that."""
    os.environ |= {"TILEWRIGHT_STORE": "off", "TILEWRIGHT_MEMORY_LIMIT": MEMORY, "TILEWRIGHT_CALIBRATE": "0"}
    os.environ["TILEWRIGHT_COMPILE_PROCESSES"] = "1"
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"
    warnings.simplefilter("ignore")


def describe(counts: dict[str, int]) -> str:
    """How many cases came out how."""
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))


def report(found: Iterable[Outcome], total: int, out: Any = None) -> dict[str, int]:
    """Prints every defect, and how far the cases are; how many came out how."""
    out = out or sys.stdout
    counts: dict[str, int] = {}
    start = last = time.monotonic()
    for done, (number, kind, text) in enumerate(found, 1):
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "defect":
            print(f"case {number}: {text}\n", file=out, flush=True)
        now = time.monotonic()
        if now - last > 10 or done == total:
            last = now
            left = (now - start) / done * (total - done)
            print(f"{done:,} of {total:,} ({describe(counts)}), {left:,.0f} s left", file=sys.stderr, flush=True)
    return counts
