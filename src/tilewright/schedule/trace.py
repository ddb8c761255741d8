"""Traces: the steps of a schedule as data. A trace prints as the Python that replays it, and is saved as JSON.

    x = s.get_loop("x")
    xo, xi = s.split(x, 4)
    s.reorder(xi, xo)

Loops are called by the names of what earlier steps returned; blocks and buffers by their own names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.report.errors import UserError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class LoopName:
    """A loop, by the name that the trace gave it."""

    name: str

    def __repr__(self) -> str:
        return self.name


Value = LoopName | str | int | float | bool | None | tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One primitive with its arguments; `made` are the names of the loops it returned, None for anything else among
    them, and `evidence` says why it was legal."""

    primitive: str
    arguments: tuple[Value, ...]
    options: tuple[tuple[str, Value], ...] = ()
    made: tuple[str | None, ...] = ()
    several: bool = False
    evidence: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        parts = [_python(a) for a in self.arguments] + [f"{k}={_python(v)}" for k, v in self.options]
        call = f"s.{self.primitive}({', '.join(parts)})"
        if not any(self.made):
            return call
        names = ", ".join(name or "_" for name in self.made)
        return f"{names}{',' if self.several and len(self.made) == 1 else ''} = {call}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a schedule, in order."""

    steps: tuple[TraceStep, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def __len__(self) -> int:
        return len(self.steps)

    def explain(self) -> str:
        """Each step with the evidence that it was legal."""
        return "\n".join(line for step in self.steps for line in (str(step), *(f"    # {e}" for e in step.evidence)))

    def to_json(self) -> str:
        """The trace as a JSON document."""
        rows = [
            {
                "primitive": s.primitive,
                "arguments": [_encode(a) for a in s.arguments],
                "options": {k: _encode(v) for k, v in s.options},
                "made": list(s.made),
                "several": s.several,
            }
            for s in self.steps
        ]
        return json.dumps({"format": FORMAT, "steps": rows}, indent=1)

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace of a JSON document. Raises UserError for anything that is none."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            return Trace(tuple(_step(row) for row in data["steps"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                "this is no trace of a schedule", why=str(error), mend="save one with trace.to_json()"
            ) from None


def _step(row: Any) -> TraceStep:
    made = tuple(row["made"])
    if not isinstance(row["primitive"], str) or not all(m is None or isinstance(m, str) for m in made):
        raise ValueError("a step has no name, or made what has none")
    options = tuple((str(k), _decode(v)) for k, v in row["options"].items())
    arguments = tuple(_decode(a) for a in row["arguments"])
    return TraceStep(row["primitive"], arguments, options, made, bool(row["several"]))


def _encode(value: Value) -> Any:
    if isinstance(value, LoopName):
        return {"loop": value.name}
    return [_encode(v) for v in value] if isinstance(value, tuple) else value


def _decode(value: Any) -> Value:
    if isinstance(value, dict):
        return LoopName(str(value["loop"]))
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ValueError(f"{value!r} is no argument of a step")


def _python(value: Value) -> str:
    if isinstance(value, tuple):
        inner = ", ".join(_python(v) for v in value)
        return f"[{inner}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def names_for(wanted: Sequence[str | None], taken: set[str]) -> tuple[str | None, ...]:
    """Names for what a step made that no earlier step has, and that Python can write."""
    result: list[str | None] = []
    for name in wanted:
        if name is None:
            result.append(None)
            continue
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "loop"
        base = f"_{base}" if base[0].isdigit() or base in ("s", "tw") else base
        unique, n = base, 1
        while unique in taken:
            n += 1
            unique = f"{base}_{n}"
        taken.add(unique)
        result.append(unique)
    return tuple(result)
