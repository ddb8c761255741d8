"""Decisions: which operators share a kernel, and how each kernel runs."""
