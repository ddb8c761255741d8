"""Traces: the steps of a schedule as data. A trace prints as the Python that replays it, and is saved as JSON.

    x = s.get_loop("x")
    xo, xi = s.split(x, 4)
    s.reorder(xi, xo)

Loops are called by the names of what earlier steps returned; blocks and buffers by their own names.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.report.errors import UserError
from tilewright.schedule.step import unique

FORMAT = 2


@dataclass(frozen=True, slots=True)
class LoopName:
    """A loop, by the name that the trace gave it."""

    loop: str

    def __repr__(self) -> str:
        return self.loop


Value = LoopName | str | int | float | bool | None | tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One primitive with its arguments; `made` are the names of what it returned, None for what is no loop, and nothing
    where no loop is among it; `evidence` says why it was legal."""

    primitive: str
    arguments: tuple[Value, ...]
    options: Mapping[str, Value] = field(default_factory=dict)
    made: tuple[str | None, ...] = ()
    several: bool = False
    evidence: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        parts = [_python(a) for a in self.arguments] + [f"{k}={_python(v)}" for k, v in self.options.items()]
        call = f"s.{self.primitive}({', '.join(parts)})"
        if not self.made:
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
        """The trace as a JSON document: each step as it prints."""
        return json.dumps({"format": FORMAT, "steps": list(map(str, self.steps))}, indent=1)

    @staticmethod
    def from_python(text: str) -> Trace:
        """The trace that prints as this text. Raises UserError for anything that is none."""
        try:
            return Trace(tuple(_statement(s) for s in ast.parse(text).body))
        except (ValueError, SyntaxError, RecursionError) as error:
            raise UserError("this is no text of a trace", why=str(error), fix="take str(trace)") from None

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace of a JSON document. Raises UserError for anything that is none."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            return Trace.from_python("\n".join(data["steps"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what, fix = "this is no trace of a schedule", "save one with trace.to_json()"
            raise UserError(what, why=str(error), fix=fix) from None


def with_loops(value: Any, loop: Callable[[Any], Any]) -> Any:
    """An argument of a step with loop(part) in place of each part that is no text, number or None. Sequences become
    tuples."""
    if isinstance(value, list | tuple):
        return tuple([with_loops(v, loop) for v in value])
    return value if isinstance(value, str | int | float | None) else loop(value)


def _statement(line: ast.stmt) -> TraceStep:
    """A step of a trace as Python: `a, b = s.name(…)` or `s.name(…)`."""
    targets: tuple[str | None, ...] = ()
    several = False
    call = line.value if isinstance(line, ast.Assign | ast.Expr) else None
    if isinstance(line, ast.Assign) and len(line.targets) == 1:
        (target,) = line.targets
        several = isinstance(target, ast.Tuple)
        named = target.elts if isinstance(target, ast.Tuple) else [target]
        targets = tuple(None if n.id == "_" else n.id for n in named if isinstance(n, ast.Name))
    match call:
        case ast.Call(ast.Attribute(ast.Name("s"), name), arguments, options) if all(o.arg for o in options):
            given = {str(o.arg): _argument(o.value) for o in options}
            return TraceStep(name, tuple(map(_argument, arguments)), given, targets, several)
    raise ValueError(f"line {line.lineno} is no step of a schedule s")


def _argument(node: ast.expr) -> Value:
    match node:
        case ast.Name(name):
            return LoopName(name)
        case ast.List(parts):
            return tuple(map(_argument, parts))
        case ast.Call(ast.Name("float"), [ast.Constant(str(text))], []):
            return float(text)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
            return -number
        case ast.Constant(str() | int() | float() | None as value):
            return value
    raise ValueError(f"line {node.lineno} has an argument that no step takes")


def _python(value: Value) -> str:
    match value:
        case tuple():
            return f"[{', '.join(map(_python, value))}]"
        case str() if _is_block_of_lines(value):
            return f'"""{value}"""'
        case str():
            return json.dumps(value, ensure_ascii=False)
        case float() if not math.isfinite(value):
            return f'float("{value}")'
    return repr(value)


def _is_block_of_lines(text: str) -> bool:
    """Whether a text reads best as lines between three quotes, and has nothing that these would change."""
    plain = text.replace("\n", "").isprintable() and "\\" not in text and '"""' not in f'{text}"'
    return "\n" in text and plain


def python_name(name: str, taken: Collection[str]) -> str:
    """A name that Python can write, and that is none of those taken."""
    made = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "loop"
    return unique(f"_{made}" if made[0].isdigit() or made in ("s", "tw") else made, taken, "_")
