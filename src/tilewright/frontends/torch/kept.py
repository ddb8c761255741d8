"""Compiled graphs in the store: found by what they are, and started without the compiler.

The key is the graph as text (`written.py`), with all that compiling heeds. An entry is a container of programs
(`runtime/bundle.py`): those of the pieces, and of what packs their weights (`runtime/recipe.py`), whose numbers come
with each process. It says which nodes run compiled and which in PyTorch. The function of a call is written anew from
the graph at hand, so that nothing of an entry runs but its programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.torch.call import Call
from tilewright.frontends.torch.captured import Captured
from tilewright.frontends.torch.options import Options
from tilewright.frontends.torch.parted import Part
from tilewright.frontends.torch.ports import Node, Ports
from tilewright.frontends.torch.sizes import Symbol, symbols_of
from tilewright.frontends.torch.weights import Cache
from tilewright.frontends.torch.written import Unwritable, write_graph
from tilewright.graph.constants import Held, Weight, varies
from tilewright.report.errors import UserError
from tilewright.report.logs import debug, info
from tilewright.runtime.bundle import Bundle, encode
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Program
from tilewright.runtime.weights import Weights
from tilewright.store import Json, Store, digest

if TYPE_CHECKING:
    from tilewright.frontends.torch.compiling import Step
    from tilewright.loops.nodes import Function

Failed = Mapping[Node, str]


@dataclass(frozen=True, slots=True)
class Keeper:
    """Where compiled graphs are kept. `stamp` is text that differs whenever a graph may be compiled otherwise, for a
    precision; `compile_function` compiles a loops function of weights that an entry has no program for."""

    store: Store
    stamp: Callable[[str], str]
    compile_function: Callable[[Function], Executable]

    def place(self, captured: Captured, options: Options) -> Place | None:
        """The place of a graph; None where there is no store, or the graph cannot be told by a text."""
        if not self.store.is_on:
            return None
        try:
            text = write_graph(captured)
        except Unwritable:
            return None
        key = digest(torch=torch.__version__, graph=text, stamp=self.stamp(options.precision))
        return Place(self, key, captured, options)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one graph in the store, by its key."""

    keeper: Keeper
    key: str
    captured: Captured
    options: Options

    def find(self, tell: Callable[[Failed], None]) -> Call | None:
        """The function that runs the graph, if the store has it; `tell` hears of what runs in PyTorch. None for an
        entry that does not fit: what is compiled then takes its place."""
        entry = self.keeper.store.map(self.key)
        if entry is None:
            debug("a graph of %d nodes is not in the store: it is compiled", len(self.captured.nodes))
            return None
        try:
            reading = _Reading(self, Bundle(entry))
            failed, call = reading.failed(), reading.call()
        except (UserError, Unsupported, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            debug("what the store has of a graph is dropped: %s", error)
            return None
        info("a graph of %d nodes was compiled before: taken from the store", len(self.captured.nodes))
        for one in failed:
            tell(one)
        return call

    def keep(self, failed: Sequence[Failed], steps: Sequence[Step | Node]) -> None:
        """Keeps what was compiled: at once, or, since then it is known which of the functions of weights are programs,
        when all weights have been packed for the first time."""
        waiting = {id(s.cache): s.cache for s in steps if not isinstance(s, torch.fx.Node) and s.cache is not None}

        def write() -> None:
            if not waiting:
                _Writing(self, failed, steps).put()

        for cache in list(waiting.values()):

            def prepared(known: int = id(cache)) -> None:
                del waiting[known]
                write()

            cache.prepared = prepared
        write()


@dataclass
class _Writing:
    """An entry as it is written."""

    place: Place
    failed: Sequence[Failed]
    steps: Sequence[Step | Node]
    programs: list[Program] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = {node: n for n, node in enumerate(self.place.captured.nodes)}

    def put(self) -> None:
        """Puts it into the store, unless it cannot be written."""
        rows: list[Json] = []
        for step in self.steps:
            row = self.numbers[step] if isinstance(step, torch.fx.Node) else self._step(step)
            if row is None:
                return
            rows.append(row)
        failed: list[Json] = [[[self.numbers[n], why] for n, why in one.items()] for one in self.failed]
        name = f"a graph of PyTorch with {len(self.place.captured.nodes)} nodes"
        about: dict[str, Json] = {"model": name, "steps": rows, "failed": failed}
        self.place.keeper.store.put(self.place.key, *encode(self.programs, (), about))

    def _step(self, step: Step) -> Json:
        ports, program, weights = step.ports, step.executable.program, step.executable.weights
        row: dict[str, Json] = {
            "inputs": [self.numbers[n] for n in ports.inputs],
            "results": [self.numbers[n] for n in ports.results],
            "symbols": [s.name for s in ports.symbols],
            "spare": ports.spare,
            "program": len(self.programs),
            "parts": [[part.behind, list(part.made), list(part.freed)] for part in step.parts],
        }
        self.programs.append(program)
        return row if weights is None else self._with_weights(row, ports, program, weights)

    def _with_weights(self, row: dict[str, Json], ports: Ports, program: Program, weights: Weights) -> Json:
        """The row of a step that has weights: which constants vary, and how they are computed. The entry has the
        others, and behind them arrays that the recipe takes."""
        from tilewright.runtime.recipe import write  # brings operators along

        pending = [c for c in weights.constants if varies(c)]
        recipe = write(pending, [weight for _, weight in ports.weights])
        if recipe is None:
            return None
        fixed = [a for a, c in zip(program.constants, weights.constants, strict=True) if not varies(c)]
        self.programs[-1] = replace(program, constants=(*fixed, *recipe.arrays))
        row |= {
            "weights": [self.numbers[n] for n, _ in ports.weights],
            "varies": [varies(c) for c in weights.constants],
            "recipe": recipe.text,
            "functions": {name: len(self.programs) + n for n, name in enumerate(recipe.programs)},
        }
        self.programs += recipe.programs.values()
        return row


@dataclass
class _Reading:
    """An entry as it is read, for the graph at hand."""

    place: Place
    bundle: Bundle

    def __post_init__(self) -> None:
        self.nodes = self.place.captured.nodes
        self.about: Mapping[str, Any] = self.bundle.about

    def failed(self) -> list[Failed]:
        """What ran in PyTorch, as it was found."""
        return [{self.nodes[n]: str(why) for n, why in one} for one in self.about["failed"]]

    def call(self) -> Call:
        """The function that runs the graph."""
        captured = self.place.captured
        source = captured.begin()
        for row in self.about["steps"]:
            if isinstance(row, int):
                source.eager(self.nodes[row])
            else:
                self._step(row, source)
        return captured.finish(source)

    def _step(self, row: Mapping[str, Any], source: Any) -> None:
        program = self.bundle.program(row["program"])
        ports = Ports(
            [self.nodes[n] for n in row["inputs"]],
            [self.nodes[n] for n in row["results"]],
            self._symbols(row["symbols"]),
            int(row["spare"]),
        )
        weights = None
        if "weights" in row:
            program, weights, own = self._weights(row, program)
            ports.weights = [(self.nodes[n], weight) for n, weight in zip(row["weights"], own, strict=True)]
        executable = Executable(program, None, cached=True, threads=self.place.options.threads, weights=weights)
        parts = [Part(behind, tuple(made), tuple(freed)) for behind, made, freed in row["parts"]]
        source.compiled(ports, executable, None if weights is None else Cache(weights, ports.weights), parts)

    def _weights(self, row: Mapping[str, Any], program: Program) -> tuple[Program, Weights, list[Weight]]:
        """The program with all of its constants, these, and the weights that they vary with."""
        from tilewright.runtime.recipe import Recipe, read  # brings operators along, for graphs with weights

        count = row["varies"].count(False)
        fixed, arrays = program.constants[:count], program.constants[count:]
        functions = {str(name): self.bundle.program(n) for name, n in row["functions"].items()}
        names = tuple([self.nodes[n].name for n in row["weights"]])
        own, made = read(Recipe(row["recipe"], names, arrays, functions), self.place.keeper.compile_function)
        parts = iter(made), iter(fixed)
        constants: list[Held] = [next(parts[0]) if late else next(parts[1]) for late in row["varies"]]
        places = tuple([c if isinstance(c, np.ndarray) else np.broadcast_to(_zero(c), c.shape) for c in constants])
        return replace(program, constants=places), Weights(constants, program.checked), own

    def _symbols(self, names: Sequence[str]) -> list[Symbol]:
        """The symbols of these names, as the graph's sizes have them."""
        if not names:
            return []
        known: dict[str, Symbol] = {}
        for node in self.nodes:
            value = node.meta.get("val")
            for one in value if isinstance(value, list | tuple) else [value]:
                plain = isinstance(one, torch.Tensor) and one.layout is torch.strided
                sizes = [*one.shape, *one.stride()] if plain else [one]
                known.update((s.name, s) for s in symbols_of(sizes))
        return [known[name] for name in names]


def _zero(constant: Held) -> np.ndarray[Any, Any]:
    return np.zeros((), constant.dtype)
