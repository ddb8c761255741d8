"""Programs as modules of WebAssembly.

A module has its weights, and a custom section that says in JSON what it takes and gives:

    inputs, outputs   [name, type, dimensions]; a dimension is a number, or its name
    symbols           how many sizes a call has
    rooms             what the sizes behind these are at first: those that a call makes larger
    late              the numbers of the outputs of a size that the call computes
    faults, checks    [text, types of its values]: what positive results of the entry point, and of the checks, stand
                      for; a byte 1 and a digit in a text is a value of the fault record

The entry point takes the record that codegen/abi.py describes, its words of 8 bytes; arrays of pointers are of 4 bytes.
Sizes are checked, and those of outputs computed, by the loops function `sizes` (checks.py), which a library has, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.codegen.abi import ENTRY, FaultMessage
from tilewright.codegen.assemble import assemble
from tilewright.codegen.module import Unit, generate_unit, module_of
from tilewright.codegen.pool import pool_text
from tilewright.codegen.wasm.link import link_wasm
from tilewright.codegen.wasm.objects import read_wasm
from tilewright.expr.nodes import Const
from tilewright.report.errors import UserError
from tilewright.runtime.interface import Port
from tilewright.runtime.library.checks import Checks
from tilewright.runtime.library.texts import template_of
from tilewright.runtime.program import Program

SECTION = "tilewright"
"""The name of the custom section."""

CONSTANTS = "tilewright_constants"
"""The global that has the address of the table of weights."""

SIZES = "k.tilewright_sizes"
"""The function that checks sizes: sizes(inputs, symbols, bytes, outputs, fault, 0)."""

_MOST_BYTES = 1 << 31

_MATH = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "exp", "expm1", "log"),
    *("log10", "log1p", "log2", "pow", "sin", "sinh", "tan", "tanh"),
)
_FUNCTIONS = frozenset((*_MATH, *(f"{name}f" for name in _MATH), "fmod", "fmodf"))
"""What JavaScript can be asked for."""


def wasm_module(program: Program) -> bytes:
    """The module of a program. Raises UserError for one that no module can hold."""
    target = program.target
    size = sum(constant.nbytes for constant in program.constants)
    if size >= _MOST_BYTES:
        raise UserError(
            "cannot put the weights into a module of WebAssembly",
            why=f"they take {size:,} bytes, and its code reaches {_MOST_BYTES:,}",
            fix="compile the model for another target",
        )
    checks = _checks(program)
    pieces = [pool_text(target.triple, target.data_layout), module_of((checks,), target)]
    objects = [*program.code, *(assemble(piece, target, level=0) for piece in pieces)]
    _check_functions(objects)
    note = json.dumps(_note(program, checks.faults), separators=(",", ":")).encode()
    constants = [constant.tobytes() for constant in program.constants]
    return link_wasm(objects, (ENTRY, SIZES), {CONSTANTS: constants}, (SECTION, note))


def _checks(program: Program) -> Unit:
    sizes = Checks(program.interface, ()).sizes.replace(name=SIZES.removeprefix("k."))
    return generate_unit((sizes,), program.target)


def _check_functions(objects: Sequence[bytes]) -> None:
    files = [read_wasm(one) for one in objects]
    defined = {s.name for file in files for s in file.symbols if s.index is not None}
    missing = {name for file in files for name, _ in file.imported} - defined - _FUNCTIONS
    if missing:
        raise UserError(
            "cannot make a module of WebAssembly of this program",
            why=f"it calls {', '.join(sorted(missing))}, which JavaScript does not have",
            fix="compile it for another target",
        )


def _note(program: Program, checks: Sequence[FaultMessage]) -> dict[str, object]:
    interface = program.interface
    return {
        "inputs": [_row(port) for port in interface.inputs],
        "outputs": [_row(port) for port in interface.outputs],
        "symbols": len(interface.symbols),
        "rooms": list(program.rooms),
        "late": [n for n, port in enumerate(interface.outputs) if interface.is_dynamic(port)],
        "faults": [_message(fault) for fault in program.faults],
        "checks": [_message(fault) for fault in checks],
    }


def _row(port: Port) -> list[object]:
    return [port.name, port.dtype.name, [int(d.value) if isinstance(d, Const) else str(d) for d in port.shape]]


def _message(fault: FaultMessage) -> list[object]:
    return [template_of(fault), [dtype.name for dtype in fault.dtypes]]
