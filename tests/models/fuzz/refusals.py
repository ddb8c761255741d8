"""What a random model may be refused for: limits that are documented, each where it is met and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fuzz.drawing import Model
from tilewright.report.errors import RuntimeFault, TilewrightError

UNSUPPORTED: tuple[tuple[str, str], ...] = ()
"""Operators that are drawn in ways that are not supported, and what the error says of each."""

SIZES = re.compile(r"(?:sizes of .* differ|do not broadcast): (\d+) and (\d+)")


def is_limit(models: Sequence[Model], error: TilewrightError) -> bool:
    """Whether an error names such a limit: an operator that is listed above, or, while the model runs, a size from data
    that is 1 where an operand by the reference's shapes is repeated."""
    text = str(error)
    found = re.search(r"at: +(\S+) '([^']*)'", text)
    if found is None:
        return False
    operator, name = found.groups()
    if not isinstance(error, RuntimeFault):
        return any(operator == listed and says in text for listed, says in UNSUPPORTED)
    sizes = SIZES.search(text)
    return sizes is not None and set(map(int, sizes.groups())) in [{1, n} for n in repeated(models, operator, name)]


def repeated(models: Sequence[Model], operator: str, name: str) -> Iterator[int]:
    """The sizes to which a node of one of the models repeats a dimension of 1 that an operand has."""
    for model in models:
        for node in model.nodes:
            if node.op_type == operator and node.name == name:
                given = {**model.constants, **model.feeds, **model.values}
                shapes = [given[n].shape for n in node.input if n]
                if operator == "Expand":
                    shapes[1:] = [tuple(given[node.input[1]])]
                for sizes in zip(*((1,) * (8 - len(s)) + tuple(s) for s in shapes), strict=True):
                    yield from (int(n) for n in set(sizes) - {1} if 1 in sizes)
