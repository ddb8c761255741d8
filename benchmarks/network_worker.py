"""One engine with one model in a process of its own, asked by its parent for calls.

    python -m benchmarks.network_worker ENGINE MODEL FEEDS THREADS [TARGET [CLOCK]]

`Worker` is the parent's side. A request is a line of JSON, so is the answer: {"calls": N, "warm": bool} answers the
seconds of each of N calls, after one that does not count where `warm` says so; {"results": PATH} writes what a call
gives to an .npz file. The first answer comes without a request and says how long opening took. TARGET is what ours
compiles for. CLOCK is `wall` or `processor`: the time for which the process had a core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np

OURS = "tilewright"
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
"""Other processes do not lengthen a call by the processor's clock, which says nothing of several threads."""
ERROR_WIDTH = 160
"""How many characters of an error a table has room for."""
Array = np.ndarray[Any, Any]


class WorkerFailed(Exception):
    """A worker answered with an error, or ended."""


class Worker:
    """A worker's process; opening it is done when the constructor returns. `environment` is added to this process's;
    where it does not say otherwise, nothing is kept in the store."""

    def __init__(
        self,
        engine: str,
        model: Path,
        feeds: Path,
        threads: int,
        *,
        target: str = "native",
        clock: str = "wall",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.engine = engine
        command = [sys.executable, "-m", __name__, engine, str(model), str(feeds), str(threads), target, clock]
        variables = {**os.environ, "TILEWRIGHT_STORE": "off", **(environment or {})}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=variables
        )
        try:
            self.open_seconds = float(self._read()["seconds"])
        except WorkerFailed:
            self.close()
            raise

    def call(self, count: int, warm: bool = False) -> list[float]:
        """The seconds of each call."""
        return [float(seconds) for seconds in self._ask({"calls": count, "warm": warm})["seconds"]]

    def results(self, path: Path) -> list[Array]:
        """What a call gives, by way of a file at `path`."""
        self._ask({"results": str(path)})
        with np.load(path) as found:
            return [found[name] for name in found.files]

    def peak_bytes(self) -> int | None:
        """The most memory that was ever resident, with what the files of libraries hold; None where unknown."""
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), None)

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, request: dict[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise WorkerFailed(f"{self.engine}: its process ended") from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"{self.engine}: its process ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(f"{self.engine}: {answer['error']}")
        return answer


def open_engine(
    engine: str, model: str, feeds: dict[str, Array], threads: int, target: str = "native"
) -> Callable[[], Sequence[Array]]:
    """A call of the model with these feeds."""
    if engine == OURS:
        import tilewright as tw

        exe = tw.compile(model, threads=threads, target=target)
        arrays = [feeds[port.name] for port in exe.inputs]

        def call() -> Sequence[Array]:
            result = exe(*arrays)
            return result if isinstance(result, tuple | list) else [result]

        return call
    from tilewright.cli.peers import PEERS

    program = next(peer for peer in PEERS if peer.name == engine).open(model, threads)
    return lambda: program(feeds)


def load(engine: str) -> None:
    """Imports what opening a model needs, which is no part of opening it."""
    if engine == OURS:
        import tilewright as tw

        import_module("onnx")
        for name in ("compile", "Executable"):
            getattr(tw, name)
    else:
        import_module(engine)


def serve(arguments: Sequence[str], requests: TextIO, answers: TextIO) -> None:
    """Opens the model, then answers requests until there are no more."""
    engine, model, path, threads, *rest = arguments
    target, clock = (*rest, *("native", "wall")[len(rest) :])

    def answer(words: dict[str, object]) -> None:
        print(json.dumps(words), file=answers, flush=True)

    try:
        with np.load(path) as found:
            feeds = dict(found)
        load(engine)
        start = time.perf_counter()
        call = open_engine(engine, model, feeds, int(threads), target)
        answer({"seconds": time.perf_counter() - start})
        for line in requests:
            answer(_obey(json.loads(line), call, CLOCKS[clock]))
    except Exception as error:  # an engine's failure of any kind is the parent's to report
        answer({"error": textwrap.shorten(f"{type(error).__name__}: {error}".partition("\nfix:")[0], ERROR_WIDTH)})


def _obey(
    request: dict[str, Any], call: Callable[[], Sequence[Array]], clock: Callable[[], float]
) -> dict[str, object]:
    if "results" in request:
        np.savez(request["results"], *(np.asarray(result) for result in call()))
        return {}
    if request["warm"]:
        call()
    return {"seconds": [_time(call, clock) for _ in range(request["calls"])]}


def _time(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def main() -> None:
    """Answers on what was the standard output; what libraries print goes to the standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(sys.argv[1:], sys.stdin, answers)


if __name__ == "__main__":
    main()
