"""Prices: what is assumed where a call alone knows."""
