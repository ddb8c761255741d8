"""Targets: what their text means, what detection reads from the system, what calibration measures and keeps."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import pickle
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.expr import dtypes
from tilewright.store import Json, Store, pack
from tilewright.target import Cache, Target, calibrate, calibrated, native, target_names
from tilewright.target.families import BY_NAME, FAMILIES, estimate_core, estimate_peaks
from tilewright.target.features import LEVELS, choose_cpu, close, known_features, remove
from tilewright.target.host import current_host, detect_host, parse_cpu_list, read_caches, read_quota
from tilewright.target.instructions import INSTRUCTIONS
from tilewright.target.probes import READ_STEP, count_chains, print_probes
from tilewright.target.show import describe
from tilewright.target.target import describe_host

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
    for architecture in ("x86_64", "aarch64"):
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


@pytest.mark.parametrize("text", [*NAMES, "x86-64-v4 +avx512vnni +avx512bf16", "aarch64 +sve2 +dotprod"])
def test_llvm_knows_every_feature_and_compiles_for_every_model(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    target = Target.parse(text)
    assembly = target.create_machine().emit_assembly(llvm.parse_assembly(print_probes(target)))
    assert "peak_f32" in assembly
    assert target.data_layout.startswith("e-m:")
    assert "not a recognized" not in capfd.readouterr().err


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_llvm_knows_every_feature_of_the_table(architecture: str, capfd: pytest.CaptureFixture[str]) -> None:
    target = Target.parse({"x86_64": "x86-64", "aarch64": "aarch64"}[architecture])
    for feature in known_features(architecture):
        dataclasses.replace(target, features=frozenset({feature})).create_machine()
    assert "not a recognized" not in capfd.readouterr().err


@pytest.mark.parametrize(("text", "register"), [("x86-64-v3", "ymm"), ("x86-64-v4", "zmm"), ("aarch64", "v")])
def test_the_peak_probe_is_nothing_but_multiply_adds_in_full_registers(text: str, register: str) -> None:
    target = Target.parse(text)
    assembly = target.create_machine().emit_assembly(llvm.parse_assembly(print_probes(target)))
    peak = assembly[assembly.index("peak_f32:") : assembly.index("peak_f64:")]
    lines = peak.splitlines()
    places = [at for at, line in enumerate(lines) if line.strip().startswith(("vfmadd231ps", "fmla"))]
    assert len(places) == count_chains(target)
    assert places[-1] - places[0] < len(places) + 3, "more than the loop's own counting stands between them"
    for line in lines[places[0] : places[-1] + 1]:
        assert ", [" not in line and "(" not in line, "a multiply-add or its neighbour touches memory"
    assert all(register in lines[at] for at in places)


def test_the_read_probe_reads_every_byte() -> None:
    target = native()
    module = llvm.parse_assembly(print_probes(target))
    engine = llvm.create_mcjit_compiler(module, target.create_machine(jit=True))
    engine.finalize_object()
    read = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        engine.get_function_address("read")
    )
    raw = np.random.default_rng(0).integers(0, 1 << 40, 5 * READ_STEP // 8, np.int64)
    skip = -raw.ctypes.data % 64 // 8
    words = raw[skip : skip + 3 * READ_STEP // 8]
    first_lane = words[:: target.vector_bits // 64]
    assert read(words.ctypes.data, words.nbytes, 1) == first_lane.sum()
    assert read(words.ctypes.data, words.nbytes, 7) == 7 * first_lane.sum()


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
    target = native()
    assert target.features == close(target.architecture, present & {*known_features(target.architecture)})
    assert target.triple == current_host().triple == llvm.get_process_triple()
    assert target.is_runnable_on(current_host())
    assert target.cores >= 1
    assert target.threads >= target.cores
    assert not target.measured
    assert Target.parse("native") is target


def test_a_processor_name_is_asked_for_when_code_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is LLVM's guess, which may be wrong: it is for instruction timings only, and part of no key."""
    target, before = native(), native().fingerprint()
    assert target.tune == llvm.get_host_cpu_name() and f'"tune-cpu"="{target.tune}"' in target.attributes
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "sapphirerapids")
    assert target.tune == "sapphirerapids" and target.fingerprint() == before
    assert dataclasses.replace(target, model="of another machine").tune == target.cpu
    assert Target.parse("x86-64-v3 +avxvnni").tune == "x86-64-v3"


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


# --- calibration --------------------------------------------------------------------------------------------------


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_measured", {})


def numbers(ghz: Json = 3.0, **changes: Json) -> dict[str, Json]:
    """A kept measurement of three caches, with `changes`."""
    rows: dict[str, Json] = {"cache_gbs": [3.0, 2.0, 1.0], "store_gbs": [3.0, 2.0, 1.0]}
    return {"ghz": ghz, "peaks": {**rows, "memory_gbs": 1.0, "memory_store_gbs": 1.0, "memory_gbs_all": 1.0, **changes}}


def forbid(*_: object) -> calibrate.Measurement:
    raise AssertionError("measured again")


@pytest.fixture(scope="module")
def measured() -> calibrate.Measurement:
    return calibrate.measure(native(), current_host())


def test_a_measurement_is_plausible(measured: calibrate.Measurement) -> None:
    peaks = measured.peaks
    assert len(peaks.cache_gbs) == len(native().caches)
    assert 0.5 < measured.ghz < 10
    assert peaks.cache_gbs[0] > peaks.memory_gbs
    assert peaks.memory_gbs_all >= peaks.memory_gbs > 0.5


@pytest.mark.usefixtures("unmeasured")
def test_calibration_is_kept_in_the_process_and_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: calibrate.Measurement
) -> None:
    store = Store(tmp_path / "store")
    monkeypatch.setattr(calibrate, "measure", lambda target, host: measured)
    first = calibrated(native(), store)
    assert first == measured.put_into(native()) != native()
    assert first.measured and first.origin("memory_gbs") == "measured"
    monkeypatch.setattr(calibrate, "measure", forbid)
    assert calibrated(native(), Store(None)) == first, "kept in the process"
    calibrate._measured.clear()
    assert calibrated(native(), store) == first, "kept in the store"
    assert calibrated(first, store) == first


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    "content",
    [
        b"nonsense",
        pack({}, {}),
        pack(numbers(cache_gbs=[1.0]), {}),
        pack(numbers(ghz=0.0), {}),
        pack(numbers(ghz="1.0"), {}),
        pack(numbers(memory_gbs=10**400), {}),
        pack(numbers(memory_gbs=[1.0]), {}),
        pack(numbers(more=1.0), {}),
    ],
    ids=range(8),
)
def test_a_kept_measurement_that_makes_no_sense_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: calibrate.Measurement, content: bytes
) -> None:
    target = dataclasses.replace(native(), caches=(Cache(1, 32768, 8, 64, 1),) * 3)
    assert calibrate._decode(pack(numbers(), {}), 3) is not None, "the numbers that each case spoils are sound"
    store = Store(tmp_path / "store")
    store.put(calibrate._key(target, current_host()), content)
    monkeypatch.setattr(calibrate, "measure", lambda target, host: measured)
    assert calibrated(target, store).peaks == measured.peaks


@pytest.mark.usefixtures("unmeasured")
def test_what_cannot_be_measured_keeps_its_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    monkeypatch.setattr(calibrate, "measure", forbid)
    foreign = Target.parse("aarch64" if current_host().architecture == "x86_64" else "x86-64")
    assert calibrated(foreign, store) is foreign
    amx = Target.parse("x86-64-v4 +amx-fp16 +avx512vp2intersect")
    if not amx.is_runnable_on(current_host()):
        assert calibrated(amx, store) is amx

    def starve(*_: object) -> calibrate.Measurement:
        raise MemoryError

    monkeypatch.setattr(calibrate, "measure", starve)
    assert calibrated(native(), store) == native()
    assert store.entries() == ()


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


@pytest.mark.parametrize("name", target_names())
def test_every_instruction_that_runs_has_a_rate(name: str) -> None:
    target = Target.parse(name)
    assert set(target.core.dots) == {row.name for row in INSTRUCTIONS.values() if row.runs_on(target)}


AMX = LEVELS["x86-64-v4"] | {"amx-tile", "amx-bf16", "avx512bf16", "avx512vnni"}


@pytest.mark.parametrize(
    ("cpuinfo", "features", "family", "fma_cycles", "bf16"),
    [
        (("AuthenticAMD", 23, 49), LEVELS["x86-64-v3"], "AMD Zen 2", 0.5, None),
        (("AuthenticAMD", 25, 33), LEVELS["x86-64-v3"], "AMD Zen 3", 0.5, None),
        (("AuthenticAMD", 25, 17), LEVELS["x86-64-v4"] | {"avx512bf16"}, "AMD Zen 4", 1.0, 1.0),
        (("AuthenticAMD", 25, 17), LEVELS["x86-64-v3"], "AMD Zen 4", 0.5, None),
        (("AuthenticAMD", 26, 2), LEVELS["x86-64-v4"] | {"avx512bf16"}, "AMD Zen 5", 0.5, 1.0),
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
        describe(Target.parse("aarch64 +dotprod"))
        == """\
target     aarch64 +dotprod
triple     aarch64-unknown-linux-gnu
processor  generic, scheduled as generic
vectors    32 registers of 128 bits
has        fma, f16 conversion, i8 dot
cores      4 (4 hardware threads)
peak       48 GFLOP/s f32, 24 f64 a core (estimated)
L1         64 KiB, 4 ways of 64-byte lines, shared by 1: 72 GB/s a core
L2         512 KiB, 8 ways of 64-byte lines, shared by 1: 72 GB/s a core
L3         8192 KiB, 16 ways of 64-byte lines, shared by 4: 30 GB/s a core
memory     16 GB/s a core, 32 GB/s all cores"""
    )
