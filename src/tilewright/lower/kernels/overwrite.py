"""Kernels write over an operand that nobody reads afterwards, where that is legal: one buffer less in the arena.

    call exp(x, a)                          call exp(x, a)
    call relu(a, b)               =>        view b: f32[64] = a
    call softmax(b, y)                      call relu(a, b)
                                            call softmax(b, y)

`overwrite` says of a kernel which of its outputs may lie over which inputs (analysis/overwriting.py), in its text as
`b: f32[64] over a`. Nothing else changes, but code generation does not say of these that they are apart. Where a call
uses that, `write_over_dying` decides: the operand is in the arena, or a parameter that the caller has no use for
afterwards, all of its buffer, passed once, made in the same loop as the result, and this is its last use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tilewright.analysis.overwriting import may_lie_over
from tilewright.expr.nodes import Var
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Buffer, CallFunction, Function, View
from tilewright.lower.memory.loop_lives import Step, lives_of
from tilewright.lower.memory.plan_memory import size_in_bytes
from tilewright.types.scopes import Scope


def overwrite(kernel: Function) -> Function:
    """The kernel with every pair of an input and an output that may be the same memory."""
    inputs, outputs = kernel.params[: kernel.inputs], kernel.params[kernel.inputs :]
    over = [
        (n, m)
        for m, result in enumerate(outputs)
        for n, source in enumerate(inputs)
        if source.scope is Scope.ARGUMENT and may_lie_over(kernel, result, source).legal
    ]
    return kernel.replace(over=tuple(over)) if over else kernel


def write_over_dying(
    steps: Sequence[Step],
    root: dict[Buffer, Buffer],
    home: Mapping[Buffer, tuple[Var, ...]],
    module: Module,
    spent: Collection[Buffer] = (),
) -> list[Step]:
    """The steps with results as views of operands that die with the call that makes them: of buffers of the arena, and
    of parameters that are `spent`. `root` is the buffer whose memory a buffer is, which these views change; `home` the
    loops that it was made in."""
    lives = {life.buffer: life for life in lives_of(steps, root, home, spent)}
    begins = {b: life.first for b, life in lives.items() if b not in spent}
    ends = {b: life.last for b, life in lives.items()}
    made: list[Step] = []
    for n, step in enumerate(steps):
        for source, result in _pairs(step, module):
            below = root[source]
            fresh = root[result] is result and begins.get(result) == n
            dying = ends.get(below) == n and [root[b] for b in step.touches].count(below) == 1
            if not (fresh and dying and home.get(below, ()) == home[result] == step.inside):
                continue
            if size_in_bytes(below) is size_in_bytes(result):
                ends[below] = ends[result]
                root.update((b, below) for b, whole in list(root.items()) if whole is result)
                made.append(Step(View(result, source), (source,), inside=step.inside))
        made.append(step)
    return made


def _pairs(step: Step, module: Module) -> list[tuple[Buffer, Buffer]]:
    """The operands and results of a call that may be the same memory."""
    call = step.statement
    callee = module.functions[call.callee] if isinstance(call, CallFunction) else None
    if not isinstance(call, CallFunction) or not isinstance(callee, Function):
        return []
    first = len(call.arguments) - callee.outputs
    return [(call.arguments[source], call.arguments[first + output]) for source, output in callee.over]
