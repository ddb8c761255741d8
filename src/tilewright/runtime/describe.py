"""What an executable is, in one short line: `repr(exe)`.

<tilewright.Executable of digits.onnx: (image: f32[n, 1, 8, 8]) -> (probability: f32[n, 10]), native, up to 2 threads>
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tilewright.report.printable import printable
from tilewright.report.quantities import counted
from tilewright.runtime.interface import Port
from tilewright.runtime.program import Program

SHOWN_PORTS = 4
"""How many inputs, and how many outputs, are shown before the rest is counted."""

SHOWN_LETTERS = 60
"""How long a port may be before its middle is left out."""


def describe(kind: str, program: Program, threads: int, parameters: bool = False) -> str:
    """The line of an executable of this kind. What takes all its arrays as `parameters` has no outputs beside them."""
    interface, source = program.interface, source_of(program)
    arrays = _ports(interface.inputs) if parameters else f"{_ports(interface.inputs)} -> {_ports(interface.outputs)}"
    origin = f" of {source}" if source else ""
    return f"<tilewright.{kind}{origin}: {arrays}, {program.target}, up to {counted(threads, 'thread')}>"


def source_of(program: Program) -> str:
    """The name of the file that a program came from; nothing where it came from none."""
    if program.files:
        return printable(os.path.basename(program.files[0]))
    return printable(str(program.provenance["model"])) if "model" in program.provenance else ""


def _ports(ports: Sequence[Port]) -> str:
    shown = [_short(str(port)) for port in ports[:SHOWN_PORTS]]
    more = len(ports) - SHOWN_PORTS
    return f"({', '.join([*shown, f'… {more} more'] if more > 0 else shown)})"


def _short(text: str) -> str:
    half = SHOWN_LETTERS // 2
    return text if len(text) <= SHOWN_LETTERS else f"{text[: half - 1]}…{text[-half:]}"
