"""The plan of a program as tables, and as JSON."""

from __future__ import annotations

import math

from tilewright.cli.tables import duration, table
from tilewright.runtime.plan_report import PartRow, PlanReport

NUMBERS = frozenset({"read", "write", "compute", "predicted", "points", "priced", "selected"})
MOST_OPERATORS = 6
"""The most operators that a row names; of more, the number is shown."""


def plan_record(plan: PlanReport) -> dict[str, object]:
    """The plan as JSON says it."""
    return {
        "kernels": [row.record() for row in plan.kernels],
        "decisions": [row.record() for row in plan.parts if row.points],
        "predicted_s": plan.seconds,
    }


def plan_text(plan: PlanReport) -> str:
    """A table of calls, and below it one of the decisions that there were."""
    rows = [
        (row.name, row.template, *map(duration, (c.read, c.write, c.compute, c.seconds)), _list(row.operators))
        for row in plan.kernels
        for c in (row.cost,)
    ]
    spare = ("compute", "write", "read", "operators", "template")
    heads = ("kernel", "template", "read", "write", "compute", "predicted", "operators")
    lines = [
        table(heads, rows, NUMBERS, spare),
        f"all calls, on one core: {duration(plan.seconds)}",
    ]
    made = {row.kernels: row for row in plan.parts if row.points}
    if made:
        names = list(dict.fromkeys(name for row in made.values() for name, _ in row.alternatives))
        decided = [_decision(row, names) for row in made.values()]
        columns = ("points", "priced", "selected", *names, "kernels")
        lines += ["", table(columns, decided, NUMBERS | frozenset(names), ("points", *reversed(names), "priced"))]
    return "\n".join(lines)


def _decision(row: PartRow, names: list[str]) -> tuple[str, ...]:
    prices = dict(row.alternatives)
    cells = [_price(prices[name]) if name in prices else "" for name in names]
    return str(row.points), str(row.priced), duration(row.seconds), *cells, " + ".join(row.kernels)


def _price(seconds: float) -> str:
    return "-" if math.isinf(seconds) else duration(seconds)


def _list(names: tuple[str, ...]) -> str:
    more = len(names) - MOST_OPERATORS
    return " ".join(names[:MOST_OPERATORS]) + (f" and {more} more" if more > 0 else "")
