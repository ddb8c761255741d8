"""Branches of an If: which one is read in its place, what is read in both, and which values are used behind them."""
