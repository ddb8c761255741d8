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

WARM = "import sys, tilewright as tw; tw.compile(tw.parse(sys.argv[1]), target=sys.argv[2])"


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
        kept = self.store.with_suffix(".kept")
        if not kept.exists():
            self._run(WARM, FIRST, target)
            self.store.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self.store, kept)
        shutil.rmtree(self.store)
        shutil.copytree(kept, self.store)
        wall, cpu, package = json.loads(self._run(COMPILE, str(prepared.model), target))
        if Path(package).resolve() != (self.source / "tilewright").resolve():
            raise RuntimeError(f"{self.name}: {package} was measured, and not {self.source}")
        return Seconds(wall, cpu)

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
