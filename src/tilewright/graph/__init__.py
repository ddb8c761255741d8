"""Operator graphs: values, nodes, functions, modules, and the protocol of operators."""

from __future__ import annotations

from tilewright.graph import text as text  # importing it lets functions print themselves
