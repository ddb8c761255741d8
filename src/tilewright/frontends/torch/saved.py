"""What a forward pass saves for the backward pass, and what that computes again: the choice that takes least time, by
the prices of the machine.

A value of the forward graph that the backward graph reads is saved, which is to write and to read it, or computed
again, of values that are there in their turn. A least cut of a network is the cheapest choice ("project selection":
Picard, "Maximal closure of a graph and applications to combinatorial problems", 1976). Each value has an entrance and
an exit in it:

    source ── computing it again ──▶ entrance ── saving it ──▶ exit ──▶ entrance of a value that reads it, or sink

What lies on the sink's side is there in the backward pass: cut between entrance and exit it is saved, cut before its
entrance it is computed again. A reader on that side keeps the exits of its operands there. Edges without a price are
never cut: products are not computed again, and what depends on gradients is computed in the backward pass.

Every byte that is kept counts as one that goes to memory and comes back, also where a kernel writes it anyway: what is
saved is there for as long as both passes take. Rates are the estimates for the processor, measured or not: the same
graphs come of the same model in each process, and are found in the store.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch._functorch import partitioners
from torch.fx.experimental.symbolic_shapes import optimization_hint
from torch.utils.checkpoint import CheckpointPolicy

from tilewright.expr import dtypes
from tilewright.expr.intrinsics import INTRINSICS
from tilewright.expr.nodes import Var, call
from tilewright.expr.work import Work, work_of
from tilewright.frontends.torch.operators.elementwise import FUNCTIONS
from tilewright.frontends.torch.ports import VIEWS, Node
from tilewright.frontends.torch.stages import is_item
from tilewright.target import Target
from tilewright.target.transfer import reread_seconds, rewrite_seconds
from tilewright.target.vectors import vector_cycles

POINTS = Work(plain=1)
"""Of an operator that is no function: arithmetic, comparisons, choices."""

MOSTLY = {
    "gelu": "erf", "silu": "sigmoid", "mish": "tanh", "elu": "exp", "softplus": "exp", "log_sigmoid_forward": "exp",
    "pow": "exp", "rsqrt": "sqrt", "exp2": "exp", "_softmax": "exp", "_log_softmax": "exp", "atan2": "atan",
}  # fmt: skip
"""Functions that take most of what an operator takes, where these have other names."""

MOVED = frozenset(
    f"aten.{name}.default"
    for name in (
        "_to_copy", "_unsafe_view", "cat", "constant_pad_nd", "full", "full_like", "zeros", "zeros_like", "ones",
        "ones_like", "new_zeros", "new_full", "scalar_tensor", "arange",
    )
) | frozenset(("prims.convert_element_type.default", "prims.iota.default", "aten.arange.start_step"))  # fmt: skip
"""Operators that move elements or make them, inside of the kernel that reads them."""

SUMMED = {
    f"aten.{name}": passes
    for name, passes in {
        "sum.default": 1, "sum.dim_IntList": 1, "mean.default": 1, "mean.dim": 1, "amax.default": 1, "amin.default": 1,
        "var_mean.correction": 2, "native_layer_norm.default": 2, "native_group_norm.default": 2,
        "_softmax.default": 2, "_log_softmax.default": 2,
    }.items()
}  # fmt: skip
"""Operators that reduce, with how often they go over their operand before they have what they reduce it to."""

MOST = 1 << 40
"""What all prices of a network come to, in its whole numbers."""

LEAST = 1e-12
"""Seconds that nearly nothing takes."""

SOURCE, SINK, FIRST = 0, 1, 2
"""The numbers of these in a network, and of the first value's entrance; its exit is next, then comes the second's."""


def choose(graph: Any, found: Any, memory_budget: float = 1) -> list[Node]:
    """The values that the forward pass saves, in the order of the graph, which is PyTorch's joint one with what it
    `found` of its nodes. A budget of memory that somebody set is PyTorch's to keep, and so is it to say which value can
    neither be saved nor computed again."""
    late = _cut(_network(graph, found)) if memory_budget == 1 else None
    if late is None:
        return list(_pytorch_s(graph, found, memory_budget))
    entrances = range(FIRST, FIRST + 2 * len(graph.nodes), 2)
    return [node for node, n in zip(graph.nodes, entrances, strict=True) if n + 1 in late and n not in late]


_pytorch_s = partitioners.choose_saved_values_set

Edges = dict[tuple[int, int], float | None]
"""The prices of edges in seconds, by both ends; None for those that are never cut."""


def _network(graph: Any, found: Any) -> Edges:
    """The network of a graph."""
    prices, edges = Prices(graph, found, Target.parse("native")), Edges()
    entrances = {node: FIRST + 2 * n for n, node in enumerate(graph.nodes)}
    for node, entrance in entrances.items():
        exit_ = entrance + 1
        if node.op == "output":
            continue
        if node in found.tangents_closure:
            edges[entrance, SINK] = None
            continue
        if node in found.required_bw_nodes:
            edges[exit_, SINK] = None
        if partitioners.must_recompute(node):
            edges[entrance, SINK] = None
        else:
            edges[SOURCE, entrance] = prices.again(node)
        edges[entrance, exit_] = prices.saving(node)
        edges |= {(exit_, entrances[user]): None for user in node.users if user.op != "output"}
    return edges


def _cut(edges: Edges) -> Collection[int] | None:
    """The sink's side of a least cut; None where each cut has an edge that is never cut. Of all least cuts it is that
    with the smallest such side, which is the same in every process."""
    import networkx  # as PyTorch does
    from networkx.algorithms.flow import boykov_kolmogorov

    unit = MOST / max(sum(filter(None, edges.values())), LEAST)
    network = networkx.DiGraph()
    for (start, end), seconds in edges.items():
        network.add_edge(start, end, **({} if seconds is None else {"capacity": math.ceil(seconds * unit)}))
    try:
        _, (_, late) = networkx.minimum_cut(network, SOURCE, SINK, flow_func=boykov_kolmogorov)
    except networkx.NetworkXUnbounded:
        return None
    return cast(Collection[int], late)


class Prices:
    """What saving and what computing again takes, in seconds; None for what cannot be."""

    def __init__(self, graph: Any, found: Any, target: Target) -> None:
        self.graph, self.found, self.target = graph, found, target
        self.results = {n for node in graph.nodes if node.op == "output" for n in node.all_input_nodes}
        self.work = {node: self._work(node) for node in graph.nodes}
        self.depth = self._depths()

    def _depths(self) -> Mapping[Node, int]:
        """How many products lie before each value of the forward pass, at most, on a way to it."""
        depth: dict[Node, int] = {}
        for node in self.graph.nodes:
            before = max((depth.get(a, 0) for a in node.all_input_nodes), default=0)
            depth[node] = before + (self.work[node] is None and node.op != "placeholder")
        return depth

    @cached_property
    def total(self) -> float:
        """The bytes among which caches have to choose between both passes: all that may be saved."""
        return sum(map(bytes_of, filter(self.found.is_required_fw, self.graph.nodes)))

    def saving(self, node: Node) -> float | None:
        """To write a value, into pages that the system fills with zeros before, and to read it; to read it, where it
        stays anyway; and to store it, where the forward pass has no need to. Sizes are saved rather than computed of
        tensors that nothing else needs."""
        if partitioners.is_sym_node(node):
            return LEAST
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return 0 if partitioners.is_opaque_node(node) else None
        size, is_early = bytes_of(node), self.found.is_required_fw(node)
        read = reread_seconds(size, self.total, self.target)
        if node.op == "placeholder" or (is_early and node in self.results):
            return read
        stored = 0.0
        if not is_early or not (self.work[node] is None or self._is_read_by_products(node, early=True)):
            stored = rewrite_seconds(size, size, self.target)
        return read + stored + 2 * rewrite_seconds(size, self.total, self.target)

    def again(self, node: Node) -> float | None:
        """To compute a value in the backward pass, of its operands. What the forward pass needs nothing of is computed
        once in any case."""
        if node.op == "placeholder":
            return None
        if _is_view(node) or not self.found.is_required_fw(node):
            return 0
        work = self.work[node]
        if work is None or self._is_read_across(node):
            return None
        if self._is_read_by_products(node, early=False):
            size = bytes_of(node)
            work += rewrite_seconds(size, size, self.target) + reread_seconds(size, size, self.target)
        return work

    def _work(self, node: Node) -> float | None:
        """Seconds of computing a value of its operands, without what it takes to write it; None for products, for
        random numbers, and for what is not known."""
        if node.op == "get_attr" or (node.op == "call_function" and (is_item(node) or partitioners.is_sym_node(node))):
            return 0
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return None
        tags, name = node.target.tags, str(node.target)
        if node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE or node.target._schema.is_mutable:
            return None
        if name in VIEWS:
            return 0
        if name in SUMMED:
            return self._passes(node, SUMMED[name])
        if torch.Tag.pointwise in tags or name in MOVED:
            return None if torch.Tag.nondeterministic_seeded in tags else self._points(node, self._work_of(node))
        return None

    def _points(self, node: Node, work: Work) -> float:
        lanes = self.target.vector_bits // dtypes.f32.bits
        return elements_of(node) / lanes * vector_cycles(work, self.target, lanes) / self.target.core.hertz

    def _passes(self, node: Node, passes: int) -> float:
        """Going over the first operand so many times, and computing each result from its element."""
        operand = node.all_input_nodes[0]
        size = bytes_of(operand)
        read = passes * (reread_seconds(size, size, self.target) + self._points(operand, POINTS))
        return read + self._points(operand, self._work_of(node))

    def _work_of(self, node: Node) -> Work:
        """The instructions for a vector of results of an operator. Where the backward pass computes the function for
        the slope, it is there."""
        name = str(node.target).split(".")[1]
        function = FUNCTIONS.get(name) or MOSTLY.get(name)
        if function not in INTRINSICS or any(self._is_in_slope(a, function) for a in node.all_input_nodes):
            return POINTS
        return work_of(call(function, Var("x", dtypes.f32)))

    def _is_in_slope(self, operand: Node, function: str) -> bool:
        """Whether the backward pass computes a function of an operand, element by element."""
        waiting, seen = [operand], set[Node]()
        while waiting:
            for user in waiting.pop().users:
                if (
                    user in seen
                    or self.found.is_required_fw(user)
                    or not isinstance(user.target, torch._ops.OpOverload)
                ):
                    continue
                seen.add(user)
                if str(user.target).split(".")[1] == function:
                    return True
                if torch.Tag.pointwise in user.target.tags and user not in self.found.tangents_closure:
                    waiting.append(user)
        return False

    def _is_read_across(self, node: Node) -> bool:
        """Whether the forward pass reads a value on both sides of a product, as it does that of a skip connection. To
        compute it again would be to compute all of them before the first is used, and to keep them until the last is:
        each follows from the one before."""
        own, waiting = self.depth[node], [node]
        while waiting:
            for user in waiting.pop().users:
                if not self.found.is_required_fw(user):
                    continue
                if _is_view(user):
                    waiting.append(user)
                elif self.depth[user] > own and self.work[user] is not None:
                    return True
        return False

    def _is_read_by_products(self, node: Node, *, early: bool) -> bool:
        """Whether a product, or what is not known, of the forward pass or of the backward one needs a value in
        memory."""
        waiting = [node]
        while waiting:
            for user in waiting.pop().users:
                if _is_view(user):
                    waiting.append(user)
                elif user.op != "output" and self.found.is_required_fw(user) is early and self.work[user] is None:
                    return True
        return False


def _is_view(node: Node) -> bool:
    """Whether a value has the memory of its operand, or of a part of it."""
    return str(node.target) in VIEWS or is_item(node)


def bytes_of(node: Node) -> float:
    """The bytes of a tensor, of the sizes that a dynamic one is assumed to have; 0 for what is none."""
    value = node.meta.get("val")
    return elements_of(node) * value.element_size() if isinstance(value, torch.Tensor) else 0


def elements_of(node: Node) -> int:
    """How many elements a tensor has, or the first of several."""
    value = node.meta.get("val")
    if isinstance(value, Sequence) and value:
        value = value[0]
    return optimization_hint(value.numel(), fallback=1 << 12) if isinstance(value, torch.Tensor) else 0
