"""Fusion plans: which operators of a graph share a kernel, chosen by cost. `planner.choose` is the way in."""
