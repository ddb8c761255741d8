"""What users are told of operators that run in PyTorch: one warning that lists them, or one error."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from tilewright.frontends.build.problems import Problems
from tilewright.frontends.torch.ports import Node
from tilewright.frontends.torch.stages import draws, is_item


class TorchWarning(UserWarning):
    """Operators of a graph run in PyTorch. The warning lists them all; `options={"fallback": "error"}` makes it an
    error."""


def shown(failed: Mapping[Node, str]) -> dict[Node, str]:
    """The nodes that users are told of: draws are PyTorch's by what they mean."""
    return {n: why for n, why in failed.items() if not draws(n) and not is_item(n) and n.op != "get_attr"}


def warn_of(failed: Mapping[Node, str]) -> None:
    """One warning for the nodes of a graph that run in PyTorch."""
    rows = [f"  {node.target} at {place_of(node)}: {why}" for node, why in shown(failed).items()]
    if rows:
        count = len(next(iter(failed)).graph.nodes)
        text = "\n".join([f"PyTorch runs {len(rows)} of {count} nodes of a graph:", *dict.fromkeys(rows)])
        warnings.warn(TorchWarning(text), stacklevel=2)


def refuse(failed: Mapping[Node, str]) -> None:
    """UserError that lists the nodes which would run in PyTorch, if there are any."""
    problems = Problems()
    for node, why in shown(failed).items():
        fix = 'options={"fallback": "eager"} lets PyTorch run it'
        problems.add(f"{node.target} is not supported here", where=place_of(node), why=why, fix=fix)
    problems.check("the graph uses what is not supported")


def place_of(node: Node) -> str:
    """The line of the user's program that a node comes from, or its name where nobody knows."""
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    lines = [line.strip() for line in trace if line.strip().startswith("File ")]
    return lines[-1].removeprefix("File ") if lines else node.name
