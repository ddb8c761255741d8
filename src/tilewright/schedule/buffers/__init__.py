"""Steps that put one buffer in place of another."""

from __future__ import annotations
