"""Passes: graph to graph, graph to kernels, kernels to one program with its memory, loops to plain loops."""

from __future__ import annotations
