"""Tables of choices of a kernel and what was measured of them, as files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.tune.records import name_of
from tilewright.tune.space import Choice

FOLDER = Path(__file__).parent / "search_tables"

MARK = "#"
"""Behind the name of a template whose choices have other fields than those before."""


@dataclass(frozen=True, slots=True)
class Table:
    """A kernel, its choices, and their times over the default's, by their names."""

    kernel: str
    machine: str
    choices: tuple[Choice, ...]
    ratios: Mapping[str, float]

    @property
    def best(self) -> float:
        """The least of the times: of all choices and the default."""
        return min(1.0, *self.ratios.values())

    def dump(self) -> str:
        """The table as JSON: for each template the values of each field, and a row of their numbers, with the price in
        ns and the time in thousandths of the default's, for each choice. Choices of a template that have other fields
        than its first ones stand under its name with a mark behind it."""
        templates: dict[str, Any] = {}
        for choice in self.choices:
            flat, name = list(_flat(choice.record)), choice.template
            while name in templates and list(templates[name]["fields"]) != [field for field, _ in flat]:
                name += MARK
            made = templates.setdefault(name, {"fields": {}, "rows": []})
            row = []
            for name, value in flat:
                values = made["fields"].setdefault(name, [])
                if json.dumps(value) not in map(json.dumps, values):
                    values.append(value)
                row.append([*map(json.dumps, values)].index(json.dumps(value)))
            row += [round(1e9 * choice.price), round(1000 * self.ratios[choice.name])]
            made["rows"].append(" ".join(map(str, row)))
        return json.dumps({"kernel": self.kernel, "machine": self.machine, "templates": templates}, indent=0) + "\n"

    @staticmethod
    def load(text: str) -> Table:
        """The table of a text."""
        read, choices, ratios = json.loads(text), [], {}
        for template, made in read["templates"].items():
            for line in made["rows"]:
                *numbers, price, time = map(int, line.split())
                flat = {n: v[at] for (n, v), at in zip(made["fields"].items(), numbers, strict=True)}
                name, record = template.rstrip(MARK), _nested(flat)
                choice = Choice(name_of(name, record), name, record, price / 1e9)
                choices.append(choice)
                ratios[choice.name] = time / 1000
        choices.sort(key=lambda c: c.price)
        return Table(read["kernel"], read["machine"], tuple(choices), ratios)


def _flat(record: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for place, value in flat.items():
        *around, name = place.split(".")
        inner = made
        for one in around:
            inner = inner.setdefault(one, {})
        inner[name] = value
    return made


def tables(only: str = "") -> Iterator[Table]:
    """Those of the folder."""
    for path in sorted(FOLDER.glob("*.json")):
        table = Table.load(path.read_text())
        if re.search(only, table.kernel):
            yield table


def file_of(kernel: str) -> Path:
    """Where a kernel's table lies."""
    return FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', kernel.lower()).strip('-')}.json"
