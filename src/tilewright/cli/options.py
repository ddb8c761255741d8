"""Options that several commands share, so that they are spelt and explained alike."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.core.switches import HIGHEST

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="An ONNX file, or one that `tilewright compile` wrote.", show_default=False),
]

Inputs = Annotated[
    list[str],
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="An input: NAME=@x.npy, NAME=[1,2,3], or NAME=0.5 for all of it. @x.npz gives the inputs it holds.",
        show_default=False,
    ),
]

Sizes = Annotated[
    list[str],
    typer.Option(
        "--size",
        metavar="NAME=N",
        help="Sizes of dynamic dimensions of random inputs, such as n=32,length=128. [default: some that fit]",
        show_default=False,
    ),
]

Dims = Annotated[
    list[str],
    typer.Option(
        "--dim",
        metavar="NAME=N",
        help="Compile for this size of a dynamic dimension alone, such as sequence=1; or the dimensions of an input "
        "without a rank, 'x=[n, 3]'. May be given again.",
        show_default=False,
    ),
]

Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Where random data starts: a whole number.")]

TARGETS = (
    "native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64, riscv64 or wasm; "
    "with features: 'x86-64-v3 +avxvnni -f16c'"
)
"""What the options for targets take."""

TargetName = Annotated[str, typer.Option("--target", metavar="TARGET", help=f"The machine to compile for: {TARGETS}.")]

Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, max=4096, help="Threads to use. [default: one for each core]"),
]

Level = Annotated[
    int,
    typer.Option(
        "-O",
        metavar="LEVEL",
        min=0,
        max=HIGHEST,
        help="How much is optimised: 0 nothing, 1 graph and plan, 2 kernels too, 3 also what changes rounding.",
    ),
]

PASSES = (
    "simplify, keep-packed, integers, whole-numbers, fold, reciprocals, sink, units, lay-columns, merge, in-place, "
    "merge-products, turn-places, winograd, merge-taps, lay-out, orient, fold-oriented, strassen, reduce-precision, "
    "lay-rows, shift-signs, widen, share, drop, plan, run-late, schedule, hoist, share-out, overwrite, alternate, "
    "fuse-multiply-add, simplify-indices, full-masks, keep-awake, known-tails, move-lanes, order-sums"
)
"""The passes that may be left out. It is text, since help is printed without the compiler; a test compares both."""

Off = Annotated[
    list[str],
    typer.Option(
        "--off", metavar="PASS", help=f"A pass to leave out; may be given again: {PASSES}.", show_default=False
    ),
]

Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="f32|bf16",
        help="f32: as the model says. bf16: factors of f32 products may be rounded to bf16, where faster.",
    ),
]

Choices = Annotated[
    str | None,
    typer.Option(
        "--choices",
        metavar="FILE",
        help="A JSON file of how kernels are to run, by their names, as `tilewright why MODEL KERNEL --json` tells it: "
        '{"dense1": {"template": "contraction", "choice": {…}}}.',
        show_default=False,
    ),
]

Denormals = Annotated[
    str | None,
    typer.Option(
        "--denormals",
        metavar="keep|flush",
        help="keep: compute with subnormal numbers. flush: take them for zero. [default: flush at -O 3, or as in a "
        "compiled file]",
        show_default=False,
    ),
]

Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse files that ONNX does not allow, of which there are only warnings otherwise."),
]

Imports = Annotated[
    list[str],
    typer.Option(
        "--import",
        metavar="MODULE",
        help="A module, or its file, that registers operators of its own; may be given again.",
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
