"""Passes that make, hoist and share out kernels: from a planned graph to scheduled kernels and calls of them."""

from __future__ import annotations
