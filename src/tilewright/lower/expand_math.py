"""Placeholder."""
from __future__ import annotations
from tilewright.loops.nodes import Function


def expand_math(function: Function) -> Function:
    return function
