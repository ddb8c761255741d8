"""Tilewright: a compiler and runtime for machine-learning models and linear-algebra programs."""

from __future__ import annotations

__version__ = "0.1.0"
