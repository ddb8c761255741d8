"""The template of kernels in pieces: each contraction a nest of its own, and what lies between them.

    s = q · k; p = softmax(s); o = p · v; y = transpose(o)      =>      [s = q · k] [p = softmax(s)] [o = p · v] [y = …]

It is how a kernel of a contraction and further sums runs that no other template has: piece after piece, each as the
cheapest template runs it as a kernel, and all that one piece makes for another in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tilewright.loops.edit import blocks, loads
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Template, cheapest
from tilewright.report.errors import UserError
from tilewright.schedule.blocks.pieces import piece_functions
from tilewright.schedule.find import nests
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Piece:
    """The blocks of a piece, the template of the choice that it runs by, the steps that this stands for, as a trace
    prints, and the seconds that it takes."""

    blocks: tuple[str, ...]
    template: str
    steps: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PiecesChoice:
    """The pieces, in the order in which they run."""

    pieces: tuple[Piece, ...]


class Pieces(Template[Schedule, PiecesChoice]):
    """A kernel of a contraction and further sums, piece by piece."""

    name = "pieces"
    choice = PiecesChoice
    whole = True
    turn = 1

    def recognise(self, facts: Facts) -> Schedule | None:
        """The kernel, numbers inlined, where a nest for all would be slow: elements of a contraction that has rows
        serve several sums. One that has none passes by its operands once, as other sums do."""
        reused = any(found.rows is not None for found in facts.contractions.values()) and len(facts.sums) > 1
        return _numbers_inlined(facts) if reused or len(facts.products) > 1 else None

    def choices(self, shape: Schedule, target: Target) -> Iterator[PiecesChoice]:
        parts = _parts(shape)
        found = []
        for names, piece in zip(parts, piece_functions(shape.func, parts), strict=True):
            made, decision = cheapest(Facts(piece), target)
            assert decision.taken is not None
            found.append(Piece(tuple(names), decision.template, str(made.trace), decision.taken.seconds))
        yield PiecesChoice(tuple(found))

    def price(self, choice: PiecesChoice, shape: Schedule, target: Target) -> float:
        return sum(piece.seconds for piece in choice.pieces)

    def apply(self, s: Schedule, shape: Schedule, choice: PiecesChoice) -> Schedule:
        s = shape.copy()
        s.schedule_pieces([list(p.blocks) for p in choice.pieces], [p.steps for p in choice.pieces])
        return s


def _numbers_inlined(facts: Facts) -> Schedule:
    """The kernel with blocks that read nothing inlined: each piece computes such numbers itself."""
    s = Schedule(facts.function)
    for name in [b.name for b in facts.blocks if not b.reduce and not [*loads(b)]]:
        with suppress(UserError):
            s.inline(name)
    return s


def _parts(s: Schedule) -> list[list[str]]:
    """The blocks of each piece, in program order: a contraction by itself, and all that is between two of them."""
    dots, parts = set(Facts(s.func).contractions), [list[str]()]
    for nest in nests(s.func):
        names = [b.name for b in blocks(nest)]
        if dots & {*names}:
            parts += [names, []]
        else:
            parts[-1] += names
    return [part for part in parts if part]
