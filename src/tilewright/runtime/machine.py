"""`measured(target)`: what this machine does, as all above the runtime ask for it.

Beside what `tilewright.target` measures it has what starting work takes: the pool's and the executable's doing.
"""

from __future__ import annotations

from typing import Final

from tilewright import target as machine
from tilewright.store import Store
from tilewright.target import Target
from tilewright.target.calibrate import MACHINE, Part
from tilewright.target.core import Figures
from tilewright.target.host import Host


def _measure_starts(target: Target, host: Host) -> Figures:
    from tilewright.runtime.starts import measure_starts  # brings code generation along

    return measure_starts(target, host)


STARTS: Final = Part("starts", _measure_starts)
"""`fork_seconds`, `wake_seconds` and `call_seconds`."""


def measured(target: Target, store: Store | None = None, *, again: bool = False) -> Target:
    """`tilewright.target.measured`, with what starting work takes."""
    return machine.measured(target, store, again=again, parts=(MACHINE, STARTS))
