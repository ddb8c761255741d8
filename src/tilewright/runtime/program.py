"""`Program`: all that an executable runs, as a value that can be written to a file and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.codegen.abi import FaultMessage
from tilewright.expr.nodes import Expr, const
from tilewright.runtime.interface import Interface
from tilewright.store import Json
from tilewright.target import Target

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """A place where a program calls a kernel. `template`, `operators` and `source`, the front end's names of them, say
    what the kernel holds; `flops` and `bytes` what a call does and moves, over the interface's symbols, None where they
    depend on sizes that the call computes; `predicted` the seconds that planning expects on one core, None where they
    depend on the sizes of a call (`Executable.predict`). Empty where nothing was planned."""

    kernel: str
    template: str = ""
    operators: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    flops: Expr | None = None
    bytes: Expr | None = None
    predicted: float | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled program: `code` is the linked image for `target` (codegen/image.py), with the pool's where it forks,
    or, where LLVM loads it, its object files; `faults` what the entry point's positive results stand for (1 is the
    first); `constants` the arrays that it takes, in order; `sites` where it calls kernels, as profiles number them;
    `provenance` says what it was made from, `files` the absolute paths of the files that hold it;
    `denormals` whether its calls keep or flush subnormal numbers; `checked` whether it guards and checks its memory
    (runtime/checked.py); `rooms` what the sizes behind the interface's symbols are at first: those that a call makes
    larger when it needs them larger; `arena` the bytes of scratch memory that a call asks for first, over the
    interface's symbols: all that it needs, unless it computes sizes itself; `uses` the numbers of the first and the
    last site that is given each input and each output, of a program that runs by parts (codegen/parts.py), else
    nothing."""

    interface: Interface
    code: tuple[bytes, ...]
    faults: tuple[FaultMessage, ...]
    constants: tuple[Array, ...]
    target: Target
    sites: tuple[Site, ...] = ()
    provenance: Mapping[str, Json] = field(default_factory=dict)
    denormals: str = "keep"
    files: tuple[str, ...] = ()
    checked: bool = False
    rooms: tuple[int, ...] = ()
    arena: Expr = field(default_factory=lambda: const(0))
    uses: tuple[tuple[int, int], ...] = ()
