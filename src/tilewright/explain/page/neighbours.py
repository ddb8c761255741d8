"""The calls on the other side of what a kernel reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.explain.answer import CONSTANT, KernelAnswer, Neighbour
from tilewright.explain.program import Place


def beside(answer: KernelAnswer, place: Place, places: Sequence[Place]) -> Iterator[tuple[Neighbour, Place | None]]:
    """The neighbours of a call with the call that each is, None for what the caller gives or takes; constants are left
    out."""
    graph, taken = place.graph, list[Place]()
    own = [p for p in places if p.graph is graph and p is not place]
    values = {graph.name(v): v for v in place.kernel.reads()}
    for other in answer.neighbours:
        if other.reason.kind == CONSTANT:
            continue
        found: Place | None = None
        if other.kernel and other.role == "producer":
            stored = graph.flow.stored(values[other.value])
            found = next((p for p in own if stored in p.kernel.outputs), None)
        elif other.kernel:
            same = (p for p in own if p.name == other.kernel and p not in taken)
            found = next((p for p in same if other.value in {graph.name(v) for v in p.kernel.reads()}), None)
            taken += [] if found is None else [found]
        yield other, found
