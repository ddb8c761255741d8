"""Choices that measuring found, by the structure of the kernels that they are for.

    Tuned({"3f0c…": {"template": "contraction", "choice": {…}}}, "9a41…")

Under which text a kernel is found says `analysis.structure.key_of`. A value is made once, before a compilation, and
handed on: all processes of one compilation see the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.core.forced import Forced


@dataclass(frozen=True, slots=True)
class Tuned:
    """Choices by the keys of kernels. `stamp` differs whenever they do: it is part of the key of compiled code."""

    choices: Mapping[str, Forced] = field(default_factory=dict, compare=False)
    stamp: str = ""

    def __bool__(self) -> bool:
        return bool(self.choices)


UNTUNED = Tuned()
"""Nothing was measured."""
