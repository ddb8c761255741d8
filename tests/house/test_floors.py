"""The floors of the house hold: a package imports only from those below it in the contract of pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def test_no_import_runs_upward() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Contracts: 1 kept, 0 broken." in run.stdout


def test_every_package_has_a_floor() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    floors = {layer.strip("()").removeprefix("tilewright.") for layer in contract["layers"]}
    package = ROOT / "src" / "tilewright"
    modules = {path.parent.name for path in package.glob("*/__init__.py")}
    modules |= {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert modules <= floors, f"without a floor in pyproject.toml: {sorted(modules - floors)}"
