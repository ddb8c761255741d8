"""What a run could not measure: cases of ours that failed, and peers that a case goes without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.report import Report

FAILURES = "failures"
"""The name of the report that lists failed cases; a run that has it ends with status 1."""
LEFT_OUT = "left out"
"""The name of the report that lists peers."""

Noted = list[tuple[str, str]]


@dataclass(slots=True)
class Failures:
    """(case, why) of each case where ours is wrong or fails, or nobody can judge, which is part of no figure; and of
    each peer that is wrong or fails, whose case has figures without it."""

    cases: Noted = field(default_factory=list)
    peers: Noted = field(default_factory=list)

    def reports(self, head: str = "case") -> list[Report]:
        """What there is to list, failed cases last."""
        left_out = Report(LEFT_OUT, "Peers that are wrong or fail, and are left out of the case", (head, "why"))
        failed = Report(FAILURES, "What failed, and is part of no figure", (head, "why"))
        for report, noted in ((left_out, self.peers), (failed, self.cases)):
            for name, why in noted:
                report.add((name, why), {head: name, "why": why})
        return [report for report in (left_out, failed) if report.rows]


def exit_on_failures(reports: Sequence[Report]) -> None:
    """Ends with status 1 if one of the reports lists failed cases."""
    if any(report.name == FAILURES for report in reports):
        raise SystemExit(1)


def name_case(name: str, threads: int) -> str:
    """A case's name in a list of all numbers of threads."""
    return f"{name}, {threads} threads" if threads > 1 else name
