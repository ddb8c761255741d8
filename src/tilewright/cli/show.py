"""`tilewright show`: the program after any stage of compilation, as text that can be read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from tilewright.cli import options
from tilewright.cli.arena_table import arena_record, arena_text, read_sizes
from tilewright.cli.fit import fitted
from tilewright.cli.highlight import highlight
from tilewright.cli.model import How, compile_model
from tilewright.cli.plan_table import plan_record, plan_text
from tilewright.cli.show_page import Measured, write_page
from tilewright.cli.tables import is_coloured
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable

WHOLE = ("llvm", "assembly")
"""The last stages, which are no programs of ours any more."""

ALONE = {
    "--html": "the page has all stages of all kernels, and the plan",
    "--stages": "it lists what --after and --kernel may name",
    "--plan": "it lists the kernels of the whole program",
    "--memory": "it lists the buffers of the whole program",
}
"""The options that show something else than a program, and why they go with none."""


StageName = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="STAGE",
        help="The stage to show, such as plan, schedule, bufferize or llvm; --stages lists all. [default: the last]",
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="K",
        help="Only this kernel, by its number or its name, such as 3 or dense1; --stages lists them.",
    ),
]
Stages = Annotated[bool, typer.Option("--stages", help="List the stages and the kernels instead.")]
Plan = Annotated[
    bool,
    typer.Option("--plan", help="List what each kernel holds, what it is expected to take, what else was priced."),
]
Memory = Annotated[bool, typer.Option("--memory", help="List the buffers of the arena: their offsets and lifetimes.")]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write a page to look at in a browser: graphs, kernels, programs."),
]
Measure = Annotated[
    bool, typer.Option("--measure/--no-measure", help="With --html: time kernels, or show predicted times.")
]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=0.0, max=86400.0, help="With --html: how long to measure. [default: 1]"),
]
Assembly = Annotated[bool, typer.Option("--assembly", help="Show the machine's instructions.")]


def show(
    model: options.Model,
    after: StageName = None,
    kernel: KernelName = None,
    stages: Stages = False,
    plan: Plan = False,
    memory: Memory = False,
    html: Html = None,
    measure: Measure = True,
    seconds: Seconds = None,
    inputs: options.Inputs = [],  # noqa: B006  (typer reads the default, nothing changes it)
    sizes: options.Sizes = [],  # noqa: B006
    seed: options.Seed = 0,
    as_json: options.Json = False,
    assembly: Assembly = False,
    target: options.TargetName = "native",
    threads: options.Threads = None,
    dims: options.Dims = [],  # noqa: B006
    level: options.Level = HIGHEST,
    off: options.Off = [],  # noqa: B006
    precision: options.Precision = PLAIN,
    choices: options.Choices = None,
    strict: options.Strict = False,
    imports: options.Imports = [],  # noqa: B006
) -> int:
    """Print a model as it is after any stage of compilation.

    With colours on a terminal, plain in a pipe. What is printed of a graph or of loops is a program: tw.parse reads it.
    With --html, all stages of all kernels are one page, with what they take on these inputs, random unless given.

    \b
    Examples:
      tilewright show model.onnx --stages
      tilewright show model.onnx --after plan
      tilewright show model.onnx --plan
      tilewright show model.onnx --memory --size batch=8
      tilewright show model.onnx --kernel 3 | less
      tilewright show model.onnx --html model.html --threads 1
    """
    asked = {"--html": html is not None, "--stages": stages, "--plan": plan, "--memory": memory}
    measured = Measured(measure, seconds, inputs, sizes, seed)
    _require_use(asked, bool(after or kernel or assembly), as_json, measured)
    how = How(level, off, dims, precision, choices=choices, strict=strict, imports=imports)
    if html is not None:
        write_page(model, html, target, threads, how, measured)
        return 0
    after = _stage(after, kernel, assembly)
    chosen = read_sizes(sizes)
    executable = compile_model(model, target, threads, how)
    if stages:
        text = fitted("\n".join(_stages_and_kernels(executable)))
    elif plan:
        text = json.dumps(plan_record(executable.plan), indent=2) if as_json else fitted(plan_text(executable.plan))
    elif memory:
        text = _memory(executable, chosen, as_json)
    else:
        program = executable.show(after=after, kernel=kernel, explain=True)
        text = highlight(program) if is_coloured() else program
    print(text)
    return 0


def _stage(after: str | None, kernel: str | None, assembly: bool) -> str | None:
    """The stage whose text is asked for; None for the last one before LLVM."""
    if assembly and after:
        raise UserError("--assembly and --after exclude each other", why="assembly comes after all stages")
    stage = "assembly" if assembly else after
    if kernel and stage in WHOLE:
        raise UserError(f"--kernel does not go with {stage}", why=f"{stage} is made of the whole program at once")
    return stage


def _require_use(asked: Mapping[str, bool], text: bool, as_json: bool, measured: Measured) -> None:
    """At most one thing can be shown; refuses options that would change nothing about it."""
    given = [option for option, wanted in asked.items() if wanted]
    if len(given) + text > 1:
        raise UserError(f"{given[0]} goes alone", why=ALONE[given[0]])
    if as_json and not (asked["--plan"] or asked["--memory"]):
        raise UserError("--json goes with --plan or --memory", why="all else is the text of programs, or a page")
    if measured.sizes and not (asked["--memory"] or asked["--html"]):
        raise UserError("--size goes with --memory or --html", why="all else is the same for all sizes")
    if not asked["--html"] and (option := measured.option()):
        raise UserError(f"{option} goes with --html", why="nothing else that is shown runs the model")


def _memory(executable: Executable, sizes: Mapping[str, int], as_json: bool) -> str:
    use = executable.arena(sizes, other=1)
    return json.dumps(arena_record(use), indent=2) if as_json else fitted(arena_text(use))


def _stages_and_kernels(executable: Executable) -> list[str]:
    return ["stages", *(f"  {name}" for name in executable.stages), "kernels", *_kernels(executable)]


def _kernels(executable: Executable) -> list[str]:
    """A line for each kernel with its template, and one below it for each template that refused it."""
    decisions, width = executable.decisions, max(map(len, executable.kernels), default=0)
    lines: list[str] = []
    for n, name in enumerate(executable.kernels):
        decision = decisions.get(name)
        lines.append(f"{n:>4}  {name:<{width}}  {decision.template if decision else ''}".rstrip())
        lines += [f"      {refusal}" for refusal in decision.refusals] if decision else []
    return lines
