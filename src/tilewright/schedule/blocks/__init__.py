"""Steps that move the work of a block to another place or nest."""

from __future__ import annotations
