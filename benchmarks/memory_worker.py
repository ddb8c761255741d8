"""The memory of one process that compiles a model file, or runs what the store has of it: a line of JSON.

    python -m benchmarks.memory_worker compile|run MODEL FEEDS

Bytes: `peak`, the most that was ever resident, with pages of mapped files; `kept`, what is resident at the end, and
`private`, the part of that which no file holds; `workers`, the peaks of all processes that were started. For `compile`
also `arena` and `bound`, of a call with these feeds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

CALLS = 3
LOOK_SECONDS = 0.02


class Children:
    """The peaks of this process's children, looked at again and again until `stop`."""

    def __init__(self) -> None:
        self._peaks: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        while not self._ended.wait(LOOK_SECONDS):
            for child in children.read_text(encoding="ascii").split():
                try:
                    self._peaks[child] = max(self._peaks.get(child, 0), resident("VmHWM", child))
                except (OSError, StopIteration):  # it has just ended
                    continue

    def stop(self) -> int:
        """The sum of the peaks in bytes."""
        self._ended.set()
        self._thread.join()
        return sum(self._peaks.values())


def resident(name: str, process: str = "self") -> int:
    """A figure of a process in /proc, in bytes. StopIteration where there is none any more."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def measure(task: str, model: str, feeds: dict[str, Any]) -> dict[str, int]:
    """What the task takes: figures are read before anything is looked into."""
    import tilewright as tw

    children = Children()
    exe = tw.compile(model, threads=1)
    workers = children.stop()
    if exe.cached != (task == "run"):
        raise RuntimeError(f"to {task}, the program came from {'the store' if exe.cached else 'the compiler'}")
    for _ in range(CALLS if task == "run" else 0):
        exe.run(feeds)
    kept = resident("VmRSS")
    peak = max(resident("VmHWM"), kept)  # the system brings its mark up to date now and then
    found = {"peak": peak, "kept": kept, "private": resident("RssAnon"), "workers": workers}
    if task == "compile":
        use = exe.arena()
        found |= {"arena": use.reserved, "bound": use.bound}
    return found


def main() -> None:
    """Prints the figures."""
    task, model, path = sys.argv[1:]
    with np.load(path) as file:
        feeds = dict(file)
    print(json.dumps(measure(task, model, feeds)))


if __name__ == "__main__":
    main()
