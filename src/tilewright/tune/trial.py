"""The process in which candidates run: programs of one kernel, timed in turns on one core.

It runs code that nobody ran before, so it is a process of its own (`tune.measure.Trials`), which may crash or hang. It
imports the runtime and nothing of the compiler. One task is one of these messages, pickled:

    Begin(sizes, flush, shift)           new inputs, no programs
    Load(number, program)             -> Loaded: a program, run once, and what it gives beside the first one's results
    Time(numbers, rounds, seed)       -> the seconds of a call of each program, a row for each, a turn a column
    Forget(numbers)

A turn of a program is one call that is timed, in an order that differs from round to round. Before it, the program is
called once, `flush` bytes are written, and then the inputs are read: in a network a kernel's weights were last used by
its call before, those of other kernels have pushed them out of the near caches since, and what it reads was just made.
All programs store their results to the same memory, as kernels of a network do, whose results take turns in an arena.
So it makes no difference how many programs take turns, whose weights and results would be in the caches, too. A turn
during which the system took the core away does not count.
"""

from __future__ import annotations

import ctypes
import math
import pickle
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.expr.evaluate import evaluate
from tilewright.expr.variables import variables_of
from tilewright.runtime.executable import Executable
from tilewright.runtime.memory import allocate

Array = np.ndarray[Any, Any]

TOLERANCE = 2e-3
"""How far results may be off, relative to the largest: sums of other orders, of a few thousand numbers in f32."""

TRIES = 3
"""How often a turn that was disturbed is taken again."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Inputs of these sizes of symbols, by name, that lie `shift` bytes behind a cache line; `flush` bytes are written
    before each call."""

    sizes: Mapping[str, int]
    flush: int
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """A program, as its executable pickles, under a number."""

    number: int
    program: bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """The seconds of a program's first call, and what is wrong with its results beside those of the first program."""

    seconds: float
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Time:
    """Programs to be timed in turns."""

    numbers: tuple[int, ...]
    rounds: int
    seed: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Programs that are not needed any more."""

    numbers: tuple[int, ...]


@dataclass(slots=True)
class _Held:
    """A program ready to be called again, and what its call reads and writes."""

    executable: Executable
    call: Any
    record: int


@dataclass(slots=True)
class _State:
    sizes: Mapping[str, int] = field(default_factory=dict)
    shift: int = 0
    flushed: Array = field(default_factory=lambda: np.zeros(0, np.uint8))
    feeds: tuple[Array, ...] = ()
    results: tuple[Array, ...] = ()
    """Where all programs store what they compute."""
    expected: tuple[Array, ...] | None = None
    """What the first program computes."""
    programs: dict[int, _Held] = field(default_factory=dict)


_state = _State()


def work(task: bytes) -> bytes:
    """What a message becomes."""
    return pickle.dumps(_answer(pickle.loads(task)))


def _answer(message: object) -> object:
    match message:
        case Begin(sizes, flush, shift):
            _state.sizes, _state.shift, _state.feeds, _state.results, _state.expected = sizes, shift, (), (), None
            _state.programs.clear()
            _state.flushed = np.zeros(flush, np.uint8)
            return None
        case Load(number, program):
            return _load(number, pickle.loads(program))
        case Time(numbers, rounds, seed):
            return _time(numbers, rounds, seed)
        case Forget(numbers):
            for number in numbers:
                _state.programs.pop(number, None)
            return None
    raise TypeError(f"no message: {message!r}")


def _load(number: int, executable: Executable) -> Loaded:
    if not _state.feeds:
        _state.feeds = tuple(feeds_of(executable, _state.sizes, _state.shift))
    for array in _state.results:  # a program that stores nothing is not to find the right results
        array.reshape(-1).view(np.uint8)[...] = 0xFF
    start = time.perf_counter()
    results = executable(*_state.feeds, out=_state.results or None)
    seconds = time.perf_counter() - start
    if _state.expected is None:
        _state.results, _state.expected = results, tuple([array.copy() for array in results])
    wrong = difference(results, _state.expected)
    if not wrong:
        address, record = executable.native_call()
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
        _state.programs[number] = _Held(executable, call, record)
    return Loaded(seconds, wrong)


def difference(found: Sequence[Array], wanted: Sequence[Array]) -> str:
    """In which result, and by how much, a program differs from the first one; nothing where rounding explains it."""
    for n, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"result {n} has another type"
        if one.dtype.kind not in "fV":
            if not np.array_equal(one, other):
                return f"result {n} differs"
            continue
        if np.array_equal(one, other):  # most candidates add in the same order
            continue
        a, b = one.astype(np.float64), other.astype(np.float64)
        scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
        if not np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True):
            off = float(np.fmax.reduce(np.abs(a - b), axis=None))
            return f"result {n} is off by {off:.3g}, its largest number being {scale:.3g}"
    return ""


def feeds_of(executable: Executable, sizes: Mapping[str, int], shift: int = 0) -> list[Array]:
    """Numbers between 0.5 and 1 for all inputs, 0 and 1 where they are whole, so many bytes behind a cache line."""
    rng, found = np.random.default_rng(0), []
    for port in executable.inputs:
        shape = [int(evaluate(e, {v: sizes[v.name] for v in variables_of(e)})) for e in port.shape]
        size = math.prod(shape) * port.dtype.bytes
        array = allocate(shift + size)[shift:].view(port.dtype.numpy).reshape(shape)
        drawn = rng.uniform(0.5, 1, shape) if port.dtype.is_float else rng.integers(0, 2, shape)
        array[...] = np.asarray(drawn).astype(array.dtype)
        found.append(array)
    return found


def _time(numbers: Sequence[int], rounds: int, seed: int) -> list[list[float]]:
    taken: dict[int, list[float]] = {number: [] for number in numbers}
    order = np.random.default_rng(seed)
    for _ in range(rounds):
        for number in order.permutation(numbers):
            taken[int(number)].append(_turn(_state.programs[int(number)]))
    return [taken[number] for number in numbers]


def _turn(held: _Held) -> float:
    """The seconds of a call, disturbed as little as possible."""
    seconds = math.inf
    for _ in range(TRIES):
        _call(held)
        if _state.flushed.size:
            np.add(_state.flushed, 1, out=_state.flushed)
            for array in _state.feeds:
                np.bitwise_or.reduce(array.reshape(-1).view(np.uint8))
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        clock = time.thread_time if held.executable.threads == 1 else time.perf_counter
        start = clock()
        _call(held)
        seconds = clock() - start
        if resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw == before:
            break
    return seconds


def _call(held: _Held) -> None:
    status = held.call(held.record)
    if status:
        raise RuntimeError(f"a program that ran before ends with {status}")
