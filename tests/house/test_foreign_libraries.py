"""Libraries for other processors: what is in the file, and what programs get from it under an emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from drawn import LONG
from foreign import CLASSIFY, MACHINES, Machine, needs, riscv, sve
from libraries import LOAD, Elf, digits, linux
from tilewright.target.features import known_features
from tilewright.target.hwcap import bits_of

pytestmark = linux

ARM = {name: Machine("aarch64", name) for name in ("cortex-a53", "max")}
ELF = {"aarch64": (183, {1025, 1027}, 65536, 0), "riscv64": (243, {2, 3}, 4096, 5)}
"""ELF's number of a machine, the relocations of its libraries, its largest page, and the flags of its header."""


@pytest.mark.parametrize("target", sorted(ELF))
def test_a_library_has_its_relocations_and_flags(target: str, tmp_path: Path) -> None:
    machine, relocations, page, flags = ELF[target]
    digits(target=target).save_library(tmp_path / "made.so", name="digits")
    made = Elf(tmp_path / "made.so")
    assert made.machine == machine and {kind for kind, _ in made.relocated()} == relocations
    assert int.from_bytes(made.data[48:52], "little") == flags
    assert all((s.offset - s.address) % page == 0 for s in made.loads() if s.kind == LOAD)


TARGETS = [t for t in MACHINES if LONG or t != "riscv64 +zvl512b"]
"""RISC-V's vectors of two lengths, and of three in long runs: code for them differs in the numbers of lanes."""


@pytest.mark.parametrize(
    ("target", "ending"),
    [(t, e) for t in TARGETS for e in (("so", "o", "a") if t in ("aarch64", "riscv64 +v") else ("so",))],
)
def test_a_library_runs_in_an_emulator(target: str, ending: str, tmp_path: Path) -> None:
    machine = MACHINES[target]
    needs(machine)
    library = tmp_path / f"libdigits.{ending}"
    digits(target=target).save_library(library, header=tmp_path / "digits.h", name="digits")
    program = machine.build(CLASSIFY, tmp_path, library)
    exe, x = digits(), np.random.default_rng(0).random((18, 1, 8, 8), np.float32)
    for threads in ("1", "2"):
        ran = machine.run(program, "18", threads, given=x.tobytes())
        assert ran.returncode == 0, ran.stderr
        np.testing.assert_allclose(np.frombuffer(ran.stdout, np.float32).reshape(18, 10), exe(x)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("plain", "strange", "lesser", "able"),
    [
        ("aarch64", "aarch64 +dotprod +lse +fullfp16", ARM["cortex-a53"], ARM["max"]),
        ("riscv64", "riscv64 +v", MACHINES["riscv64"], riscv(128)),
        ("riscv64 +v", "riscv64 +zvl256b", riscv(128), riscv(256)),
        ("aarch64", "aarch64 +sve256", ARM["cortex-a53"], sve(256)),
        ("aarch64", "aarch64 +sve256", sve(512), sve(256)),
        ("aarch64 +sve", "aarch64 +sve512", sve(256), sve(512)),
    ],
)
def test_a_processor_is_asked_for_its_features(
    plain: str, strange: str, lesser: Machine, able: Machine, tmp_path: Path
) -> None:
    """A Cortex-A53 has no dot products of bytes, and a RISC-V processor may have no vectors, or shorter ones."""
    needs(able)
    first, second = digits(target=plain), digits(target=strange)
    results = {}
    for name, programs in (("one", [second]), ("both", [first, second])):
        tw.save_library(tmp_path / f"{name}.a", *programs, header=tmp_path / "digits.h", name="digits")
        program = able.build(CLASSIFY, tmp_path, tmp_path / f"{name}.a")
        results |= {(name, m.cpu): m.run(program, "1", given=bytes(256)) for m in (lesser, able)}
    refused = results.pop(("one", lesser.cpu))
    assert refused.returncode == 1 and b"this machine lacks " in refused.stderr
    wanted = digits()(np.zeros((1, 1, 8, 8), np.float32))[0].ravel()
    for ran in results.values():
        assert ran.returncode == 0, ran.stderr
        np.testing.assert_allclose(np.frombuffer(ran.stdout, np.float32), wanted, atol=1e-5)


def test_one_library_for_vectors_of_several_lengths(tmp_path: Path) -> None:
    """Each processor runs the program for the length of its vectors: results are those of a library of it alone."""
    lengths = {"aarch64": sve(128), "aarch64 +sve256": sve(256), "aarch64 +sve512": sve(512)}
    needs(sve(128))
    programs = {target: digits(target=target) for target in lengths}
    x = np.random.default_rng(0).random((5, 1, 8, 8), np.float32).tobytes()
    results: dict[str, set[bytes]] = {target: set() for target in lengths}
    for target, machine in lengths.items():
        for name, held in (("all", list(programs.values())), ("one", [programs[target]])):
            tw.save_library(tmp_path / f"{name}.a", *held, header=tmp_path / "digits.h", name="digits")
            ran = machine.run(machine.build(CLASSIFY, tmp_path, tmp_path / f"{name}.a"), "5", "1", given=x)
            assert ran.returncode == 0, ran.stderr
            results[target].add(ran.stdout)
    assert [len(found) for found in results.values()] == [1, 1, 1]
    assert len(set.union(*results.values())) == 3


@pytest.mark.parametrize("architecture", sorted(ELF))
def test_every_feature_of_a_processor_can_be_asked_for(architecture: str) -> None:
    assert set(bits_of(architecture)) == set(known_features(architecture))
