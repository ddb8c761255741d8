"""Decisions: which operators share a kernel, and how each kernel runs."""

from __future__ import annotations
