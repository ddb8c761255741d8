"""`Core`: what one core does, and what starting work on it costs.

Cycles are reciprocal throughputs unless a name says latency: how long one more instruction of a kind takes among many
independent ones, so 0.5 where two units do it. "A vector" is a register of the target's full width
(`Target.vector_bits`). Cycles are of `ghz`, the clock while vectors run, so `cycles / (ghz * 1e9)` is seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final


class Rates(Mapping[str, float]):
    """A mapping from names to numbers that does not change, and can be a key. Sorted by name."""

    __slots__ = ("_hash", "_rates")

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = dict(sorted(rates.items()))
        self._hash = hash(tuple(self._rates.items()))

    def __getitem__(self, name: str) -> float:
        return self._rates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rates)

    def __len__(self) -> int:
        return len(self._rates)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self._rates == other._rates if isinstance(other, Rates) else NotImplemented

    def __reduce__(self) -> tuple[type[Rates], tuple[dict[str, float]]]:
        return Rates, (self._rates,)

    def __repr__(self) -> str:
        return f"Rates({self._rates})"


@dataclass(frozen=True, slots=True)
class Core:
    """One core of a target. All numbers are above zero, but the cycles beside multiply-adds, what
    these do not hide, and the cycles of subnormal numbers may be zero.

    ghz               10^9 cycles a second under vector load
    fma_cycles        cycles of one f32 multiply-add of a vector (of a product and a sum, without such an instruction);
                      f64 takes as long
    fma_latency       cycles from an accumulator to the next sum on it
    add_cycles        cycles of a plain f32 vector operation: add, max
    add_beside_cycles what such an operation adds where multiply-adds keep their units busy: nothing where it has others
    load_cycles       cycles of a vector load, aligned, from L1
    store_cycles      cycles of a vector store, aligned, to L1
    broadcast_cycles  cycles of loading one f32 from L1 to all lanes
    shuffle_cycles    cycles of permuting the f32 lanes of one vector in any order
    shuffle2_cycles   cycles of choosing the f32 lanes of a vector from two vectors, in any order
    gather_cycles     cycles of filling a vector with f32 from as many addresses in L1
    divide_cycles     cycles of an f32 vector quotient
    sqrt_cycles       cycles of an f32 vector square root
    chain             how often the sum of its instructions' cycles a long chain takes that iterations overlap: a ratio
                      of at least 1, of an exp-like polynomial of 14 dependent instructions in a loop over vectors
    rows_ahead        rows of an operand, each on a page of its own, that are under way at a time while a register tile
                      multiplies; always the family's
    unhidden          the part of what caches beyond the first take to deliver operands that the multiply-adds of a
                      register tile do not hide: a ratio; always the family's, for a stream alone hides all of it
    dots              cycles of one instruction of `target.instructions.INSTRUCTIONS`, by its name, for all that run on
                      the target: all its lines, conversions of operands in registers included
    subnormal_cycles  what one multiply-add takes longer when an operand is subnormal

    fork_seconds      starting and ending a parallel loop whose workers are awake: two threads meet in it
    wake_seconds      what it takes longer when they sleep
    call_seconds      a call of an executable from Python, beside its kernels, inputs and results
    kernel_seconds    the start of a kernel inside a program: call, set-up of its stack and loops, cold branches; always
                      the family's, for no program alone shows it
    """

    ghz: float
    fma_cycles: float
    fma_latency: float
    add_cycles: float
    add_beside_cycles: float
    load_cycles: float
    store_cycles: float
    broadcast_cycles: float
    shuffle_cycles: float
    shuffle2_cycles: float
    gather_cycles: float
    divide_cycles: float
    sqrt_cycles: float
    chain: float
    rows_ahead: float
    unhidden: float
    subnormal_cycles: float
    fork_seconds: float
    wake_seconds: float
    call_seconds: float
    kernel_seconds: float
    dots: Rates

    def __post_init__(self) -> None:
        settle_rates(self)

    @property
    def hertz(self) -> float:
        """Cycles a second."""
        return self.ghz * 1e9

    def together(self, busy: float, brought: float) -> float:
        """How long work takes that keeps the core `busy` while its operands are `brought`, both in one unit of time:
        the longer of the two, and what the shorter one does not hide."""
        return max(busy, brought) + self.unhidden * min(busy, brought)

    def replace(self, **changes: Any) -> Core:
        """This core with `changes`; those of `dots` are put over the ones it has. Raises TypeError for an unknown name,
        ValueError for a number that makes no sense."""
        if "dots" in changes:
            changes["dots"] = {**self.dots, **changes["dots"]}
        return dataclasses.replace(self, **changes)

    def record(self) -> dict[str, Any]:
        """The core as JSON says it; `from_record` reads it back."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {"dots": dict(self.dots)}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Core:
        """The core that `record` made a record of. Raises TypeError or ValueError for anything else."""
        return Core(**record)


Figures = Mapping[str, float | None]
"""What was measured, by the names of `Target.figures`; None where turns did not agree."""

UNITS: Final[Mapping[str, str]] = {
    field.name: unit
    for field in dataclasses.fields(Core)
    for ending, unit in (
        ("ghz", "GHz"),
        ("_cycles", "cycles"),
        ("_latency", "cycles"),
        ("_seconds", "s"),
        ("chain", "×"),
        ("rows_ahead", "rows"),
        ("unhidden", "×"),
        ("dots", "cycles"),
    )
    if field.name.endswith(ending)
} | {"cache_ns": "ns", "memory_ns": "ns", "last_share": "share"}
"""The unit of each field, and of those of `Peaks` that are no GB/s."""

DOTS: Final = "dots."
"""The name of an instruction's rate among all figures begins so, and then comes the instruction's."""

_MAY_BE_ZERO: Final = ("add_beside_cycles", "unhidden", "subnormal_cycles")


def number_of(name: str, value: object) -> float:
    """`value` as a number. Raises ValueError for anything else, and for numbers that are not finite."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf:
        with contextlib.suppress(OverflowError):  # a whole number may be too large
            return float(value)
    raise ValueError(f"{name} is a finite number, not {value!r}")


def settle_rates(rates: Any) -> None:
    """Makes each field of a dataclass that is being made of floats. Raises ValueError unless they are above zero."""
    for field in dataclasses.fields(rates):
        value = getattr(rates, field.name)
        if field.type == "Rates":
            settled: object = Rates(
                {name: _rate(f"{field.name}[{name!r}]", number) for name, number in dict(value).items()}
            )
        elif field.type == "tuple[float, ...]":
            settled = tuple(_rate(field.name, number) for number in value)
        else:
            settled = _rate(field.name, value)
        object.__setattr__(rates, field.name, settled)


def _rate(name: str, value: object) -> float:
    number = number_of(name, value)
    if number < 0 or (number == 0 and name not in _MAY_BE_ZERO):
        raise ValueError(f"{name} is {'at least' if name in _MAY_BE_ZERO else 'above'} 0, not {value!r}")
    return number


def flatten(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record of rates, those in rows under `name.key`; levels of caches count from 1."""
    out: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            out.update((f"{name}.{key}", number) for key, number in value.items())
        elif isinstance(value, list | tuple):
            out.update((f"{name}.{level}", number) for level, number in enumerate(value, 1))
        else:
            out[name] = value
    return out


def rounded(number: float, digits: int = 3) -> float:
    """A few digits: more would be noise, and these numbers are part of the key of compiled code."""
    return float(f"{number:.{digits}g}")
