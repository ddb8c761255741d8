"""Subnormal numbers: whether programs keep them, where arrays hold some, and what they cost.

A subnormal number is nearer to zero than the smallest number of full precision (1.2e-38 for f32, 2.2e-308 for f64).
Many processors take a hundred cycles and more for an operation with one. A program that flushes them computes with
zeros in their place, in all its threads, while a call lasts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.subnormals import control_of
from tilewright.report.errors import UserError
from tilewright.report.quantities import duration
from tilewright.store import Json
from tilewright.target import Target

KEEP, FLUSH = "keep", "flush"

PART = 1 << 22
"""Elements that are looked at in one go."""

SLOWER = 1.05
"""A call that takes so much longer than one that flushes loses time by subnormal numbers."""

TURNS = 7
"""Calls of either kind at least, of which the best counts."""

_BITS = {"float32": (np.uint32, 23, 8), "float64": (np.uint64, 52, 11), "bfloat16": (np.uint16, 7, 8)}
"""The integers of a type's bits, and the bits of its fraction and its exponent. f16 is computed as f32, in which its
subnormal numbers are none."""


def check_denormals(word: str, target: Target) -> str:
    """The option as it is. UserError for a word that is none of the two, and for flushing on a machine that cannot."""
    if word not in (KEEP, FLUSH):
        raise UserError(
            f"cannot take denormals={word!r}",
            why=f"{KEEP} computes with subnormal numbers, {FLUSH} takes them for zero",
            fix=f'take denormals="{FLUSH}", or leave it out',
        )
    if word == FLUSH and control_of(target.triple) is None:
        raise UserError(
            f"cannot flush subnormal numbers on {target}",
            why=f"how processors of the architecture {target.architecture} are told to is not known here",
            fix=f'take denormals="{KEEP}", or leave it out',
        )
    return word


def count_subnormals(arrays: Iterable[np.ndarray[Any, Any]]) -> int:
    """How many elements of some arrays are subnormal numbers."""
    return sum(_count(array) for array in arrays)


def _count(array: np.ndarray[Any, Any]) -> int:
    if array.dtype.name not in _BITS or not array.size:
        return 0
    kind, fraction, exponent = _BITS[array.dtype.name]
    flat = np.ascontiguousarray(array).reshape(-1).view(kind)
    exponents = kind(((1 << exponent) - 1) << fraction)
    fractions = kind((1 << fraction) - 1)
    total = 0
    for start in range(0, flat.size, PART):
        part = flat[start : start + PART]
        total += int(np.count_nonzero(((part & exponents) == 0) & ((part & fractions) != 0)))
    return total


@dataclass(frozen=True, slots=True)
class Subnormals:
    """The subnormal numbers that a call met: how many elements of its inputs, constants and outputs are some, and the
    seconds of a call that keeps and of one that flushes them, where both were measured."""

    inputs: int
    constants: int
    outputs: int
    kept: float | None = None
    flushed: float | None = None

    @property
    def any(self) -> bool:
        return self.inputs + self.constants + self.outputs > 0

    def record(self) -> dict[str, Json]:
        """The numbers as JSON says them."""
        counts: dict[str, Json] = {"inputs": self.inputs, "constants": self.constants, "outputs": self.outputs}
        return counts | {"kept_seconds": self.kept, "flushed_seconds": self.flushed}

    def told(self) -> str:
        """One line: where they are, what they cost, and what to do about it."""
        named = (("inputs", self.inputs), ("constants", self.constants), ("outputs", self.outputs))
        found = " and ".join(f"{n:,} of the {name}' elements" for name, n in named if n)
        said = f"{found} {'are' if self.inputs + self.constants + self.outputs > 1 else 'is'} subnormal"
        if self.kept is None or self.flushed is None:
            return f"{said}, and taken for zero"
        times = f"a call takes {duration(self.kept)}, and {duration(self.flushed)} where they are taken for zero"
        slower = self.kept > SLOWER * self.flushed
        return f"{said}: {times}" + (': compile with denormals="flush" (--denormals flush)' if slower else "")


def time_in_turns(first: Callable[[], object], second: Callable[[], object], seconds: float) -> tuple[float, float]:
    """The seconds of the best call of each, in turns for so many seconds."""
    best = [math.inf, math.inf]
    end, done = time.perf_counter() + seconds, 0
    while done < TURNS or time.perf_counter() < end:
        for n, call in enumerate((first, second)):
            start = time.perf_counter()
            call()
            best[n] = min(best[n], time.perf_counter() - start)
        done += 1
    return best[0], best[1]
