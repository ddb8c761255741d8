"""Machine models: what the code is compiled for, and what that machine can do at best.

Promises to the floors above: a `Target` is a plain value (no look at the machine happens through it), it says only
what its features prove, and its fingerprint changes with anything that can change the code made for it.
"""

from __future__ import annotations

from .calibrate import calibrated, recalled
from .host import Cache, Host
from .peaks import Peaks
from .target import Target, native, target_names

__all__ = ["Cache", "Host", "Peaks", "Target", "calibrated", "native", "recalled", "target_names"]
