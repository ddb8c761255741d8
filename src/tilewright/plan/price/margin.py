"""How much cheaper a rewrite must be before a program is changed for it."""

from __future__ import annotations

MARGIN = 1.05
"""A rewrite that changes how results are rounded, or where tensors lie, has to be this much cheaper: prices are right
to about a twentieth, whatever the machine, and the program as it was written is never a surprise."""


def pays(plain: float, rewritten: float) -> bool:
    """Whether a rewrite of so many seconds is clearly better than the `plain` way."""
    return plain >= MARGIN * rewritten
