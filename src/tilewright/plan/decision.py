"""How a kernel came to its schedule: the choice that was taken, what else was priced, and what was refused.

A step proves what it needs. A size that is dynamic can be any expression, so that a proof may fail where a choice was
meant for the kernel: then the next cheapest choice is taken, and the refusal is written down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.report.errors import UserError
from tilewright.schedule.step import Refused


@dataclass(frozen=True, slots=True)
class Refusal:
    """A choice that a kernel refused: the template, the step that could not be taken, as a trace writes it, what it
    would have done, and why it could not. `step` is empty where the template gave up between two steps."""

    template: str
    step: str
    what: str
    why: str

    @staticmethod
    def of(template: str, error: UserError) -> Refusal:
        """What a template's error says."""
        step = error.step if isinstance(error, Refused) else ""
        return Refusal(template, step, _line(error.what), _line(error.why or ""))

    def __str__(self) -> str:
        place = f" at {self.step}" if self.step else ""
        return f"{self.template} refused{place}: {self.what}{': ' if self.why else ''}{self.why}"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way in which a kernel could run: a template, its choice as JSON says it, and the seconds that it should take on
    one core."""

    template: str
    seconds: float
    choice: Any

    def record(self) -> dict[str, Any]:
        """The row as JSON says it."""
        return {"template": self.template, "seconds": self.seconds, "choice": self.choice}


@dataclass(frozen=True, slots=True)
class Decision:
    """The template that scheduled a kernel, the refusals of choices that were cheaper, in that order, and the cheapest
    of all that were priced. `forced` says that the choice was asked for, `tuned` that measuring found it."""

    template: str
    refusals: tuple[Refusal, ...] = ()
    alternatives: tuple[Alternative, ...] = field(default=(), compare=False)
    taken: Alternative | None = field(default=None, compare=False)
    forced: bool = False
    tuned: bool = False


def _line(text: str) -> str:
    return " ".join(text.split())
