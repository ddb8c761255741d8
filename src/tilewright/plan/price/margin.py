"""How much cheaper a rewrite must be before a program is changed for it."""

from __future__ import annotations

MARGIN = 1.03
"""A rewrite that changes how results are rounded, or where tensors lie, has to be this much cheaper: prices of ways
that are nearly alike rank right to about this, whatever the machine, and a program as written is no surprise."""


def pays(plain: float, rewritten: float) -> bool:
    """Whether a rewrite of so many seconds is clearly better than the `plain` way."""
    return plain >= MARGIN * rewritten
