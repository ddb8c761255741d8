"""Loops of a finished schedule that threads share, as steps: what is built by itself goes through no later pass.

Of each nest, the outermost loop whose iterations are independent becomes parallel, where it has work for two threads. A
share is as many iterations as take as long as a fork and a join, by price.
"""

from __future__ import annotations

import math

from tilewright.analysis.iterations import is_spatial
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, LoopKind
from tilewright.plan.price.points import iterations, nest_seconds
from tilewright.schedule.find import nests
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def share_loops(s: Schedule, target: Target) -> None:
    """The steps that make outermost loops parallel, and say how many iterations a thread takes at least."""
    found = [nest for nest in nests(s.func) if isinstance(nest, For)]
    if found:
        s.get_nests()
    for nest in found:
        each = nest_seconds(nest, target) / max(iterations(nest), 1)
        grain = max(math.ceil(target.core.fork_seconds / each), 1) if each > 0 else 1
        if nest.size is not None and nest.size < 2 * grain:
            continue
        if nest.kind is LoopKind.SERIAL and is_spatial(nest) and not any(map(_is_shared, statements(nest.body))):
            s.attempt(s.parallel, nest.var)
        if grain > 1:
            s.attempt(s.annotate, nest.var, "grain", grain)


def _is_shared(stmt: object) -> bool:
    return isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL
