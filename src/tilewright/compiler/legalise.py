"""The end of the pipeline: from loops functions with blocks to what code generation takes."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core.passes import Level, Pass
from tilewright.core.switches import ALL_ON, Switches
from tilewright.graph.nodes import Module
from tilewright.graph.verify import verify as verify_module
from tilewright.loops.nodes import Function
from tilewright.lower.loops.expand_math import expand_math
from tilewright.lower.loops.flatten_buffers import flatten_buffers
from tilewright.lower.loops.full_masks import full_masks
from tilewright.lower.loops.fuse_multiply_add import fuse_multiply_add
from tilewright.lower.loops.lower_blocks import lower_blocks
from tilewright.lower.loops.outline_parallel import outline_parallel
from tilewright.lower.loops.promote_halves import promote_halves
from tilewright.lower.loops.select_instructions import select_instructions
from tilewright.lower.loops.simplify_indices import simplify_indices
from tilewright.lower.loops.unroll import unroll
from tilewright.lower.loops.vectorize import vectorize
from tilewright.lower.memory.check_memory import check_memory
from tilewright.target import Target


def verify_program(module: Module) -> None:
    """Checks the laws of loops, and that the entry's arena is laid out right."""
    verify_module(module)
    check_memory(module)


GRAPH: Level[Module] = Level("graph", str, verify_module)
LOOPS: Level[Module] = Level("loops", str, verify_program)


def legalise(target: Target, switches: Switches = ALL_ON) -> list[Pass[Module]]:
    """The passes from loops functions with blocks to what code generation takes."""

    def each(change: Callable[[Function], Function]) -> Callable[[Module], Module]:
        return lambda module: over_functions(module, change)

    passes = [
        Pass("lower-blocks", each(lower_blocks), LOOPS),
        Pass("fuse-multiply-add", each(fuse_multiply_add) if target.has_fma else lambda m: m, LOOPS, since=2),
        Pass("promote-halves", each(promote_halves), LOOPS),
        Pass("expand-math", each(lambda f: expand_math(f, target.has_fma)), LOOPS),
        Pass("flatten", each(flatten_buffers), LOOPS),
        Pass("simplify-indices", each(simplify_indices), LOOPS, since=1),
        Pass("select-instructions", each(lambda f: select_instructions(f, target)), LOOPS),
        Pass("outline-parallel", outline_parallel, LOOPS),
        Pass("vectorize", each(lambda f: vectorize(f, target.vector_registers)), LOOPS),
        Pass("full-masks", each(full_masks), LOOPS, since=2),
        Pass("unroll", each(unroll), LOOPS),
    ]
    return switches.choose(passes)


def over_functions(module: Module, change: Callable[[Function], Function]) -> Module:
    """The module with every kernel changed; its entry stays as it is."""
    for function in module.functions.values():
        if isinstance(function, Function) and function.name != module.entry:
            changed = change(function)
            if changed is not function:
                module = module.with_function(changed)
    return module
