"""A context in memory: what each calling thread of a library has, as bytes from its beginning.

state        0, or the code that its calls return: nothing runs then
given        1 where the caller gave the arena
limit        the most bytes of an arena: the machine's memory, unless the caller says less
others       the caller's function that runs loops on threads of its own, and its state
program      the number of the program that runs here
map          weights from a file, and whether this context mapped them
record       what the entry point takes (codegen/abi.py)
fault        the fault record
pointers     of inputs and outputs            sizes     symbols, rooms, dimensions of results
bytes        of outputs, then of inputs       constants their addresses
message      the text of the last error
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.abi import CALL, FAULT_VALUES

MESSAGE_BYTES = 2048
WORD = 8


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of each kind a program has, or the most that one of several has."""

    inputs: int
    outputs: int
    symbols: int
    rooms: int
    late: int
    constants: int


class Layout:
    """The offsets of a context's parts."""

    def __init__(self, counts: Counts) -> None:
        self.state, self.given, self.limit, self.others = 0, WORD, 2 * WORD, 3 * WORD
        self.program, self.map, self.map_own = 5 * WORD, 6 * WORD, 7 * WORD
        self.record = 8 * WORD
        self.fault = self.record + WORD * len(CALL)
        self.pointers = self.fault + WORD * (1 + FAULT_VALUES)
        self.sizes = self.pointers + WORD * (counts.inputs + counts.outputs)
        self.rooms = self.sizes + WORD * counts.symbols
        self.bytes = self.rooms + WORD * (counts.rooms + counts.late)
        self.constants = self.bytes + WORD * (counts.outputs + counts.inputs)
        self.message = self.constants + WORD * counts.constants
        self.size = self.message + MESSAGE_BYTES

    def field(self, name: str) -> int:
        """The offset of a word of the record."""
        return self.record + WORD * CALL.index(name)

    def late(self, rooms: int) -> int:
        """The offset of the dimensions of results, behind so many rooms."""
        return self.rooms + WORD * rooms
