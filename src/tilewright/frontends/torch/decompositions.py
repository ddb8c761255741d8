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

ATTENTIONS = "scaled_dot"
"""A part of the names of attentions."""

KEPT = frozenset(
    ("dropout", "native_dropout", "lift", "lift_fresh", "detach", "erfcx", "special_erfcx", "special_erfc",
     "special_log_ndtr", "complex", "polar", "angle", "as_strided_scatter", "diagonal_scatter", "resize_as", "rrelu")
)  # fmt: skip
"""Operators that stay whole without a handler: what they are broken up into has none either, or writes in place; and
those by which AOTAutograd tells the tensors that a graph holds."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that AOTAutograd takes."""
    known = {name for _, name in HANDLERS.table}
    every = {**decomposition_table, **core_aten_decompositions()}
    return {overload: function for overload, function in every.items() if _breaks(overload, known)}


def _breaks(overload: Any, known: set[str]) -> bool:
    if not isinstance(overload, torch._ops.OpOverload) or str(overload) in known or ATTENTIONS in str(overload):
        return False
    name = overload._schema.name.partition("::")[2]
    return name not in KEPT and torch.Tag.nondeterministic_seeded not in overload.tags


@cache
def export_decompositions() -> dict[Any, Callable[..., Any]]:
    """What torch.export breaks up by itself, composite operators among it, but for what stays whole here."""
    known = {name for _, name in HANDLERS.table}
    whole = torch.export.default_decompositions()
    kept = "scaled_dot_product_attention"
    return {op: f for op, f in whole.items() if _breaks(op, known) or str(op) == f"aten.{kept}.default"}
