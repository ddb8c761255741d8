"""Graphs compiled: reader: what is supported? ──▶ stages: pieces, and nodes for PyTorch ──▶ a compiled step each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.torch.call import Call, Source
from tilewright.frontends.torch.captured import Captured
from tilewright.frontends.torch.options import Options
from tilewright.frontends.torch.parted import Part, parts_of
from tilewright.frontends.torch.ports import Node, Ports
from tilewright.frontends.torch.reader import Reader
from tilewright.frontends.torch.stages import Piece, is_called, part
from tilewright.frontends.torch.weights import Cache
from tilewright.graph.nodes import Module
from tilewright.runtime.executable import Executable
from tilewright.runtime.subnormals import KEEP


class Compile(Protocol):
    """`tilewright.compile`, of a module."""

    def __call__(
        self, model: Module, *, threads: int | None, precision: str, tune: str | float | None, denormals: str
    ) -> Executable: ...


class ModuleCompiler(Protocol):
    """`Compile` of one module, or of two, of the second when it is asked for. What is begun before they are read, for
    graphs of so many operators, ends where none are given."""

    def begin(self, operators: int) -> None: ...

    def end(self) -> None: ...

    def one(self, model: Module, *, threads: int | None, precision: str, denormals: str) -> Executable: ...

    def both(
        self, first: Module, second: Module, *, threads: int | None, precision: str, denormals: str
    ) -> tuple[Executable, Callable[[], Executable]]: ...


@dataclass(frozen=True, slots=True)
class Step:
    """Compiled code that runs a piece of a graph, what it takes and gives, what was prepared of its weights, and the
    parts in which a call runs it, if not at once."""

    ports: Ports
    executable: Executable
    cache: Cache | None
    parts: Sequence[Part]


@dataclass
class Compiler:
    """Compiles one graph. `failed` are the nodes that run in PyTorch, with the reasons, as they are found: `tell` hears
    of them first. `steps` are what the call runs in the end."""

    captured: Captured
    options: Options
    compile: Compile
    tell: Callable[[Mapping[Node, str]], None]
    failed: list[Mapping[Node, str]] = field(default_factory=list)
    steps: list[Step | Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._readers: dict[Piece, Reader] = {}

    def whole(self) -> Module | None:
        """What the graph is compiled from, where that is one module and nothing runs in PyTorch."""
        parts = part(self.captured.nodes, (), self.captured.whole)
        if len(parts) != 1 or not isinstance(parts[0], Piece) or self._has_checks():
            return None
        reader = self._read(parts[0])
        return None if reader.failed else reader.module

    def call(self) -> Call:
        """The function that runs the graph."""
        captured, eager = self.captured, self._unsupported_aside()
        while True:
            source, problem = self._written(part(captured.nodes, eager, captured.whole))
            if source is not None:
                return captured.finish(source)
            eager |= set(self._found(problem))

    def _unsupported_aside(self) -> set[Node]:
        """What is not supported, where nodes that nothing takes are in no piece: checks, say. Pieces tell all else."""
        captured = self.captured
        own = [n for n in captured.nodes if n.op == "get_attr" or is_called(n)]
        return set(self._found(self._reader(captured.placeholders, own, ()).failed)) if self._has_checks() else set()

    def _has_checks(self) -> bool:
        """Whether there are nodes that nothing takes."""
        return any(is_called(node) and not node.users for node in self.captured.nodes)

    def _found(self, failed: Mapping[Node, str]) -> Mapping[Node, str]:
        if failed:
            self.tell(failed)
            self.failed.append(failed)
        return failed

    def _written(self, parts: Sequence[Piece | Node]) -> tuple[Source | None, Mapping[Node, str]]:
        """The source of a call by these steps; None, and the nodes that are not supported, or those of a piece that
        cannot be compiled as one. All pieces are read before any is compiled."""
        source, self.steps = self.captured.begin(), []
        readers = {p: self._read(p) for p in parts if isinstance(p, Piece)}
        failed = {node: why for reader in readers.values() for node, why in reader.failed.items()}
        if failed:
            return None, failed
        for piece in parts:
            if not isinstance(piece, Piece):
                source.eager(piece)
                self.steps.append(piece)
                continue
            try:
                step = self._step(readers[piece], piece)
                source.compiled(step.ports, step.executable, step.cache, step.parts)
                self.steps.append(step)
            except Unsupported as error:
                return None, {n: error.why for n in piece.nodes if n.op != "get_attr"}
        return source, {}

    def _step(self, reader: Reader, piece: Piece) -> Step:
        executable = self._executable(reader.module)
        weights = executable.weights
        cache = None if weights is None else Cache(weights, reader.found.weights)
        saved, slopes = (_read_only_by(piece.nodes, nodes) for nodes in (self.captured.saved, self.captured.slopes))
        return Step(reader.found, executable, cache, parts_of(executable.program, reader.found, saved, slopes))

    def _executable(self, module: Module) -> Executable:
        """Subnormal numbers are what PyTorch makes of them, whose threads `torch.set_flush_denormal` tells."""
        chosen, kept = self.options, KEEP
        return self.compile(
            module, threads=chosen.threads, precision=chosen.precision, tune=chosen.tune, denormals=kept
        )

    def _read(self, piece: Piece) -> Reader:
        """What reads a piece, which is read once."""
        if piece not in self._readers:
            self._readers[piece] = self._reader(piece.inputs, piece.nodes, piece.outputs)
        return self._readers[piece]

    def _reader(self, inputs: Sequence[Node], nodes: Sequence[Node], outputs: Sequence[Node]) -> Reader:
        captured = self.captured
        spent = _read_only_by(nodes, captured.spent)
        reader = Reader(inputs, nodes, outputs, captured.constant, steady=captured.weights, spent=spent)
        reader.read()
        return reader


def _read_only_by(nodes: Sequence[Node], inputs: Collection[Node]) -> set[Node]:
    """The inputs that none but these nodes read."""
    own = set(nodes)
    return {node for node in inputs if own.issuperset(node.users)}
