"""Scalar and index expressions: nodes, rules, text, meaning."""

from __future__ import annotations

from tilewright.expr import text as text  # importing it lets expressions print themselves
