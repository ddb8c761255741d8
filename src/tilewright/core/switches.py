"""Which passes of a pipeline run: those of an optimisation level, less those that are switched off by name; and the
precision in which products may be computed.

Switches()                                   everything, products in the types that the model has
Switches(level=1)                            what runs from level 1 on, and what cannot be left out
Switches(off=frozenset({"winograd"}))        everything but that
Switches(precision="bf16")                   everything, factors of products in bf16 where that is faster
Switches(tuned=…)                            everything, kernels as measuring found them to run best
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tilewright.core.tuned import UNTUNED, Tuned
from tilewright.report.errors import UserError

HIGHEST = 3
"""The highest level: everything runs."""

PLAIN, HALF = "f32", "bf16"
"""Precisions: as the model says; factors of f32 products may be rounded to bf16."""

NEEDED = 0
"""The level of passes that cannot be left out."""


class Switchable(Protocol):
    """What has a name, and a level from which on it runs."""

    @property
    def name(self) -> str: ...

    @property
    def since(self) -> int: ...


S = TypeVar("S", bound=Switchable)


@dataclass(frozen=True, slots=True)
class Switches:
    """An optimisation level from 0 to HIGHEST, the names of passes that are switched off, a precision, the choices
    that kernels are to have, as `core.forced.read_forced` writes them, and those that measuring found."""

    level: int = HIGHEST
    off: frozenset[str] = frozenset()
    precision: str = PLAIN
    choices: str = ""
    tuned: Tuned = UNTUNED

    def wants(self, name: str, since: int) -> bool:
        """Whether a pass of this name runs that belongs to the levels from `since` on."""
        return since <= self.level and name not in self.off

    def choose(self, passes: Sequence[S]) -> list[S]:
        """Those of the passes that run: the ones that cannot be left out among them."""
        return [p for p in passes if p.since == NEEDED or self.wants(p.name, p.since)]

    @property
    def bf16(self) -> bool:
        """Whether factors may be rounded to bf16."""
        return self.precision == HALF

    @property
    def all_on(self) -> bool:
        """Whether nothing is left out and nothing is asked for."""
        return self.level == HIGHEST and not self.off and not self.choices


ALL_ON = Switches()


def read_switches(level: int, off: Iterable[str], since: Mapping[str, int], precision: str = PLAIN) -> Switches:
    """The switches that a user asks for, where passes belong to the levels that `since` has by their names. UserError
    for a level or a precision that does not exist, a pass that does not exist, and one that cannot be left out."""
    names = frozenset([off] if isinstance(off, str) else off)
    if not 0 <= level <= HIGHEST:
        raise UserError(f"there is no optimisation level {level}", why=f"levels are 0 to {HIGHEST}")
    if precision not in (PLAIN, HALF):
        raise UserError(
            f"there is no precision {precision!r}",
            why=f"{PLAIN} computes as the model says, {HALF} may round the factors of f32 products to bf16",
            fix=f'take precision="{HALF}", or leave it out',
        )
    optional = [name for name, least in since.items() if least > NEEDED]
    for name in sorted(names):
        if name not in optional:
            known = "the program cannot do without it" if name in since else "no pass is called that"
            raise UserError(f"cannot switch off {name}", why=known, fix=f"take some of {', '.join(optional)}")
    return Switches(level, names, precision)
