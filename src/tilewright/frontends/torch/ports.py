"""What compiled code takes and gives of a graph's values: which nodes, how they lie in memory, and which sizes.

Nothing here needs the reader, so that what was compiled before starts without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tilewright.expr import dtypes
from tilewright.frontends.torch.sizes import Symbol, order_in_memory
from tilewright.graph.constants import Weight

Node = Any
"""A torch.fx.Node, which says nothing of its types."""

VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default", "detach.default", "view.default", "permute.default", "t.default", "transpose.int",
        "expand.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "slice.Tensor",
        "select.int",
    )
)  # fmt: skip
"""Operators that answer a view of their operand: a result that is one takes no memory of its own."""


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory: its dimensions from the outermost to the innermost, or None where it has to be
    copied to be dense, in order."""

    order: tuple[int, ...] | None

    @property
    def moves(self) -> bool:
        """Whether the dimensions lie in another order than their own."""
        return self.order is not None and self.order != tuple(range(len(self.order)))

    @staticmethod
    def of(fake: Any) -> Layout:
        """That of a fake tensor."""
        return Layout(order_in_memory(fake.shape, fake.stride()))


@dataclass
class Ports:
    """The inputs and results of compiled code as nodes of the graph, the symbols whose values a call gives, and for how
    many of these an input that nothing reads has it as its extent (`spare`, behind the others). `weights` are inputs
    that the code takes as weights and not as parameters."""

    inputs: list[Node]
    results: list[Node]
    symbols: list[Symbol]
    spare: int = 0
    weights: list[tuple[Node, Weight]] = field(default_factory=list)


def is_number(fake: Any) -> bool:
    """Whether a value of a graph is a size, or a real number computed of sizes."""
    return isinstance(fake, torch.SymInt | torch.SymFloat) or type(fake) is int


def is_size(node: Node) -> bool:
    """Whether a node only computes with sizes, which its fake value tells as an expression."""
    if not is_number(node.meta.get("val")):
        return False
    name = str(node.target)
    return not isinstance(node.target, torch._ops.OpOverload) or name.startswith("aten.sym_")


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """The numbers of a tensor, without a copy where it is contiguous."""
    dense = tensor.detach().resolve_neg().contiguous()
    if dense.dtype is torch.bfloat16:
        return np.asarray(dense.view(torch.int16).numpy()).view(dtypes.bf16.numpy)
    return np.asarray(dense.numpy())
