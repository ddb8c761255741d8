"""`import tilewright` is quick because it leaves the large packages to the functions that need them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAVY = ("onnx", "onnx_ir", "scipy", "rich", "typer", "torch", "jax")


def test_the_package_imports_no_heavy_package() -> None:
    program = f"import sys, tilewright; print(*[m for m in {HEAVY!r} if m in sys.modules]); print(tilewright.__name__)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["", "tilewright"]
