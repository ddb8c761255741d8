"""`tilewright show`: the program after any stage of compilation, as text that can be read back."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tilewright.cli import options
from tilewright.cli.arena_table import arena_record, arena_text, read_sizes
from tilewright.cli.highlight import highlight
from tilewright.cli.model import How, compile_model
from tilewright.cli.plan_table import plan_record, plan_text
from tilewright.cli.tables import is_coloured
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable

WHOLE = ("llvm", "assembly")
"""The last stages, which are no programs of ours any more."""


def show(
    model: options.Model,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="STAGE", help="The stage to show. [default: the last one before LLVM]"),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="K", help="Only this kernel, by its number or its name.")
    ] = None,
    stages: Annotated[bool, typer.Option("--stages", help="List the stages and the kernels instead.")] = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="List what each kernel holds, what it is expected to take, what else was priced."),
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="List what lies where in the arena during a call, and how long.")
    ] = False,
    sizes: options.Sizes = [],  # noqa: B006  (typer reads the default, nothing changes it)
    as_json: options.Json = False,
    assembly: Annotated[bool, typer.Option("--assembly", help="Show the machine's instructions.")] = False,
    target: options.TargetName = "native",
    threads: options.Threads = None,
    dims: options.Dims = [],  # noqa: B006
    level: options.Level = HIGHEST,
    off: options.Off = [],  # noqa: B006
    precision: options.Precision = PLAIN,
) -> int:
    """Print a model as it is after any stage of compilation.

    With colours on a terminal, plain in a pipe. What is printed of a graph or of loops is a program: tw.parse reads it.

    \b
    Examples:
      tilewright show model.onnx --stages
      tilewright show model.onnx --after plan
      tilewright show model.onnx --plan
      tilewright show model.onnx --plan --dim sequence=1
      tilewright show model.onnx --memory --size batch=8
      tilewright show model.onnx --kernel 3 | less
    """
    _check_alone(stages, plan, memory, bool(after or kernel or assembly))
    if as_json and not (plan or memory):
        raise UserError("--json goes with --plan or --memory", why="all else is the text of programs")
    if sizes and not memory:
        raise UserError("--size goes with --memory", why="all else is the same for all sizes")
    if assembly and after:
        raise UserError("--assembly and --after exclude each other", why="assembly comes after all stages")
    after = "assembly" if assembly else after
    chosen = read_sizes(sizes)
    if kernel and after in WHOLE:
        raise UserError(f"--kernel does not go with {after}", why=f"{after} is made of the whole program at once")
    executable = compile_model(model, target, threads, How(level, off, dims, precision))
    if stages:
        print("\n".join(["stages", *(f"  {name}" for name in executable.stages)]))
        print("\n".join(["kernels", *_kernels(executable)]))
        return 0
    if plan:
        print(json.dumps(plan_record(executable.plan), indent=2) if as_json else plan_text(executable.plan))
        return 0
    if memory:
        use = executable.arena(chosen, other=1)
        print(json.dumps(arena_record(use), indent=2) if as_json else arena_text(use))
        return 0
    text = executable.show(after=after, kernel=kernel, explain=True)
    print(highlight(text) if is_coloured() else text)
    return 0


def _check_alone(stages: bool, plan: bool, memory: bool, text: bool) -> None:
    """At most one thing can be printed."""
    if stages and (plan or memory or text):
        raise UserError("--stages goes alone", why="it lists what --after and --kernel may name")
    if plan and (memory or text):
        raise UserError("--plan goes alone", why="it lists the kernels of the whole program")
    if memory and text:
        raise UserError("--memory goes alone", why="it lists the buffers of the whole program")


def _kernels(executable: Executable) -> list[str]:
    """A line for each kernel with its template, and one below it for each template that refused it."""
    decisions, width = executable.decisions, max(map(len, executable.kernels), default=0)
    lines: list[str] = []
    for n, name in enumerate(executable.kernels):
        decision = decisions.get(name)
        lines.append(f"{n:>4}  {name:<{width}}  {decision.template if decision else ''}".rstrip())
        lines += [f"      {refusal}" for refusal in decision.refusals] if decision else []
    return lines
