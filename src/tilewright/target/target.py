"""`Target`: the machine that code is compiled for, as a value.

A target is written as text:

    target     = name { [" "] ("+" | "-") feature }
    name       = "native" | "x86-64" | "x86-64-v2" | "x86-64-v3" | "x86-64-v4" | "aarch64" | "riscv64"
                 | "wasm"
                 ("generic x86-64" and "generic aarch64" say the same as the names without "generic")
    feature    = LLVM's name for it: avx512vnni, dotprod, v, …; sve256 and sve512 are SVE with vectors of that length

"native" is the machine that runs this process, as its features show. The other names are models: 4 cores at 3 GHz
with usual caches and the rates of the generic rows of families.py, the same on every machine.
"+f" adds f and what f implies; "-f" takes away f and what implies f.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ..expr.dtypes import DType
from ..report.errors import UserError
from .abilities import Abilities
from .core import Core, flatten
from .families import BY_NAME, estimate_core, estimate_dot, estimate_peaks, find_family, generic_family
from .features import ARCHITECTURES, BASE, LENGTHS, LEVELS, choose_cpu, choose_vectors
from .host import Cache, Host, architecture_of, current_host, process_triple, usual_caches
from .instructions import TILE_ROWS, named
from .machine import create_machine, find_data_layout, find_tune
from .origins import Origins, Source
from .peaks import Peaks
from .text import changed_features, first_name

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_MODEL_CORES: Final = 4
_MODELS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    **{name: ("x86_64", features) for name, features in LEVELS.items()},
    **{architecture: (architecture, BASE[architecture]) for architecture in ("aarch64", "riscv64")},
    "wasm": ("wasm32", BASE["wasm32"]),
}


@dataclass(frozen=True, slots=True)
class Target(Abilities):
    """A machine to compile for. Equal targets get equal code.

    `name` parses back to the target (for `native`, on the same machine). `cpu` is the LLVM processor whose features
    are all in `features`, `model` the processor as its system describes it, empty for models of machines. `features`
    are closed under implication. `vector_bits` and `vector_registers` are of the widest registers; `caches` are nearest
    first; `cores` physical cores and `threads` hardware threads may be used.

    `core` says what one core does (core.py) and `peaks` what caches and memory deliver (peaks.py): estimates of the row
    `family` of families.py, measured on this machine (`measured`), or put in by hand (`with_core`, `with_peaks`).
    `kept_caches` are the caches as far as others leave them to this machine (`Peaks.last_share`): what decides whether
    data is found again.
    `origins` has for each of these numbers that is no estimate where it comes from: see `origin`. Targets that differ
    in it alone are equal.
    """

    name: str
    triple: str
    cpu: str
    model: str
    features: frozenset[str]
    vector_bits: int
    vector_registers: int
    caches: tuple[Cache, ...]
    cores: int
    threads: int
    family: str
    core: Core
    peaks: Peaks
    origins: Origins = field(default=Origins(), compare=False)
    kept_caches: tuple[Cache, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        kept = (*self.caches[:-1], *[last.part(self.peaks.last_share) for last in self.caches[-1:]])
        object.__setattr__(self, "kept_caches", kept)

    def __hash__(self) -> int:
        return hash((self.name, self.features, self.core.fma_cycles, self.peaks.memory_gbs))

    @staticmethod
    def parse(text: str) -> Target:
        """The target that `text` writes (see the module's grammar); UserError lists what exists when it names none."""
        return _parse(text)

    @property
    def kind(self) -> str:
        """The kind of machine, by which templates are chosen: `cpu`."""
        return "cpu"

    @property
    def page(self) -> int:
        """Bytes of a usual page of memory, beyond which no prefetcher follows a stream: 4 KiB on all architectures."""
        return 4096

    @property
    def pages_followed(self) -> int:
        """Rows, each on a page of its own, of which prefetchers remember where each was read last, and fetch what is
        behind: an estimate, the same for all families."""
        return 256

    @property
    def masked_store_cycles(self) -> float:
        """Cycles of a masked store of a vector to memory: a plain one's where registers hold masks; where they do not,
        an estimate, the same for all families: what a Zen 3 takes for `vmaskmovps`."""
        return self.core.store_cycles if self.has_masks else 14.0

    @property
    def streams(self) -> int:
        """Streams of memory that a core reads best at once: what comes for one use comes faster in a few streams than
        in one, and prefetchers lose count of many. A Zen 5 reads 4 and 8 rows of a matrix alike."""
        return 4

    @property
    def fma_gflops(self) -> float:
        """f32 peak of one core in GFLOP/s; a multiply-add counts as two operations."""
        return 2 * (self.vector_bits // 32) * self.core.ghz / self.core.fma_cycles

    @property
    def fma_gflops_f64(self) -> float:
        """f64 peak of one core in GFLOP/s."""
        return self.fma_gflops / 2

    def dot_cycles(self, name: str) -> float:
        """Cycles of an instruction of `target.instructions`: those of the core, or, of one that was registered since
        these were found, what the family's row estimates; of tiles with fewer rows, as much less."""
        known, row = self.core.dots.get(name), named(name)
        assert row is not None, name
        whole = row.with_rows(TILE_ROWS) if row.has_tiles else row
        if whole is not row:
            return self.dot_cycles(whole.name) * row.accumulator.shape[0] / TILE_ROWS
        return estimate_dot(row, self.family) if known is None else known

    @property
    def measured(self) -> bool:
        """Whether any of its numbers was measured."""
        return bool(self.origins.named(Source.MEASURED))

    @property
    def unsettled(self) -> tuple[str, ...]:
        """The figures that are estimates because the machine was busy when they were measured."""
        return self.origins.named(Source.UNSETTLED)

    def origin(self, figure: str) -> str:
        """Where a number comes from, by its name in `figures`: `measured`, `given` (put in by hand), `estimate` (the
        family's row), or `estimate: ` and why what was measured is not believed."""
        return str(self.origins.of(figure))

    def figures(self) -> dict[str, float]:
        """The numbers of `core` and `peaks` by their names, those in rows with what they are of: `fma_cycles`,
        `dots.x86.fma.fma_f32`, `cache_gbs.1` (L1)."""
        return flatten({**self.core.record(), **self.peaks.record()})

    def with_core(self, **changes: Any) -> Target:
        """This target with `changes` of its core's numbers, which are then `given`; `dots` adds to the rates it has.
        A changed target is compiled for as it is: nothing of it is measured.
        Raises TypeError for an unknown name, ValueError for a number that makes no sense."""
        return replace(self, core=self.core.replace(**changes), origins=self.origins.given(flatten(changes)))

    def with_peaks(self, **changes: Any) -> Target:
        """This target with `changes` of its bandwidths, which are then `given`. Raises as `with_core`."""
        return replace(self, peaks=self.peaks.replace(**changes), origins=self.origins.given(flatten(changes)))

    def with_rates(self, record: Mapping[str, Any]) -> Target:
        """This target with the rates of `record`, in the form of `rates`, of which any may be missing; rates of
        instructions that the target lacks are left out. Raises TypeError or ValueError for anything else."""
        unknown = sorted(set(record) - {"core", "peaks"})
        if unknown:
            raise ValueError(f"rates are of `core` and of `peaks`, not of {', '.join(map(repr, unknown))}")
        core, peaks = dict(record.get("core", {})), dict(record.get("peaks", {}))
        if "dots" in core:
            core["dots"] = {name: rate for name, rate in dict(core["dots"]).items() if name in self.core.dots}
        return self.with_core(**core).with_peaks(**peaks)

    @property
    def rates(self) -> dict[str, Any]:
        """All of `core` and `peaks` as JSON says it."""
        return {"core": self.core.record(), "peaks": self.peaks.record()}

    @property
    def data_layout(self) -> str:
        """LLVM's data layout string."""
        return find_data_layout(self.triple)

    @property
    def tune(self) -> str:
        """The LLVM processor whose instruction timings code is made for; for this machine, LLVM is asked."""
        return find_tune(self.model, self.cpu)

    @property
    def feature_text(self) -> str:
        """The features as LLVM takes them, `+a,+b`, sorted."""
        return ",".join(f"+{feature}" for feature in sorted(self.features - LENGTHS.keys()))

    @property
    def attributes(self) -> str:
        """The function attributes that make LLVM compile for this target, as IR text for an `attributes` group.

        Without the two widths LLVM may prefer narrower vectors than the registers hold.
        """
        rows = {
            "target-cpu": self.cpu,
            "target-features": self.feature_text,
            "tune-cpu": self.tune,
            "prefer-vector-width": self.vector_bits,
            "min-legal-vector-width": self.vector_bits,
        }
        texts = [f'"{key}"="{value}"' for key, value in rows.items()]
        return " ".join([self.length_attribute, *texts] if self._has_length else texts)

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector register."""
        return self.vector_bits // dtype.bits

    def cache(self, level: int) -> Cache:
        """The cache at `level` (1 is nearest), or the last one where there are fewer levels."""
        return self.caches[min(level, len(self.caches)) - 1]

    def is_runnable_on(self, host: Host) -> bool:
        """Whether code for this target runs on `host`."""
        return self.triple == host.triple and self.features <= host.features

    def create_machine(self, opt: int = 3, *, jit: bool = False) -> llvm.TargetMachine:
        """LLVM's target machine; `opt` is the effort of instruction selection and register allocation, 0 to 3. What
        LLVM itself shall load is made with `jit`."""
        return create_machine(self.triple, self.cpu, self.feature_text, opt, jit=jit)

    def record(self) -> dict[str, Any]:
        """The target as JSON says it; `from_record` reads it back."""
        texts = {"name": self.name, "triple": self.triple, "cpu": self.cpu, "model": self.model, "family": self.family}
        numbers = {key: getattr(self, key) for key in ("vector_bits", "vector_registers", "cores", "threads")}
        return {
            **texts,
            **numbers,
            "features": sorted(self.features),
            "caches": [asdict(cache) for cache in self.caches],
            "core": self.core.record(),
            "peaks": self.peaks.record(),
            "origins": self.origins.record(),
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Target:
        """The target that `record` made a record of. Raises KeyError, TypeError or ValueError for anything else."""
        texts = {key: str(record[key]) for key in ("name", "triple", "cpu", "model", "family")}
        numbers = {key: int(record[key]) for key in ("vector_bits", "vector_registers", "cores", "threads")}
        caches = tuple(Cache(**{key: int(value) for key, value in row.items()}) for row in record["caches"])
        features = frozenset(str(feature) for feature in record["features"])
        fields: dict[str, Any] = {
            **texts,
            **numbers,
            "features": features,
            "caches": caches,
            "core": Core.from_record(record["core"]),
            "peaks": Peaks.from_record(record["peaks"]),
            "origins": Origins.from_record(record["origins"]),
        }
        return Target(**fields)

    def fingerprint(self) -> str:
        """Text that differs whenever the code made for two targets may differ: part of the key of compiled code."""
        rows = self.record()
        for about in ("name", "family", "origins"):
            del rows[about]
        return json.dumps(rows, sort_keys=True)

    def __str__(self) -> str:
        return self.name


@functools.cache
def native() -> Target:
    """The machine that runs this process, with the estimates of its family. Found once per process, cores included."""
    host = current_host()
    if host.architecture not in ARCHITECTURES:
        raise UserError(
            f"there is no machine model for {host.architecture}",
            where=host.triple,
            why=f"the models are for {', '.join(ARCHITECTURES[:-1])} and {ARCHITECTURES[-1]}",
            fix="compile for another machine by naming its target, such as x86-64-v3",
        )
    return describe_host(host)


def describe_host(host: Host) -> Target:
    """The target that `host` is."""
    vectors = choose_vectors(host.architecture, host.features)
    family = find_family(host.processor, host.architecture, host.features, vectors.bits)
    core = estimate_core(family, host.features, vectors.bits, host.ghz)
    return Target(
        name="native",
        triple=host.triple,
        cpu=choose_cpu(host.architecture, host.features),
        model=host.model,
        features=host.features,
        vector_bits=vectors.bits,
        vector_registers=vectors.registers,
        caches=host.caches,
        cores=host.cores,
        threads=host.threads,
        family=family,
        core=core,
        peaks=estimate_peaks(family, core, vectors.bits, len(host.caches), host.cores),
    )


def target_names() -> tuple[str, ...]:
    """The names a target's text may start with."""
    return ("native", *_MODELS)


def _parse(text: str) -> Target:
    base, rest = first_name(text, target_names())
    start = native() if base == "native" else _model(base)
    features, changes = changed_features(text, rest, start.name, start.architecture, start.features)
    return _rebuild(start, features, " ".join([base, *changes])) if changes else start


def _model(name: str) -> Target:
    architecture, features = _MODELS[name]
    vectors = choose_vectors(architecture, features)
    caches = usual_caches(architecture)
    family = generic_family(architecture, vectors.bits)
    core = estimate_core(family, features, vectors.bits)
    return Target(
        name=name,
        triple=_choose_triple(architecture),
        cpu=choose_cpu(architecture, features),
        model="",
        features=features,
        vector_bits=vectors.bits,
        vector_registers=vectors.registers,
        caches=caches,
        cores=_MODEL_CORES,
        threads=_MODEL_CORES,
        family=family,
        core=core,
        peaks=estimate_peaks(family, core, vectors.bits, len(caches), _MODEL_CORES),
    )


def _choose_triple(architecture: str) -> str:
    """This system's triple when the architecture is its own, so that the code can run here; Linux otherwise."""
    if architecture == "wasm32":
        return "wasm32-unknown-unknown"
    own = process_triple()
    return own if architecture_of(own) == architecture else f"{architecture}-unknown-linux-gnu"


def _rebuild(start: Target, features: frozenset[str], name: str) -> Target:
    """`start` with other features: the rates are those of its family at the vectors that these give."""
    vectors = choose_vectors(start.architecture, features)
    family = start.family
    if not start.model or BY_NAME[family].bits < vectors.bits:
        family = generic_family(start.architecture, vectors.bits)
    core = estimate_core(family, features, vectors.bits, start.core.ghz)
    return replace(
        start,
        name=name,
        cpu=choose_cpu(start.architecture, features),
        features=features,
        vector_bits=vectors.bits,
        vector_registers=vectors.registers,
        family=family,
        core=core,
        peaks=estimate_peaks(family, core, vectors.bits, len(start.caches), start.cores),
    )
