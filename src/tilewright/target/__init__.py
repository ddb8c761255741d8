"""Machine models: what the code is compiled for, and what that machine can do at best.

Promises to the floors above: a `Target` is a plain value (no look at the machine happens through it), it says only
what its features prove, and its fingerprint changes with anything that can change the code made for it. LLVM is loaded
where it is asked for something: not to tell what this machine is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core import Core, Rates
from .host import Cache, Host, Processor
from .peaks import Peaks
from .target import Target, native, target_names

if TYPE_CHECKING:
    from .calibrate import measured

__all__ = [
    "Cache",
    "Core",
    "Host",
    "Peaks",
    "Processor",
    "Rates",
    "Target",
    "measured",
    "native",
    "target_names",
]


def __getattr__(name: str) -> object:
    """Measuring, and the store with it, is loaded by those who ask for it: a compiled file needs none."""
    if name == "measured":
        from .calibrate import measured

        return measured
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
