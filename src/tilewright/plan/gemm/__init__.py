"""Contractions: products and convolutions as tiles of accumulators over packed panels."""
