"""Passes from blocks in loops to plain statements over vectors, which code generation prints."""

from __future__ import annotations
