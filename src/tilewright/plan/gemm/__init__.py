"""Contractions: products and convolutions as tiles of accumulators over packed panels."""

from __future__ import annotations
