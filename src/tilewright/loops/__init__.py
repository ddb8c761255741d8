"""Tensor programs: buffers, loops, blocks, calls."""

from __future__ import annotations

from tilewright.loops import text as text  # importing it lets functions print themselves
