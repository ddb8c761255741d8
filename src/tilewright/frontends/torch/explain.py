"""What torch.compile makes of a model with this backend: graphs, where they break, kernels and their times, and what
PyTorch runs. Compiled for the purpose, and called in turns with notes of each kernel's time."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilewright.frontends.torch.backend import make_backend
from tilewright.frontends.torch.compiling import Compile, Compiler, Step
from tilewright.frontends.torch.fallbacks import TorchWarning, place_of, shown
from tilewright.frontends.torch.options import Options
from tilewright.report.quantities import counted, duration
from tilewright.runtime.executable import Executable
from tilewright.runtime.profile import Recorder
from tilewright.runtime.program import Site
from tilewright.store import Json

if TYPE_CHECKING:
    from rich.table import Table


LEAST_CALLS = 3


@dataclass(frozen=True, slots=True)
class Break:
    """A place in the program where Dynamo ends a graph and Python goes on, and why."""

    reason: str
    place: str


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel of a graph: its name, the operators that it holds, the line of the user's program that the first of them
    comes from, how often a call runs it, the seconds of all of these, and what planning expected of them on one core,
    None where that depends on sizes of the call."""

    name: str
    operators: tuple[str, ...]
    place: str
    calls: int
    seconds: float
    predicted: float | None


@dataclass(frozen=True, slots=True)
class Eager:
    """An operator that PyTorch runs, with its line of the user's program, and why."""

    operator: str
    place: str
    why: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of ATen operators: how many nodes it has, the kernels that it became, and what PyTorch runs of it."""

    nodes: int
    kernels: tuple[KernelTime, ...]
    eager: tuple[Eager, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of a model. `seconds` is a call, with the backward pass if one was asked for; `threads` how many the
    kernels may use. Printing it gives tables; `record()` is what JSON can say."""

    breaks: tuple[Break, ...]
    graphs: tuple[Graph, ...]
    seconds: float
    threads: int

    @property
    def kernels(self) -> tuple[KernelTime, ...]:
        """The kernels of all graphs."""
        return tuple([kernel for graph in self.graphs for kernel in graph.kernels])

    @property
    def eager(self) -> tuple[Eager, ...]:
        """What PyTorch runs of all graphs."""
        return tuple([one for graph in self.graphs for one in graph.eager])

    @property
    def elsewhere(self) -> float:
        """The seconds of a call that no kernel has: PyTorch's dispatch and guards, what it runs, and Python."""
        return max(self.seconds - sum(kernel.seconds for kernel in self.kernels), 0.0)

    def record(self) -> dict[str, Json]:
        """The explanation as JSON says it."""
        graphs: list[Json] = [
            {
                "nodes": graph.nodes,
                "kernels": [_record(kernel) for kernel in graph.kernels],
                "eager": [_record(one) for one in graph.eager],
            }
            for graph in self.graphs
        ]
        totals: dict[str, Json] = {"seconds": self.seconds, "threads": self.threads, "elsewhere": self.elsewhere}
        return {"breaks": [_record(one) for one in self.breaks], "graphs": graphs, **totals}

    def __str__(self) -> str:
        from rich.console import Console  # for those who print

        console = Console(file=io.StringIO(), width=_WIDTH)
        for part in self.__rich_console__():
            console.print(part)
        return "\n".join([line.rstrip() for line in console.file.getvalue().rstrip().splitlines()])  # type: ignore[attr-defined]

    def __rich_console__(self, *_: object) -> Iterator[Table | str]:
        """The tables, for rich: kernels, the slowest first, what PyTorch runs, and breaks."""
        graphs, kernels = counted(len(self.graphs), "graph"), counted(len(self.kernels), "kernel")
        took = f"a call takes {duration(self.seconds)}, {duration(self.elsewhere)} of it in no kernel"
        yield f"{graphs}, {counted(len(self.breaks), 'break')}, {kernels}; {took}"
        if self.kernels:
            numbered = [(n, kernel) for n, graph in enumerate(self.graphs, 1) for kernel in graph.kernels]
            rows = sorted(numbered, key=lambda row: -row[1].seconds)
            yield _table(("graph", "kernel", "holds", "calls", "time", "predicted", "place"), map(_cells, rows))
        if self.eager:
            yield _table(("PyTorch runs", "why", "place"), ((e.operator, e.why, e.place) for e in self.eager))
        if self.breaks:
            yield _table(("the graph breaks", "place"), ((b.reason, b.place) for b in self.breaks))


_WIDTH = 140
_EXPLAINED = "Explanation:"
"""How the line of a reason begins that says more than the first."""


def _table(heads: Sequence[str], rows: Iterator[Sequence[str]] | Any) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for head in heads:
        number = head in ("graph", "calls", "time", "predicted")
        table.add_column(head, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*[cell.replace("[", "\\[") for cell in row])
    return table


def _cells(row: tuple[int, KernelTime]) -> Sequence[str]:
    n, k = row
    predicted = "" if k.predicted is None else duration(k.predicted)
    return str(n), k.name, ", ".join(k.operators), str(k.calls), duration(k.seconds), predicted, k.place


def _record(row: Any) -> dict[str, Json]:
    found = {name: getattr(row, name) for name in row.__dataclass_fields__}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


@dataclass
class Explainer:
    """Compiles a model, calls it, and says what came of it."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Callable[[Any], Any] | None
    dynamic: bool | None
    options: Options
    compile: Compile
    compiled: list[Compiler] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)

    def explain(self, seconds: float) -> Explanation:
        """The explanation, of calls for so many seconds."""
        backend = make_backend(self.options, self.compile, hear=self.compiled.append)

        def listening(graph: Any, inputs: Sequence[Any]) -> Any:
            self._note_break(getattr(graph, "compile_subgraph_reason", None))
            return backend(graph, inputs)

        fast = torch.compile(self.model, backend=listening, dynamic=self.dynamic)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TorchWarning)  # what it says is in the explanation
            self._call(fast)
            self._call(fast)  # gradients exist now, and what is computed once has been
            took, totals = self._timed(lambda: self._call(fast), seconds)
        graphs = tuple([_graph(compiler, totals) for compiler in self.compiled])
        threads = [s.executable.threads for c in self.compiled for s in c.steps if isinstance(s, Step)]
        return Explanation(tuple(dict.fromkeys(self.breaks)), graphs, took, max(threads, default=1))

    def _call(self, fast: Callable[..., Any]) -> None:
        result = fast(*self.args, **self.kwargs)
        if self.loss is not None:
            self.loss(result).backward()

    def _note_break(self, reason: Any) -> None:
        if reason is None or not reason.graph_break:
            return
        frames = [f'"{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in reason.user_stack]
        lines = [line.strip() for line in str(reason.reason).strip().splitlines()]
        more = [line.removeprefix(_EXPLAINED).strip() for line in lines if line.startswith(_EXPLAINED)]
        self.breaks.append(Break(": ".join([*lines[:1], *more]), frames[-1] if frames else ""))

    def _timed(
        self, call: Callable[[], None], seconds: float
    ) -> tuple[float, Mapping[Executable, np.ndarray[Any, Any]]]:
        """(the seconds of a call, for each executable how often its sites were reached and their nanoseconds): means of
        the faster half of calls."""
        executables = [s.executable for c in self.compiled for s in c.steps if isinstance(s, Step)]
        rows: list[tuple[float, list[np.ndarray[Any, Any]]]] = []
        with ExitStack() as noted:
            recorders = [Recorder(executable.program.sites, executable.threads) for executable in executables]
            for executable, recorder in zip(executables, recorders, strict=True):
                noted.enter_context(executable.noting(recorder))
            end = time.perf_counter() + seconds
            while len(rows) < LEAST_CALLS or time.perf_counter() < end:
                for recorder in recorders:
                    recorder.clear()
                start = time.perf_counter()
                call()
                rows.append((time.perf_counter() - start, [recorder.totals() for recorder in recorders]))
        faster = sorted(rows, key=lambda row: row[0])[: max(len(rows) // 2, 1)]
        means = [np.mean([totals[n] for _, totals in faster], axis=0) for n in range(len(executables))]
        return float(np.mean([took for took, _ in faster])), dict(zip(executables, means, strict=True))


def _graph(compiler: Compiler, totals: Mapping[Executable, np.ndarray[Any, Any]]) -> Graph:
    places = {node.name: place_of(node) for node in compiler.captured.nodes}
    kernels: dict[str, KernelTime] = {}
    for n, step in enumerate([s for s in compiler.steps if isinstance(s, Step)]):
        for site, (count, nanoseconds) in zip(step.executable.program.sites, totals[step.executable], strict=True):
            name = f"{site.kernel}" if not n else f"{site.kernel} ({n + 1})"
            place, seconds = _place(site, places), nanoseconds * 1e-9
            kernels[name] = _added(kernels.get(name), name, site, place, round(count), seconds)
    failed = {node: why for found in compiler.failed for node, why in shown(found).items()}
    eager = tuple([Eager(str(node.target), place_of(node), why) for node, why in failed.items()])
    return Graph(len(compiler.captured.nodes), tuple(kernels.values()), eager)


def _added(known: KernelTime | None, name: str, site: Site, place: str, calls: int, seconds: float) -> KernelTime:
    """A kernel with the calls of one more site."""
    predicted = None if site.predicted is None else site.predicted * calls
    if known is None:
        return KernelTime(name, site.operators, place, calls, seconds, predicted)
    expected = None if predicted is None or known.predicted is None else known.predicted + predicted
    return KernelTime(name, known.operators, known.place, known.calls + calls, known.seconds + seconds, expected)


def _place(site: Site, places: Mapping[str, str]) -> str:
    """The line of the user's program that the first operator of a kernel comes from."""
    names = [source.split("'")[1] for source in site.source if source.count("'") == 2]
    return next((places[name] for name in names if name in places), "")
