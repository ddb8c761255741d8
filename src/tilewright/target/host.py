"""What this machine is, read from the system: features, caches, and the cores this process may use.

Detection reads files and, on x86-64, asks the processor (cpuid.py); it measures nothing and takes a few milliseconds.
What the system does not say is filled in from the architecture's usual values. Tests give another `root` than `/`.
Systems other than Linux tell LLVM, which is loaded there to be asked.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from tilewright.report import settings

from .cpuid import PLACES, TILES, read_features
from .features import ARCHITECTURES, LEVELS, close, known_features


class Processor(NamedTuple):
    """What a processor calls itself: on x86-64 vendor, family and model as CPUID tells them (`AuthenticAMD`, 25, 97),
    on AArch64 the implementer and part (`0x41`, 0, 0xd0c), on macOS `apple`. Empty and zero where the system is silent
    about it."""

    vendor: str = ""
    family: int = 0
    model: int = 0


@dataclass(frozen=True, slots=True)
class Cache:
    """A data or unified cache: level, size in bytes, ways, line in bytes, and how many hardware threads share it."""

    level: int
    bytes: int
    ways: int
    line: int
    shared: int

    @property
    def sets(self) -> int:
        """Lines that share an index, counted once: bytes = sets * ways * line, rounded down for odd sizes."""
        return max(1, self.bytes // (self.ways * self.line))

    def room(self, apart: int) -> int:
        """How many lines with a stride of `apart` bytes the cache holds: those of few sets, where the stride is a
        multiple of many lines; all of its lines, where it is no whole number of lines."""
        lines = apart // self.line if apart % self.line == 0 else 1
        return self.sets // math.gcd(lines, self.sets) * self.ways

    def part(self, share: float) -> Cache:
        """A cache with so many of its ways, in whole ones, and with one at least."""
        ways = min(max(round(share * self.ways), 1), self.ways)
        return replace(self, bytes=self.bytes * ways // self.ways, ways=ways)


@dataclass(frozen=True, slots=True)
class Host:
    """This machine as the system describes it.

    `model` identifies the machine and is not interpreted; `processor` says of which family it is. `features` are those
    of the table in features.py that it has. `cores` counts physical cores and `threads` hardware threads that this
    process may run on: affinity and control-group quota are taken off. `ghz` is the clock that the system tells, None
    where it tells none; under a hypervisor it is the base clock.
    """

    triple: str
    model: str
    features: frozenset[str]
    caches: tuple[Cache, ...]
    cores: int
    threads: int
    ghz: float | None
    processor: Processor

    @property
    def architecture(self) -> str:
        return architecture_of(self.triple)


def detect_host(root: Path = Path("/"), affinity: frozenset[int] | None = None) -> Host:
    """The machine below `root`, for a process bound to the hardware threads `affinity` (if None: this process)."""
    cpus = sorted(affinity if affinity is not None else _read_affinity())
    triple = process_triple()
    architecture = architecture_of(triple)
    quota = read_quota(root)
    threads = _limit(len(cpus), quota)
    return Host(
        triple=triple,
        model=_read_model(root),
        features=_read_features(architecture, root) if architecture in ARCHITECTURES else frozenset(),
        caches=read_caches(root, cpus[0]) or usual_caches(architecture),
        cores=min(threads, _limit(_count_cores(root, cpus), quota)),
        threads=threads,
        ghz=_read_ghz(root, cpus[0]),
        processor=_read_processor(root, triple),
    )


@functools.cache
def current_host() -> Host:
    """This machine and process, as they were at the first call: with the features of TILEWRIGHT_LEVEL at most."""
    host, level = detect_host(), settings.LEVEL.read()
    if level is None or host.architecture != "x86_64":
        return host
    return replace(host, features=host.features & LEVELS[level])


def process_triple() -> str:
    """The triple of this process, as LLVM writes it."""
    if sys.platform == "linux" and sys.maxsize > 1 << 32:
        return f"{os.uname().machine}-unknown-linux-gnu"
    import llvmlite.binding as llvm

    return str(llvm.get_process_triple())


def architecture_of(triple: str) -> str:
    """The first word of a triple, with the names of one architecture made one."""
    word = triple.split("-", 1)[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(word, word)


def usual_caches(architecture: str) -> tuple[Cache, ...]:
    """Cache sizes to assume: the smaller of what is common, for a tile too large costs more than one too small."""
    if architecture == "aarch64":
        return (Cache(1, 64 << 10, 4, 64, 1), Cache(2, 512 << 10, 8, 64, 1), Cache(3, 8 << 20, 16, 64, 4))
    return (Cache(1, 32 << 10, 8, 64, 1), Cache(2, 512 << 10, 8, 64, 1), Cache(3, 8 << 20, 16, 64, 4))


def read_caches(root: Path, cpu: int) -> tuple[Cache, ...]:
    """The data caches above hardware thread `cpu`, nearest first; empty when the system does not tell an L1."""
    found: dict[int, Cache] = {}
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache"
    for index in range(16):
        place = folder / f"index{index}"
        kind = _read(place / "type")
        if not kind:
            break
        level, size = _number(_read(place / "level")), _size(_read(place / "size"))
        if kind == "Instruction" or level <= 0 or size <= 0:
            continue
        ways = _number(_read(place / "ways_of_associativity")) or 8
        line = _number(_read(place / "coherency_line_size")) or 64
        shared = len(parse_cpu_list(_read(place / "shared_cpu_list"))) or 1
        found[level] = Cache(level, size, ways, line, shared)
    levels = range(1, len(found) + 1)
    return tuple(found[level] for level in levels) if found and set(found) == set(levels) else ()


def read_quota(root: Path) -> float | None:
    """How many processors' worth of time the control groups around this process allow; None when they set no limit."""
    quotas = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            quotas += [_quota_v2(folder) for folder in _folders(root, ("", "unified"), path)]
        elif "cpu" in controllers.split(","):
            quotas += [_quota_v1(folder) for folder in _folders(root, ("cpu", "cpu,cpuacct"), path)]
    limits = [quota for quota in quotas if quota is not None]
    return min(limits) if limits else None


def parse_cpu_list(text: str) -> frozenset[int]:
    """The numbers in the kernel's list format, `0-3,8`; empty for anything else."""
    out: set[int] = set()
    try:
        for part in text.split(",") if text else ():
            first, _, last = part.partition("-")
            out.update(range(int(first), int(last or first) + 1))
    except ValueError:
        return frozenset()
    return frozenset(out)


def _folders(root: Path, mounts: tuple[str, ...], path: str) -> Iterator[Path]:
    """The control group's folder and those around it. In a container the path may be the outside's, with no folder."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    for mount in mounts:
        for depth in range(len(parts), -1, -1):
            yield root.joinpath("sys/fs/cgroup", mount, *parts[:depth])


def _quota_v2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    if len(words) != 2 or words[0] == "max":
        return None
    return _ratio(_number(words[0]), _number(words[1]))


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_number(_read(folder / "cpu.cfs_quota_us")), _number(_read(folder / "cpu.cfs_period_us")))


def _ratio(quota: int, period: int) -> float | None:
    return quota / period if quota > 0 and period > 0 else None


def _limit(count: int, quota: float | None) -> int:
    """Whole processors only: a thread more than the quota would be stopped in the middle of a parallel loop."""
    return count if quota is None else max(1, min(count, int(quota)))


def _count_cores(root: Path, cpus: list[int]) -> int:
    cores = set()
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = _read(folder / "core_cpus_list") or _read(folder / "thread_siblings_list")
        cores.add(siblings or str(cpu))
    return len(cores)


def _read_affinity() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _read_features(architecture: str, root: Path) -> frozenset[str]:
    if sys.platform != "linux":
        import llvmlite.binding as llvm

        found = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
        found -= {name for name, place in PLACES.items() if place.saved & TILES}  # nobody asks this system for tiles
    elif architecture == "x86_64":
        found = read_features()
    elif architecture == "riscv64":
        found = read_riscv_features(dict(_cpuinfo(root)).get("isa", ""))
    else:
        found = read_arm_features(dict(_cpuinfo(root)).get("Features", ""))
    return close(architecture, found & frozenset(known_features(architecture)))


def read_arm_features(words: str) -> frozenset[str]:
    """Features by LLVM's names, from the words of Linux for those of an AArch64 processor: as many as LLVM reads there
    itself."""
    has = set(words.split())
    return frozenset(feature for feature, needed in _ARM_WORDS.items() if has.issuperset(needed))


_ARM_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "fp-armv8": ("fp",),
    "neon": ("asimd",),
    "crc": ("crc32",),
    "lse": ("atomics",),
    "aes": ("aes", "pmull"),
    "sha2": ("sha1", "sha2"),
    "sve": ("sve",),
    "sve2": ("sve2",),
}


def read_riscv_features(words: str) -> frozenset[str]:
    """Features by LLVM's names, from Linux's text for those of a RISC-V processor: `rv64imafdcv_zicsr_zihintpause`."""
    letters, *names = words.lower().split("_")
    return frozenset((*letters.removeprefix("rv64"), *names, *(["64bit"] if letters.startswith("rv64") else [])))


def _read_model(root: Path) -> str:
    wanted = (
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "stepping",
        "CPU implementer",
        "CPU part",
        "CPU variant",
    )
    rows = dict(_cpuinfo(root))
    return "; ".join(rows[name] for name in wanted if name in rows) or process_triple()


def _read_processor(root: Path, triple: str) -> Processor:
    rows = dict(_cpuinfo(root))
    if "vendor_id" in rows:
        return Processor(rows["vendor_id"], _number(rows.get("cpu family", "")), _number(rows.get("model", "")))
    if "CPU implementer" in rows:
        return Processor(rows["CPU implementer"], 0, _number(rows.get("CPU part", "")))
    return Processor("apple") if "-apple-" in triple else Processor()


def _read_ghz(root: Path, cpu: int) -> float | None:
    khz = _number(_read(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"))
    if khz > 0:
        return khz / 1e6
    try:
        mhz = float(dict(_cpuinfo(root)).get("cpu MHz", "0"))
    except ValueError:
        return None
    return mhz / 1e3 if 500 < mhz < 10_000 else None


def _cpuinfo(root: Path) -> Iterator[tuple[str, str]]:
    """The rows of the first processor."""
    for line in _read(root / "proc/cpuinfo", 8192).splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            return
        yield name.strip(), value.strip()


def _read(path: Path, limit: int = 4096) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit).strip()
    except OSError:
        return ""


def _number(text: str) -> int:
    try:
        return int(text, 16) if text.startswith("0x") else int(text)
    except ValueError:
        return 0


def _size(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
    return _number(text[:-1]) * factor if factor else _number(text)
