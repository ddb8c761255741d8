"""The template of kernels in pieces: each product a nest of its own, and what lies between them.

    s = q · k; p = softmax(s); o = p · v; y = transpose(o)      =>      [s = q · k] [p = softmax(s)] [o = p · v] [y = …]

Piece after piece runs by the template that is cheapest for it as a kernel, and all that one piece makes for another lies
in memory. It is how a kernel of several products runs that no template has as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Alloc, Buffer, Stmt
from tilewright.plan.cheapest import cheapest, finish
from tilewright.plan.choice_record import choice_of, record_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Candidate, Template, named
from tilewright.report.errors import UserError
from tilewright.schedule.blocks.pieces import piece_functions
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Piece:
    """The blocks of a piece, and how it runs: a template by name, and its choice as JSON says it."""

    blocks: tuple[str, ...]
    template: str
    choice: Any


@dataclass(frozen=True, slots=True)
class PiecesChoice:
    """The pieces, in the order in which they run."""

    pieces: tuple[Piece, ...]
