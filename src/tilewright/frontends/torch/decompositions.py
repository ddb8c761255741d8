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
from torch._decomp import _core_aten_decompositions_post_autograd, decomposition_table
from torch._export.utils import _is_preservable_cia_op

from tilewright.frontends.torch.operators import HANDLERS

ATTENTIONS = "scaled_dot"
"""A part of the names of attentions."""

KEPT = frozenset(
    ("dropout", "native_dropout", "lift", "lift_fresh", "detach", "erfcx", "special_erfcx", "special_erfc",
     "special_log_ndtr", "complex", "polar", "angle", "as_strided_scatter", "diagonal_scatter", "resize_as", "rrelu")
)  # fmt: skip
"""Operators that stay whole without a handler: what they are broken up into has none either, or writes in place; and
those by which AOTAutograd tells the tensors that a graph holds."""


COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that AOTAutograd takes: what `torch._decomp.core_aten_decompositions()` has, but for operators that are
    composite. Those PyTorch breaks up without a table, and to list them takes it a third of a second."""
    known = {name for _, name in HANDLERS.table}
    core = _core_aten_decompositions_post_autograd()
    every = {op: f for op, f in decomposition_table.items() if op in core or not _is_composite(op)} | core
    return {overload: function for overload, function in every.items() if _breaks(overload, known)}


def _is_composite(overload: Any) -> bool:
    """Whether an operator is made of others by its definition, which no Python function overrides."""
    if not isinstance(overload, torch._ops.OpOverload) or COMPOSITE in overload.py_kernels:
        return False
    has_kernel: bool = torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd")
    return has_kernel and _is_preservable_cia_op(overload)


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
