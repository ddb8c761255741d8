"""Which ATen operators AOTAutograd breaks up into smaller ones before a graph is read.

What has a handler stays whole. Everything else is broken up where PyTorch says how, but for what draws random numbers,
whose bits are those of PyTorch's own kernels, and for attentions: the decompositions of these save for the backward
pass what its kernel does not take.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from tilewright.frontends.torch.operators import HANDLERS

KEPT = (
    *("scaled_dot", "native_dropout", "bernoulli", "rrelu"),
    *("special_", "erfinv", "erfc", "lgamma", "digamma", "igamma"),
)
"""Parts of names of operators that stay whole without a handler: attentions, draws, and functions whose decompositions
are refinements of other functions without a handler."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that AOTAutograd takes."""
    known = {name for _, name in HANDLERS.table}
    every = {**decomposition_table, **core_aten_decompositions()}
    return {overload: function for overload, function in every.items() if _breaks(overload, known)}


def _breaks(overload: Any, known: set[str]) -> bool:
    name = str(overload)
    if not isinstance(overload, torch._ops.OpOverload) or name in known or any(part in name for part in KEPT):
        return False
    return torch.Tag.nondeterministic_seeded not in overload.tags
