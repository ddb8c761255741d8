"""Families of processors: one table of what their cores, caches and memory do, where nothing was measured.

A row holds for a family's full vector register and for narrower ones, unless it says otherwise by `narrow`. Sources:

    [fog]     Agner Fog, "Instruction tables" and "The microarchitecture of Intel, AMD and VIA CPUs"
    [uops]    A. Abel and J. Reineke, uops.info
    [intel]   Intel 64 and IA-32 Architectures Optimization Reference Manual
    [amd17]   Software Optimization Guide for AMD Family 17h (Zen 2), [amd19] for Family 19h (Zen 3; 57647: Zen 4),
              [amd1a] for Family 1Ah (Zen 5; 58455)
    [n1] [v1] [v2]   Arm Neoverse N1, V1 and V2 Software Optimization Guides
    [p600] [x280] [x60]   LLVM's scheduling models of SiFive's P600 (vectors of 128 bits, two units that multiply and
              add after 6 cycles, one that loads, one that stores, one that permutes) and X280 (512 bits, units of 256),
              and of SpacemiT's X60 (256 bits, units of 128)
    [a64fx]   Fujitsu, A64FX Microarchitecture Manual
    [apple]   Dougall Johnson, "Apple M1 microarchitecture research"
    [here]    measured with this package's probes

Numbers of caches and memory are what one core of a usual server (or laptop) reads by streaming; sizes of caches are not
here but asked of the system. What starting work takes is a matter of the system more than of the family: one row.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ..expr import dtypes
from .core import Core, Rates, rounded
from .features import fuses
from .host import Processor
from .instructions import INSTRUCTIONS, Instruction
from .peaks import Peaks

STARTS: Final[Mapping[str, float]] = {
    "fork_seconds": 1e-6,
    "wake_seconds": 50e-6,
    "call_seconds": 3e-6,
    "kernel_seconds": 0.6e-6,
}
"""Starting work, on Linux: a fork of awake workers is two cache lines moved there and back, waking one a system call
and a switch of threads, up to half a millisecond under a hypervisor."""


@dataclass(frozen=True, slots=True)
class Family:
    """A row. Cycles are of one instruction on a register of `bits`, as in `Core`.

    ghz       the clock of all cores under vector load, where the system tells none or a lower one (a hypervisor tells
              the base clock)
    dot       one instruction that adds products to lanes, by what it multiplies: pairs of `i16`, quads of `i8`, pairs
              of `bf16`; `widen` is one conversion of bytes to a vector of i16, `tile` one product of two whole tiles
    reads     bytes a cycle that a core reads from each cache beyond the first, `writes` that it writes
    memory    GB/s that a core reads, that it writes, and that all cores read
    rows_ahead and `unhidden` as in `Core`: no manual has either, and a loop that only loads hides more than a tile does
              (7 rows, and all), so both are [here] of tiles (Zen 5: a row out of the third cache takes some 30 cycles;
              7 x 3 vectors, 18 bytes a cycle out of the second, reach the peak and 4 x 4 to 4 x 6, 32 bytes, take 3 to
              12 % longer; Sapphire Rapids: 6 x 4 vectors reach 84 % of the peak and 14 x 2 95 %, where the second cache
              delivers 30 bytes a cycle)
    waits     cycles from a load to its use, from each cache beyond the first, and `memory_ns` from memory, as the
              manuals have them
    narrow    what is otherwise for registers of half the width
    """

    name: str
    source: str
    bits: int
    ghz: float
    fma: float = 0.5
    latency: float = 4
    add: float = 0.5
    beside: float | None = None
    load: float = 0.5
    store: float = 1
    broadcast: float = 0.5
    shuffle: float = 1
    shuffle2: float = 1
    gather: float = 12
    divide: float = 5
    sqrt: float = 6
    chain: float = 1.3
    rows_ahead: float = 2
    unhidden: float = 0.2
    subnormal: float = 0
    dot: Mapping[str, float] = field(default_factory=lambda: {"i16": 0.5, "i8": 0.5, "bf16": 1.0})
    widen: float = 1
    tile: float = 16
    reads: tuple[float, ...] = (24, 10, 8)
    writes: tuple[float, ...] = (16, 8, 8)
    memory: tuple[float, float, float] = (16, 8, 32)
    waits: tuple[float, ...] = (14, 50)
    memory_ns: float = 100
    narrow: Mapping[str, Any] = field(default_factory=dict)

    def at(self, bits: int) -> Family:
        """The row for registers of `bits`: narrower ones gather, divide and take roots in proportion."""
        row = self
        while row.bits > bits:
            halves = {name: getattr(row, name) / 2 for name in ("gather", "divide", "sqrt")}
            row = replace(row, bits=row.bits // 2, narrow={}, **{**halves, **row.narrow})
        return row


_INTEL: Final = 150.0
"""An operation on a subnormal number is done again by microcode: some 150 cycles ([intel] 3.9.3)."""

_SKYLAKE: Final = Family(
    "Intel Skylake-X", "[uops] SKX, [fog]", 512, 2.8, shuffle=1, gather=10, divide=10, sqrt=12,
    dot={"i16": 0.5, "i8": 0.5, "bf16": 2.0}, reads=(40, 8, 8), writes=(20, 6, 6), memory=(12, 7, 80), waits=(14, 68),
    subnormal=_INTEL,
)  # fmt: skip
_ALDER: Final = Family(
    "Intel Alder Lake", "[uops] ADL-P, [intel]", 256, 4.2, load=0.33, store=0.5, broadcast=0.33, gather=5, divide=5,
    sqrt=6, reads=(40, 14, 8), writes=(28, 12, 8), memory=(25, 14, 45), subnormal=_INTEL,
    waits=(15, 65), memory_ns=80,
)  # fmt: skip
_ZEN2: Final = Family(
    "AMD Zen 2", "[amd17], [uops] ZEN2", 256, 3.2, latency=5, beside=0.1, shuffle=2, shuffle2=2, gather=16, divide=6,
    sqrt=7, subnormal=3, reads=(30, 18, 8), writes=(20, 12, 8), memory=(18, 10, 80),
    waits=(12, 39),
)  # fmt: skip
_ZEN4: Final = Family(
    "AMD Zen 4", "[amd19], [uops] ZEN4", 512, 3.6, fma=1, add=1, beside=0.2, load=1, store=2, broadcast=1, gather=24,
    divide=10, sqrt=14, chain=1.2, subnormal=3, dot={"i16": 1.0, "i8": 1.0, "bf16": 1.0}, reads=(30, 18, 8),
    writes=(24, 14, 8), memory=(25, 14, 100),
    narrow={"fma": 0.5, "add": 0.5, "load": 0.5, "store": 1, "broadcast": 0.5, "gather": 8,
            "dot": {"i16": 0.5, "i8": 0.5, "bf16": 0.5}},
)  # fmt: skip
_NEOVERSE: Final = Family(
    "Arm Neoverse N1", "[n1]", 128, 2.6, store=1, shuffle=0.5, shuffle2=1, gather=4, divide=5, sqrt=5, chain=1.6,
    dot={"i16": 0.5, "i8": 0.5, "bf16": 0.5}, widen=0.5, reads=(16, 8, 8), writes=(14, 8, 8),
    memory=(14, 10, 100), waits=(11, 60),
)  # fmt: skip
_SVE: Final = Family(
    "generic aarch64 of 256 bits", "[v1]: two units for SVE; divisions and gathers in proportion to NEON's", 256, 2.6,
    shuffle=0.5, gather=8, divide=10, sqrt=10, chain=1.4, dot={"i16": 0.5, "i8": 0.5, "bf16": 1.0}, widen=0.5,
    reads=(28, 12, 8), writes=(24, 12, 8), memory=(20, 14, 100), waits=(11, 60),
)  # fmt: skip
_RISCV: Final = Family(
    "generic riscv64", "[p600]'s core, a gather of an element a cycle, with usual memory; without V as with it", 128,
    3.0, latency=6, load=1, store=1, broadcast=1, shuffle=1, shuffle2=2, gather=4, divide=38, sqrt=38, chain=1.6,
    reads=(16, 8, 8), writes=(14, 8, 8), memory=(14, 8, 32),
)  # fmt: skip
_LONG_RISCV: Final = replace(_RISCV, name="generic riscv64 of 1024 bits", bits=1024, fma=2, add=2, load=2, store=2,
    broadcast=2, shuffle=4, shuffle2=8, gather=32, divide=304, sqrt=304,
    source="units of half the width, as [x280] and [x60] have; else as that of 128 bits",
)  # fmt: skip
_GENERIC: Final = Family("generic x86-64-v4", "the least of Intel's and AMD's rows of this width", 512, 3.0,
    beside=0.1, gather=16, divide=10, sqrt=12, subnormal=100, dot={"i16": 0.5, "i8": 0.5, "bf16": 1.0},
    reads=(30, 14, 8), writes=(24, 12, 8))  # fmt: skip

FAMILIES: Final[tuple[Family, ...]] = (
    _SKYLAKE,
    replace(_SKYLAKE, name="Intel Ice Lake", source="[uops] ICL, ICX", ghz=3.0, reads=(44, 8, 8), store=1,
            memory=(13, 8, 120), narrow={"store": 0.5}),
    replace(_SKYLAKE, name="Intel Ice Lake client", source="[uops] ICL, TGL, RKL: one unit for 512 bits", ghz=3.8,
            fma=1, dot={"i16": 1.0, "i8": 1.0, "bf16": 2.0}, memory=(22, 12, 40),
            narrow={"fma": 0.5, "store": 0.5, "dot": {"i16": 0.5, "i8": 0.5, "bf16": 2.0}}),
    replace(_SKYLAKE, name="Intel Sapphire Rapids", source="[uops] ADL-P with AVX-512, [intel]; bf16 pairs: [here]",
            ghz=3.5, reads=(48, 8, 8), memory=(14, 8, 150), narrow={"load": 0.33, "store": 0.5, "broadcast": 0.33}),
    replace(_SKYLAKE, name="Intel Skylake", source="[uops] SKL", bits=256, ghz=4.0, gather=5, divide=5, sqrt=6,
            reads=(30, 14, 8), memory=(20, 10, 32), waits=(12, 42), memory_ns=80),
    replace(_SKYLAKE, name="Intel Haswell", source="[uops] HSW, BDW", bits=256, ghz=3.2, latency=5, add=1, gather=12,
            divide=13, sqrt=19, dot={"i16": 1.0, "i8": 1.0, "bf16": 2.0}, reads=(24, 10, 8),
            memory=(12, 7, 40), waits=(12, 43)),
    _ALDER,
    _ZEN2,
    replace(_ZEN2, name="AMD Zen 3", source="[amd19], [uops] ZEN3", ghz=3.4, latency=4, shuffle=1, shuffle2=1, gather=8,
            divide=6, chain=1.2, memory=(20, 12, 100), waits=(12, 46)),
    _ZEN4,
    replace(_ZEN4, name="AMD Zen 5", source="[amd1a]; [here]", ghz=3.8, fma=0.5, add=0.5, beside=0.1, load=0.5, store=1,
            unhidden=0.1,
            broadcast=0.5, shuffle=0.5, shuffle2=0.5, gather=13, divide=2.5, sqrt=4.5, chain=1, subnormal=0,
            dot={"i16": 0.5, "i8": 0.5, "bf16": 0.5}, widen=0.3, reads=(50, 25, 8), writes=(50, 25, 8),
            memory=(38, 20, 300), narrow={"store": 0.5, "gather": 7, "divide": 2.5, "sqrt": 4.5}),
    replace(_ZEN4, name="AMD Zen 5 client", source="[amd1a]: 512 bits in two halves", ghz=4.2, memory=(30, 16, 60)),
    _NEOVERSE,
    replace(_NEOVERSE, name="Arm Neoverse V1", source="[v1]", fma=0.25, add=0.25, load=0.33, broadcast=0.33, store=0.5,
            shuffle=0.25, shuffle2=0.5, divide=2, sqrt=2, chain=1.4, dot={"i16": 0.25, "i8": 0.25, "bf16": 0.5},
            widen=0.5, reads=(28, 12, 8), writes=(24, 12, 8), memory=(20, 14, 200)),
    replace(_NEOVERSE, name="Arm Neoverse V2", source="[v2]", ghz=2.8, fma=0.25, add=0.25, load=0.33, broadcast=0.33,
            store=0.5, shuffle=0.25, shuffle2=0.5, divide=2, sqrt=2, chain=1.3,
            dot={"i16": 0.25, "i8": 0.25, "bf16": 0.25}, widen=0.5, reads=(32, 14, 8), writes=(28, 14, 8),
            memory=(30, 20, 300)),
    replace(_NEOVERSE, name="Apple M", source="[apple]", ghz=3.2, fma=0.25, add=0.25, load=0.33, broadcast=0.33,
            store=0.5, shuffle=0.25, shuffle2=0.5, divide=2, sqrt=2, chain=1.1,
            dot={"i16": 0.25, "i8": 0.25, "bf16": 1.0}, widen=0.25, reads=(48, 20, 8), writes=(40, 20, 8),
            memory=(55, 40, 65)),
    _GENERIC,
    replace(_GENERIC, name="generic x86-64-v3", bits=256, gather=8, divide=5, sqrt=6, reads=(30, 16, 8),
            writes=(24, 14, 8)),
    replace(_GENERIC, name="generic x86-64", source="a product and a sum on two units that do either", bits=128,
            fma=1, gather=4, divide=3, sqrt=3, shuffle=0.5, shuffle2=0.5),
    replace(_GENERIC, name="generic wasm", source="generic x86-64's core, which usually runs it", bits=128, fma=1,
            gather=4, divide=3, sqrt=3, shuffle=0.5, shuffle2=0.5),
    replace(_NEOVERSE, name="generic aarch64", source="Neoverse N1's core, with usual memory", ghz=3.0,
            reads=(24, 10, 8), writes=(16, 8, 8), memory=(16, 8, 32)),
    _SVE,
    replace(_SVE, name="generic aarch64 of 512 bits", source="[a64fx]: two units, 9 cycles; else as that of 256 bits",
            bits=512, ghz=2.2, latency=9, shuffle=1, gather=16, divide=20, sqrt=20),
    _RISCV,
    *(replace(_LONG_RISCV.at(bits), name=f"generic riscv64 of {bits} bits") for bits in (256, 512, 1024)),
)  # fmt: skip
"""The rows, by name: those of processors, then the generic ones."""

BY_NAME: Final[Mapping[str, Family]] = {row.name: row for row in FAMILIES}

_GENERIC_OF: Final[Mapping[tuple[str, int], str]] = {
    ("x86_64", 512): "generic x86-64-v4",
    ("x86_64", 256): "generic x86-64-v3",
    ("x86_64", 128): "generic x86-64",
    ("aarch64", 128): "generic aarch64",
    ("wasm32", 128): "generic wasm",
    **{("aarch64", bits): f"generic aarch64 of {bits} bits" for bits in (256, 512)},
    ("riscv64", 128): "generic riscv64",
    **{("riscv64", bits): f"generic riscv64 of {bits} bits" for bits in (256, 512, 1024)},
}


def _numbers(*ranges: range | int) -> frozenset[int]:
    return frozenset(n for part in ranges for n in (part if isinstance(part, range) else (part,)))


_PROCESSORS: Final[tuple[tuple[str, str, int, frozenset[int], str], ...]] = (
    # family of rows, vendor, family number, model numbers (none: any), feature it must have
    ("Intel Sapphire Rapids", "GenuineIntel", 6, _numbers(), "amx-tile"),
    ("Intel Sapphire Rapids", "GenuineIntel", 6, _numbers(0x8F, 0xCF, 0xAD, 0xAE), ""),
    ("Intel Ice Lake", "GenuineIntel", 6, _numbers(0x6A, 0x6C), ""),
    ("Intel Ice Lake client", "GenuineIntel", 6, _numbers(0x7D, 0x7E, 0x8C, 0x8D, 0xA7), ""),
    ("Intel Skylake-X", "GenuineIntel", 6, _numbers(0x55), ""),
    ("Intel Alder Lake", "GenuineIntel", 6,
     _numbers(0x97, 0x9A, 0xB7, 0xBA, 0xBF, 0xAA, 0xAC, 0xB5, 0xBD, 0xC5, 0xC6), ""),
    ("Intel Skylake", "GenuineIntel", 6, _numbers(0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6), ""),
    ("Intel Haswell", "GenuineIntel", 6, _numbers(0x3C, 0x3D, 0x3F, 0x45, 0x46, 0x47, 0x4F, 0x56), ""),
    ("AMD Zen 2", "AuthenticAMD", 0x17, _numbers(range(0x30, 0x100)), ""),
    ("AMD Zen 4", "AuthenticAMD", 0x19, _numbers(range(0x10, 0x20), range(0x60, 0x80), range(0xA0, 0xB0)), ""),
    ("AMD Zen 3", "AuthenticAMD", 0x19, _numbers(), ""),
    ("AMD Zen 5 client", "AuthenticAMD", 0x1A, _numbers(range(0x20, 0x40), range(0x60, 0x70)), ""),
    ("AMD Zen 5", "AuthenticAMD", 0x1A, _numbers(), ""),
    ("Arm Neoverse N1", "0x41", 0, _numbers(0xD0C), ""),
    ("Arm Neoverse V1", "0x41", 0, _numbers(0xD40), ""),
    ("Arm Neoverse V2", "0x41", 0, _numbers(0xD4F), ""),
    ("Apple M", "0x61", 0, _numbers(), ""),
    ("Apple M", "apple", 0, _numbers(), ""),
)  # fmt: skip
"""Which processor is of which family, the first that fits: numbers as CPUID tells them, or Arm's implementer, part."""


def generic_family(architecture: str, bits: int) -> str:
    """The name of the row for what is known by its vector width alone."""
    return _GENERIC_OF[architecture, bits]


def is_generic(family: str) -> bool:
    """Whether a row is for what is known by its vector width alone."""
    return family in _GENERIC_OF.values()


def find_family(processor: Processor, architecture: str, features: frozenset[str], bits: int) -> str:
    """The name of the row for a processor; the generic one for one that no row knows or whose vectors are wider than
    the row's (a hypervisor may tell any number)."""
    for name, vendor, family, models, feature in _PROCESSORS:
        if (processor.vendor, processor.family) != (vendor, family):
            continue
        if (models and processor.model not in models) or (feature and feature not in features):
            continue
        return name if BY_NAME[name].bits >= bits else generic_family(architecture, bits)
    return generic_family(architecture, bits)


@functools.cache
def estimate_core(family: str, features: frozenset[str], bits: int, ghz: float | None = None) -> Core:
    """The core of a `family` with these features, for registers of `bits`, at `ghz` if the system tells that clock and
    the row knows no higher one."""
    full = BY_NAME[family]
    row = full.at(bits)
    has_fma = fuses(features)
    dots = {
        i.name: rounded(_dot_cycles(i, full))
        for i in INSTRUCTIONS.values()
        if i.adds_products and i.runs_with(features)
    }
    return Core(
        ghz=max(ghz or 0.0, row.ghz),
        fma_cycles=row.fma if has_fma else max(row.fma, 2 * row.add),
        fma_latency=row.latency if has_fma else 2 * row.latency,
        add_cycles=row.add,
        add_beside_cycles=row.add if row.beside is None else row.beside,
        load_cycles=row.load,
        store_cycles=row.store,
        broadcast_cycles=row.broadcast,
        shuffle_cycles=row.shuffle,
        shuffle2_cycles=row.shuffle2,
        gather_cycles=row.gather,
        divide_cycles=row.divide,
        sqrt_cycles=row.sqrt,
        chain=row.chain,
        rows_ahead=row.rows_ahead,
        unhidden=row.unhidden,
        subnormal_cycles=row.subnormal,
        dots=Rates(dots),
        **STARTS,
    )


def estimate_peaks(family: str, core: Core, bits: int, levels: int, cores: int) -> Peaks:
    """What `levels` caches and the memory deliver to one `core` of a family, and the memory to `cores`. A loop that
    streams keeps 0.85 of the loads that its units could do ([intel]: 81 of Skylake's 96 bytes a cycle; Zen 5: 0.97)."""
    row = BY_NAME[family].at(bits)
    reads = (0.85 * bits / 8 / core.load_cycles, *row.reads, *row.reads[-1:] * levels)[:levels]
    writes = (0.85 * bits / 8 / core.store_cycles, *row.writes, *row.writes[-1:] * levels)[:levels]
    return Peaks(
        cache_gbs=tuple(rounded(core.ghz * rate) for rate in itertools.accumulate(reads, min)),
        store_gbs=tuple(rounded(core.ghz * rate) for rate in itertools.accumulate(writes, min)),
        cache_ns=tuple(rounded(wait / core.ghz) for wait in (5, *row.waits, *row.waits[-1:] * levels)[:levels]),
        memory_gbs=row.memory[0],
        memory_store_gbs=row.memory[1],
        memory_gbs_all=min(row.memory[2], cores * row.memory[0]),
        memory_tile_gbs=row.memory[0],
        memory_asked_gbs=row.memory[0],
        last_share=1.0,
        memory_ns=row.memory_ns,
    )


def estimate_dot(instruction: Instruction, family: str) -> float:
    """Cycles of an instruction that adds products, by the row of a family."""
    return rounded(_dot_cycles(instruction, BY_NAME[family]))


def _dot_cycles(instruction: Instruction, full: Family) -> float:
    """The lines of an instruction, each as long as the row says for its width; of tiles, what is done with each row."""
    if instruction.has_tiles:
        rows = instruction.accumulator.shape[0]
        return full.tile if instruction.products else full.store * rows
    row = full.at(min(instruction.bits, full.bits))
    a = instruction.registers[0].dtype
    if len(instruction.accumulator.shape) == len(instruction.registers[0].shape):
        return row.fma
    kind = "bf16" if a is dtypes.bf16 else "i8" if instruction.registers[0].shape[-1] == 4 else "i16"
    words = [word for line in instruction.llvm for word in line.split(maxsplit=1)[:1]]
    return row.dot[kind] + words.count("add") * row.add + row.widen * (words.count("sext") + words.count("zext"))
