"""What a primitive gives, how it refuses, and the names of what it makes.

A primitive is a pure function: it takes a function and what to do with it, and returns a `Step` or raises a UserError
that shows the program, the place in it, the reason and a legal alternative. A loop is known by its variable and a block
by its name, so that what earlier steps returned stays valid after later ones: every block has a name of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count

from tilewright.core.node import Node
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.edit import allocations, blocks, loops_inside, replace, transform_statements
from tilewright.loops.faults import Fault, place_of
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Stmt
from tilewright.report.errors import UserError

Made = Var | str | tuple[Var | str | None, ...] | None
"""What a step made: loops (their variables), blocks or buffers (their names)."""

Copies = tuple[tuple[str, str], ...]
"""The blocks that are copies of others, each with that one, by their names."""


@dataclass(frozen=True, slots=True)
class Step:
    """The program after a primitive, the loops, blocks or buffers that it made, the evidence that it was legal: a
    sentence for each fact that was needed and proved; and the blocks that are copies."""

    function: Function
    made: Made = None
    evidence: tuple[str, ...] = ()
    copies: Copies = ()


def rewritten(function: Function, old: Stmt, fresh: Stmt, made: Made, *evidence: str, copies: Copies = ()) -> Step:
    """The step that puts a statement in the place of another one."""
    return Step(function.replace(body=replace(function.body, old, fresh)), made, evidence, copies)


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


class Obstacle(Exception):
    """Why a step may not be taken: at a node, of whose line `part` is marked; `fix` is what to do instead. In which
    program that is, and what was to be done, is for `refusing` to say."""

    def __init__(self, at: Node, why: str, fix: str | None = None, *, part: Expr | str | None = None) -> None:
        super().__init__(why)
        self.at, self.why, self.fix, self.part = at, why, fix, _mark(at) if part is None else part

    def error(self, function: Function, what: str) -> UserError:
        """The error of a step on this program, which says what cannot be done."""
        place = _Place(function, Fault(self.at, what, part=self.part))
        return UserError(what, where=place, why=self.why, fix=self.fix)


def _mark(at: Node) -> str | None:
    """What is marked on the line of a node: the name of a block or a buffer, the range of a loop."""
    match at:
        case Block(name) | Alloc(Buffer(name)):
            return name
        case For():
            return f"{at.name} in {at.begin}..{at.end}"
    return None


@contextmanager
def refusing(function: Function, what: str) -> Iterator[None]:
    """Makes an obstacle that is met inside the error `what` of a step on this program."""
    try:
        yield
    except Obstacle as found:
        raise found.error(function, what) from None


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a program that is printed when somebody reads it: plans try what may be refused."""

    function: Function
    fault: Fault

    def __str__(self) -> str:
        return str(place_of(self.function, self.fault))


def unique_name(function: Function, name: str) -> str:
    """The name, with a number behind it where a parameter, a local buffer or a block has it already: a buffer and the
    block that fills it share theirs."""
    taken = {b.name for b in (*function.params, *allocations(function.body))}
    return unique(name, taken | {b.name for b in blocks(function.body)})


def fresh_loops(function: Function, names: Iterable[str]) -> list[Var]:
    """Variables for loops of these names, each with a number behind it where a loop of the program, or one before it,
    has it already."""
    taken = {loop.name for loop in loops_inside(function.body)}
    made: list[Var] = []
    for name in names:
        made.append(Var(unique(name, taken)))
        taken.add(made[-1].name)
    return made


def unique(name: str, taken: Collection[str], joint: str = "") -> str:
    """The name, with a number behind it, after `joint`, where it is taken."""
    numbered = (f"{name}{joint}{n}" for n in count(2))
    return next(each for each in chain((name,), numbered) if each not in taken)


def fresh_blocks(function: Function, stmt: Stmt, suffix: str) -> Stmt:
    """The statement with its blocks named anew: NAME + suffix, numbered where that is taken."""
    taken = {b.name for b in blocks(function.body)}

    def change(node: Node) -> Node:
        if not isinstance(node, Block):
            return node
        name = unique(node.name + suffix, taken)
        taken.add(name)
        return node.replace(name=name)

    return transform_statements(stmt, change)
