"""Arrays of a caller that the results of a call are written into: `exe(x, out=y)`.

An array is written in place, so it must be what the program writes: of the output's element type and shape, contiguous,
writeable, and without overlap with any input or other output. What is refused says what came and what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.report.errors import UserError
from tilewright.report.nearest import suggest
from tilewright.runtime.interface import Port

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def match_results(ports: Sequence[Port], out: object) -> Sequence[Array | None]:
    """The arrays that `out` gives for the outputs, in their order: an array for the only output, a sequence of arrays
    (None where a fresh one is wanted), or a mapping from names."""
    if type(out) is np.ndarray and len(ports) == 1:
        return (out,)
    if isinstance(out, Mapping):
        unknown = [name for name in out if all(p.name != name for p in ports)]
        if unknown:
            fix = suggest(str(unknown[0]), [p.label for p in ports], "outputs")
            raise UserError(f"no output is called {unknown[0]}", fix=fix)
        return [_array(p, out.get(p.name)) for p in ports]
    given = list(out) if isinstance(out, tuple | list) else [out]
    if len(given) != len(ports):
        outputs = ", ".join(map(str, ports)) or "none"
        raise UserError(
            f"out gives {len(given)} arrays, and the program returns {len(ports)}", fix=f"its outputs are {outputs}"
        )
    return [_array(p, a) for p, a in zip(ports, given, strict=True)]


def _array(port: Port, value: object) -> Array | None:
    if value is not None and (not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray)):
        _refuse(port, f"a {type(value).__name__} came", "pass an array")
    return value


def check_results(
    ports: Sequence[Port], out: Sequence[Array | None], shapes: Sequence[Shape | None], inputs: Sequence[Array]
) -> None:
    """Raises UserError for an array that the call cannot write its output into. A shape is None where the call
    computes it: such an output is copied, and its shape is checked then."""
    for n, array in enumerate(out):
        if array is None:
            continue
        _check_array(ports[n], array, shapes[n])
        for other in (*inputs, *out[:n]):
            if other is not None and np.may_share_memory(array, other):
                _refuse(ports[n], "it shares memory with an input or another output", "pass an array of its own")


def _check_array(port: Port, array: Array, shape: Shape | None) -> None:
    wanted, flags = port.dtype.numpy, array.flags
    if array.dtype is not wanted and array.dtype != wanted:
        _refuse(port, f"it has elements of {array.dtype}", f"make it with np.empty(…, {str(wanted)!r})")
    if shape is not None and array.shape != shape:
        _refuse(port, f"it has the shape {array.shape}, and the result of this call has {shape}", "give it that shape")
    if not flags.writeable:
        _refuse(port, "it is read-only", "pass an array you may write")
    if not (flags.c_contiguous and flags.aligned):
        _refuse(port, "it is not contiguous and aligned", "pass an array made by np.empty, and copy from it")


def copy_result(port: Port, array: Array, result: Array) -> Array:
    """`array`, after a copy of `result`, whose size the call computed."""
    _check_array(port, array, result.shape)
    array[...] = result
    return array


def _refuse(port: Port, why: str, fix: str) -> NoReturn:
    raise UserError(f"cannot write output {port} into what out gives", why=why, fix=fix)
