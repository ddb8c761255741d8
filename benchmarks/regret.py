"""How much slower the chosen way to run a kernel is than the fastest of those that its templates list.

    python -m benchmarks.regret [MODEL.onnx ...] [--only REGEX] [--template REGEX] [--most N] [--rounds N] [--size N]
                                [--target NAME] [--choices] [--json]

Each kernel of a model with several choices becomes a program of its own, once for each choice, the cheapest first; all
run in turns on one core, by the processor's clock, with the same inputs, warm. The regret of a kernel is the time of
the choice that `plan/choose.py` takes over the least time, less one; the rank correlation (Spearman's) says how far the
order by price is that by time. Without models, the depthwise layers of `layers.py` and the pools of `pools.py` are
measured.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.alone import repeat
from benchmarks.layers import distinct
from benchmarks.plan_costs import rank_correlation
from benchmarks.pools import POOLS, problem_of
from benchmarks.problems import Array, convolution
from benchmarks.report import Report, show
from tilewright.compiler.compiled import finish, interface_of, link
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import Pass, run_passes
from tilewright.expr.evaluate import evaluate
from tilewright.expr.variables import variables_of
from tilewright.frontends.onnx import read
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.symbolic import Call
from tilewright.loops.nodes import Function
from tilewright.plan.decision import record_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Candidate, candidates
from tilewright.report.errors import UserError
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.runtime.memory import allocate
from tilewright.target import Target

TURN_SECONDS = 4e-4
"""About what a turn of a program takes: many calls, for the clock costs as much as a short one."""
ROUNDS, MOST = 15, 24
"""Turns of each program; choices of a kernel that are timed, the cheapest first."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which kernels are timed, those that a `template` of such a name is taken for, by how many choices at `most`; the
    turns of each; and what dynamic sizes are."""

    template: str = ""
    most: int = MOST
    rounds: int = ROUNDS
    size: int = 128


@dataclass(frozen=True, slots=True)
class Timed:
    """A choice of a kernel: what it should take, and what it takes (the median of its turns), in seconds."""

    candidate: Candidate
    seconds: float

    def record(self) -> dict[str, object]:
        """The choice as JSON says it."""
        choice = self.candidate
        return {
            "template": choice.template.name,
            "choice": record_of(choice.choice),
            "price": choice.seconds,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel and the choices that it can run by, the cheapest first: the first is the one that is taken."""

    name: str
    choices: tuple[Timed, ...]

    @property
    def best(self) -> Timed:
        return min(self.choices, key=lambda timed: timed.seconds)

    @property
    def regret(self) -> float:
        """By how much of the least time the choice that is taken is slower."""
        return self.choices[0].seconds / self.best.seconds - 1

    @property
    def rank(self) -> float:
        """The correlation of the orders by price and by time."""
        prices = [timed.candidate.seconds for timed in self.choices]
        return rank_correlation(prices, [timed.seconds for timed in self.choices])


def kernels_of(module: Module, target: Target) -> Iterator[tuple[Function, Module]]:
    """Each kernel that the plan of a module makes, and a module that is a call of it alone. Kernels are left out of
    which a size is no symbol of its own: nothing would tell it."""
    passes = pipeline(target)
    planned = run_passes(module, passes[: _place(passes)], level=GRAPH)
    seen = set[str]()
    for graph in [f for f in planned.functions.values() if isinstance(f, GraphFunction)]:
        for node in graph.nodes:
            kernel = planned.functions.get(node.attrs.callee) if isinstance(node.attrs, Call) else None
            if isinstance(kernel, Function) and kernel.name not in seen:
                seen.add(kernel.name)
                alone = _alone(planned, graph, node, kernel)
                if alone is not None:
                    yield kernel, alone


def _place(passes: Sequence[Pass[Module]]) -> int:
    """Where schedules are made."""
    return [step.name for step in passes].index("schedule")


def _alone(planned: Module, graph: GraphFunction, node: Node, kernel: Function) -> Module | None:
    """The module whose entry is one node of a graph; constants stay constants. None where a symbol stands nowhere
    alone."""
    made = {value: n for n in graph.nodes for value in n.outputs}
    constants = [made[v] for v in dict.fromkeys(node.inputs) if v in made and made[v].op.name == "constant"]
    known = {value for n in constants for value in n.outputs}
    params = tuple(Value(v.name, v.type) for v in dict.fromkeys(node.inputs) if v not in known)
    given = dict(zip([v for v in dict.fromkeys(node.inputs) if v not in known], params, strict=True))
    sizes = [e for v in params for e in v.type.shape]
    symbols = tuple(dict.fromkeys(s for e in sizes for s in variables_of(e)))
    if not set(symbols) <= set(sizes) or not {
        s for v in node.outputs for e in v.type.shape for s in variables_of(e)
    } <= set(symbols):
        return None
    call = node.replace(inputs=tuple(given.get(v, v) for v in node.inputs))
    entry = GraphFunction(
        planned.entry, symbols, params, (*constants, call), call.outputs, tuple(v.name for v in call.outputs)
    )
    return replace(planned, functions={entry.name: entry, kernel.name: kernel})


def program_of(kernel: Module, function: Function, candidate: Candidate, target: Target) -> Executable:
    """The program that runs a kernel by a choice. Raises UserError where a step of it is refused."""
    made = candidate.schedule(Facts(function), target).func
    passes = pipeline(target)
    module = kernel.with_function(made)
    compiled = finish(module, interface_of(module.graph), passes[_place(passes) + 1 :], target)
    return link(compiled, target, 0.0, threads=1)


def measure_kernel(name: str, function: Function, kernel: Module, target: Target, asked: Asked) -> Measured | None:
    """A kernel by its cheapest choices; None where it has one only, or is for another template."""
    ranked = candidates(Facts(function), target)
    if len(ranked) < 3 or not re.search(asked.template, ranked[0].template.name):  # `nests` is always one
        return None
    feeds = _feeds(kernel.graph, asked.size)
    found: list[tuple[Candidate, Executable]] = []
    for candidate in ranked:
        if len(found) < asked.most and candidate.seconds < 1:
            try:
                found.append((candidate, program_of(kernel, function, candidate, target)))
            except UserError:
                continue
    if len(found) < 2:
        return None
    seconds = take_turns([program for _, program in found], feeds, asked.rounds)
    return Measured(name, tuple(Timed(c, s) for (c, _), s in zip(found, seconds, strict=True)))


def _feeds(graph: GraphFunction, size: int) -> list[Array]:
    """Numbers between 0.5 and 1 for all inputs, so that no sum comes near zero; symbols are `size`."""
    rng, found = np.random.default_rng(0), []
    for value in graph.params:
        shape = [int(evaluate(e, dict.fromkeys(variables_of(e), size))) for e in value.type.shape]
        array = allocate(math.prod(shape) * value.type.dtype.bytes).view(value.type.dtype.numpy).reshape(shape)
        array[...] = rng.uniform(0.5, 1, shape).astype(array.dtype)
        found.append(array)
    return found


def take_turns(programs: Sequence[Executable], feeds: Sequence[Array], rounds: int) -> list[float]:
    """Processor seconds of a call of each program, the median of its turns; raises ValueError where results differ."""
    held = [program(*feeds) for program in programs]
    for results in held[1:]:
        for made, first in zip(results, held[0], strict=True):
            np.testing.assert_allclose(made, first, rtol=1e-3, atol=1e-4)
    calls, entries = [], [program.native_call() for program in programs]
    for entry, record in entries:
        repeat(3, entry, record)
        calls.append(max(1, int(TURN_SECONDS / max(_turn(3, entry, record), 1e-7))))
    taken: list[list[float]] = [[] for _ in programs]
    for n in range(rounds):
        for turn in range(len(programs)):
            which = (turn + n) % len(programs)
            repeat(1, *entries[which])
            taken[which].append(_turn(calls[which], *entries[which]))
    return [statistics.median(seconds) for seconds in taken]


def _turn(calls: int, entry: int, record: int) -> float:
    start = time.process_time()
    repeat(calls, entry, record)
    return (time.process_time() - start) / calls


def windows() -> Iterator[tuple[str, bytes]]:
    """Depthwise layers and pools: a name and a model of each."""
    for layer in distinct():
        if layer.is_depthwise and layer.kernel > 1:
            yield layer.name, convolution(layer.name, layer).model
    for pool in POOLS:
        yield pool.name, problem_of(pool).model


def report(found: Sequence[Measured]) -> Report:
    """A row for each kernel."""
    heads = ("kernel", "choices", "chosen µs", "best µs", "regret", "rank correlation", "time / price", "best by")
    made = Report("regret", "The choice that is taken against the fastest", heads)
    for kernel in found:
        chosen, best = kernel.choices[0], kernel.best
        by = "as chosen" if best is chosen else _difference(record_of(chosen.candidate.choice), best)
        cells = (str(len(kernel.choices)), f"{1e6 * chosen.seconds:.1f}", f"{1e6 * best.seconds:.1f}")
        rank, ratio = f"{kernel.rank:.2f}", f"{chosen.seconds / chosen.candidate.seconds:.2f}"
        data = {"kernel": kernel.name, "regret": kernel.regret, "rank": kernel.rank}
        made.add(
            (kernel.name, *cells, f"{kernel.regret:.1%}", rank, ratio, by),
            data | {"choices": [timed.record() for timed in kernel.choices]},
        )
    if found:
        regrets = [kernel.regret for kernel in found]
        mean = math.expm1(statistics.fmean(math.log1p(r) for r in regrets))
        made.note = f"regret: geometric mean {mean:.1%}, above 5 %: {sum(r > 0.05 for r in regrets)} of {len(found)}"
    return made


def _difference(chosen: Mapping[str, object], best: Timed) -> str:
    """What the best choice has otherwise than the one that is taken."""
    fields: Mapping[str, object] = record_of(best.candidate.choice)
    if set(fields) != set(chosen):
        return best.candidate.template.name
    return ", ".join(f"{name} {value}" for name, value in fields.items() if chosen[name] != value)


def report_choices(kernel: Measured) -> Report:
    """A row for each choice of a kernel, the cheapest by price first."""
    made = Report("choices", kernel.name, ("template", "price µs", "time µs", "choice"))
    for timed in kernel.choices:
        fields = ", ".join(f"{name} {value}" for name, value in record_of(timed.candidate.choice).items())
        cells = f"{1e6 * timed.candidate.seconds:.1f}", f"{1e6 * timed.seconds:.1f}"
        made.add((timed.candidate.template.name, *cells, fields), timed.record())
    return made


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "models", nargs="*", type=Path, metavar="MODEL.onnx", help="default: depthwise layers and pools"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="models and kernels whose name has a match")
    parser.add_argument("--template", default="", metavar="REGEX", help="kernels that such a template is taken for")
    parser.add_argument(
        "--most", type=int, default=MOST, metavar="N", help="choices that are timed, the cheapest first"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="turns of each choice")
    parser.add_argument("--size", type=int, default=128, metavar="N", help="what dynamic sizes are")
    parser.add_argument("--target", default="native", metavar="NAME", help="what ours compiles for: x86-64-v3, say")
    parser.add_argument("--choices", action="store_true", help="a table of all choices of each kernel, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    given = [(path.stem, path.read_bytes()) for path in asked.models] or list(windows())
    wanted = Asked(asked.template, asked.most, asked.rounds, asked.size)
    target, found = Target.parse(asked.target), list[Measured]()
    with progress("timing choices", len(given)) as step:
        for name, model in given:
            for function, kernel in kernels_of(read(model), target):
                label = name if not asked.models else f"{name}: {function.name}"
                if re.search(asked.only, label):
                    measured = measure_kernel(label, function, kernel, target, wanted)
                    found += [] if measured is None else [measured]
            step(name)
    show([*map(report_choices, found if asked.choices else ()), report(found)], asked.json)


if __name__ == "__main__":
    main()
