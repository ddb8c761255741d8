"""Compiled functions of PyTorch in processes that os.fork made, and in workers of a DataLoader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SETUP = """
import os
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64)).eval()
fast = torch.compile(model, backend="tilewright", options={"threads": 2})
x = torch.randn(256, 64)

def right(n):
    with torch.no_grad():
        return torch.allclose(fast(x + n), wanted[n], atol=1e-4)

with torch.no_grad():
    torch.set_num_threads(1)  # PyTorch's own pool does not live through a fork
    wanted = [model(x + n) for n in range(6)]
print(right(0))
"""

FORK = """
child = os.fork()
if not child:
    os._exit(0 if all(map(right, range(6))) else 3)
print(right(1), os.waitpid(child, 0)[1], right(2))
"""

FRESH = """
child = os.fork()
if not child:
    other = torch.compile(lambda x: torch.relu(x) * 3, backend="tilewright", options={"threads": 2})
    os._exit(0 if torch.equal(other(x), torch.relu(x) * 3) else 3)
print(os.waitpid(child, 0)[1], right(1))
"""

LOADER = """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, n):
        with torch.no_grad():
            return os.getpid(), fast(x + n)

loader = torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=2, multiprocessing_context="fork")
found = list(loader)
others = {pid for pid, _ in found} - {os.getpid()}
print(len(others), [torch.allclose(y, wanted[n], atol=1e-4) for n, (_, y) in enumerate(found)])
print(right(3))
"""


def output(script: str, store: Path) -> list[str]:
    environment = {**os.environ, "TILEWRIGHT_STORE": str(store)}
    command = [sys.executable, "-c", SETUP + script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_child_goes_on_with_what_its_parent_compiled(tmp_path: Path) -> None:
    assert output(FORK, tmp_path) == ["True", "True 0 True"]


def test_a_child_compiles(tmp_path: Path) -> None:
    assert output(FRESH, tmp_path) == ["True", "0 True"]


def test_workers_of_a_loader_call_what_their_parent_compiled(tmp_path: Path) -> None:
    assert output(LOADER, tmp_path) == ["True", f"2 {[True] * 6}", "True"]
