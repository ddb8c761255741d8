"""The code of a library beside its program: the functions of its C header for one interface, as an image.

Texts, messages, descriptions of inputs and outputs and places of weights are tables; the functions (glue_text.py) are
the same for all programs, and checks of sizes are loops functions (checks.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.codegen.abi import ENTRY, RESET, STOP, FaultMessage
from tilewright.codegen.assemble import assemble
from tilewright.codegen.image import Image
from tilewright.codegen.link import link
from tilewright.codegen.module import generate_unit, module_of
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.library import glue_text
from tilewright.runtime.library.checks import Checks
from tilewright.runtime.library.codes import ARRAY_WORDS, DIMS, INTERFACE, MOST_THREADS, Code
from tilewright.runtime.library.layout import MESSAGE_BYTES, Counts, Layout
from tilewright.runtime.library.texts import Row, Texts, bytes_literal, rows_of
from tilewright.runtime.memory import UNCOUNTABLE
from tilewright.runtime.program import Program
from tilewright.runtime.subnormals import FLUSH
from tilewright.target import Target

WEIGHTS = "tilewright_weights"
"""The function that says where the weights begin: shared_object.py puts it in."""

ON_LOAD, ON_UNLOAD = "on_load", "on_unload"

FUNCTIONS = (
    *("interface", "open", "close", "error", "inputs", "outputs", "input", "output"),
    *("find_input", "find_output", "sizes", "run", "result", "set_threads", "set_parallel", "set_arena"),
    "set_limit",
)
"""What a library exports, behind its name and an underscore."""

_BASE = {"x86_64": "x86-64", "aarch64": "aarch64"}
"""The least machine of each architecture: what asks whether the program runs must run anywhere."""

_LINUX = {"PAGE_BYTES": 30, "ONLINE": 84, "PAGES": 85, "PRIVATE_MEMORY": 0x22, "WIPE_ON_FORK": 18}
"""Linux's numbers: names of `sysconf`, flags of `mmap`, an advice of `madvise`."""

_TOO_MUCH = "the call needs more memory than it may take"

_OWN_MESSAGES = {
    "NO_INPUTS": ("there are no inputs: the pointer to them is null", 0, Code.ARGUMENT),
    "NO_OUTPUTS": ("there are no outputs: the pointer to them is null", 0, Code.ARGUMENT),
    "SMALL_ARENA": ("the arena has {0} bytes, and the call needs {1}", 2, Code.ROOM),
    "BAD_THREADS": (f"a call cannot use {{0}} threads: it takes from 1 to {MOST_THREADS}", 1, Code.ARGUMENT),
    "NO_FUNCTION": ("there is no function to run loops: the pointer to it is null", 0, Code.ARGUMENT),
    "BAD_ARENA": ("the arena does not begin at a multiple of 64, or has a negative size", 0, Code.ROOM),
    "BAD_LIMIT": ("a call cannot be limited to {0} bytes", 1, Code.ARGUMENT),
    "OVERLAP": ("the memory of output number {0} overlaps that of an input or another output", 1, Code.ROOM),
    "TOO_MUCH": (f"{_TOO_MUCH}: its buffers take {{0}} bytes, and the limit is {{1}}", 2, Code.MEMORY),
}
"""Messages of the functions themselves, with how many values they have."""

_NO_CONTEXT = "there is no context: none was given, or there is no memory for one"


@dataclass(frozen=True, slots=True)
class Glue:
    """The image, and its functions by the names that the library gives them."""

    image: Image
    names: Mapping[str, str]


def make_glue(name: str, program: Program, places: Sequence[int], forks: bool) -> Glue:
    """The functions of a library called `name`; `places` are those of the program's constants among the weights,
    `forks` says whether the library has a pool."""
    target = Target.parse(_BASE[program.target.architecture])
    checks = Checks(program.interface)
    unit = generate_unit((checks.sizes, checks.arrays), target)
    text = _Text(name, program, checks, unit.faults, places, forks).text()
    module = module_of((replace(unit, definitions=unit.definitions + text),), target)
    exports = [f"{name}_{function}" for function in FUNCTIONS]
    image = link([assemble(module, target, level=0)], (*exports, ON_LOAD, ON_UNLOAD))
    return Glue(image, {e: e for e in (*exports, ON_LOAD, ON_UNLOAD)})


class _Text:
    """Puts a program's numbers and tables into the text of the functions."""

    def __init__(
        self,
        name: str,
        program: Program,
        checks: Checks,
        faults: Sequence[FaultMessage],
        places: Sequence[int],
        forks: bool,
    ) -> None:
        self._name, self._program, self._places, self._forks = name, program, places, forks
        self._interface = interface = program.interface
        self._late = [n for n, port in enumerate(interface.outputs) if interface.is_dynamic(port)]
        late = sum(interface.outputs[n].type.rank for n in self._late)
        counts = (len(interface.inputs), len(interface.outputs), len(interface.symbols), len(program.rooms), late)
        self._layout = Layout(Counts(*counts, len(program.constants)))
        self._texts = Texts()
        no_context = self._texts.place(_NO_CONTEXT)
        own = [(FaultMessage(t, (dtypes.i64,) * n), code) for t, n, code in _OWN_MESSAGES.values()]
        own += [(self._late_message(n), Code.ROOM) for n in self._late]
        checked = list(zip(faults, checks.codes, strict=True))
        self._rows = rows_of([*own, *checked, *((f, Code.FAULT) for f in program.faults)], self._texts)
        self._values: dict[str, object] = {row: n for n, row in enumerate(_OWN_MESSAGES)}
        self._values |= {"NO_CONTEXT": no_context, "CHECK_ROWS": len(own) - 1}
        self._values["PROGRAM_ROWS"] = len(own) + len(checked) - 1

    def _late_message(self, n: int) -> FaultMessage:
        port = self._interface.outputs[n]
        text = f"output {port.label} has {{0}} bytes of memory, and the result takes {{1}}"
        return FaultMessage(text, (dtypes.i64, dtypes.i64))

    def text(self) -> str:
        """All functions and tables."""
        ports = _ports_text(self._interface, self._texts)
        parts = [glue_text.HEAD, glue_text.ERRORS, glue_text.CONTEXTS, glue_text.CALLS, glue_text.ENTER]
        parts += [glue_text.RESULTS, glue_text.SETTINGS, glue_text.OVERLAPS, glue_text.QUESTIONS]
        parts += [glue_text.LIFE if self._forks else glue_text.LIFE_ALONE, ports, self._tables(), self._declarations()]
        text = "\n".join(parts)
        for key, value in self._all_values().items():
            text = text.replace(f"${key}$", str(value))
        return text

    def _all_values(self) -> dict[str, object]:
        layout, interface = self._layout, self._interface
        rooms = self._program.rooms
        values = self._values | {"NAME": self._name, "WEIGHTS": WEIGHTS, "ENTRY": ENTRY, "INTERFACE": INTERFACE}
        values |= {"INPUTS": len(interface.inputs), "OUTPUTS": len(interface.outputs), "ARRAY_WORDS": ARRAY_WORDS}
        values |= {"DIMS": DIMS, "ARGUMENT": int(Code.ARGUMENT), "MEMORY": int(Code.MEMORY)}
        values |= {"SIZE": layout.size, "MESSAGE": layout.message, "LAST": MESSAGE_BYTES - 1, "FAULT": layout.fault}
        values |= {"STATE": layout.state, "GIVEN": layout.given, "LIMIT": layout.limit, "SIZES": layout.sizes}
        values |= {"BYTES": layout.bytes, "POINTERS": layout.pointers, "RECORD_AT": layout.record}
        values |= {"RESULTS": layout.pointers + 8 * len(interface.inputs)}
        values |= {"ARENA": layout.field("arena"), "ARENA_BYTES": layout.field("arena_bytes")}
        values |= {"CONSTANTS_AT": layout.constants, "CONSTANTS": len(self._places)}
        values |= {"ROOMS_AT": layout.rooms, "ROOMS_BYTES": 8 * len(rooms), "NO_ROOMS": "false" if rooms else "true"}
        values |= {"UNCOUNTABLE": UNCOUNTABLE, **_LINUX, "RECORD": self._record(), "HAND_OVER": self._hand_over()}
        values |= {"THREADS": layout.field("threads"), "OTHERS": layout.others, "OTHERS_AT": layout.field("others")}
        return values | {"MOST_THREADS": MOST_THREADS, "RESET": RESET, "STOP": STOP}

    def _record(self) -> str:
        """The words that the entry point takes."""
        layout, lines = self._layout, []
        places = {"arguments": layout.pointers, "constants": layout.constants, "symbols": layout.sizes}
        for field, place in (places | {"fault": layout.fault}).items():
            lines.append(f"  %{field}.to = getelementptr i8, ptr %c, i64 {layout.field(field)}")
            lines.append(f"  %{field}.is = getelementptr i8, ptr %c, i64 {place}")
            lines.append(f"  store ptr %{field}.is, ptr %{field}.to")
        for field, value in {"threads": 1, "flushes": int(self._program.denormals == FLUSH)}.items():
            lines.append(f"  %{field}.to = getelementptr i8, ptr %c, i64 {layout.field(field)}")
            lines.append(f"  store i64 {value}, ptr %{field}.to")
        return "\n".join(lines)

    def _hand_over(self) -> str:
        """The results whose sizes the call computed, one after another."""
        layout, interface, lines = self._layout, self._interface, []
        at = layout.rooms + 8 * len(self._program.rooms)
        for row, n in enumerate(self._late, len(_OWN_MESSAGES)):
            port = interface.outputs[n]
            lines += [
                f"  %array{n} = getelementptr [{ARRAY_WORDS} x i64], ptr %out, i64 {n}",
                f"  %from{n}.at = getelementptr ptr, ptr %results, i64 {n}",
                f"  %from{n} = load ptr, ptr %from{n}.at",
                f"  %sizes{n} = getelementptr i8, ptr %c, i64 {at}",
                f"  %h{n} = call i32 @hand_over(ptr %c, ptr %array{n}, ptr %from{n}, ptr %sizes{n}, "
                f"i64 {port.type.rank}, i64 {port.dtype.bytes}, i64 {row})",
                f"  %g{n} = icmp eq i32 %h{n}, 0",
                f"  br i1 %g{n}, label %took{n}, label %kept{n}",
                f"kept{n}:",
                f"  ret i32 %h{n}",
                f"took{n}:",
            ]
            at += 8 * port.type.rank
        return "\n".join(lines)

    def _tables(self) -> str:
        places, rooms = self._places, self._program.rooms
        lines = [_table("places", "i64", places), _table("rooms", "i64", rooms)]
        rows = ", ".join(_row_text(row) for row in self._rows)
        lines.append(f"@rows = internal constant [{len(self._rows)} x %row] [{rows}]")
        lines.append(f"@texts = internal constant {bytes_literal(bytes(self._texts.content))}")
        return "\n".join(lines) + "\n"

    def _declarations(self) -> str:
        names = [f"declare i64 @{ENTRY}(ptr)"]
        names += [f"declare void @{RESET}(i64)", f"declare void @{STOP}()"] if self._forks else []
        return "\n".join(names) + "\n"


def _table(name: str, kind: str, numbers: Sequence[int]) -> str:
    return f"@{name} = internal constant [{len(numbers)} x {kind}] [{', '.join(f'{kind} {n}' for n in numbers)}]"


def _row_text(row: Row) -> str:
    return f"%row {{ i32 {row.template}, i32 {row.floats}, i32 {int(row.code)} }}"


def _ports_text(interface: Interface, texts: Texts) -> str:
    """The descriptions of inputs, then of outputs."""
    rows: list[str] = []
    dims: list[int] = []
    for port in (*interface.inputs, *interface.outputs):
        words = (texts.place(port.name), texts.place(port.dtype.name), texts.place(shape_text(port)))
        numbers = (*words, port.dtype.bytes, port.type.rank, len(dims))
        rows.append(f"%port {{ {', '.join(f'i32 {n}' for n in numbers)} }}")
        dims += [int(d.value) if isinstance(d, Const) else -1 for d in port.shape]
    return f"@ports = internal constant [{len(rows)} x %port] [{', '.join(rows)}]\n{_table('dims', 'i64', dims)}\n"


def shape_text(port: Port) -> str:
    """The shape of an input or output as text: `[n, 784]`."""
    return f"[{', '.join(map(str, port.shape))}]"
