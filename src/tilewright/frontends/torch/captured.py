"""A graph of ATen operators as AOTAutograd gives it to a compiler, and the function that runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch import partitioners
from torch.multiprocessing.reductions import StorageWeakRef

from tilewright.frontends.torch.call import Call, Source
from tilewright.frontends.torch.parted import saved_inputs
from tilewright.frontends.torch.ports import Node
from tilewright.frontends.torch.stages import split_views
from tilewright.frontends.torch.types import is_plain


@dataclass
class Captured:
    """A graph whose nodes carry fake tensors. `steady` are the numbers of those inputs that are weights; `saved` are
    the inputs of a graph that `is_backward` which nothing else has, `spent` those of them whose memory may be written
    over; `slopes` are those of the results, but for what is a result again, or has a view that is."""

    graph: Any
    steady: Collection[int] = ()
    is_backward: bool = False

    def __post_init__(self) -> None:
        self.nodes: list[Node] = list(self.graph.graph.nodes)
        self.placeholders = [n for n in self.nodes if n.op == "placeholder"]
        self.saved = saved_inputs(self.placeholders) if self.is_backward else set()
        self.spent = self._alone()
        self.weights = {n for k, n in enumerate(self.placeholders) if k in self.steady}
        (last,) = [n for n in self.nodes if n.op == "output"]
        self.results: Sequence[Any] = last.args[0]
        wanted = {r for r in self.results if isinstance(r, torch.fx.Node)}
        self.views, self.whole = split_views(wanted)
        self.slopes = {n for n in self.placeholders if partitioners._is_tangent(n)} - {*self.whole}

    def _alone(self) -> set[Node]:
        """The saved inputs whose memory no other input has."""
        tensors = {n: n.meta["val"] for n in self.placeholders if is_plain(n.meta.get("val"))}
        memory = {n: StorageWeakRef(fake.untyped_storage()) for n, fake in tensors.items()}
        count = Counter(memory.values())
        return {node for node in self.saved if node in memory and count[memory[node]] == 1}

    def is_like(self, other: Captured) -> bool:
        """Whether another is the same graph, of which the same may be done to its inputs."""
        return self.graph is other.graph and (self.saved, self.spent) == (other.saved, other.spent)

    def constant(self, target: str) -> Any:
        """What a get_attr node stands for."""
        found = self.graph
        for name in target.split("."):
            found = getattr(found, name)
        return found

    def begin(self) -> Source:
        """The source of a call of the graph, whose steps are to be added in order."""
        source = Source()
        source.begin(self.placeholders)
        for node in self.nodes:
            if node.op == "get_attr":
                source.names[node] = source.refer("k", self.constant(node.target))
        return source

    def finish(self, source: Source) -> Call:
        """The function that a source with all steps is of."""
        for node in [n for n in self.nodes if n in self.views]:
            source.view(node)
        return source.make(self.results)
