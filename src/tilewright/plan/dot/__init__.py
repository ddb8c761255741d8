"""Contractions of narrow numbers, by instructions that add several products to a lane."""

from __future__ import annotations
