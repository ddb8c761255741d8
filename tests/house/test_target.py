"""Targets: what their text means, what detection reads from the system, what calibration measures and keeps."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.expr import dtypes
from tilewright.report.errors import UserError
from tilewright.store import Store, pack, unpack
from tilewright.target import Cache, Target, calibrate, measured, native, target_names
from tilewright.target.families import BY_NAME, FAMILIES, estimate_core, estimate_peaks
from tilewright.target.features import ARCHITECTURES, LEVELS, choose_cpu, close, known_features, remove
from tilewright.target.host import current_host, detect_host, parse_cpu_list, read_caches, read_quota
from tilewright.target.instructions import INSTRUCTIONS
from tilewright.target.measure import Engine, measure, share_kept
from tilewright.target.plausible import KEPT, UNSETTLED, put_into
from tilewright.target.probes import core_probes, print_module
from tilewright.target.show import describe
from tilewright.target.streams import PRODUCTS, STEP, print_streams
from tilewright.target.target import describe_host
from tilewright.target.transfer import fits, memory

NAMES = [name for name in target_names() if name != "native"]
on_x86 = pytest.mark.skipif(current_host().architecture != "x86_64", reason="needs an x86-64 machine")


# --- text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", target_names())
def test_a_name_parses_to_a_target_of_that_name(name: str) -> None:
    target = Target.parse(name)
    assert str(target) == name
    assert Target.parse(f"  generic {name} ") == target
    assert target.features == close(target.architecture, target.features)


@pytest.mark.parametrize(
    ("name", "bits", "registers", "cpu"),
    [
        ("x86-64", 128, 16, "x86-64"),
        ("x86-64-v2", 128, 16, "x86-64-v2"),
        ("x86-64-v3", 256, 16, "x86-64-v3"),
        ("x86-64-v4", 512, 32, "x86-64-v4"),
        ("x86-64-v3 -fma", 256, 16, "x86-64-v2"),
        ("x86-64-v3 +avx512f", 512, 32, "x86-64-v3"),
        ("x86-64-v4 -avx512f", 256, 16, "x86-64-v3"),
        ("x86-64-v4 -avx", 128, 16, "x86-64-v2"),
        ("aarch64", 128, 32, "generic"),
        ("aarch64 +sve", 128, 32, "generic"),
        ("aarch64 +sve256", 256, 32, "generic"),
        ("aarch64 +sve512", 512, 32, "generic"),
        ("wasm", 128, 16, "generic"),
        ("riscv64", 128, 8, "generic-rv64"),
        ("riscv64 +v", 128, 32, "generic-rv64"),
        ("riscv64 +zvl512b", 512, 32, "generic-rv64"),
        ("riscv64 +zvl1024b -zvl512b", 256, 32, "generic-rv64"),
    ],
)
def test_vectors_and_processor_follow_from_the_features(name: str, bits: int, registers: int, cpu: str) -> None:
    target = Target.parse(name)
    assert (target.vector_bits, target.vector_registers, target.cpu) == (bits, registers, cpu)
    assert target.lanes(dtypes.f32) == bits // 32
    assert target.lanes(dtypes.bf16) == bits // 16
    assert target.lanes(dtypes.bool_) == bits // 8


def test_changes_of_features_imply_and_withdraw_others() -> None:
    v3 = Target.parse("x86-64-v3").features
    assert Target.parse("x86-64-v3+avx512bf16").features == v3 | {"avx512f", "avx512bw", "avx512bf16"}
    assert Target.parse("x86-64-v3 +avxvnni, -f16c").features == (v3 | {"avxvnni"}) - {"f16c"}
    assert Target.parse("x86-64-v4-avx2").features == v3 - {"avx2"}
    assert Target.parse("x86-64-v3-avx2+avx2").features == v3
    assert Target.parse("x86-64 +amx-int8 -amx-tile").features == Target.parse("x86-64").features
    assert Target.parse("aarch64+sve2").features == {"fp-armv8", "neon", "fullfp16", "sve", "sve2"}


@pytest.mark.parametrize("text", ["x86-64-v3 +avxvnni -f16c", "x86-64 +amx-int8", "aarch64 +dotprod", "native -aes"])
def test_the_name_with_changes_parses_back(text: str) -> None:
    if text.startswith("native") and "aes" not in {*native().features, *known_features(native().architecture)}:
        pytest.skip("no such feature on this architecture")
    target = Target.parse(text)
    assert target.name == text
    assert Target.parse(target.name) == target
    assert Target.parse(text.replace(" ", "")) == target


@pytest.mark.parametrize(
    ("text", "abilities"),
    [
        ("x86-64", []),
        ("x86-64-v3", ["fma", "f16c"]),
        ("x86-64-v3 +avxvnni", ["fma", "f16c", "i8_dot"]),
        ("x86-64-v4", ["fma", "f16c", "masks"]),
        ("x86-64-v4 +avx512vnni", ["fma", "f16c", "i8_dot", "masks"]),
        ("x86-64-v4 +avx512bf16 +avx512fp16", ["fma", "f16c", "f16", "bf16_dot", "masks"]),
        ("aarch64", ["fma", "f16c"]),
        ("aarch64 +sve256 -fullfp16", ["fma", "f16c"]),
        ("aarch64 +sve256", ["fma", "f16c", "f16", "masks"]),
        ("wasm", []),
        ("riscv64", ["fma"]),
        ("riscv64 +v", ["fma", "masks"]),
        ("aarch64 +dotprod +bf16 +fullfp16", ["fma", "f16c", "f16", "bf16_dot", "i8_dot"]),
    ],
)
def test_abilities(text: str, abilities: list[str]) -> None:
    target = Target.parse(text)
    asked = ["fma", "f16c", "f16", "bf16_dot", "i8_dot", "masks"]
    assert [ability for ability in asked if getattr(target, f"has_{ability}")] == abilities


def test_the_fingerprint_tells_machines_apart_and_ignores_the_name() -> None:
    v3 = Target.parse("x86-64-v3")
    others = [
        Target.parse("x86-64-v3 +avxvnni"),
        dataclasses.replace(v3, model="AuthenticAMD; 25; 1"),
        dataclasses.replace(v3, cores=v3.cores + 1),
        dataclasses.replace(v3, caches=v3.caches[:2]),
        v3.with_peaks(memory_gbs=1.0),
        v3.with_core(ghz=2.0),
        v3.with_core(dots={"x86.fma.fma_f32": 1.0}),
    ]
    assert len({target.fingerprint() for target in (v3, *others)}) == len(others) + 1
    assert Target.parse("x86-64-v3 +avx2").fingerprint() == v3.fingerprint()


def test_closing_and_removing_are_inverse_where_they_should_be() -> None:
    for architecture in ARCHITECTURES:
        everything = close(architecture, known_features(architecture))
        assert everything == set(known_features(architecture)), "the table implies a feature that it does not list"
        for feature in known_features(architecture):
            without = remove(architecture, everything, feature)
            assert feature not in without
            assert close(architecture, without) == without


def test_a_processor_is_chosen_that_assumes_nothing_the_machine_lacks() -> None:
    for features in LEVELS.values():
        for lost in features:
            left = remove("x86_64", features, lost)
            cpu = choose_cpu("x86_64", left)
            assert LEVELS[cpu] <= left or cpu == "x86-64"


# --- LLVM ---------------------------------------------------------------------------------------------------------


PROBES = [name for name in NAMES if Target.parse(name).architecture in calibrate.PROBED]


@pytest.mark.parametrize("text", [*PROBES, "x86-64-v4 +avx512vnni +avx512bf16", "aarch64 +sve2 +dotprod +bf16 +i8mm"])
def test_llvm_knows_every_feature_and_compiles_for_every_model(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    target = Target.parse(text)
    probes = core_probes(target)
    assembly = emit(target, print_module(target, probes))
    assert [probe.name for probe in probes if f"{probe.name}:" not in assembly.replace('"', "")] == []
    streams = llvm.parse_assembly(print_streams(target))
    streams.verify()
    if target.architecture == current_host().architecture:  # for others llvmlite has no parser of inline assembly
        assembly = str(target.create_machine().emit_assembly(streams))
        assert all(f"{name}:" in assembly for name in ("read", "write", "flush"))
    assert target.data_layout.startswith("e-m:")
    assert "not a recognized" not in capfd.readouterr().err


def test_a_machine_that_no_probe_is_for_keeps_its_estimates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a RISC-V machine, which this process is taken to be."""
    target = dataclasses.replace(Target.parse("riscv64 +v"), name="native")
    host = dataclasses.replace(current_host(), triple=target.triple, features=target.features)
    monkeypatch.setenv("TILEWRIGHT_CALIBRATE", "1")
    monkeypatch.setattr(calibrate, "current_host", lambda: host)
    assert target.is_runnable_on(host)
    assert measured(target, Store(tmp_path), again=True) is target


def emit(target: Target, text: str) -> str:
    return str(target.create_machine().emit_assembly(llvm.parse_assembly(text)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_llvm_knows_every_feature_of_the_table(architecture: str, capfd: pytest.CaptureFixture[str]) -> None:
    target = Target.parse({"x86_64": "x86-64", "wasm32": "wasm"}.get(architecture, architecture))
    for feature in known_features(architecture):
        dataclasses.replace(target, features=frozenset({feature})).create_machine()
    assert "not a recognized" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "probe", "instruction"),
    [
        ("x86-64-v3", "fma_cycles", "vfmadd231ps"),
        ("x86-64-v4", "fma_cycles", "vfmadd231ps"),
        ("aarch64", "fma_cycles", "fmla"),
        ("x86-64-v4", "add_cycles", "vaddps"),
        ("x86-64-v4", "divide_cycles", "vdivps"),
        ("x86-64-v4", "sqrt_cycles", "vsqrtps"),
        ("x86-64-v4", "shuffle_cycles", "vpermps"),
        ("x86-64-v4", "shuffle2_cycles", "vperm[it]2ps"),
        ("x86-64-v4", "gather_cycles", "vpgatherdd"),
        ("x86-64-v4", "broadcast_cycles", "vbroadcastss"),
        ("x86-64-v4", "load_cycles", "vmov[au]ps"),
        ("x86-64-v4", "store_cycles", "vmov[au]ps"),
        ("x86-64-v4 +avx512bf16", "dots.x86.avx512bf16.dot_bf16", "vdpbf16ps"),
        ("x86-64-v4 +avx512vnni", "dots.x86.avx512vnni.dot_u8i8", "vpdpbusd"),
        ("x86-64-v3", "dots.x86.avx2.dot_i16", "vpmaddwd"),
        ("x86-64-v3", "dots.x86.avx2.dot_i8", "vpmaddwd"),
        ("aarch64 +dotprod", "dots.aarch64.dotprod.dot_i8", "sdot"),
    ],
)
def test_a_round_of_a_probe_is_as_many_instructions_as_it_says(text: str, probe: str, instruction: str) -> None:
    """Nothing was moved out of the loop, and all is done in full registers."""
    target = Target.parse(text)
    (timed,) = (p for p in core_probes(target) if p.name == probe)
    (body,) = innermost(emit(target, print_module(target, [timed])))
    found = [line for line in body if re.match(rf"\s+{instruction}\s", line)]
    assert len(found) == timed.count, "\n".join(body)
    assert all(re.search({128: r"\bv\d|xmm", 256: "ymm", 512: "zmm"}[target.vector_bits], line) for line in found)
    if probe == "fma_cycles":
        assert len(body) < len(found) + 6, "more than the loop's own counting stands between them"


def innermost(assembly: str) -> list[list[str]]:
    """The instructions of the loops of a program: what lies between a label and a jump back to it."""
    lines = [line for line in assembly.split("\n") if not line.lstrip().startswith(("#", "//", ".cfi", ".p2align"))]
    labels = {line.split(":")[0]: n for n, line in enumerate(lines) if re.match(r"\.L\w+:", line)}
    out = []
    for n, line in enumerate(lines):
        target = re.search(r"\s(?:j\w+|b\.\w+)\s+(\.L\w+)", line)
        if target and labels.get(target[1], n) < n:
            out.append([x for x in lines[labels[target[1]] + 1 : n + 1] if re.match(r"\s+[a-z]", x)])
    return out


def test_streams_read_and_write_every_byte() -> None:
    target = native()
    words = np.random.default_rng(0).integers(0, 1 << 40, 6 * STEP // 8, np.int64)
    words = words[-words.ctypes.data % STEP // 8 :][: 4 * STEP // 8]
    inside, before = words[: 3 * STEP // 8], words.copy()
    lanes = target.vector_bits // 64
    with Engine(target, print_streams(target)) as engine:
        read, write, flush = (engine.function(name, 3) for name in ("read", "write", "flush"))
        place, size = inside.ctypes.data, inside.nbytes
        assert read(place, size, 1) == inside[::lanes].sum()
        assert read(place, size, 7) == 7 * inside[::lanes].sum()
        flush(place, size, 1)
        assert (words == before).all()
        write(place, size, 2)
        assert (inside.view(np.float32) == 1).all() and (words[len(inside) :] == before[len(inside) :]).all()
        tile, asked = (engine.function(name, 3) for name in ("tile", "asked"))
        for rounds in (1, 2):  # each sum has all terms, and the result is the first bits of all of them together
            terms = np.float32(rounds * PRODUCTS * size / max(64, 8 * lanes))  # a line, or a vector, at a time
            for stream in (tile, asked):
                found = np.array([stream(place, size, rounds)]).view(np.float32)
                np.testing.assert_array_equal(found, [terms, terms])
    assert (inside.view(np.float32) == 1).all() and (words[len(inside) :] == before[len(inside) :]).all()


# --- detection ----------------------------------------------------------------------------------------------------


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def cache_files(index: int, level: int, kind: str, size: str, ways: str = "8", shared: str = "0") -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
    return {
        f"{folder}/level": str(level),
        f"{folder}/type": kind,
        f"{folder}/size": size,
        f"{folder}/ways_of_associativity": ways,
        f"{folder}/coherency_line_size": "64",
        f"{folder}/shared_cpu_list": shared,
    }


def test_native_is_what_llvm_says_this_machine_has() -> None:
    """All features that code is made for, by whoever is asked: the processor and the system, or LLVM."""
    present = {name for name, has in llvm.get_host_cpu_features().items() if has}
    host = detect_host()
    target = describe_host(host)
    assert target.features == close(target.architecture, present & {*known_features(target.architecture)})
    assert target.triple == host.triple == llvm.get_process_triple()
    assert target.is_runnable_on(host)
    assert target.cores >= 1
    assert target.threads >= target.cores
    assert not target.measured
    assert Target.parse("native") is native()


def test_a_processor_name_is_asked_for_when_code_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is LLVM's guess, which may be wrong: it is for instruction timings only, and part of no key."""
    target, before = native(), native().fingerprint()
    assert target.tune == llvm.get_host_cpu_name() and f'"tune-cpu"="{target.tune}"' in target.attributes
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "sapphirerapids")
    assert target.tune == "sapphirerapids" and target.fingerprint() == before
    assert dataclasses.replace(target, model="of another machine").tune == target.cpu
    assert Target.parse("x86-64-v3 +avxvnni").tune == "x86-64-v3"


def test_avx_loads_long_numbers_under_masks() -> None:
    for machine, types in (
        ("x86-64-v2", ()),
        ("x86-64-v3", (dtypes.f32, dtypes.f64)),
        ("x86-64-v4", (dtypes.f16, dtypes.f32, dtypes.f64)),
        ("aarch64", ()),
    ):
        assert (
            tuple([t for t in (dtypes.f16, dtypes.f32, dtypes.f64) if Target.parse(machine).masks_loads(t)]) == types
        ), machine


def test_features_that_a_hypervisor_masks_are_not_assumed() -> None:
    host = dataclasses.replace(
        current_host(),
        triple="x86_64-unknown-linux-gnu",
        features=LEVELS["x86-64-v4"] - {"avx512vl"},
    )
    target = describe_host(host)
    assert target.cpu == "x86-64-v3"
    assert target.vector_bits == 512
    assert not target.has_masks


def test_caches_are_read_and_instruction_caches_left_out(tmp_path: Path) -> None:
    files = {
        **cache_files(0, 1, "Data", "48K", ways="12"),
        **cache_files(1, 1, "Instruction", "32K"),
        **cache_files(2, 2, "Unified", "1024K", ways="0", shared="0-1"),
        **cache_files(3, 3, "Unified", "32M", ways="16", shared="0-3,8-11"),
    }
    caches = read_caches(write(tmp_path, files), 0)
    assert caches == (Cache(1, 49152, 12, 64, 1), Cache(2, 1 << 20, 8, 64, 2), Cache(3, 32 << 20, 16, 64, 8))
    assert [cache.sets for cache in caches] == [64, 2048, 32768]


@pytest.mark.parametrize(
    "files",
    [
        {},
        cache_files(0, 2, "Unified", "1M"),
        cache_files(0, 1, "Data", "0K"),
        cache_files(0, 1, "Data", "?"),
        {**cache_files(0, 1, "Data", "32K"), **cache_files(1, 3, "Unified", "32M")},
    ],
    ids=["none", "no L1", "empty L1", "unreadable size", "a level missing"],
)
def test_caches_that_the_system_does_not_tell_are_assumed(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    assert read_caches(tmp_path, 0) == ()
    assert [cache.level for cache in detect_host(tmp_path, frozenset({0})).caches] == [1, 2, 3]


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"}, 2.5),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "garbage"}, None),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "100000 0"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "800000 100000",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
            },
            3.0,
        ),
        ({"proc/self/cgroup": "0::/outside/the/container", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        ({"proc/self/cgroup": "0::/../../x", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        (
            {
                "proc/self/cgroup": "5:cpuset:/x\n4:cpu,cpuacct:/job",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
    ],
)
def test_control_group_quotas(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert read_quota(write(tmp_path, files)) == quota


def test_cores_are_those_this_process_may_use(tmp_path: Path) -> None:
    topology = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list": f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)
    }
    write(tmp_path, topology)

    def count(*cpus: int) -> tuple[int, int]:
        host = detect_host(tmp_path, frozenset(cpus))
        return host.cores, host.threads

    assert count(*range(8)) == (4, 8)
    assert count(0, 4) == (1, 2)
    assert count(1, 2, 3) == (3, 3)
    write(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "350000 100000"})
    assert count(*range(8)) == (3, 3)
    assert count(0, 4) == (1, 2)
    write(tmp_path, {"sys/fs/cgroup/cpu.max": "20000 100000"})
    assert count(*range(8)) == (1, 1)


def test_the_clock_is_read_or_assumed(tmp_path: Path) -> None:
    assert detect_host(tmp_path, frozenset({0})).ghz is None
    write(tmp_path, {"proc/cpuinfo": "model name\t: X\ncpu MHz\t\t: 2500.5\n\nmodel name\t: Y"})
    assert detect_host(tmp_path, frozenset({0})).ghz == 2.5005
    assert detect_host(tmp_path, frozenset({0})).model == "X"
    write(tmp_path, {"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3600000"})
    assert detect_host(tmp_path, frozenset({0})).ghz == 3.6


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", []), ("0", [0]), ("0-2", [0, 1, 2]), ("0,2-3,9", [0, 2, 3, 9]), ("x", []), ("3-1", [])],
)
def test_lists_of_processors(text: str, cpus: list[int]) -> None:
    assert sorted(parse_cpu_list(text)) == cpus


# --- measuring ----------------------------------------------------------------------------------------------------


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    """Measuring is on, nothing was measured, and the store is empty."""
    monkeypatch.setenv("TILEWRIGHT_CALIBRATE", "1")
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(calibrate, "_measured", {})
    return Store(tmp_path / "store")


def pretend(monkeypatch: pytest.MonkeyPatch, figures: dict[str, float]) -> list[Target]:
    """Measuring finds these figures; the targets that are measured."""
    calls = []

    def measure(target: Target, host: object) -> dict[str, float]:
        calls.append(target)
        return figures

    monkeypatch.setattr("tilewright.target.measure.measure", measure)
    return calls


def test_what_is_measured_covers_all_but_the_starts() -> None:
    """And latencies, which manuals have; and is sound, however busy the machine: what is not settled is None."""
    target = native()
    found = measure(target, current_host())
    tabled = {name for name in target.figures() if name.endswith("_seconds") or name.split(".")[0].endswith("_ns")}
    assert set(found) == set(target.figures()) - tabled - {"rows_ahead", "unhidden"}
    figures = {name: value for name, value in found.items() if value is not None}
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    assert figures.get("fma_cycles", 1) > 0.2 and 0.4 < figures.get("ghz", 1) < 8
    assert figures.get("fma_latency", 2) > figures.get("fma_cycles", 1)
    assert figures.get("chain", 1) >= 1
    assert figures.get("memory_gbs", 1) > 0.5


def test_a_measurement_is_kept_in_the_process_and_in_the_store(
    measuring: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate = native()
    calls = pretend(monkeypatch, {**estimate.figures(), "gather_cycles": 9.87654, "memory_gbs": 23.456})
    first = measured(estimate, measuring)
    assert (first.core.gather_cycles, first.peaks.memory_gbs) == (9.9, 23.5)
    assert first.measured and first.origin("gather_cycles") == "measured"
    assert first.fingerprint() != estimate.fingerprint()
    assert measured(estimate, Store(None)) == first and len(calls) == 1, "kept in the process"
    calibrate._measured.clear()
    assert measured(estimate, measuring) == first and len(calls) == 1, "kept in the store"
    assert measured(first, measuring) == first
    assert measured(estimate, measuring, again=True) == first and len(calls) == 2


def test_what_is_not_settled_is_measured_again_a_few_times(measuring: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in each process; what was settled stays as it is, so that compiled code does."""
    monkeypatch.setattr(calibrate, "PAUSE_SECONDS", 0.0)
    calls = pretend(monkeypatch, {"ghz": 3.0, "gather_cycles": None, "divide_cycles": None})
    for _ in range(2):
        assert measured(native(), measuring).core.ghz == 3.0 and len(calls) == 1
    calibrate._measured.clear()
    calls = pretend(monkeypatch, {"ghz": 3.5, "gather_cycles": 9.5, "divide_cycles": None})
    found = measured(native(), measuring)
    assert (found.core.ghz, found.core.gather_cycles, len(calls)) == (3.0, 9.5, 1)
    assert found.core.divide_cycles == native().core.divide_cycles
    assert found.origin("divide_cycles") == f"estimate: {UNSETTLED}"
    for _ in range(calibrate.TRIES):
        calibrate._measured.clear()
        assert measured(native(), measuring) == found
    assert len(calls) == calibrate.TRIES - 1
    assert measured(native(), measuring, again=True).core.ghz == 3.5 and len(calls) == calibrate.TRIES


def test_processes_that_follow_each_other_take_the_same_figures(
    measuring: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they find what the first one compiled; a clock that was put back makes none of them wait."""
    calls = pretend(monkeypatch, {"ghz": 3.0, "gather_cycles": None})
    now = time.time()
    for seconds, count in ((0, 1), (1, 1), (3599, 1), (3601, 2), (7000, 2), (3000, 3), (99_000, 3)):
        monkeypatch.setattr(calibrate.time, "time", lambda seconds=seconds: now + seconds)
        calibrate._measured.clear()
        assert measured(native(), measuring).core.gather_cycles == native().core.gather_cycles
        assert len(calls) == count


def test_what_is_never_settled_is_kept_as_an_estimate_until_it_is_asked_for(
    measuring: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says so, and so does what people are shown."""
    monkeypatch.setattr(calibrate, "PAUSE_SECONDS", 0.0)
    calls = pretend(monkeypatch, {"ghz": 3.0, "gather_cycles": None, "divide_cycles": None})
    origins = []
    for _ in range(calibrate.TRIES + 3):
        calibrate._measured.clear()
        found = measured(native(), measuring)
        assert found.unsettled == ("divide_cycles", "gather_cycles")
        origins.append(found.origin("gather_cycles"))
    tried = [f"estimate: {UNSETTLED}"] * (calibrate.TRIES - 1)
    assert origins == tried + [f"estimate: {KEPT}"] * 4 and len(calls) == calibrate.TRIES
    record = unpack(measuring.get(calibrate._key(calibrate.MACHINE, native(), current_host())))[0]
    assert record["estimated"] == ["gather_cycles", "divide_cycles"] and record["tries"] == calibrate.TRIES
    assert "2 figures are estimates, since the machine was busy: `tilewright doctor --again`" in describe(found)

    pretend(monkeypatch, {"ghz": None, "gather_cycles": 9.5, "divide_cycles": None})
    for clear in (False, True):
        if clear:
            calibrate._measured.clear()
        again = measured(native(), measuring, again=not clear)
        assert again.core.gather_cycles == 9.5 and again.core.ghz == 3.0, "what is not settled now stays as it was"
        assert again.unsettled == ("divide_cycles",)
    assert "1 figure is an estimate, since" in describe(again)
    pretend(monkeypatch, {"ghz": 3.0, "gather_cycles": 9.5, "divide_cycles": 9.5})
    quiet = measured(native(), measuring, again=True)
    assert not quiet.unsettled and "since the machine was busy" not in describe(quiet)


def test_nothing_is_measured_where_it_is_switched_off(measuring: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pretend(monkeypatch, {"ghz": 3.0})
    monkeypatch.setenv("TILEWRIGHT_CALIBRATE", "0")
    assert measured(native(), measuring) is native() and not calls
    assert measuring.entries() == ()


def test_models_and_foreign_machines_are_not_measured(measuring: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pretend(monkeypatch, {"ghz": 3.0})
    foreign = "native +amx-fp16 +avx512vp2intersect +avx10.2" if current_host().architecture == "x86_64" else "x86-64"
    for target in (Target.parse("x86-64"), Target.parse("aarch64"), Target.parse(foreign)):
        assert measured(target, measuring) is target
    assert not calls
    restricted = Target.parse("native -aes")
    assert measured(restricted, measuring).measured and calls == [restricted]


def test_rates_put_in_by_hand_are_kept(measuring: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pretend(monkeypatch, {"ghz": 3.0})
    mine = native().with_core(gather_cycles=123.0)
    assert measured(mine, measuring) is mine and not calls


def test_where_memory_is_short_nothing_is_measured(measuring: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def starve(*_: object) -> dict[str, float]:
        raise MemoryError

    monkeypatch.setattr("tilewright.target.measure.measure", starve)
    assert measured(native(), measuring) == native() and not measured(native(), measuring).measured
    assert measuring.entries() == ()


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense",
        pack({"ghz": 3.0}, {}),
        pack({"figures": 3, "tries": 1}, {}),
        *(pack({"figures": {"ghz": value}, "tries": 1}, {}) for value in ("3", 10**400, [3.0])),
        pack({"figures": {"ghz": 3.0}, "tries": "often"}, {}),
    ],
    ids=range(7),
)
def test_a_kept_measurement_that_makes_no_sense_is_measured_again(
    measuring: Store, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    key = calibrate._key(calibrate.MACHINE, native(), current_host())
    measuring.put(key, content)
    calls = pretend(monkeypatch, {"ghz": 3.25})
    assert measured(native(), measuring).core.ghz == 3.25 and len(calls) == 1
    measuring.put(key, pack({"figures": {"ghz": 3.5}, "tries": 1}, {}))
    calibrate._measured.clear()
    assert measured(native(), measuring).core.ghz == 3.5, "what makes sense is taken"


def test_what_is_kept_is_read_without_llvm(measuring: Store, tmp_path: Path) -> None:
    measuring.put(
        calibrate._key(calibrate.MACHINE, native(), current_host()),
        pack({"figures": {"gather_cycles": native().core.gather_cycles + 1}, "tries": 1}, {}),
    )
    program = "import sys; from tilewright.target import measured, native; machine = measured(native())\n"
    program += "assert machine.measured and 'llvmlite' not in sys.modules, machine.origins"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


V4 = dataclasses.replace(Target.parse("x86-64-v4 +avx512bf16"), family="Intel Skylake-X")
BF16 = "dots.x86.avx512bf16.dot_bf16"


@pytest.mark.parametrize(
    ("changes", "unbelieved"),
    [
        ({}, {}),
        ({"gather_cycles": 60.0}, {}),
        ({"fma_cycles": 5.0}, {"fma_cycles": "measured 5, but no processor is outside of 0.24 to 4"}),
        ({"add_cycles": 1.6}, {"add_cycles": "measured 1.6, but the estimate is 0.5"}),
        ({"add_cycles": 0.0}, {"add_cycles": "measured 0, but the estimate is 0.5"}),
        ({"add_cycles": 0.1}, {}),
        ({"add_cycles": 0.04}, {"add_cycles": "measured 0.04, but the estimate is 0.5"}),
        ({"memory_gbs": 70.0, "memory_gbs_all": 70.0, "cache_gbs.3": 70.0, "store_gbs.3": 70.0}, {}),
        ({"cache_gbs.3": 15.0, "memory_gbs": 5.0}, {}),
        ({"cache_gbs.3": 5.0, "memory_gbs": 5.0}, {"cache_gbs.3": "measured 5, but the estimate is 42"}),
        ({BF16: 4.0}, {}),
        ({BF16: 0.3}, {BF16: "measured 0.3, but a multiply-add of 512 bits takes 0.5"}),
        ({"cache_gbs.2": 300.0}, {"cache_gbs.1": "measured 200, but cache_gbs.2 is 300"}),
        ({"cache_gbs.1": 200.0, "cache_gbs.2": 210.0}, {}),
        ({"memory_gbs_all": 20.0, "memory_gbs": 30.0}, {"memory_gbs_all": "measured 20, but one core reads 30"}),
        ({"memory_tile_gbs": 5.0, "memory_asked_gbs": 9.0}, {}),
        ({"last_share": 0.3}, {}),
        ({"last_share": 0.01}, {"last_share": "measured 0.01, but the estimate is 1"}),
        ({"last_share": 1.5}, {"last_share": "measured 1.5, but no processor is outside of 0 to 1"}),
        ({"memory_tile_gbs": 1.0}, {"memory_tile_gbs": "measured 1, but the estimate is 16"}),
        ({"memory_gbs": 1.0}, {"memory_gbs": "measured 1, but the estimate is 16"}),
        ({"subnormal_cycles": 500.0}, {}),
        (
            {"subnormal_cycles": 5000.0},
            {"subnormal_cycles": "measured 5000, but no processor is outside of 0 to 1000"},
        ),
        ({"chain": 0.8}, {"chain": "measured 0.8, but no processor is outside of 1 to 4"}),
    ],
)
def test_a_figure_that_is_not_plausible_keeps_its_estimate(
    changes: dict[str, float], unbelieved: dict[str, str]
) -> None:
    figures = {**V4.figures(), "cache_gbs.1": 200.0, **changes}
    target = put_into(V4, figures)
    for name, value in figures.items():
        expected = V4.figures()[name] if name in unbelieved else value
        assert target.figures()[name] == pytest.approx(expected, rel=0.05), name
        assert target.origin(name) == (f"estimate: {unbelieved[name]}" if name in unbelieved else "measured")


def test_a_generic_row_may_be_further_from_what_is_measured() -> None:
    figures = {**V4.figures(), "add_cycles": 2.5}
    assert put_into(V4, figures).core.add_cycles == 0.5
    assert put_into(dataclasses.replace(V4, family="generic x86-64-v4"), figures).core.add_cycles == 2.5


def test_cycles_are_not_believed_without_their_clock() -> None:
    target = put_into(V4, {**V4.figures(), "ghz": 0.1, "gather_cycles": 9.0})
    assert target.core == V4.core and target.peaks == V4.peaks
    assert target.origin("ghz") == "estimate: measured 0.1, but no processor is outside of 0.4 to 8"
    assert target.origin("gather_cycles").startswith("estimate: measured 9, but its clock is not believed")
    assert target.origin("memory_gbs") == "measured"
    assert "measured 0.1, but no processor" in describe(target)


def test_a_figure_that_is_missing_keeps_its_estimate() -> None:
    target = put_into(V4, {"ghz": 2.5, "unheard_of": 1.0})
    assert target == V4.with_core(ghz=2.5) and target.origin("fma_cycles") == "estimate"


# --- rates put in by a file -----------------------------------------------------------------------------------------


def test_a_file_of_rates_is_put_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "machine.json"
    monkeypatch.setenv("TILEWRIGHT_MACHINE", str(file))
    rates = {"core": {"dots": {BF16.removeprefix("dots."): 2.0, "of.another.machine": 1.0}}, "peaks": {"memory_gbs": 7}}
    for text in (json.dumps(rates), json.dumps({"version": "1", "machine": rates})):
        file.write_text(text)
        found = measured(V4)
        assert found == V4.with_core(dots={"x86.avx512bf16.dot_bf16": 2.0}).with_peaks(memory_gbs=7.0) != V4
        assert found.origin(BF16) == found.origin("memory_gbs") == "given"
    file.write_text(json.dumps(V4.rates))
    assert measured(V4) == V4


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "it cannot be read: No such file or directory"),
        ("{", "it is no JSON: "),
        ("[]", "it holds no object of `core` and `peaks`"),
        ('{"core": 1}', "it holds no object of `core` and `peaks`"),
        ('{"cores": {}}', "rates are of `core` and of `peaks`, not of 'cores'"),
        ('{"core": {"speed": 1}}', "speed"),
        ('{"core": {"ghz": -1}}', "ghz is above 0, not -1"),
        ('{"core": {"dots": 1}}', "'int' object is not iterable"),
        ('{"peaks": {"cache_gbs": [1]}}', "cache_gbs, store_gbs and cache_ns have a number for each of 3 caches"),
    ],
)
def test_a_file_that_holds_no_rates_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, why: str
) -> None:
    file = tmp_path / "machine.json"
    monkeypatch.setenv("TILEWRIGHT_MACHINE", str(file))
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError) as error:
        measured(V4)
    assert why in str(error.value) and str(file) in str(error.value) and "fix:  " in str(error.value)


# --- the machine's numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", target_names())
def test_a_target_survives_the_way_through_json(name: str) -> None:
    target = Target.parse(name).with_core(gather_cycles=11.5, dots={"x86.fma.fma_f32": 3})
    back = Target.from_record(json.loads(json.dumps(target.record())))
    assert back == target and hash(back) == hash(target) and back.origins == target.origins
    assert back.fingerprint() == target.fingerprint()
    assert pickle.loads(pickle.dumps(target)) == target


def test_the_peak_follows_from_the_core() -> None:
    v4 = Target.parse("x86-64-v4")
    assert v4.fma_gflops == 2 * 16 * v4.core.ghz / v4.core.fma_cycles == 2 * v4.fma_gflops_f64
    assert v4.with_core(fma_cycles=1, ghz=2).fma_gflops == 64


def test_rates_are_put_in_by_hand() -> None:
    v4 = Target.parse("x86-64-v4 +avx512bf16")
    slow = v4.with_core(dots={"x86.avx512bf16.dot_bf16": 2.0}).with_peaks(cache_gbs=[9, 8, 7])
    assert slow.core.dots["x86.avx512bf16.dot_bf16"] == 2.0
    assert slow.core.dots["x86.avx512f.fma_f32"] == v4.core.dots["x86.avx512f.fma_f32"]
    assert slow.peaks.cache_gbs == (9.0, 8.0, 7.0)
    assert slow.origin("dots.x86.avx512bf16.dot_bf16") == slow.origin("cache_gbs.3") == "given"
    assert slow.origin("dots.x86.avx512f.fma_f32") == slow.origin("fma_cycles") == "estimate"
    assert slow != v4 and slow.with_core(dots=v4.core.dots).with_peaks(cache_gbs=v4.peaks.cache_gbs) == v4
    assert set(slow.figures()) == set(v4.figures()) and slow.figures()["cache_gbs.2"] == 8.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"speed": 1.0}, TypeError, "speed"),
        ({"ghz": 0.0}, ValueError, "ghz is above 0, not 0.0"),
        ({"fma_cycles": -1.0}, ValueError, "fma_cycles is above 0, not -1.0"),
        ({"gather_cycles": math.inf}, ValueError, "gather_cycles is a finite number, not inf"),
        ({"gather_cycles": "1"}, ValueError, "gather_cycles is a finite number, not '1'"),
        ({"chain": True}, ValueError, "chain is a finite number, not True"),
        ({"subnormal_cycles": -0.5}, ValueError, "subnormal_cycles is at least 0, not -0.5"),
        ({"dots": {"x": 0}}, ValueError, r"dots\['x'\] is above 0, not 0"),
    ],
)
def test_rates_that_make_no_sense_are_refused(change: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Target.parse("x86-64-v3").with_core(**change)


def test_caches_and_their_rates_go_together() -> None:
    with pytest.raises(ValueError, match="for each of 3 caches"):
        Target.parse("x86-64-v3").with_peaks(cache_gbs=[1.0])
    assert Target.parse("x86-64-v3").with_core(subnormal_cycles=0).core.subnormal_cycles == 0


MIB = 1 << 20


def passes(kept: float) -> list[tuple[int, float]]:
    """Sets of a cache of 32 MiB that keeps so many bytes, at 40 GB/s and memory at 10: those of half as many are kept
    whole, larger ones in part."""
    found = [(size, min(max(2 * (1 - size / kept), 0.0), 1.0)) for size in (MIB, *range(4 * MIB, 33 * MIB, 4 * MIB))]
    return [(size, size * (part / 40 + (1 - part) / 10) * 1e-9) for size, part in found]


@pytest.mark.parametrize(
    ("rows", "far", "share"),
    [
        (passes(16 * MIB), 10.0, 0.375),  # half of a set of 12 MiB
        (passes(2 * MIB), 10.0, 2.5 / 32),  # between the sets of 1 and 4 MiB
        (passes(64 * MIB), 10.0, 1.0),
        (passes(64 * MIB), 50.0, None),  # nothing is faster than memory
        (passes(64 * MIB), None, None),
        ([*passes(16 * MIB)[:-1], (32 * MIB, None)], None, 0.375),  # the slowest set comes from memory
        ([(MIB, 1e-4), (4 * MIB, None)], 10.0, None),
    ],
    ids=["half", "little", "all", "slow", "no memory", "slowest", "unsettled"],
)
def test_the_share_of_a_cache_is_where_half_of_a_set_is_found_again(
    rows: list[tuple[int, float | None]], far: float | None, share: float | None
) -> None:
    assert share_kept(rows, 32 * MIB, far) == (share if share is None else pytest.approx(share, rel=0.05))


def test_what_others_use_of_the_last_cache_keeps_nothing() -> None:
    v3 = Target.parse("x86-64-v3")
    last = v3.caches[-1]
    assert v3.kept_caches == v3.caches
    less = v3.with_peaks(last_share=0.4)
    ways = round(0.4 * last.ways)
    assert less.kept_caches == (
        *v3.caches[:-1],
        dataclasses.replace(last, bytes=last.sets * ways * last.line, ways=ways),
    )
    assert less.caches == v3.caches
    size = last.bytes // 2
    assert fits(size, v3, own=False) == 3 and fits(size, less, own=False) == memory(less)
    assert v3.with_peaks(last_share=0.001).kept_caches[-1].ways == 1


@pytest.mark.parametrize("name", target_names())
def test_every_instruction_that_runs_has_a_rate(name: str) -> None:
    target = Target.parse(name)
    assert set(target.core.dots) == {
        row.name for row in INSTRUCTIONS.values() if row.adds_products and row.runs_on(target)
    }


AMX = LEVELS["x86-64-v4"] | {"amx-tile", "amx-bf16", "avx512bf16", "avx512vnni"}


@pytest.mark.parametrize(
    ("cpuinfo", "features", "family", "fma_cycles", "bf16"),
    [
        (("AuthenticAMD", 23, 49), LEVELS["x86-64-v3"], "AMD Zen 2", 0.5, None),
        (("AuthenticAMD", 25, 33), LEVELS["x86-64-v3"], "AMD Zen 3", 0.5, None),
        (("AuthenticAMD", 25, 17), LEVELS["x86-64-v4"] | {"avx512bf16"}, "AMD Zen 4", 1.0, 1.0),
        (("AuthenticAMD", 25, 17), LEVELS["x86-64-v3"], "AMD Zen 4", 0.5, None),
        (("AuthenticAMD", 26, 2), LEVELS["x86-64-v4"] | {"avx512bf16"}, "AMD Zen 5", 0.5, 0.5),
        (("AuthenticAMD", 26, 36), LEVELS["x86-64-v4"], "AMD Zen 5 client", 1.0, None),
        (("GenuineIntel", 6, 85), LEVELS["x86-64-v4"], "Intel Skylake-X", 0.5, None),
        (("GenuineIntel", 6, 106), LEVELS["x86-64-v4"], "Intel Ice Lake", 0.5, None),
        (("GenuineIntel", 6, 167), LEVELS["x86-64-v4"], "Intel Ice Lake client", 1.0, None),
        (("GenuineIntel", 6, 167), AMX, "Intel Sapphire Rapids", 0.5, 2.0),
        (("GenuineIntel", 6, 143), AMX, "Intel Sapphire Rapids", 0.5, 2.0),
        (("GenuineIntel", 6, 154), LEVELS["x86-64-v3"], "Intel Alder Lake", 0.5, None),
        (("GenuineIntel", 6, 154), LEVELS["x86-64-v4"], "generic x86-64-v4", 0.5, None),
        (("GenuineIntel", 6, 9999), LEVELS["x86-64-v3"], "generic x86-64-v3", 0.5, None),
        (("Whoever", 6, 85), LEVELS["x86-64-v4"], "generic x86-64-v4", 0.5, None),
        (("AuthenticAMD", 26, 2), LEVELS["x86-64-v2"], "AMD Zen 5", 1.0, None),
    ],
)
def test_estimates_follow_from_vendor_family_model_and_features(
    tmp_path: Path,
    cpuinfo: tuple[str, int, int],
    features: frozenset[str],
    family: str,
    fma_cycles: float,
    bf16: float | None,
) -> None:
    vendor, number, model = cpuinfo
    text = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {number}\nmodel\t\t: {model}\ncpu MHz\t\t: 2000.0"
    host = detect_host(write(tmp_path, {"proc/cpuinfo": text}), frozenset({0}))
    assert host.processor == cpuinfo
    target = describe_host(dataclasses.replace(host, triple="x86_64-unknown-linux-gnu", features=features))
    assert (target.family, target.core.fma_cycles) == (family, fma_cycles)
    assert target.core.dots.get("x86.avx512bf16.dot_bf16") == bf16
    assert target.core.ghz >= 2.8 and not target.measured


@pytest.mark.parametrize(
    ("implementer", "part", "family"),
    [
        ("0x41", "0xd0c", "Arm Neoverse N1"),
        ("0x41", "0xd40", "Arm Neoverse V1"),
        ("0x41", "0xd4f", "Arm Neoverse V2"),
        ("0x61", "0x022", "Apple M"),
        ("0x41", "0xd08", "generic aarch64"),
        ("0xff", "?", "generic aarch64"),
    ],
)
def test_estimates_of_arm_processors(tmp_path: Path, implementer: str, part: str, family: str) -> None:
    text = f"processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: {implementer}\nCPU part\t: {part}"
    host = detect_host(write(tmp_path, {"proc/cpuinfo": text}), frozenset({0}))
    features = close("aarch64", {"neon", "dotprod"})
    target = describe_host(dataclasses.replace(host, triple="aarch64-unknown-linux-gnu", features=features))
    assert target.family == family
    assert target.core.dots["aarch64.dotprod.dot_i8"] == target.core.fma_cycles


def test_rows_of_families_are_sound() -> None:
    """Every row makes a core at its width and at the narrower ones, and says where it comes from."""
    for row in FAMILIES:
        assert row.source and row.name == BY_NAME[row.name].name
        arm = row.bits == 128 and row.name != "generic x86-64"
        for bits in (b for b in (128, 256, 512) if b <= row.bits):
            levels = {128: "x86-64-v2", 256: "x86-64-v3", 512: "x86-64-v4"}
            features = close("aarch64", {"neon", "bf16"}) if arm else LEVELS[levels[bits]]
            features = close("riscv64", {"v"}) if "riscv64" in row.name else features
            core = estimate_core(row.name, features, bits)
            assert 0.25 <= core.fma_cycles <= 2 and core.fma_latency >= 3 and 1 <= core.chain < 2
            assert core.gather_cycles <= BY_NAME[row.name].gather
            peaks = estimate_peaks(row.name, core, bits, 3, 4)
            assert sorted(peaks.cache_gbs, reverse=True) == list(peaks.cache_gbs)
            assert peaks.memory_gbs <= peaks.memory_gbs_all
    assert len(BY_NAME) == len(FAMILIES)


# --- the table ----------------------------------------------------------------------------------------------------


@on_x86
def test_the_table() -> None:
    assert (
        describe(Target.parse("aarch64 +dotprod").with_core(gather_cycles=7))
        == """\
target     aarch64 +dotprod
triple     aarch64-unknown-linux-gnu
processor  generic, scheduled as generic
family     generic aarch64: estimates from Neoverse N1's core, with usual memory
vectors    32 registers of 128 bits
has        fma, f16 conversion, i8 dot
cores      4 (4 hardware threads)
peak       48 GFLOP/s f32, 24 f64 a core
L1         64 KiB, 4 ways of 64-byte lines, shared by 1: 81.6 GB/s a core
L2         512 KiB, 8 ways of 64-byte lines, shared by 1: 72 GB/s a core
L3         8192 KiB, 16 ways of 64-byte lines, shared by 4: 30 GB/s a core
memory     16 GB/s a core, 32 GB/s all cores

figure                       value  unit    origin
ghz                              3  GHz     estimate
fma_cycles                     0.5  cycles  estimate
fma_latency                      4  cycles  estimate
add_cycles                     0.5  cycles  estimate
add_beside_cycles              0.5  cycles  estimate
load_cycles                    0.5  cycles  estimate
store_cycles                     1  cycles  estimate
broadcast_cycles               0.5  cycles  estimate
shuffle_cycles                 0.5  cycles  estimate
shuffle2_cycles                  1  cycles  estimate
gather_cycles                    7  cycles  given
divide_cycles                    5  cycles  estimate
sqrt_cycles                      5  cycles  estimate
chain                          1.6  ×       estimate
rows_ahead                       2  rows    estimate
unhidden                       0.2  ×       estimate
subnormal_cycles                 0  cycles  estimate
fork_seconds                     1  µs      estimate
wake_seconds                    50  µs      estimate
call_seconds                     3  µs      estimate
kernel_seconds                 0.6  µs      estimate
dots.aarch64.dotprod.dot_i8    0.5  cycles  estimate
dots.aarch64.dotprod.dot_u8    0.5  cycles  estimate
dots.aarch64.neon.fma_f32      0.5  cycles  estimate
dots.aarch64.neon.fma_f64      0.5  cycles  estimate
cache_gbs.1                   81.6  GB/s    estimate
cache_gbs.2                     72  GB/s    estimate
cache_gbs.3                     30  GB/s    estimate
store_gbs.1                   40.8  GB/s    estimate
store_gbs.2                   40.8  GB/s    estimate
store_gbs.3                     24  GB/s    estimate
memory_gbs                      16  GB/s    estimate
memory_store_gbs                 8  GB/s    estimate
memory_gbs_all                  32  GB/s    estimate
memory_tile_gbs                 16  GB/s    estimate
memory_asked_gbs                16  GB/s    estimate
last_share                       1  share   estimate
cache_ns.1                    1.67  ns      estimate
cache_ns.2                    3.67  ns      estimate
cache_ns.3                      20  ns      estimate
memory_ns                      100  ns      estimate"""
    )


@pytest.mark.skipif(current_host().architecture != "x86_64", reason="levels are of x86-64")
def test_a_machine_is_taken_for_one_of_a_lower_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_LEVEL", "x86-64-v2")
    host = current_host.__wrapped__()
    assert host.features == current_host().features & LEVELS["x86-64-v2"]
    assert host.caches == current_host().caches
    target = describe_host(host)
    assert (target.vector_bits, target.has_fma) == (128, False)


def test_a_level_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_LEVEL", "x86-64-v5")
    with pytest.raises(UserError, match="one of x86-64, x86-64-v2, x86-64-v3, x86-64-v4"):
        current_host.__wrapped__()
