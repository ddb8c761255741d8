"""Graphs compiled with more than one processor: workers begin before anything is read, and a backward graph is compiled
beside its forward one. Both are known when a joint graph is parted, but PyTorch asks for the backward one when the
first gradient is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright.frontends.torch.captured import Captured

if TYPE_CHECKING:
    from tilewright.frontends.torch.compiling import Compiler, ModuleCompiler
    from tilewright.graph.nodes import Module
    from tilewright.runtime.executable import Executable


@dataclass
class Beside:
    """The graphs that AOTAutograd makes of one of Dynamo's: one for an inference, or a forward and a `backward` one.
    `begun` is what compiles the backward graph, once it has begun with it."""

    modules: ModuleCompiler
    backward: Any = None
    begun: Compiler | None = None

    def take(self, backward: Any) -> None:
        """Takes the backward graph. PyTorch compiles a copy of it, which takes a while, lest a compiler changes it;
        ours does not."""
        self.backward = backward
        type(backward).__deepcopy__ = lambda this, memo: this  # each GraphModule has a class of its own

    def prepare(self, captured: Captured) -> None:
        """Begins with what takes a while, before a graph is read that is no backward one."""
        graphs = [captured.graph] if self.backward is None else [captured.graph, self.backward]
        self.modules.begin(min(len(graph.graph.nodes) for graph in graphs))

    def begin(self, compiler: Compiler) -> None:
        """Has a graph compiled by workers that have begun, and begins with its backward one, where both are a single
        program."""
        second: Module | None = None
        if self.backward is not None and compiler.whole() is not None:
            later = replace(compiler, captured=Captured(self.backward, is_backward=True), failed=[], steps=[])
            second = later.whole()

        def compile(model: Module, *, threads: int | None, precision: str, tune: object, denormals: str) -> Executable:
            if second is None:
                return self.modules.one(model, threads=threads, precision=precision, denormals=denormals)
            made, rest = self.modules.both(model, second, threads=threads, precision=precision, denormals=denormals)

            def finish(model: Module, **how: Any) -> Executable:
                assert model is second
                return rest()

            later.compile, self.begun = finish, later
            return made

        compiler.compile = compile

    def go_on(self, asked: Compiler) -> Compiler:
        """What goes on with the backward graph that is asked for; what is asked for itself, where none was begun."""
        compiler, self.begun = self.begun, None
        if compiler is None or not compiler.captured.is_like(asked.captured):
            return asked
        compiler.tell = asked.tell
        return compiler

    def end(self) -> None:
        """Ends what has begun and was not used."""
        self.modules.end()
