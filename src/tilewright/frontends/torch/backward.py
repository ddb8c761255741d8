"""Backward graphs compiled beside their forward ones: both are known when a graph is parted, but PyTorch asks for the
backward one when its first gradient is wanted, and a machine with several cores has nothing to do until then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright.frontends.torch.captured import Captured

if TYPE_CHECKING:
    from tilewright.frontends.torch.compiling import CompileBoth, Compiler
    from tilewright.graph.nodes import Module
    from tilewright.runtime.executable import Executable


@dataclass
class Backward:
    """A backward graph: `take` it, `begin` with it when its forward graph is compiled, and go on with what was `begun`
    when it is asked for. Without `both`, nothing is begun."""

    both: CompileBoth | None
    graph: Any = None
    compiler: Compiler | None = None

    def take(self, graph: Any) -> None:
        """The graph. PyTorch compiles a copy of it, which takes a while, lest a compiler changes it: ours does not."""
        self.graph = graph
        type(graph).__deepcopy__ = lambda this, memo: this  # each GraphModule has a class of its own

    def prepare(self, forward: Captured) -> None:
        """Begins with what compiles both graphs, before they are read: it takes a while."""
        if self.both is not None and self.graph is not None:
            self.both.begin(min(len(forward.nodes), len(self.graph.graph.nodes)))

    def begin(self, forward: Compiler) -> Compiler:
        """What compiles the forward graph, and begins with this one, where both are a single program."""
        both = self.both
        if both is None or self.graph is None:
            return forward
        compiler = replace(forward, captured=Captured(self.graph, is_backward=True), failed=[], steps=[])
        second: Module | None = None
        try:
            second = None if forward.whole() is None else compiler.whole()
        finally:
            if second is None:
                both.end()
        if second is None:
            return forward

        def compile(model: Module, *, threads: int | None, precision: str, tune: object, denormals: str) -> Executable:
            executable, rest = both(model, second, threads=threads, precision=precision, denormals=denormals)

            def finish(model: Module, **how: Any) -> Executable:
                assert model is second
                return rest()

            compiler.compile, self.compiler = finish, compiler
            return executable

        forward.compile = compile
        return forward

    def begun(self, asked: Compiler) -> Compiler:
        """What goes on with the graph that is asked for; what is asked for itself, where another one was begun."""
        compiler, self.compiler = self.compiler, None
        if compiler is None or not compiler.captured.is_like(asked.captured):
            return asked
        compiler.tell = asked.tell
        return compiler
