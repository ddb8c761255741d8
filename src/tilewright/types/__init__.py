"""Tensor types and memory scopes."""

from __future__ import annotations

from tilewright.types.scopes import Scope
from tilewright.types.tensor import TensorType, dim, shape_of

__all__ = ["Scope", "TensorType", "dim", "shape_of"]
