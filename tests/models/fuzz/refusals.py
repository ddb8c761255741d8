"""What a random model may be refused for: limits that are documented, each where it is met and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnx import NodeProto

from fuzz.drawing import Model, with_inner
from tilewright.report.errors import RuntimeFault, TilewrightError

UNSUPPORTED = (
    *((name, "the shape of the weights must be constant") for name in ("Conv", "ConvTranspose", "ConvInteger")),
)
"""Operators that are drawn in ways that are not supported, and what the error says of each."""

SIZES = re.compile(r"(?:sizes of .* differ|do not broadcast): (\d+) and (\d+)")


def is_limit(models: Sequence[Model], error: TilewrightError) -> bool:
    """Whether an error names such a limit: an operator that is listed above, or, while the model runs, a size from data
    that is 1 where an operand by the reference's shapes is repeated, or a dimension that no axis of Squeeze names; or
    the rank that such a Squeeze leaves."""
    text = str(error)
    found = re.search(r"at: +(\S+) '([^']*)'", text)
    if found is None:
        return False
    operator, name = found.groups()
    named = [(m, node) for m in models for node in with_inner(m.nodes) if node.name == name]
    if not isinstance(error, RuntimeFault):
        listed = any(operator == other and says in text for other, says in UNSUPPORTED)
        return listed or ("dimensions" in text and any(reads_squeezed(m, node) for m, node in named))
    if operator == "Squeeze" and "without axes" in text:
        return any(1 in {**m.constants, **m.feeds, **m.values}[node.input[0]].shape for m, node in named)
    sizes = SIZES.search(text)
    if sizes is None:
        return False
    a, b = map(int, sizes.groups())
    return 1 in (a, b) and any(is_repeated(m, node, a + b - 1) for m, node in named)


def reads_squeezed(model: Model, node: NodeProto) -> bool:
    """Whether a node reads what Squeeze without axes left of a tensor with dimensions of 1: it has more of them where
    sizes are known only at run time."""
    squeezed = [n for n in with_inner(model.nodes) if n.op_type == "Squeeze" and len(n.input) + len(n.attribute) == 1]
    known = {**model.constants, **model.feeds, **model.values}
    return any(n.output[0] in node.input and 1 in known[n.input[0]].shape for n in squeezed)


def is_repeated(model: Model, node: NodeProto, size: int) -> bool:
    """Whether a node repeats a dimension of 1 that an operand has, to this size. In a graph inside, of which the shapes
    in the first step are known, another operand may be of any size later."""
    given = {**model.constants, **model.feeds, **model.values}
    shapes = [given[n].shape for n in node.input if n in given]
    if node.op_type == "Expand" and node.input[1] in given:
        shapes[1:] = [tuple(given[node.input[1]])]
    inside = all(node is not outer for outer in model.nodes)
    together = zip(*((0,) * (8 - len(s)) + tuple(s) for s in shapes), strict=True)
    return any(1 in sizes and (inside or size in sizes) for sizes in together)
