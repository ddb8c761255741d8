"""Steps that rearrange loops, each block as it was."""

from __future__ import annotations
