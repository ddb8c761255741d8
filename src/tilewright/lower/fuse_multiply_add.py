"""Placeholder."""
from __future__ import annotations
from tilewright.loops.nodes import Function


def fuse_multiply_add(function: Function) -> Function:
    return function
