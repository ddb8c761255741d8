"""Two versions of the package side by side: where the source of each lies, and what its processes get.

A version is a commit of this repository, whose sources are written to a folder, or the folder of another tree. Each has
a store of its own, so that a network is compiled once for several processes that run it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.network_race import Prepared

ROOT = Path(__file__).resolve().parents[1]

COMPILE = """
import json, os, sys, time
import onnx, tilewright as tw
tw.compile, tw.Executable
wall, cpu = time.perf_counter(), time.process_time()
exe = tw.compile(sys.argv[1], target=sys.argv[2])
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
assert not exe.cached, "it was found in the store"
print(json.dumps([wall, cpu, os.path.dirname(tw.__file__)]))
"""

FIRST = "graph main(x: f32[64]) -> y:\n  y: f32[64] = add(x, x)\n"
"""A program that is compiled before anything is timed: what the machine is asked once is in the store after it."""

WARM = """
import json, sys, tilewright as tw
origins = getattr(tw.compile(tw.parse(sys.argv[1]), target=sys.argv[2]).program.target, "origins", ())
print(json.dumps([name for name, text in origins if "do not agree" in str(text)]))
"""
"""Compiles it, and prints the figures of the machine that could not be measured, as origins of all versions say it."""

WARMINGS = 4
"""How often a version may measure: each time goes on with what was not settled before."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """What a compilation took: on the wall, and of the processor."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Version:
    """A version: its name, the folder that has the package, and the folder of its store."""

    name: str
    source: Path
    store: Path

    @property
    def environment(self) -> dict[str, str]:
        """What its processes get, beside this process's environment: the benchmarks are those of this tree."""
        return {"PYTHONPATH": f"{self.source}{os.pathsep}{ROOT}", "TILEWRIGHT_STORE": str(self.store)}

    def compile(self, prepared: Prepared, target: str) -> Seconds:
        """A cold compilation in one process that has loaded the compiler; what it makes is in the store afterwards.
        RuntimeError where it fails."""
        if not self._kept.exists():
            self.warm((target,))
        shutil.rmtree(self.store)
        shutil.copytree(self._kept, self.store)
        wall, cpu, package = json.loads(self._run(COMPILE, str(prepared.model), target))
        if Path(package).resolve() != (self.source / "tilewright").resolve():
            raise RuntimeError(f"{self.name}: {package} was measured, and not {self.source}")
        return Seconds(wall, cpu)

    @property
    def _kept(self) -> Path:
        """The store as cold compilations find it."""
        return self.store.with_suffix(".kept")

    def warm(self, targets: Sequence[str]) -> tuple[str, ...]:
        """Lets it measure the machine for these targets, and keeps what it found for all cold compilations. Returns the
        figures that are not settled even so: each version would go by others, and measure them in what is timed."""
        left: list[str] = []
        for target in targets:
            missing: list[str] = []
            for _ in range(WARMINGS):
                missing = json.loads(self._run(WARM, FIRST, target))
                if not missing:
                    break
            left += missing
        self.store.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self.store, self._kept)
        return tuple(dict.fromkeys(left))

    def _run(self, program: str, *arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {**self.environment, "TILEWRIGHT_COMPILE_PROCESSES": "1"}
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
        return done.stdout.splitlines()[-1] if done.stdout else ""


def find_version(name: str, words: str, folder: Path) -> Version:
    """The version that words say: a folder with src/tilewright or tilewright in it, or a commit. SystemExit where they
    say none."""
    given = Path(words)
    for source in (given / "src", given):
        if (source / "tilewright" / "__init__.py").is_file():
            return Version(name, source.resolve(), folder / f"{name}-store")
    return Version(name, _check_out(words, folder / name) / "src", folder / f"{name}-store")


def _check_out(commit: str, folder: Path) -> Path:
    """The sources of a commit."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "src"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise SystemExit(f"{commit} is neither a folder with the package nor a commit: {said}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def here(folder: Path) -> Version:
    """This tree."""
    return find_version("after", str(ROOT), folder)
