"""The programs that say what a core does, as LLVM IR text for a target: one function for each kind of instruction.

    void NAME(ptr data, i64 rounds)        `rounds` at least 1; each round does `Probe.count` instructions of the kind

Most run chains that do not depend on each other, as many as hide the latency of the units. `data` is what `make_data`
says; results go to its end. To LLVM, a value that passes `opaque` is unknown each time, so nothing is hoisted out of a
loop. The text is final: it goes through instruction selection only, so no pass can shorten what is timed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from .core import DOTS
from .instructions import INSTRUCTIONS, TILE_ROW_BYTES, TILE_ROWS, Instruction
from .target import Target

if TYPE_CHECKING:
    import numpy.typing as npt

DATA_BYTES: Final = 16 << 10
_FACTORS, _VECTORS, _INDICES, _RESULTS = 0, 1 << 10, 4 << 10, 8 << 10
"""The offsets in `data` of two vectors of factors, vectors to read, indices to gather by, and results."""

CHAIN: Final = (9, 5)
"""The multiply-adds, and the plain operations, of the polynomial of the probe `chain`."""

GROUP: Final = 4
"""The instructions of a group of the probe `add_beside_cycles`: an addition and multiply-adds."""

_SERIAL, _TICKS, _POINTS = 8, 16, 4


@dataclass(frozen=True, slots=True)
class Probe:
    """A function of the module: how many instructions of its kind a round does."""

    name: str
    count: int
    text: str


def make_data(factor: float = 0.5) -> npt.NDArray[np.uint8]:
    """What probes read: multiply-adds multiply `factor` by numbers between one and two, which other operations have as
    operands, too; a quotient of rounder numbers may take fewer cycles. It begins at a page."""
    raw = np.zeros(2 * DATA_BYTES, np.uint8)
    data = raw[-raw.ctypes.data % 4096 :][:DATA_BYTES]
    numbers = data.view(np.float32)
    numbers[:] = 1 + np.arange(len(numbers)) * 0.6180339887 % 1
    numbers[:64] = factor
    data[_INDICES:_RESULTS].view(np.int32)[:] = np.arange((_RESULTS - _INDICES) // 4) * 37 % 1000
    return data


def alike(target: Target) -> list[tuple[Instruction, ...]]:
    """The instructions that run on the target, those together that differ in the sign of what they widen or in the type
    of what they multiply alone: one of them is timed for all, and one of products of bytes in tiles."""
    groups: dict[tuple[object, ...], list[Instruction]] = {}
    for row in INSTRUCTIONS.values():
        if row.runs_on(target) and row.adds_products:
            lines = tuple(line.replace("zext", "sext").split("(")[0] for line in row.llvm)
            own: tuple[object, ...] = ("fma", row.bits) if ".fma" in row.name else (*lines, row.bits)
            if row.has_tiles:
                own = "tiles", row.accumulator.dtype
            groups.setdefault(own, []).append(row)
    return [tuple(group) for group in groups.values()]


def print_module(target: Target, probes: Sequence[Probe]) -> str:
    """The text of a module that holds the functions of `probes`."""
    out = [f'target triple = "{target.triple}"', f'target datalayout = "{target.data_layout}"']
    declarations = dict.fromkeys(
        line for probe in probes for line in probe.text.split("\n") if line.startswith("declare")
    )
    bodies = [line for probe in probes for line in probe.text.split("\n") if not line.startswith("declare")]
    return "\n".join([*out, *declarations, *bodies, f"attributes #0 = {{ nounwind {target.attributes} }}", ""])


def core_probes(target: Target) -> tuple[Probe, ...]:
    """The probes of all figures of `Core` that are cycles, and of the clock, by the figures' names; of instructions,
    `dots.` and the instruction's name."""
    printer = _Printer(target)
    return (*printer.rates(), *(printer.dot(group[0]) for group in alike(target)))


def count_chains(target: Target) -> int:
    """Chains of a probe: at least latency x units of any core known (5 x 2 on x86-64, 4 x 4 on AArch64)."""
    return 12 if target.architecture == "x86_64" else 20


class _Printer:
    """Prints probes for a target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._lanes = target.vector_bits // 32
        self._vector = f"<{self._lanes} x float>"
        self._width = target.vector_bits // 8
        self._names = 0
        self._chains = count_chains(target)
        self._register = "w" if target.architecture == "aarch64" else "v" if target.has("avx512f") else "x"

    def rates(self) -> Iterator[Probe]:
        yield self._clock()
        yield self._over_chains("fma_cycles", lambda v, out: self._fma("%a", "%b", v, out))
        yield self._serial()
        yield self._over_chains("add_cycles", lambda v, out: self._let(out, f"fadd {self._vector} {v}, %b"))
        yield self._over_groups()
        yield self._loads()
        yield self._stores()
        yield self._broadcasts()
        yield self._over_chains("shuffle_cycles", lambda v, out: self._shuffle(out, v, v, 1))
        yield self._over_chains("shuffle2_cycles", lambda v, out: self._shuffle(out, v, "%a", 2))
        yield self._gathers()
        yield self._apart("divide_cycles", lambda v: f"fdiv {self._vector} %c, {v}")
        sqrt = f"@llvm.sqrt.v{self._lanes}f32"
        declare = self._declare("llvm.sqrt", 1)
        yield self._apart("sqrt_cycles", lambda v: f"call {self._vector} {sqrt}({self._vector} {v})", (declare,))
        yield self._polynomial()

    def _over_groups(self) -> Probe:
        """Chains of multiply-adds, each fourth one of additions: a group is `GROUP` instructions."""
        turn = itertools.count(1)

        def step(v: str, out: list[str]) -> str:
            if next(turn) % GROUP == 0:
                return self._let(out, f"fadd {self._vector} {v}, %b")
            return self._fma("%a", "%b", v, out)

        probe = self._over_chains("add_beside_cycles", step)
        return replace(probe, count=probe.count // GROUP)

    def dot(self, instruction: Instruction) -> Probe:
        """Independent sums by an instruction, the other registers being new to it each time."""
        if instruction.has_tiles:
            return self._in_tiles(instruction)
        *others, total = instruction.registers
        types = {r.name: f"<{r.lanes} x {_lane(r.dtype.name, r.dtype.bits)}>" for r in instruction.registers}

        def step(v: str, out: list[str]) -> str:
            names = {total.name: v}
            for register in others:
                names[register.name] = f"%{register.name}.{len(out)}"
                self._opaque(out, names[register.name], types[register.name], current[register.name])
                current[register.name] = names[register.name]
            results: list[str] = []
            for line in instruction.llvm:
                results.append(self._let(out, line.format(*results, **names)))
            return results[-1]

        current = {r.name: f"%first.{r.name}" for r in others}
        entry = [f"  %first.{r.name} = load {types[r.name]}, ptr %p" for r in others]
        calls = (self._declare_call(line, types) for line in instruction.llvm if "call " in line)
        return self._over_chains(f"{DOTS}{instruction.name}", step, tuple(calls), types[total.name], entry)

    def _in_tiles(self, instruction: Instruction) -> Probe:
        """Four tiles of sums, to which products of two by two others are added: more than each waits for."""
        (product,) = instruction.products
        call = product.removesuffix(".internal")
        places = ", ".join(
            f"i8 {n}" for n in (1, *[0] * 15, *[TILE_ROW_BYTES, 0] * 8, *[0] * 16, *[TILE_ROWS] * 8, *[0] * 8)
        )
        head = [
            "  %config = alloca <64 x i8>, align 64",
            f"  store <64 x i8> <{places}>, ptr %config, align 64",
            "  call void @llvm.x86.ldtilecfg(ptr %config)",
            *(f"  call void @llvm.x86.tilezero(i8 {n})" for n in range(4)),
            *(f"  call void @llvm.x86.tileloadd64(i8 {n}, ptr %p, i64 {TILE_ROW_BYTES})" for n in range(4, 8)),
        ]
        body = [f"  call void {call}(i8 {n}, i8 {4 + n // 2}, i8 {6 + n % 2})" for n in range(4)]
        declare = [
            "declare void @llvm.x86.ldtilecfg(ptr)",
            "declare void @llvm.x86.tilerelease()",
            "declare void @llvm.x86.tilezero(i8 immarg)",
            "declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)",
            f"declare void {call}(i8 immarg, i8 immarg, i8 immarg)",
        ]
        tail = ["  call void @llvm.x86.tilerelease()"]
        return self._function(f"{DOTS}{instruction.name}", len(body), body, head, tail, declare)

    def _over_chains(
        self,
        name: str,
        step: Callable[[str, list[str]], str],
        declare: Sequence[str] = (),
        vector: str = "",
        entry: Sequence[str] = (),
    ) -> Probe:
        """A loop in which each of the chains takes a `step`."""
        vector, chains = vector or self._vector, range(self._chains)
        out: list[str] = []
        ends = [step(f"%v{c}", out) for c in chains]
        phis = [f"  %v{c} = phi {vector} [%start, %entry], [{ends[c]}, %round]" for c in chains]
        at = [f"  %r{c} = getelementptr i8, ptr %p, i64 {_RESULTS + c * 64}" for c in chains]
        stores = [f"  store {vector} {ends[c]}, ptr %r{c}, align 64" for c in chains]
        head = [*self._factors(), f"  %start = load {vector}, ptr %vectors, align 64", *entry]
        return self._function(name, len(chains), [*phis, *out], head, [*at, *stores], declare)

    def _function(
        self,
        name: str,
        count: int,
        body: Sequence[str],
        head: Sequence[str] = (),
        tail: Sequence[str] = (),
        declare: Sequence[str] = (),
    ) -> Probe:
        lines = [
            *declare,
            *([self._declare("llvm.fma", 3)] if self._target.has_fma else []),
            f'define void @"{name}"(ptr %p, i64 %n) #0 {{',
            "entry:",
            *head,
            "  br label %round",
            "round:",
            "  %i = phi i64 [0, %entry], [%next, %round]",
            *body,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %round, label %done",
            "done:",
            *tail,
            "  ret void",
            "}",
        ]
        phis = [line for line in lines if " = phi " in line]
        at = lines.index("round:") + 1
        return Probe(name, count, "\n".join([*lines[:at], *phis, *(x for x in lines[at:] if " = phi " not in x)]))

    def _factors(self) -> list[str]:
        return [
            f"  %a = load {self._vector}, ptr %p, align 64",
            f"  %vectors = getelementptr i8, ptr %p, i64 {_VECTORS}",
            f"  %b = load {self._vector}, ptr %vectors, align 64",
            "  %further = getelementptr i8, ptr %vectors, i64 64",
            f"  %c = load {self._vector}, ptr %further, align 64",
        ]

    def _let(self, out: list[str], value: str) -> str:
        self._names += 1
        out.append(f"  %x{self._names} = {value}")
        return f"%x{self._names}"

    def _opaque(self, out: list[str], name: str, type_: str, value: str) -> None:
        """`name` is `value`, but LLVM does not know."""
        register = self._register
        out.append(f'  {name} = call {type_} asm sideeffect "", "={register},0"({type_} {value})')

    def _use(self, out: list[str], value: str) -> None:
        """Something that needs a vector in a register, and nothing more."""
        out.append(f'  call void asm sideeffect "", "{self._register}"({self._vector} {value})')

    def _fma(self, a: str, b: str, c: str, out: list[str]) -> str:
        if self._target.has_fma:
            operands = ", ".join(f"{self._vector} {value}" for value in (a, b, c))
            return self._let(out, f"call {self._vector} @llvm.fma.v{self._lanes}f32({operands})")
        # the accumulator is a factor, or the product would be the same in every round
        return self._let(out, f"fadd {self._vector} {self._let(out, f'fmul {self._vector} {c}, {a}')}, {b}")

    def _shuffle(self, out: list[str], v: str, w: str, registers: int) -> str:
        """Lanes in an order that is no rotation, reversal or interleaving, of one register or of both in turn."""
        lanes = self._lanes
        mask = [(lane * 3 + 1) % lanes + lanes * (lane // 2 % registers) for lane in range(lanes)]
        mask[0], mask[-1] = mask[-1], mask[0]
        text = ", ".join(f"i32 {lane}" for lane in mask)
        return self._let(out, f"shufflevector {self._vector} {v}, {self._vector} {w}, <{lanes} x i32> <{text}>")

    def _declare(self, name: str, operands: int) -> str:
        return f"declare {self._vector} @{name}.v{self._lanes}f32({', '.join([self._vector] * operands)})"

    def _declare_call(self, line: str, types: dict[str, str]) -> str:
        """The declaration of what a line calls: its types without their values."""
        result, rest = line.removeprefix("call ").split(" @", 1)
        name, operands = rest.removesuffix(")").split("(", 1)
        kinds = ", ".join(part.rsplit(" ", 1)[0] for part in operands.split(", "))
        return f"declare {result} @{name}({kinds})"

    def _clock(self) -> Probe:
        """A chain of plain operations on integers, a cycle each on all cores known, beside as many multiply-adds as
        leave it alone: the clock under vector load."""
        out: list[str] = []
        x = "%v"
        for _ in range(_TICKS):
            x = self._let(out, f"xor i64 {self._let(out, f'add i64 {x}, %y')}, %z")
        sums = [self._fma("%a", "%b", f"%s{c}", out) for c in range(8)]
        body = [f"  %v = phi i64 [0, %entry], [{x}, %round]"]
        body += [f"  %s{c} = phi {self._vector} [%b, %entry], [{v}, %round]" for c, v in enumerate(sums)]
        head = [*self._factors(), "  %y = load i64, ptr %p", "  %z = load i64, ptr %vectors"]
        tail = [f"  %r = getelementptr i8, ptr %p, i64 {_RESULTS}", f"  store i64 {x}, ptr %r"]
        tail += [f"  store {self._vector} {v}, ptr %r, align 64" for v in sums]
        return self._function("ghz", 2 * _TICKS, [*body, *out], head, tail)

    def _apart(self, name: str, value: Callable[[str], str], declare: Sequence[str] = ()) -> Probe:
        """A loop over values of which none is used."""
        out: list[str] = []
        for n in range(8):
            self._opaque(out, f"%o{n}", self._vector, f"%o{n - 1}" if n else "%b")
            self._use(out, self._let(out, value(f"%o{n}")))
        return self._function(name, 8, out, self._factors(), declare=declare)

    def _serial(self) -> Probe:
        """Multiply-adds of which each waits for the one before."""
        out: list[str] = []
        v = "%v"
        for _ in range(_SERIAL):
            v = self._fma("%a", "%b", v, out)
        phi = f"  %v = phi {self._vector} [%b, %entry], [{v}, %round]"
        tail = [f"  %r = getelementptr i8, ptr %p, i64 {_RESULTS}", f"  store {self._vector} {v}, ptr %r, align 64"]
        return self._function("fma_latency", _SERIAL, [phi, *out], self._factors(), tail)

    def _loads(self) -> Probe:
        out = []
        for n in range(16):
            out.append(f"  %q{n} = getelementptr i8, ptr %p, i64 {_VECTORS + n * self._width}")
            out.append(f"  %l{n} = load volatile {self._vector}, ptr %q{n}, align {self._width}")
        return self._function("load_cycles", 16, out)

    def _stores(self) -> Probe:
        out = []
        for n in range(16):
            out.append(f"  %q{n} = getelementptr i8, ptr %p, i64 {_RESULTS + n * self._width}")
            out.append(f"  store volatile {self._vector} %b, ptr %q{n}, align {self._width}")
        return self._function("store_cycles", 16, out, self._factors())

    def _broadcasts(self) -> Probe:
        """Elements loaded to all lanes, each from another place in each round."""
        out = ["  %w = and i64 %i, 63", "  %e = getelementptr float, ptr %p, i64 %w"]
        for n in range(16):
            out.append(f"  %q{n} = getelementptr i8, ptr %e, i64 {_VECTORS + 36 * n}")
            out.append(f"  %l{n} = load float, ptr %q{n}, align 4")
            one = self._let(out, f"insertelement {self._vector} poison, float %l{n}, i32 0")
            every = f"<{self._lanes} x i32> zeroinitializer"
            all_ = self._let(out, f"shufflevector {self._vector} {one}, {self._vector} poison, {every}")
            self._use(out, all_)
        return self._function("broadcast_cycles", 16, out)

    def _gathers(self) -> Probe:
        """Vectors of indices gathered by themselves: what is gathered are the next indices."""
        lanes = self._lanes
        indices, places, mask = f"<{lanes} x i32>", f"<{lanes} x ptr>", f"<{lanes} x i1>"
        gather = f"llvm.masked.gather.v{lanes}i32.v{lanes}p0"

        def step(v: str, out: list[str]) -> str:
            wide = self._let(out, f"sext {indices} {v} to <{lanes} x i64>")
            at = self._let(out, f"getelementptr i32, ptr %table, <{lanes} x i64> {wide}")
            every = ", ".join(["i1 true"] * lanes)
            given = f"{places} align 4 {at}, {mask} <{every}>, {indices} poison"
            return self._let(out, f"call {indices} @{gather}({given})")

        declare = f"declare {indices} @{gather}({places}, {mask}, {indices})"
        entry = [f"  %table = getelementptr i8, ptr %p, i64 {_INDICES}", f"  %own = load {indices}, ptr %table"]
        probe = self._over_chains("gather_cycles", step, (declare,), indices, entry)
        return Probe(probe.name, probe.count, probe.text.replace("[%start, %entry]", "[%own, %entry]"))

    def _polynomial(self) -> Probe:
        """An exp-like function of vectors: a load, 14 instructions of which each waits for the one before, a store."""
        out = []
        for n in range(_POINTS):
            out.append(f"  %o{n} = getelementptr i8, ptr %vectors, i64 {n * self._width}")
            v = self._let(out, f"load volatile {self._vector}, ptr %o{n}, align {self._width}")
            multiply_adds, plain = CHAIN
            for k in range(multiply_adds + plain):
                if k % 3 == 1:
                    v = self._let(out, f"fadd {self._vector} {v}, %b")
                else:
                    v = self._fma("%a", v, "%b", out) if self._target.has_fma else self._fma("%a", "%b", v, out)
            out.append(f"  %r{n} = getelementptr i8, ptr %p, i64 {_RESULTS + n * self._width}")
            out.append(f"  store volatile {self._vector} {v}, ptr %r{n}, align {self._width}")
        return self._function("chain", _POINTS, out, self._factors())


def _lane(name: str, bits: int) -> str:
    """The type of a lane in the text of an instruction."""
    return {"f32": "float", "f64": "double"}.get(name, f"i{bits}")
