"""One process of `make bench-torch`: a line of JSON.

    python -m benchmarks.torch_worker race NETWORK inference|training THREADS ROUNDS
    python -m benchmarks.torch_worker first NETWORK inference|training THREADS ENGINE
    python -m benchmarks.torch_worker memory NETWORK training THREADS ENGINE
    python -m benchmarks.torch_worker call NETWORK inference THREADS ROUNDS
    python -m benchmarks.torch_worker between NETWORK inference THREADS ROUNDS

`race` times all engines in turns; `first` says the seconds from a made model to its first result; `memory` the bytes
that a step takes beside the model, its gradients and the optimizer's state; `call` the seconds of a call that has next
to nothing to compute and as many parameters as the network has; `between` the seconds of eager operators alone, between
calls of eager's network, and between calls of the compiled one.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.allocated import Peak
from benchmarks.timing import race
from benchmarks.torch_models import CASES, Case

ENGINES = ("tilewright", "inductor", "eager")
TRAINING = "training"
TURN_SECONDS = 0.05
STEPS = 3
BETWEEN = 512
"""Rows and columns of the factors of the eager product between compiled calls: milliseconds, on all threads."""

TOLERANCE = 2e-3
"""How far the engines' results may be off eager's, relative to the largest."""


def program(case: Case, task: str, engine: str) -> tuple[Callable[[], Any], nn.Module]:
    """What an engine runs for a task of a network, and the model; the same numbers for all engines."""
    torch.manual_seed(0)
    model = case.make()
    model.train(task == TRAINING)
    torch.manual_seed(1)
    x = case.batch() if task == TRAINING else case.example()
    compiled = model if engine == "eager" else torch.compile(model, backend=engine)
    if task == TRAINING:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        return lambda: case.step(compiled, optimizer, x), model

    def infer() -> Any:
        with torch.no_grad():
            return compiled(x)

    return infer, model


def time_in_turns(case: Case, task: str, rounds: int) -> dict[str, object]:
    """The seconds of each engine, by rounds. RuntimeError where a result is not eager's."""
    programs = {engine: program(case, task, engine)[0] for engine in ENGINES}
    wanted = programs["eager"]()
    for engine in ENGINES[:2]:
        off = float((programs[engine]() - wanted).abs().max() / wanted.abs().max())
        if off > TOLERANCE:
            raise RuntimeError(f"{engine} is off by {off:.1e} of the largest result")
    taken = race(programs, rounds, TURN_SECONDS)
    return {engine: samples.seconds for engine, samples in taken.items()}


def time_first(case: Case, task: str, engine: str) -> dict[str, object]:
    """The seconds to the first result."""
    start = time.perf_counter()
    program(case, task, engine)[0]()
    return {"seconds": time.perf_counter() - start}


def measure_step(case: Case, task: str, engine: str) -> dict[str, object]:
    """The most bytes that a training step has allocated beside those that are there before. To be asked of a process
    that counts (`allocated.counted`)."""
    step, _ = program(case, task, engine)
    for _ in range(STEPS):
        step()
    gc.collect()
    with Peak() as peak:
        step()
    return {"bytes": peak.bytes}


class Touched(nn.Module):
    """A module with the parameters of another, of which it takes one number each."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.numbers = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in model.parameters()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in self.numbers:
            x = x + number
        return x


def time_calls(case: Case, rounds: int) -> dict[str, object]:
    """The seconds of calls with next to nothing to compute."""
    model, x = Touched(case.make()), torch.zeros(1)
    programs: dict[str, Callable[[], Any]] = {}
    for engine in ENGINES:
        touched = model if engine == "eager" else torch.compile(Touched(case.make()), backend=engine)
        programs[engine] = partial(touched, x)
    with torch.no_grad():
        for called in programs.values():
            called()  # compiles
        taken = race(programs, rounds, TURN_SECONDS)
    return {"parameters": len(model.numbers), **{engine: samples.seconds for engine, samples in taken.items()}}


def time_between(case: Case, rounds: int) -> dict[str, object]:
    """The seconds of a product and an addition that eager runs: alone, and right after a call of each engine's network,
    of which eager's has the same effect on caches, and no other pool of threads."""
    a, b = torch.randn(BETWEEN, BETWEEN), torch.randn(BETWEEN, BETWEEN)
    before: dict[str, Callable[[], object]] = {
        "alone": lambda: None,
        "eager": program(case, "inference", "eager")[0],
        "tilewright": program(case, "inference", "tilewright")[0],
    }
    found: dict[str, list[float]] = {name: [] for name in before}
    for called in before.values():
        called()
    for _ in range(rounds):
        for name, called in before.items():
            best = float("inf")
            end = time.perf_counter() + TURN_SECONDS
            while time.perf_counter() < end:
                called()
                start = time.perf_counter()
                torch.relu(a @ b)
                best = min(best, time.perf_counter() - start)
            found[name].append(best)
    return dict(found)


def main() -> None:
    """Prints what was measured."""
    measure, network, task, threads, last = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch._dynamo.config.cache_size_limit = 64
    warnings.simplefilter("ignore")
    (chosen,) = [case for case in CASES if case.name == network]
    match measure:
        case "race":
            found = time_in_turns(chosen, task, int(last))
        case "first":
            found = time_first(chosen, task, last)
        case "memory":
            found = measure_step(chosen, task, last)
        case "between":
            found = time_between(chosen, int(last))
        case _:
            found = time_calls(chosen, int(last))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
