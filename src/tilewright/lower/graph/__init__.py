"""Passes from graph to graph, before the plan."""

from __future__ import annotations
