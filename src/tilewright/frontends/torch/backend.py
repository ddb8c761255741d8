"""Graphs of torch.compile, compiled: what AOTAutograd calls for a forward graph, a backward one, and an inference.

graph ──▶ reader: what is supported? ──▶ stages: pieces, and nodes for PyTorch ──▶ call: one generated function
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import unset_fake_temporarily

from tilewright.frontends.build.problems import Problems, Unsupported
from tilewright.frontends.torch.call import Call, Source
from tilewright.frontends.torch.decompositions import decompositions
from tilewright.frontends.torch.options import ERROR, PACKED, Options
from tilewright.frontends.torch.reader import Read, Reader
from tilewright.frontends.torch.stages import Node, Piece, draws, is_called, is_item, part, split_views
from tilewright.frontends.torch.weights import Cache, steady_inputs
from tilewright.graph.nodes import Module
from tilewright.runtime.executable import Executable


class TorchWarning(UserWarning):
    """Operators of a graph run in PyTorch. The warning lists them all; `options={"fallback": "error"}` makes it an
    error."""


class Compile(Protocol):
    """`tilewright.compile`, of a module."""

    def __call__(
        self, model: Module, *, threads: int | None, precision: str, tune: str | float | None
    ) -> Executable: ...


def make_backend(options: Options, compile: Compile) -> Callable[[Any, Sequence[Any]], Any]:
    """The backend that torch.compile calls with a graph of Dynamo and example inputs."""

    def backend(graph: Any, examples: Sequence[Any]) -> Any:
        def compiler(graph: Any, inputs: Sequence[Any]) -> Call:
            return compile_graph(graph, options, compile)

        def inference(graph: Any, inputs: Sequence[Any]) -> Call:
            steady = steady_inputs(examples) if options.weights == PACKED else ()
            return compile_graph(graph, options, compile, steady)

        aot: Callable[[Any, Sequence[Any]], Any] = aot_autograd(
            fw_compiler=compiler,
            bw_compiler=compiler,
            inference_compiler=inference,
            decompositions=decompositions(),
            partition_fn=min_cut_rematerialization_partition,
        )
        return aot(graph, examples)

    return backend


def compile_graph(graph: Any, options: Options, compile: Compile, steady: Collection[int] = ()) -> Call:
    """What runs a graph of ATen operators whose nodes carry fake tensors: a function of one list of arguments, which it
    empties; `steady` are the numbers of those that are weights. UserError for what is not supported, where nothing may
    run in PyTorch."""
    with unset_fake_temporarily():
        return _Graph(graph, options, compile, steady).call()


@dataclass
class _Graph:
    graph: Any
    options: Options
    compile: Compile
    steady: Collection[int]

    def __post_init__(self) -> None:
        self.nodes: list[Node] = list(self.graph.graph.nodes)
        self.placeholders = [n for n in self.nodes if n.op == "placeholder"]
        self.weights = {n for k, n in enumerate(self.placeholders) if k in self.steady}
        (last,) = [n for n in self.nodes if n.op == "output"]
        self.results: Sequence[Any] = last.args[0]
        self.wanted = {r for r in self.results if isinstance(r, torch.fx.Node)}

    def call(self) -> Call:
        own = [n for n in self.nodes if n.op == "get_attr" or is_called(n)]
        failed = self._reader(self.placeholders, own, ()).failed
        self._tell(failed)
        eager = set(failed)
        views, whole = split_views(self.wanted)
        while True:
            source, problem = self._written(part(self.nodes, eager, whole))
            if source is not None:
                for node in [n for n in self.nodes if n in views]:
                    source.view(node)
                return source.make(self.results)
            self._tell(problem)
            eager |= set(problem)

    def _written(self, steps: Sequence[Piece | Node]) -> tuple[Source | None, dict[Node, str]]:
        """The source of a call by these steps; None, and the nodes of a piece that cannot be compiled as one."""
        source = Source()
        source.begin(self.placeholders)
        for node in self.nodes:
            if node.op == "get_attr":
                source.names[node] = source.refer("k", self._constant(node.target))
        for step in steps:
            if not isinstance(step, Piece):
                source.eager(step)
                continue
            reader = self._reader(step.inputs, step.nodes, step.outputs)
            if reader.failed:
                return None, reader.failed
            try:
                executable = self._executable(reader.found)
                weights = executable.weights
                cache = None if weights is None else Cache(weights, reader.found.weights)
                source.compiled(reader.found, executable.call_at, cache)
            except Unsupported as error:
                return None, {n: error.why for n in step.nodes if n.op != "get_attr"}
        return source, {}

    def _executable(self, read: Read) -> Executable:
        chosen = self.options
        return self.compile(read.module, threads=chosen.threads, precision=chosen.precision, tune=chosen.tune)

    def _reader(self, inputs: Sequence[Node], nodes: Sequence[Node], outputs: Sequence[Node]) -> Reader:
        reader = Reader(inputs, nodes, outputs, self._constant, steady=self.weights)
        reader.read()
        return reader

    def _constant(self, target: str) -> Any:
        """What a get_attr node stands for."""
        found = self.graph
        for name in target.split("."):
            found = getattr(found, name)
        return found

    def _tell(self, failed: Mapping[Node, str]) -> None:
        """One warning, or one error, for the nodes that run in PyTorch; draws are PyTorch's by what they mean."""
        shown = {n: why for n, why in failed.items() if not draws(n) and not is_item(n) and n.op != "get_attr"}
        if not shown:
            return
        if self.options.fallback == ERROR:
            problems = Problems()
            for node, why in shown.items():
                fix = 'options={"fallback": "eager"} lets PyTorch run it'
                problems.add(f"{node.target} is not supported here", where=place_of(node), why=why, fix=fix)
            problems.check("the graph uses what is not supported")
        rows = [f"  {node.target} at {place_of(node)}: {why}" for node, why in shown.items()]
        text = "\n".join([f"PyTorch runs {len(rows)} of {len(self.nodes)} nodes of a graph:", *dict.fromkeys(rows)])
        warnings.warn(TorchWarning(text), stacklevel=2)


def place_of(node: Node) -> str:
    """The line of the user's program that a node comes from, or its name where nobody knows."""
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    lines = [line.strip() for line in trace if line.strip().startswith("File ")]
    return lines[-1].removeprefix("File ") if lines else node.name
