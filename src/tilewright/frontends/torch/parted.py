"""Calls of compiled code part by part, so that tensors go and come as eager's do: those that were saved
for a backward pass go when nothing reads them any more, and gradients are allocated when the first kernel writes them.

    c2 = begin5((c1.data_ptr(), c3.data_ptr(), r4.data_ptr(), 0, ), (), )
    c2.run(17)
    a1 = c1 = None
    r7 = empty((4, 4, ), dtype=t0)
    c2.give(3, r7.data_ptr())
    c2.run(40)
    c2.end(c3, r4, r7)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch._functorch import partitioners
from torch._guards import TracingContext

from tilewright.frontends.torch.ports import Node, Ports
from tilewright.runtime.program import Program
from tilewright.runtime.reuse import LEAST


@dataclass(frozen=True, slots=True)
class Part:
    """The kernels up to one of this number, without it. Before they run, these results are allocated, and behind them
    these inputs go, all by their numbers among the ports."""

    behind: int
    made: tuple[int, ...]
    freed: tuple[int, ...]


def parts_of(
    program: Program, ports: Ports, saved: Collection[Node], slopes: Collection[Node] = (), most: int = 16
) -> list[Part]:
    """The parts of a call, at most so many: one ends when inputs that were saved for it alone hold as many bytes as
    pay. Those that are `slopes` of results go with these. None where a call as a whole does as well."""
    if not program.uses or program.checked or len(program.uses) != len(ports.inputs) + ports.spare + len(ports.results):
        return []
    held = {n: _bytes(node) for n, node in enumerate(ports.inputs) if node in saved}
    beside = [n for n, node in enumerate(ports.inputs) if node in slopes]
    least = max(sum(held.values()) // most, LEAST)
    last = len(program.sites)
    ends: list[tuple[int, tuple[int, ...]]] = []
    gone: list[int] = []
    for kernel in range(last - 1):
        gone += [n for n in (*held, *beside) if program.uses[n][1] == kernel]
        if sum(held.get(n, 0) for n in gone) >= least:
            ends.append((kernel + 1, tuple(gone)))
            gone = []
    firsts = [first for first, _ in program.uses[len(ports.inputs) + ports.spare :]]
    parts, done = list[Part](), 0
    for behind, freed in [*ends, (last, ())] if ends else []:
        made = [n for n, first in enumerate(firsts) if done <= first < behind]
        parts.append(Part(behind, tuple(made), freed))
        done = behind
    return parts


def saved_inputs(placeholders: Collection[Node]) -> set[Node]:
    """Those of the inputs of a backward graph that were saved for it alone, which AOTAutograd tells. Where effects have
    tokens, it counts these among what a forward graph saves, and tells of other inputs: then of none."""
    context = TracingContext.try_get()
    found = None if context is None else context.fw_metadata
    if found is None or found.tokens:
        return set()
    donated = {node for n, node in enumerate(placeholders) if n in (found.bw_donated_idxs or ())}
    return {node for node in donated if not partitioners._is_tangent(node)}


def _bytes(node: Node) -> int:
    """The bytes of a tensor; none where only a call knows them."""
    fake = node.meta["val"]
    if not isinstance(fake, torch.Tensor) or not all(isinstance(n, int) for n in fake.shape):
        return 0
    return int(fake.numel() * fake.element_size())
