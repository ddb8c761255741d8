"""Choices of a kernel on their way to be timed: each is loaded while others are made.

    candidates = Candidates(makers, trials, task)
    made = candidates.load({1: asked, 2: other})       # a Made for each number

What is like a program that was loaded before, by its schedule or by its code, is not loaded again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tilewright.core.forced import Forced
from tilewright.tune.measure import Alike, Failed, Makers, Trials
from tilewright.tune.parcels import Parcel
from tilewright.tune.task import Task


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a choice: the digest of its program, whether that is loaded now, under the choice's number, and
    why it cannot be measured, if so."""

    digest: bytes = b""
    is_loaded: bool = False
    why: str = ""


class Candidates:
    """The choices of one search."""

    def __init__(self, makers: Makers, trials: Trials, task: Task) -> None:
        self._makers, self._trials, self._task = makers, trials, task
        self._holder = secrets.token_hex(8)
        self._known: dict[bytes, str] = {}
        """Why each program that was made, by its digest, cannot be measured; nothing where it can."""

    def load(self, asked: Mapping[int, Forced | None]) -> dict[int, Made]:
        """Makes a program of each choice, and loads it under the choice's number."""
        numbers, coming = list(asked), dict[int, Future[Made]]()

        def come(place: int, program: Parcel | Alike | str) -> None:
            coming[numbers[place]] = loader.submit(self._load, numbers[place], program)

        loader = ThreadPoolExecutor(1)
        try:
            self._makers.make_each(self._task, list(asked.values()), come, self._holder)
            return {number: coming[number].result() for number in numbers}
        finally:
            loader.shutdown(wait=False, cancel_futures=True)

    def _load(self, number: int, program: Parcel | Alike | str) -> Made:
        if isinstance(program, str):
            return Made(why=program)
        if isinstance(program, Parcel) and program.digest not in self._known:
            try:
                self._trials.load(number, program)
                self._known[program.digest] = ""
                return Made(program.digest, is_loaded=True)
            except Failed as error:
                self._known[program.digest] = str(error)
        return Made(program.digest, why=self._known[program.digest])
