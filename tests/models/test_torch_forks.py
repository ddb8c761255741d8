"""Compiled functions of PyTorch in processes that os.fork made, and in workers of a DataLoader.

One process does all of it, part after part: it imports PyTorch and compiles the model once.
"""

from __future__ import annotations

import os
import subprocess
import sys

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


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of all parts."""
    environment = {**os.environ, "TILEWRIGHT_STORE": str(tmp_path_factory.mktemp("store"))}
    command = [sys.executable, "-c", SETUP + FORK + FRESH + LOADER]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    return lines


def test_a_child_goes_on_with_what_its_parent_compiled(said: list[str]) -> None:
    assert said[:2] == ["True", "True 0 True"]


def test_a_child_compiles(said: list[str]) -> None:
    assert said[2] == "0 True"


def test_workers_of_a_loader_call_what_their_parent_compiled(said: list[str]) -> None:
    assert said[3:] == [f"2 {[True] * 6}", "True"]
