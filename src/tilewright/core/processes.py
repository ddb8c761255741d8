"""Work in other processes: tasks from bytes to bytes, run by the first process that is free, this one included.

    with Workers("package.module:function", 1) as workers:
        batch = workers.begin(tasks, encode, decode)    # decode(what `function` makes of encode(task)), elsewhere
        results = batch.finish(here)                    # here(task), of those that no worker has

Each worker is a Python of its own that runs one function again and again, and is gone when the `with` ends. It shares
nothing with this process: the file that Python was started with is not run again, no thread is copied, and Ctrl-C
reaches this process alone. Which process does a task makes no difference to the result; what a worker fails to do,
because it raises, dies or does not answer, is done here. A worker whose parent is gone finds its pipe closed, and ends.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import struct
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Generic, TypeVar

from tilewright.core.collection import rare_collections
from tilewright.core.frames import with_room
from tilewright.core.lock import quick_turns

T = TypeVar("T")
R = TypeVar("R")

PATIENCE = 120.0
"""Seconds that this process, with nothing left to do, waits for a worker's answer."""

REST = 60.0
"""Seconds that workers rest at most."""

_BEGIN = "import sys; name, *sys.path = sys.argv[1:]; from tilewright.core.processes import serve; serve(name)"
_SIZE = struct.Struct("<q")
_FAILED = -1


@dataclass
class Asked:
    """A task that a worker has, and its answer: None until there is one, and where it failed."""

    encode: Callable[[], bytes]
    take: Callable[[bytes | None], None]
    answer: bytes | None = None

    def done(self) -> None:
        """Takes the answer."""
        self.take(self.answer)


class Batch(Generic[T, R]):
    """Tasks that workers have begun with. `changed` guards what is said of them, and is told of each answer."""

    def __init__(
        self,
        tasks: Sequence[T],
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], R],
        then: Callable[[R], None] | None,
        changed: threading.Condition,
    ) -> None:
        self.tasks, self._encode, self._decode, self._then, self._changed = tasks, encode, decode, then, changed
        self._waiting = deque(range(len(tasks)))
        self._results: dict[int, R] = {}
        self._elsewhere = 0

    def next(self) -> Asked | None:
        """A task that nobody has, for a worker; it must be said to be `done`."""
        with self._changed:
            if not self._waiting:
                return None
            self._elsewhere += 1
            number = self._waiting.popleft()
        return Asked(lambda: self._encode(self.tasks[number]), lambda answer: self._done(number, answer))

    def _done(self, number: int, answer: bytes | None) -> None:
        made: dict[int, R] = {}
        then = self._then
        try:
            if answer is not None:
                made[number] = self._decode(answer)
                if then is not None:
                    then(made[number])
        finally:
            with self._changed:
                self._elsewhere -= 1
                self._results |= made
                self._changed.notify_all()

    def finish(self, here: Callable[[T], R], patience: float = PATIENCE) -> list[R]:
        """What becomes of each task, in their order: this process does those that no worker has, and those that one
        failed to do, or has no answer to `patience` seconds after all others are done. What `here` raises ends it."""
        try:
            with quick_turns():
                while self._waiting:
                    with self._changed:
                        number = self._waiting.popleft() if self._waiting else None
                    if number is not None:
                        self._results[number] = here(self.tasks[number])
            with self._changed:
                self._changed.wait_for(lambda: not self._elsewhere, patience)
                found = dict(self._results)
        finally:
            self._waiting.clear()
            self._then = None  # nobody waits for what comes later
        return [found[n] if n in found else here(task) for n, task in enumerate(self.tasks)]


class Workers:
    """`count` processes that run `function`, named as module:function, from bytes to bytes. `settings` are variables of
    their environment beside this process's. Where Python is part of another program, there are none."""

    def __init__(
        self,
        function: str,
        count: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._batches: deque[Batch[Any, Any]] = deque()
        self._changed = threading.Condition()
        self._ends = self._rests = False
        for _ in range(count if sys.executable and not getattr(sys, "frozen", False) else 0):
            try:
                self._processes.append(_start(function, settings or {}))
            except OSError:
                break
        for process in self._processes:
            threading.Thread(target=self._feed, args=(process,), daemon=True).start()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        for process in self._processes:
            process.wait()

    @property
    def pids(self) -> list[int]:
        """The processes that were begun."""
        return [process.pid for process in self._processes]

    def begin(
        self,
        tasks: Sequence[T],
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], R],
        then: Callable[[R], None] | None = None,
    ) -> Batch[T, R]:
        """Tasks that workers begin with behind those of earlier batches, while this process does something else. `then`
        is called with each answer of a worker, in the thread that waits for it, and may begin more."""
        batch = Batch(tasks, encode, decode, then, self._changed)
        with self._changed:
            self._batches.append(batch)
            self._changed.notify_all()
        return batch

    def rest(self) -> None:
        """Workers begin no tasks until they are told to `resume`: this process gives its caller all cores. They end
        where that takes a minute."""
        with self._changed:
            self._rests = True

    def resume(self) -> None:
        """Workers go on."""
        with self._changed:
            self._rests = False
            self._changed.notify_all()

    def _next(self, waits: bool) -> Asked | None:
        """A task that nobody has; with `waits` when there is one, and None at the end."""
        with self._changed:
            while not self._ends:
                while self._batches and not self._rests:
                    if (asked := self._batches[0].next()) is not None:
                        return asked
                    self._batches.popleft()
                if not waits or not self._changed.wait(REST if self._rests else None):
                    break
            return None

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        """Gives a worker one task after the other; ends with the tasks, or with the worker."""
        source, sink = process.stdout, process.stdin
        assert source is not None
        assert sink is not None
        last: Asked | None = None
        try:
            while (asked := self._next(waits=last is None)) or last:
                try:
                    if asked is not None:
                        _send(sink, asked.encode())
                finally:
                    last, before = asked, last
                    if before is not None:
                        before.done()  # which takes a while: the worker has its next task
                if asked is not None:
                    asked.answer = _receive(source)
        except (OSError, EOFError, ValueError):
            return
        finally:
            if last is not None:
                last.done()
            _close(sink)
            _close(source)
            process.kill()  # a fork of this process may hold the pipe open
            process.wait()


class Ended(Exception):
    """A process ended in the middle of a task. Its text is the last that it wrote to stderr."""


class Companion:
    """A process that runs `function`, named as module:function, one task after another, for what may end a process. It
    begins with the first task, and stays until it dies or this process ends."""

    def __init__(self, function: str, settings: Mapping[str, str] | None = None) -> None:
        self._function, self._settings = function, dict(settings or {})
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._said: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process, where there is one."""
        return None if self._process is None else self._process.pid

    def ask(self, task: bytes, patience: float | None = None) -> bytes | None:
        """What the function makes of a task; None where it raised. Raises Ended where the process died or did not
        answer within `patience` seconds, and OSError where none can be started."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            answered = False
            limit = None if patience is None else threading.Timer(patience, process.kill)
            if limit is not None:
                limit.start()
            try:
                _send(process.stdin, task)
                answer = _receive(process.stdout)
                answered = True
                return answer
            except (BrokenPipeError, EOFError):
                raise Ended(self._last_words(process)) from None
            finally:
                if limit is not None:
                    limit.cancel()
                if not answered:  # an answer that comes late would be taken for the next task's
                    self.end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():
            self._said = tempfile.TemporaryFile()  # noqa: SIM115
            if not self._owner:
                atexit.register(self.end)
            self._process, self._owner = _start(self._function, self._settings, self._said), os.getpid()
        return self._process

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        process.wait()
        assert self._said is not None
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it said nothing")

    def end(self) -> None:
        """Ends the process; the next task begins another one."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, self._said):
                _close(pipe)


def _start(function: str, settings: Mapping[str, str], said: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """A worker, in a session of its own: what a terminal sends to this process does not reach it."""
    path = [os.path.abspath(entry) for entry in sys.path]
    return subprocess.Popen(
        [sys.executable, "-c", _BEGIN, function, *path],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if said is None else said,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **settings},
        start_new_session=True,
    )


def serve(function: str) -> None:
    """What a worker does: answers each task on its input, until that ends. Nothing else gets at its two pipes."""
    module, _, name = function.partition(":")
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "r+b") as nothing:
        for number in (0, 1):
            os.dup2(nothing.fileno(), number)
    with rare_collections():  # around tasks, too: each of them ends with much that is new
        run: Callable[[bytes], bytes] = with_room(getattr(importlib.import_module(module), name))
        gc.freeze()
        while True:
            try:
                task = _receive(source)
            except EOFError:
                return
            assert task is not None
            try:
                answer: bytes | None = run(task)
            except Exception:
                answer = None
            _send(sink, answer)


def _send(pipe: IO[bytes], data: bytes | None) -> None:
    """Writes a message, of which nothing stays in memory that a fork of this process would write again."""
    rest = memoryview(_SIZE.pack(_FAILED if data is None else len(data)) + (data or b""))
    while rest:
        rest = rest[pipe.write(rest) :]


def _receive(pipe: IO[bytes]) -> bytes | None:
    """The next message; None for one that says that a task failed. Raises EOFError where there is none."""
    (size,) = _SIZE.unpack(_read(pipe, _SIZE.size))
    return None if size == _FAILED else _read(pipe, size)


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        read = pipe.readinto(rest)  # type: ignore[attr-defined]
        if not read:
            raise EOFError
        rest = rest[read:]
    return bytes(data)


def _close(pipe: Any) -> None:
    """Closes a pipe whose reader may be gone."""
    try:
        pipe.close()
    except OSError:
        return
