"""The end of the pipeline: from loops functions with blocks to what code generation takes."""

from __future__ import annotations

from tilewright.compiler.kernels import Kernel, KernelPass, on_functions
from tilewright.core.passes import Level
from tilewright.core.switches import ALL_ON, Switches
from tilewright.graph.nodes import Module
from tilewright.graph.verify import verify as verify_module
from tilewright.loops.nodes import Function
from tilewright.lower.loops.check_indices import check_indices
from tilewright.lower.loops.expand_math import expand_math
from tilewright.lower.loops.flatten_buffers import flatten_buffers
from tilewright.lower.loops.full_masks import full_masks
from tilewright.lower.loops.fuse_multiply_add import fuse_multiply_add
from tilewright.lower.loops.keep_awake import keep_awake
from tilewright.lower.loops.known_tails import known_tails
from tilewright.lower.loops.lower_blocks import lower_blocks
from tilewright.lower.loops.move_lanes import move_lanes
from tilewright.lower.loops.narrow_casts import expand_narrow_casts
from tilewright.lower.loops.order_sums import order_sums
from tilewright.lower.loops.outline_parallel import outline_parallel
from tilewright.lower.loops.promote_f16 import promote_f16
from tilewright.lower.loops.select_instructions import select_instructions
from tilewright.lower.loops.simplify_indices import simplify_indices
from tilewright.lower.loops.unroll import unroll
from tilewright.lower.loops.vectorize import vectorize
from tilewright.lower.memory.check_memory import check_memory
from tilewright.lower.memory.guard_buffers import guard_buffers
from tilewright.target import Target
from tilewright.target.instructions import byte_dots


def verify_program(module: Module) -> None:
    """Checks the laws of loops, and that the entry's arena is valid: buffers that are alive together do not overlap."""
    verify_module(module)
    check_memory(module)


GRAPH: Level[Module] = Level("graph", str, verify_module)
LOOPS: Level[Module] = Level("loops", str, verify_program)


def legalise(target: Target, switches: Switches = ALL_ON) -> list[KernelPass]:
    """The passes from loops functions with blocks to what code generation takes: all for kernels alone."""
    joined = fuse_multiply_add if target.has_fma else lambda function: function

    def guarded(module: Module) -> Module:
        return guard_buffers(module, target)

    passes = [
        KernelPass(
            "guard-buffers", guarded, LOOPS, alone=lambda kernel: kernel, rest=lambda module, _: guarded(module)
        ),
        on_functions("lower-blocks", lower_blocks, LOOPS),
        on_functions("fuse-multiply-add", joined, LOOPS, since=2),
        on_functions("narrow-casts", expand_narrow_casts, LOOPS),
        on_functions("promote-f16", promote_f16, LOOPS),
        on_functions("expand-math", lambda f: expand_math(f, target.has_fma, bool(byte_dots(target))), LOOPS),
        on_functions("flatten", flatten_buffers, LOOPS),
        on_functions("simplify-indices", simplify_indices, LOOPS, since=1),
        on_functions("select-instructions", lambda f: select_instructions(f, target), LOOPS),
        KernelPass("outline-parallel", outline_parallel, LOOPS, alone=_outlined),
        on_functions("vectorize", lambda f: vectorize(f, target.vector_registers), LOOPS),
        on_functions("full-masks", full_masks, LOOPS, since=2),
        on_functions("unroll", unroll, LOOPS),
        on_functions("keep-awake", keep_awake, LOOPS, since=2),
        on_functions("known-tails", lambda f: known_tails(f, target), LOOPS, since=2),
        on_functions("move-lanes", lambda f: move_lanes(f, target), LOOPS, since=2),
        on_functions("order-sums", lambda f: order_sums(f, target), LOOPS, since=2),
        KernelPass("check-indices", check_indices, LOOPS, alone=_checked, rest=lambda module, _: check_indices(module)),
    ]
    return switches.choose(passes)


def _checked(kernel: Kernel) -> Kernel:
    """The kernel with a check of every access."""
    module = check_indices(Module({f.name: f for f in kernel.functions}))
    return kernel.with_functions(f for f in module.functions.values() if isinstance(f, Function))


def _outlined(kernel: Kernel) -> Kernel:
    """The kernel with the bodies of its parallel loops as functions."""
    module = outline_parallel(Module({f.name: f for f in kernel.functions}))
    return kernel.with_functions(f for f in module.functions.values() if isinstance(f, Function))
