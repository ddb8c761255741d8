"""`Program`: all that an executable runs, as a value that can be written to a file and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.codegen.abi import FaultMessage
from tilewright.runtime.interface import Interface
from tilewright.store import Json
from tilewright.target import Target

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled program: `code` are object files for `target`, that of the entry first; `faults` what the entry
    point's positive results stand for (1 is the first); `constants` the arrays that it takes, in order; `provenance`
    says what it was made from."""

    interface: Interface
    code: tuple[bytes, ...]
    faults: tuple[FaultMessage, ...]
    constants: tuple[Array, ...]
    target: Target
    provenance: Mapping[str, Json] = field(default_factory=dict)
