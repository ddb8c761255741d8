"""What Python does before a call enters native code, as a function generated for the program's interface: calls are
frequent, and a loop over the arrays would cost more than the work for each.

    def prepare(given, wanted, places, pointers):
        a0, = given
        if not (type(a0) is ndarray and …): a0 = to_array(input0, a0)
        symbols, shapes, size = bind((a0.shape,))
        if wanted is None: wanted = nothing
        else: check_results(outputs, wanted, shapes, (a0,))
        w0, = wanted
        pointers[0] = address of a0
        try:
            o0 = w0 if w0 is not None else empty(shapes[0], type_o0) if size < least else \\
                places[0].empty(shapes[0], type_o0, pointers[0])
        except (ValueError, MemoryError) as error: raise no_room(shapes) from error
        pointers[1] = address of o0
        if 0 in a0.shape: check_empty(input0, a0.shape)
        return symbols, (o0,), (a0,)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.report.errors import RuntimeFault, UserError
from tilewright.runtime.convert import to_array
from tilewright.runtime.interface import Binder, Interface, Port, Shape
from tilewright.runtime.pointers import ADDRESS, ADDRESS_SCOPE
from tilewright.runtime.results import check_results
from tilewright.runtime.reuse import LEAST, Output

Array = np.ndarray[Any, Any]

MOST_BESIDE_EMPTY = 1 << 30
"""What the dimensions of an array without elements that are not 0 may multiply to: programs count to them."""

TOO_SMALL = "the inputs are too small for the program"
"""What is said where a result would have a negative size."""

Given = Sequence[Any]
Wanted = Sequence[Array | None] | None
Prepared = tuple[tuple[int, ...], tuple[Array | None, ...], tuple[Array, ...]]
Prepare = Callable[[Given, Wanted, Sequence[Output], Any], Prepared]


def make_prepare(interface: Interface, bind: Binder) -> Prepare:
    """A function from the arrays that a caller gives, and wants results in, and the places of other results to the
    values of the symbols, the outputs (None where the call computes a size), and the inputs as native code takes
    them: they hold the memory that it reads. It writes the addresses of both into the array of pointers it is given.

    It raises UserError for an array that does not fit, RuntimeFault where there is no room for the results.
    """

    def no_room(shapes: Sequence[Shape | None]) -> RuntimeFault:
        return _no_room(interface, shapes)

    scope: dict[str, Any] = {"ndarray": np.ndarray, "empty": np.empty, "to_array": to_array, "bind": bind}
    scope |= {"check_results": check_results, "outputs": interface.outputs, "no_room": no_room}
    scope["check_empty"] = check_empty
    scope |= {"nothing": (None,) * len(interface.outputs), "least": LEAST, **ADDRESS_SCOPE}
    scope |= {f"input{n}": port for n, port in enumerate(interface.inputs)}
    scope |= {f"type_a{n}": port.dtype.numpy for n, port in enumerate(interface.inputs)}
    scope |= {f"type_o{n}": port.dtype.numpy for n, port in enumerate(interface.outputs)}
    exec(compile(_source(interface), "<a call>", "exec"), scope)
    prepare: Prepare = scope["prepare"]
    return prepare


def _source(interface: Interface) -> str:
    arrays = [f"a{n}" for n in range(len(interface.inputs))]
    results = [f"o{n}" for n in range(len(interface.outputs))]
    dynamic = [interface.is_dynamic(port) for port in interface.outputs]
    lines = [f"{_tuple(arrays)} = given"]
    for n, a in enumerate(arrays):
        kind = f"type({a}) is ndarray and ({a}.dtype is type_{a} or {a}.dtype == type_{a})"
        lines.append(f"if not ({kind} and (f := {a}.flags).c_contiguous and f.aligned): {a} = to_array(input{n}, {a})")
    lines.append(f"symbols, shapes, size = bind({_tuple([f'{a}.shape' for a in arrays])})")
    lines += ["if wanted is None: wanted = nothing", f"else: check_results(outputs, wanted, shapes, {_tuple(arrays)})"]
    lines.append(f"{_tuple([f'w{n}' for n in range(len(results))])} = wanted")
    lines += [f"pointers[{n}] = {ADDRESS.format(a)}" for n, a in enumerate(arrays)]
    lines.append("try:")
    for n, o in enumerate(results):
        like = f"shapes[{n}], type_{o}"
        beside = ", pointers[0]" if arrays else ""
        fresh = f"w{n} if w{n} is not None else empty({like}) if size < least else places[{n}].empty({like}{beside})"
        lines.append(f"    {o} = {'None' if dynamic[n] else fresh}")
    lines += ["    pass", "except (ValueError, MemoryError) as error: raise no_room(shapes) from error"]
    for n, (o, late) in enumerate(zip(results, dynamic, strict=True), len(arrays)):
        lines.append(f"pointers[{n}] = {None if late else ADDRESS.format(o)}")
    for n, port in enumerate(interface.inputs):
        if may_be_large_beside_empty(port):
            lines.append(f"if 0 in a{n}.shape: check_empty(input{n}, a{n}.shape)")
    lines.append(f"return symbols, {_tuple(results)}, {_tuple(arrays)}")
    return "\n    ".join(["def prepare(given, wanted, places, pointers):", *lines])


def _tuple(names: Sequence[str]) -> str:
    return f"({''.join(f'{name}, ' for name in names)})"


def may_be_large_beside_empty(port: Port) -> bool:
    """Whether an input may have no elements, and other dimensions of any size."""
    return port.type.rank > 1 and port.type.static_shape() is None


def large_beside_empty(port: Port) -> str:
    """What is said of an input without elements whose other dimensions are too large."""
    return f"input {port.label} has no elements, and dimensions that are too large"


def check_empty(port: Port, shape: Shape) -> None:
    """Raises UserError for an array without elements whose other dimensions are so large that a loop to them would not
    end in time: it takes no memory, so nothing else bounds them."""
    others = prod(size for size in shape if size)
    if others > MOST_BESIDE_EMPTY:
        raise UserError(
            large_beside_empty(port),
            why=f"those of its shape {shape} that are not 0 multiply to {others:,}; the most is {MOST_BESIDE_EMPTY:,}",
            fix=f"give {port.label} smaller dimensions",
        )


def _no_room(interface: Interface, shapes: Sequence[Shape | None]) -> RuntimeFault:
    """The fault for results that no array can be made for."""
    shown = (f"{p.label} of shape {s}" for p, s in zip(interface.outputs, shapes, strict=True) if s is not None)
    if any(d < 0 for s in shapes if s is not None for d in s):
        return RuntimeFault(TOO_SMALL, why=f"it would return {', '.join(shown)}")
    return RuntimeFault("there is no room for the results of the call", why=f"they are {', '.join(shown)}")
