"""Where the figures of a target come from: its family's row, a measurement of this machine, or a person.

    origins.of("fma_cycles")            Origin(MEASURED)
    str(origins.of("cache_gbs.3"))      "estimate: measured 5, but the estimate is 42"

A figure that nothing is said of is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Source(Enum):
    """What a figure comes from. It is an estimate also where measurements did not settle (UNSETTLED), or gave what is
    not believed (DOUBTED)."""

    ESTIMATE = "estimate"
    MEASURED = "measured"
    GIVEN = "given"
    UNSETTLED = "unsettled"
    DOUBTED = "doubted"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a figure, with the reason why it is an estimate though it was measured."""

    source: Source
    reason: str = ""

    def __str__(self) -> str:
        return f"{ESTIMATE}: {self.reason}" if self.reason else self.source.value


MEASURED: Final = Origin(Source.MEASURED)
GIVEN: Final = Origin(Source.GIVEN)
ESTIMATE: Final = Origin(Source.ESTIMATE)
UNSETTLED: Final = "its measurements do not agree: the machine was busy"
"""Why a figure is an estimate that will be measured again."""
KEPT: Final = f"{UNSETTLED} each time"
"""Why a figure is an estimate that will not."""


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of figures that are no plain estimates, by the names of the figures, sorted."""

    rows: tuple[tuple[str, Origin], ...] = ()

    @staticmethod
    def by_name(rows: Mapping[str, Origin]) -> Origins:
        """The origins of these figures."""
        return Origins(tuple(sorted(rows.items(), key=lambda row: row[0])))

    def __iter__(self) -> Iterator[tuple[str, Origin]]:
        return iter(self.rows)

    def of(self, figure: str) -> Origin:
        """The origin of a figure."""
        return dict(self.rows).get(figure, ESTIMATE)

    def given(self, figures: Iterable[str]) -> Origins:
        """The origins with those of these figures, which a person gives."""
        return Origins.by_name({**dict(self.rows), **dict.fromkeys(figures, GIVEN)})

    def named(self, source: Source) -> tuple[str, ...]:
        """The figures that come from a source."""
        return tuple([name for name, origin in self.rows if origin.source is source])

    def record(self) -> dict[str, str | list[str]]:
        """The origins as JSON says them: a source, or a source and a reason."""
        return {n: [o.source.value, o.reason] if o.reason else o.source.value for n, o in self.rows}

    @staticmethod
    def from_record(record: Mapping[str, str | list[str]]) -> Origins:
        """The origins that `record` made a record of. Raises ValueError for what is no source."""
        parts = {str(name): [row] if isinstance(row, str) else row for name, row in record.items()}
        return Origins.by_name({name: Origin(Source(source), *reason) for name, (source, *reason) in parts.items()})
