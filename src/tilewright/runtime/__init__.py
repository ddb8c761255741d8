"""Programs as bytes, in memory and called."""

from __future__ import annotations
