"""Passes from a graph of calls to one program whose buffers have places in an arena."""

from __future__ import annotations
