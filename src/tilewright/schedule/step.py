"""What a primitive gives, and how it refuses.

A primitive is a pure function: it takes a function and what to do with it, and returns a `Step` or raises a UserError
that shows the program, the place in it, the reason and a legal alternative. A loop is known by its variable and a block
by its name, so that what earlier steps returned stays valid after later ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.node import Node
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.edit import replace
from tilewright.loops.faults import Fault, place_of
from tilewright.loops.nodes import For, Function, Stmt
from tilewright.report.errors import UserError

Handle = Var | str
"""A loop (its variable), a block or a buffer (their names)."""

Made = Handle | tuple[Handle | None, ...] | None


@dataclass(frozen=True, slots=True)
class Step:
    """The program after a primitive, the loops, blocks or buffers that it made, and the evidence that it was legal:
    a sentence for each fact that was needed and proved."""

    function: Function
    made: Made = None
    evidence: tuple[str, ...] = ()


def rewritten(function: Function, old: Stmt, fresh: Stmt, made: Made, *evidence: str) -> Step:
    """The step that puts a statement in the place of another one."""
    return Step(function.replace(body=replace(function.body, old, fresh)), made, evidence)


class Refused(UserError):
    """A step of a schedule that is not legal. `step` is the step, as a trace writes it.

    wrong:  s.vectorize(k)                       # the iterations of k add up to one element
    why:    different iterations of k store y[]
    right:  s.rfactor("dot", k), which gives each iteration a sum of its own
    """

    step = ""

    @staticmethod
    def of(error: UserError, step: str) -> Refused:
        """The error of a primitive, with the step that it refuses."""
        found = Refused(error.what, where=error.where, why=error.why, fix=error.fix)
        found.step = step
        return found.with_traceback(error.__traceback__)

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"step": self.step})


def refusal(
    function: Function, what: str, at: Node, *, why: str, fix: str | None = None, part: Expr | str | None = None
) -> UserError:
    """The error of a primitive that may not be applied, at the line of `at`, with `part` of it marked."""
    if isinstance(at, For) and part is None:
        part = f"{at.var.name} in {at.begin}..{at.end}"
    return UserError(what, where=_Place(function, Fault(at, what, part=part)), why=why, fix=fix)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a program that is printed when somebody reads it: plans try what may be refused."""

    function: Function
    fault: Fault

    def __str__(self) -> str:
        return str(place_of(self.function, self.fault))
