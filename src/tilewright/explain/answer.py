"""The facts of an answer, as frozen data; `record()` gives them as JSON says them. Times are seconds of one core."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.explain.ways import Way
from tilewright.plan.price.kernels import KernelCost
from tilewright.runtime.plan_report import PartRow
from tilewright.store import Json


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the graph as it was planned: what it makes, with its type, and the front end's operator that it
    came from."""

    name: str
    value: str
    type: str
    source: str

    def record(self) -> dict[str, Json]:
        return {"operator": self.name, "value": self.value, "type": self.type, "source": self.source}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a value is stored between two kernels, or is not. `kind` is one of the names below; `refused` are
    templates with what each says; `planned` and `instead` are prices of the kernels decided together, as they were
    planned and the other way."""

    kind: str
    text: str
    refused: tuple[tuple[str, str], ...] = ()
    planned: float | None = None
    instead: float | None = None

    def record(self) -> dict[str, Json]:
        made: dict[str, Json] = {"kind": self.kind, "text": self.text, "templates": dict(self.refused)}
        return {**made, "planned_s": _price(self.planned), "instead_s": _price(self.instead)}


INPUT, CONSTANT, RESULT = "input", "constant", "result"
NO_TEMPLATE, DEARER, LEFT_OUT = "no template", "dearer", "left out"
CHEAPER, ONLY_WAY = "cheaper", "only way"
"""Kinds of reasons: where the value comes from or goes to settles it; no template takes both operators; the plan would
be dearer; a rule left it out before prices. Inside a kernel: storing the value is dearer, or makes no kernel."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What is on the other side of a value that a kernel reads or writes: `kernel` with its number, or nothing for
    inputs, constants and results of the model. `role` is `producer` or `consumer`; `operators` are those that read the
    value."""

    role: str
    kernel: str
    number: int | None
    value: str
    type: str
    bytes: int
    operators: tuple[str, ...]
    reason: Reason

    def record(self) -> dict[str, Json]:
        other: dict[str, Json] = {"role": self.role, "kernel": self.kernel or None, "number": self.number}
        value: dict[str, Json] = {"value": self.value, "type": self.type, "bytes": self.bytes}
        return {**other, **value, "operators": list(self.operators), "reason": self.reason.record()}


@dataclass(frozen=True, slots=True)
class Joined:
    """A value that a kernel computes and does not store: who reads it, and why it is not in memory."""

    value: str
    type: str
    bytes: int
    maker: str
    readers: tuple[str, ...]
    reason: Reason

    def record(self) -> dict[str, Json]:
        value: dict[str, Json] = {"value": self.value, "type": self.type, "bytes": self.bytes, "maker": self.maker}
        return {**value, "readers": list(self.readers), "reason": self.reason.record()}


@dataclass(frozen=True, slots=True)
class Layout:
    """How a buffer of a kernel is stored, and why. `role` is operand, constant, result or local; `scope` the
    memory it is in; `copy_of` the buffer that it holds in another order; `steps` are those of the trace that made it
    so."""

    name: str
    role: str
    type: str
    scope: str
    order: str
    why: str
    copy_of: str = ""
    steps: tuple[str, ...] = ()

    def record(self) -> dict[str, Json]:
        what: dict[str, Json] = {"buffer": self.name, "role": self.role, "type": self.type, "scope": self.scope}
        return {
            **what,
            "order": self.order,
            "why": self.why,
            "copy_of": self.copy_of or None,
            "steps": list(self.steps),
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """A call of a kernel as it was measured: seconds, the share of what the roofline allows, and the threads."""

    seconds: float
    roofline: float | None
    gflops: float | None
    gbs: float | None
    threads: int

    def record(self) -> dict[str, Json]:
        rates: dict[str, Json] = {"roofline": self.roofline, "gflops": self.gflops, "gbs": self.gbs}
        return {"seconds": self.seconds, **rates, "threads": self.threads}


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """A kernel where the program calls it. `calls` are the calls of the same function, by the front end's operators of
    each; `assumed` are dynamic sizes with what its price takes them to be (analysis/sizes.py);
    `ways` are the cheapest ways to run it that were priced, and `chosen` says in words which it got;
    `schedule` is Python that makes the scheduled kernel of the one that `tilewright show --after own-states` prints."""

    name: str
    number: int
    template: str
    operators: tuple[Operator, ...]
    source: tuple[str, ...]
    calls: tuple[tuple[str, ...], ...]
    price: KernelCost
    choice: PartRow | None
    joined: tuple[Joined, ...]
    neighbours: tuple[Neighbour, ...]
    layouts: tuple[Layout, ...]
    scheduled_by: str
    ways: tuple[Way, ...]
    chosen: str
    refusals: tuple[str, ...]
    schedule: str
    assumed: tuple[tuple[str, int], ...] = ()
    measured: Measured | None = None

    def record(self) -> dict[str, Json]:
        """The facts as JSON says them."""
        return {
            "kernel": self.name,
            "number": self.number,
            "template": self.template,
            "operators": [o.record() for o in self.operators],
            "source": list(self.source),
            "calls": [list(call) for call in self.calls],
            "price": self.price.record(),
            "choice": None if self.choice is None else self.choice.record(),
            "joined": [j.record() for j in self.joined],
            "neighbours": [n.record() for n in self.neighbours],
            "layouts": [layout.record() for layout in self.layouts],
            "scheduled_by": self.scheduled_by,
            "ways": [way.record() for way in self.ways],
            "chosen": self.chosen or None,
            "refusals": list(self.refusals),
            "schedule": self.schedule,
            "assumed": dict(self.assumed),
            "measured": None if self.measured is None else self.measured.record(),
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a name stands for, the kernels that hold it, and what there is to say where none does."""

    asked: str
    what: str
    kernels: tuple[KernelAnswer, ...]
    notes: tuple[str, ...] = ()

    def record(self) -> dict[str, Json]:
        """The answer as JSON says it."""
        kernels: list[Json] = [k.record() for k in self.kernels]
        return {"asked": self.asked, "what": self.what, "notes": list(self.notes), "kernels": kernels}

    def __str__(self) -> str:
        return printer[0](self)


printer: list[Callable[[Answer], str]] = []
"""The function that writes an answer out: text.py, which needs these classes, puts itself here."""


def _price(seconds: float | None) -> Json:
    return None if seconds is None or math.isinf(seconds) else seconds
