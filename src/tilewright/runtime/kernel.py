"""`Kernel`: a compiled loops function, called with all its arrays, the ones it writes included."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.report.errors import UserError
from tilewright.runtime.describe import describe
from tilewright.runtime.executable import Array, Executable
from tilewright.types.finite import require_finite


class Kernel(Executable):
    """A compiled loops function. Calling it runs it in place on arrays in the order of its parameters.

    Arrays must be contiguous and of the parameters' element types: nothing is copied, since some are written. An array
    that is written must not share memory with another.
    """

    outputs_at: int = 0
    finite: tuple[int, ...] = ()
    """The places of parameters that hold no infinity and no NaN."""

    def __repr__(self) -> str:
        return describe(type(self).__name__, self.program, self.threads, parameters=True)

    def _state(self) -> dict[str, object]:
        return {**super()._state(), "outputs_at": self.outputs_at, "finite": self.finite}

    def _run(self, given: Sequence[Any], wanted: Sequence[Array | None] | None) -> tuple[Array, ...]:
        """Runs the function on arrays in order; the written ones are changed in place."""
        for n, (port, array) in enumerate(zip(self.inputs, given, strict=True)):
            if not isinstance(array, np.ndarray):
                raise UserError(
                    f"parameter {port.label} is no array",
                    why=f"a {type(array).__name__} came, and a kernel works in place",
                    fix=f"pass an array for {port}",
                )
            if isinstance(array, np.ma.MaskedArray):
                raise UserError(
                    f"parameter {port.label} is a masked array",
                    why="a kernel would read and write the masked elements too",
                    fix="pass the array without its mask: array.data",
                )
            if not (array.flags.c_contiguous and array.flags.aligned):
                raise UserError(
                    f"parameter {port.label} is not contiguous" + (" and aligned" if array.flags.c_contiguous else ""),
                    why="a kernel works in place, so a copy would be written instead of it",
                    fix=f"pass np.ascontiguousarray({port.label}), or an array made by np.empty",
                )
            if n >= self.outputs_at:
                self._check_written(n, array, given)
            if n in self.finite:
                require_finite(array, port.label)
        return super()._run(given, wanted)

    def save(self, path: str | os.PathLike[str]) -> NoReturn:
        """Refused: what a file holds is called with inputs and returns outputs."""
        raise UserError(
            "a kernel is not saved to a file",
            where=str(path),
            why="it is called with the arrays it writes, and a file holds a program that returns its results",
            fix="save what tilewright.compile makes of a graph that calls the kernel",
        )

    def _check_written(self, n: int, array: np.ndarray[Any, Any], given: Sequence[Any]) -> None:
        port = self.inputs[n]
        if not array.flags.writeable:
            raise UserError(
                f"parameter {port.label} is read-only", why="the function writes it", fix="pass an array you may write"
            )
        for m, other in enumerate(given):
            if m != n and isinstance(other, np.ndarray) and np.may_share_memory(array, other):
                raise UserError(
                    f"parameters {port.label} and {self.inputs[m].label} share memory",
                    why=f"the function writes {port.label} while it reads the other",
                    fix="pass a copy of one of them",
                )
