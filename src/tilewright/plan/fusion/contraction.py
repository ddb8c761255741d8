"""The contraction template: a sum of products, and maps over its result, which run on each tile before it is stored.

    h[i, j] = sum_k x[i, k] * w[k, j]      then      y[i, j] = relu(h[i, j] + b[j])

What a contraction reads comes from memory: it reads each element many times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.graph.nodes import Node
from tilewright.ops.index_maps import parse
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.template import Anchored, Fused

if TYPE_CHECKING:
    from tilewright.ops.contract import ContractAttributes


class Contraction(Anchored):
    """A contraction whose operands are indexed by one axis a dimension."""

    name = "contraction"

    def opens(self, node: Node, fused: Fused, flow: Dataflow) -> bool:
        return node.op.name == "contract" and not fused and not has_windows(node)


def has_windows(node: Node) -> bool:
    """Whether a dimension of an operand is indexed by several axes, or by multiples of one."""
    attrs: ContractAttributes = node.attrs  # type: ignore[assignment]
    return any(len(i.terms) > 1 or any(by != 1 for _, by in i.terms) for o in parse(attrs.spec).operands for i in o)
