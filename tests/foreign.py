"""Programs for other processors in tests: compiled by a cross compiler, run under QEMU's user mode."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from libraries import EXAMPLES, STRICT

_DEFECT = b"decode_save_opc: Assertion"
"""What QEMU 7.2 says of itself where RISC-V's vectors are converted to integers; 8 and later run them."""


@dataclass(frozen=True)
class Machine:
    """A processor that QEMU emulates: its architecture, and the processor by QEMU's name for it."""

    architecture: str
    cpu: str

    @property
    def tools(self) -> str:
        """What the names of its compiler, and its system's folder, begin with."""
        return f"{self.architecture}-linux-gnu"

    @property
    def is_here(self) -> bool:
        return all(shutil.which(name) for name in (f"qemu-{self.architecture}", f"{self.tools}-gcc"))

    def build(self, source: Path, folder: Path, library: Path, *options: str) -> Path:
        """The program of a file in C, linked with a library whose header is in a folder."""
        program = folder / f"{source.stem}-{library.stem}-{library.suffix[1:]}"
        command = [f"{self.tools}-gcc", *STRICT, str(source), "-I", str(folder), str(library), "-lm", "-lpthread"]
        built = subprocess.run([*command, *options, "-o", str(program)], capture_output=True, text=True, timeout=60)
        assert (built.returncode, built.stderr) == (0, "")
        return program

    def run(
        self, program: Path, *arguments: str, given: bytes = b"", timeout: float = 120
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a program, which finds libraries beside it."""
        command = [f"qemu-{self.architecture}", "-L", f"/usr/{self.tools}", "-cpu", self.cpu]
        command += ["-E", f"LD_LIBRARY_PATH={program.parent}", str(program), *arguments]
        ran = subprocess.run(command, input=given, capture_output=True, timeout=timeout)
        if _DEFECT in ran.stderr:
            pytest.skip("this QEMU fails on conversions of vectors with a rounding mode of their own, as 7.2 does")
        return ran


def riscv(bits: int) -> Machine:
    """A RISC-V processor with vectors of so many bits."""
    return Machine("riscv64", f"rv64,v=true,vext_spec=v1.0,vlen={bits}")


def sve(bits: int) -> Machine:
    """An AArch64 processor with SVE, whose vectors have so many bits."""
    return Machine("aarch64", f"max,sve{bits}=on")


MACHINES = {
    "aarch64": Machine("aarch64", "max"),
    "aarch64 +sve": sve(128),
    "aarch64 +sve256": sve(256),
    "aarch64 +sve512": sve(512),
    "riscv64": Machine("riscv64", "rv64"),
    "riscv64 +v": riscv(128),
    "riscv64 +zvl256b": riscv(256),
    "riscv64 +zvl512b": riscv(512),
}
"""For which targets libraries are run, and on which processor: the least that runs them."""

LONG_MACHINES = {name: MACHINES[name] for name in MACHINES if name not in ("riscv64", "riscv64 +zvl512b")}
"""Those that large networks are run on."""

CLASSIFY = EXAMPLES / "classify.c"


def needs(machine: Machine) -> None:
    """Skips the test where the tools are not here."""
    if not machine.is_here:
        pytest.skip(f"there is no QEMU or compiler for {machine.architecture}")
