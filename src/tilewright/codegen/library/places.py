"""Where weights are in the file of a library; known without LLVM."""

from __future__ import annotations

from typing import Final

WEIGHTS_AT: Final = 1 << 18
"""Weights of a large page and more are at a multiple of so many bytes of the file: more than the code of most models
takes, so that they can be written before the code is made."""
