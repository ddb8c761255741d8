"""The code of a library beside its programs: the functions of its C header for one interface, as an image.

Texts, messages, descriptions of inputs and outputs, places of weights and what programs need of the machine are tables;
the functions are the same for all libraries (native/), and checks of sizes are loops functions (checks.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.codegen.abi import ENTRY, RESET, STOP, FaultMessage
from tilewright.codegen.assemble import assemble
from tilewright.codegen.image import Image
from tilewright.codegen.link import link
from tilewright.codegen.module import generate_unit, module_of
from tilewright.core.walk import substitute
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.library.checks import Checks
from tilewright.runtime.library.codes import ARRAY_WORDS, DIMS, INTERFACE, MOST_THREADS, Code
from tilewright.runtime.library.layout import MESSAGE_BYTES, WORD, Counts, Layout
from tilewright.runtime.library.machines import CPUID_NAME, XGETBV_NAME, length_text, needs_of, needs_text
from tilewright.runtime.library.native import calls, contexts, life, machine, questions, settings, weights
from tilewright.runtime.library.texts import Row, Texts, bytes_literal, rows_of
from tilewright.runtime.library.weights import Stamp
from tilewright.runtime.memory import UNCOUNTABLE
from tilewright.runtime.program import Program
from tilewright.runtime.subnormals import FLUSH
from tilewright.store.blocks import LARGE_PAGE
from tilewright.target import Target
from tilewright.target.cpuid import ASK_FOR_TILES, TILES

WEIGHTS = "tilewright_weights"
"""The function that says where the weights begin: shared_object.py puts it in."""

ON_LOAD, ON_UNLOAD = "on_load", "on_unload"

_FUNCTIONS = (
    *("interface", "open", "close", "error", "inputs", "outputs", "input", "output"),
    *("find_input", "find_output", "sizes", "run", "result", "set_threads", "set_parallel", "set_arena"),
    *("set_limit", "arena_bytes"),
)
"""What a library exports, behind its name and an underscore."""

_WEIGHTS_FUNCTIONS = ("load_weights", "share_weights")
"""What one exports, too, whose weights are in a file."""

_BASE = {"x86_64": "x86-64", "aarch64": "aarch64", "riscv64": "riscv64"}
"""The least machine of each architecture: what asks whether a program runs must run anywhere."""

_LINUX = {"PAGE_BYTES": 30, "ONLINE": 84, "PAGES": 85, "PRIVATE_MEMORY": 0x22, "WIPE_ON_FORK": 18, "LARGE_PAGES": 14}
"""Linux's numbers: names of `sysconf`, flags of `mmap`, advices of `madvise`."""

_READ_ONLY = 0o2000000
"""Flags of `open`: for reading, and closed by `exec`."""

_TOO_MUCH = "the call needs more memory than it may take"
_MESSAGES = {
    "NO_INPUTS": ("there are no inputs: the pointer to them is null", 0, Code.ARGUMENT),
    "NO_OUTPUTS": ("there are no outputs: the pointer to them is null", 0, Code.ARGUMENT),
    "SMALL_ARENA": ("the arena has {0} bytes, and the call needs {1}", 2, Code.ROOM),
    "BAD_THREADS": (f"a call cannot use {{0}} threads: it takes from 1 to {MOST_THREADS}", 1, Code.ARGUMENT),
    "NO_FUNCTION": ("there is no function to run loops: the pointer to it is null", 0, Code.ARGUMENT),
    "BAD_ARENA": ("the arena does not begin at a multiple of 64, or has a negative size", 0, Code.ROOM),
    "NO_NUMBER": ("there is no place for the number of bytes: the pointer to it is null", 0, Code.ARGUMENT),
    "BAD_LIMIT": ("a call cannot be limited to {0} bytes", 1, Code.ARGUMENT),
    "OVERLAP": ("the memory of output number {0} overlaps that of an input or another output", 1, Code.ROOM),
    "TOO_MUCH": (f"{_TOO_MUCH}: its buffers take {{0}} bytes, and the limit is {{1}}", 2, Code.MEMORY),
}
"""Messages of the functions themselves, with how many values they have."""

_WEIGHTS_MESSAGES = {
    "NO_WEIGHTS": ("there are no weights: $NAME$_load_weights takes the file of them", 0, Code.WEIGHTS),
    "NULL_WEIGHTS": ("there are no weights: the pointer to them is null", 0, Code.ARGUMENT),
    "UNREADABLE": ("the file of weights cannot be read", 0, Code.WEIGHTS),
    "OTHER_SIZE": ("the file of weights has {0} bytes, and the program's has {1}", 2, Code.WEIGHTS),
    "DAMAGED": ("the file of weights is damaged, or that of another program", 0, Code.WEIGHTS),
    "HAS_WEIGHTS": ("the context has its weights already", 0, Code.WEIGHTS),
    "NOT_LOADED": ("the other context has no weights, or is this one", 0, Code.WEIGHTS),
}

_NO_CONTEXT = "there is no context: none was given, or there is no memory for one"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a library is made of: its `name`, programs of one interface, the best first, and the places of their
    constants among the weights; whether it has a pool; the stamp of its weights where these are in a file."""

    name: str
    programs: Sequence[Program]
    places: Sequence[Sequence[int]]
    forks: bool
    stamp: Stamp | None = None

    @property
    def exports(self) -> list[str]:
        """The names that others see."""
        functions = (*_FUNCTIONS, *(_WEIGHTS_FUNCTIONS if self.stamp is not None else ()))
        return [f"{self.name}_{function}" for function in functions]

    @property
    def base(self) -> Target:
        """The machine that the code beside the programs is for."""
        return base_of(self.programs[0])

    @property
    def asks(self) -> Parts:
        """All that the code beside the programs depends on, to be compared: nothing of their own code, and no arrays,
        but for their places."""
        own = [replace(p, code=(), constants=(), sites=(), provenance={}, files=()) for p in self.programs]
        return replace(self, programs=own)

    @property
    def asks_cpuid(self) -> bool:
        """Whether code asks the processor itself what it is, and not the system."""
        return self.base.architecture == "x86_64"


def base_of(program: Program) -> Target:
    """The least machine of a program's architecture."""
    return Target.parse(_BASE[program.target.architecture])


def entry_name(n: int) -> str:
    """The entry point of a library's program of this number."""
    return f"{ENTRY}.{n}"


def make_glue(parts: Parts, code: bytes | None = None) -> Image:
    """The functions of a library, linked; of their object file, where that was made before."""
    return link([code or glue_object(parts)], (*parts.exports, ON_LOAD, ON_UNLOAD))


def glue_object(parts: Parts) -> bytes:
    """The functions of a library as an object file."""
    checks = Checks(parts.programs[0].interface, [_arena_of(parts, program) for program in parts.programs])
    unit = generate_unit(checks.functions, parts.base)
    text = _Text(parts, checks, unit.faults).text()
    module = module_of((replace(unit, definitions=unit.definitions + text),), parts.base)
    return assemble(module, parts.base, level=0)


def _arena_of(parts: Parts, program: Program) -> Expr:
    """The scratch memory of a program, over the symbols of the first."""
    symbols = zip(program.interface.symbols, parts.programs[0].interface.symbols, strict=True)
    return substitute(program.arena, dict(symbols))


class _Text:
    """Puts numbers and tables into the text of the functions."""

    def __init__(self, parts: Parts, checks: Checks, faults: Sequence[FaultMessage]) -> None:
        self._parts, self._interface = parts, parts.programs[0].interface
        self._late = [n for n, port in enumerate(self._interface.outputs) if self._interface.is_dynamic(port)]
        self._layout = Layout(self._counts())
        self._texts = Texts()
        self._needs = [needs_of(program.target) for program in parts.programs]
        own = dict(_MESSAGES)
        if parts.stamp is not None:
            own |= {name: (t.replace("$NAME$", parts.name), n, c) for name, (t, n, c) in _WEIGHTS_MESSAGES.items()}
        self._late_rows = len(own)
        messages = [(FaultMessage(t, (dtypes.i64,) * n), code) for t, n, code in own.values()]
        messages += [(self._late_message(n), Code.ROOM) for n in self._late]
        lack_rows = len(messages)
        messages += [(FaultMessage(text, ()), Code.MACHINE) for text in self._lacking()]
        check_rows = len(messages) - 1
        messages += zip(faults, checks.codes, strict=True)
        self._program_rows = []
        for program in parts.programs:
            self._program_rows.append(len(messages) - 1)
            messages += [(fault, Code.FAULT) for fault in program.faults]
        self._rows = rows_of(messages, self._texts)
        self._numbers: dict[str, object] = {name: n for n, name in enumerate(own)}
        self._numbers |= {"CHECK_ROWS": check_rows, "LACK_ROWS": lack_rows}
        self._numbers["NO_CONTEXT"] = self._texts.place(_NO_CONTEXT)

    def _counts(self) -> Counts:
        interface, programs = self._interface, self._parts.programs
        late = sum(interface.outputs[n].type.rank for n in self._late)
        rooms, constants = max(len(p.rooms) for p in programs), max(len(p.constants) for p in programs)
        return Counts(len(interface.inputs), len(interface.outputs), len(interface.symbols), rooms, late, constants)

    def _late_message(self, n: int) -> FaultMessage:
        port = self._interface.outputs[n]
        text = f"output {port.label} has {{0}} bytes of memory, and the result takes {{1}}"
        return FaultMessage(text, (dtypes.i64, dtypes.i64))

    def _lacking(self) -> list[str]:
        """What is said of each need that is not met, in the order of the needs."""
        pairs = zip(self._parts.programs, self._needs, strict=True)
        return [
            f"this machine lacks {n.feature}, which the code for {p.target} needs" for p, needs in pairs for n in needs
        ]

    def text(self) -> str:
        """All functions and tables."""
        forks, beside = self._parts.forks, self._parts.stamp is not None
        parts = [contexts.HEAD, contexts.ERRORS, contexts.CONTEXTS, calls.CALLS, calls.ENTER]
        parts += [calls.RESULTS, settings.SETTINGS, calls.OVERLAPS, questions.QUESTIONS]
        parts.append(life.LIFE if forks else life.LIFE_ALONE)
        tiles = machine.WITH_TILES if any(n.is_tiles for need in self._needs for n in need) else machine.WITHOUT_TILES
        asks = (machine.X86, tiles) if self._parts.asks_cpuid else (machine.AUXILIARY, length_text(self._parts.base))
        parts += [machine.CHOOSE, *asks]
        parts.append(weights.BESIDE if beside else weights.INSIDE)
        parts += [self._start(), self._tables(), self._declarations()]
        text = "\n".join(parts)
        for key, value in self._values().items():
            text = text.replace(f"${key}$", str(value))
        return text

    def _values(self) -> dict[str, object]:
        layout, interface = self._layout, self._interface
        beside = self._parts.stamp is not None
        values: dict[str, object] = {"RECORD": self._record(), "HAND_OVER": self._hand_over()}
        values["TAKE_WEIGHTS"] = weights.TAKE_BESIDE if beside else weights.TAKE_INSIDE
        values["DROP_WEIGHTS"] = weights.DROP_BESIDE if beside else ""
        values["OWN_MAP"] = "" if self._parts.forks else weights.MAP
        values |= self._numbers | self._weights_values()
        values |= {"NAME": self._parts.name, "WEIGHTS": WEIGHTS, "INTERFACE": INTERFACE, "RESET": RESET, "STOP": STOP}
        values |= {"INPUTS": len(interface.inputs), "OUTPUTS": len(interface.outputs), "ARRAY_WORDS": ARRAY_WORDS}
        values |= {
            "SOME_OUTPUTS": max(len(interface.outputs), 1),
            "DIMS": DIMS,
            "ARGUMENT": int(Code.ARGUMENT),
            "MEMORY": int(Code.MEMORY),
        }
        values |= {"MACHINE": int(Code.MACHINE), "WEIGHTS_CODE": int(Code.WEIGHTS), "MOST_THREADS": MOST_THREADS}
        values |= {"SIZE": layout.size, "MESSAGE": layout.message, "LAST": MESSAGE_BYTES - 1, "FAULT": layout.fault}
        values |= {"STATE": layout.state, "GIVEN": layout.given, "LIMIT": layout.limit, "SIZES": layout.sizes}
        values |= {"BYTES": layout.bytes, "POINTERS": layout.pointers, "RECORD_AT": layout.record}
        values |= {"RESULTS": layout.pointers + WORD * len(interface.inputs), "PROGRAM": layout.program}
        values |= {"ARENA": layout.field("arena"), "ARENA_BYTES": layout.field("arena_bytes")}
        values |= {"THREADS": layout.field("threads"), "FLUSHES": layout.field("flushes")}
        values |= {"OTHERS": layout.others, "OTHERS_AT": layout.field("others"), "MAP": layout.map}
        values |= {"MAP_OWN": layout.map_own, "CONSTANTS_AT": layout.constants, "ROOMS_AT": layout.rooms}
        values |= {"NO_ROOMS": "false" if any(p.rooms for p in self._parts.programs) else "true"}
        values |= {
            "LARGE_PAGE": LARGE_PAGE,
            "UNCOUNTABLE": UNCOUNTABLE,
            "PROGRAMS": len(self._parts.programs),
            **_LINUX,
        }
        values |= dict(zip(("TILES_CALL", "TILES_REQUEST", "TILES_FEATURE"), ASK_FOR_TILES, strict=True))
        return values | {"CPUID": CPUID_NAME, "XGETBV": XGETBV_NAME, "TILES": TILES}

    def _weights_values(self) -> dict[str, object]:
        stamp = self._parts.stamp
        if stamp is None:
            return {}
        values = {"FILE_BYTES": stamp.bytes, "FILE_WORDS": stamp.bytes // WORD, "READ_ONLY": _READ_ONLY}
        return {**values, "FIRST_SUM": stamp.first, "SECOND_SUM": stamp.second}

    def _record(self) -> str:
        """The words that the entry point takes."""
        layout, lines = self._layout, []
        places = {"arguments": layout.pointers, "constants": layout.constants, "symbols": layout.sizes}
        for field, place in (places | {"fault": layout.fault}).items():
            lines.append(f"  %{field}.to = getelementptr i8, ptr %c, i64 {layout.field(field)}")
            lines.append(f"  %{field}.is = getelementptr i8, ptr %c, i64 {place}")
            lines.append(f"  store ptr %{field}.is, ptr %{field}.to")
        lines.append(f"  %threads.to = getelementptr i8, ptr %c, i64 {layout.field('threads')}")
        return "\n".join([*lines, "  store i64 1, ptr %threads.to"])

    def _hand_over(self) -> str:
        """The results whose sizes the call computed, one after another."""
        lines, at = [], 0
        for row, n in enumerate(self._late, self._late_rows):
            port = self._interface.outputs[n]
            lines += [
                f"  %array{n} = getelementptr [{ARRAY_WORDS} x i64], ptr %out, i64 {n}",
                f"  %from{n}.at = getelementptr ptr, ptr %results, i64 {n}",
                f"  %from{n} = load ptr, ptr %from{n}.at",
                f"  %sizes{n} = getelementptr i64, ptr %late_sizes, i64 {at}",
                f"  %h{n} = call i32 @hand_over(ptr %c, ptr %array{n}, ptr %from{n}, ptr %sizes{n}, "
                f"i64 {port.type.rank}, i64 {port.dtype.bytes}, i64 {row})",
                f"  %g{n} = icmp eq i32 %h{n}, 0",
                f"  br i1 %g{n}, label %took{n}, label %kept{n}",
                f"kept{n}:",
                f"  ret i32 %h{n}",
                f"took{n}:",
            ]
            at += port.type.rank
        return "\n".join(lines)

    def _start(self) -> str:
        """Enters the program that runs here, and asks for its scratch memory."""
        count = len(self._parts.programs)
        cases = "  ".join(f"i64 {n}, label %p{n}" for n in range(1, count))
        lines = ["define internal i64 @start(i64 %which, ptr %record) {", f"  switch i64 %which, label %p0 [ {cases} ]"]
        for n in range(count):
            lines += [f"p{n}:", f'  %s{n} = call i64 @"{entry_name(n)}"(ptr %record)', f"  ret i64 %s{n}"]
        lines += ["}", "", "define internal i64 @arena(i64 %which, ptr %sizes, ptr %to, ptr %fault) {"]
        lines.append(f"  switch i64 %which, label %p0 [ {cases} ]")
        for n in range(count):
            call = f'call i64 @"k.arena{n}"(ptr %sizes, ptr %to, ptr %fault, ptr null)'
            lines += [f"p{n}:", f"  %s{n} = {call}", f"  ret i64 %s{n}"]
        return "\n".join([*lines, "}", ""])

    def _tables(self) -> str:
        parts, programs = self._parts, self._parts.programs
        rooms = [room for program in programs for room in program.rooms]
        needs = [need for some in self._needs for need in some]
        lines = [_ports_text(self._interface, self._texts), self._programs_table()]
        lines += [_table("places", "i64", [n for some in parts.places for n in some]), _table("rooms", "i64", rooms)]
        lines.append(needs_text(needs))
        rows = ", ".join(_row_text(row) for row in self._rows)
        lines.append(f"@rows = internal constant [{len(self._rows)} x %row] [{rows}]")
        lines.append(f"@texts = internal constant {bytes_literal(bytes(self._texts.content))}")
        return "\n".join(lines) + "\n"

    def _programs_table(self) -> str:
        """Of each program: where its constants begin in their table, how many they are, where its rooms begin, their
        bytes, where dimensions of results are in a context, the message before its first, whether it flushes subnormal
        numbers, and its needs."""
        rows, places, rooms, needs = [], 0, 0, 0
        all_parts = zip(self._parts.programs, self._program_rows, self._needs, strict=True)
        for program, message, own in all_parts:
            constants, count = len(program.constants), len(program.rooms)
            flushes = int(program.denormals == FLUSH)
            first = (places, constants, rooms, WORD * count, self._layout.late(count), message, flushes)
            words = (*first, needs, needs + len(own))
            rows.append(f"%program {{ {', '.join(f'i64 {word}' for word in words)} }}")
            places, rooms, needs = places + constants, rooms + count, needs + len(own)
        return f"@programs = internal constant [{len(rows)} x %program] [{', '.join(rows)}]"

    def _declarations(self) -> str:
        names = [f'declare i64 @"{entry_name(n)}"(ptr)' for n in range(len(self._parts.programs))]
        names += [f"declare void @{RESET}(i64)", f"declare void @{STOP}()"] if self._parts.forks else []
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
