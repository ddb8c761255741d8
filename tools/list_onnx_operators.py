"""Writes docs/onnx-support.md from the registry of the ONNX front end and the list of the suite's expected failures.

    python tools/list_onnx_operators.py            prints the page
    python tools/list_onnx_operators.py --write    writes it

The number of cases in the suite is read from the page, unless `--cases N` gives another.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections import defaultdict
from pathlib import Path

from tilewright.frontends.build.handlers import NEWEST, Handler
from tilewright.frontends.onnx.operators import HANDLERS
from tilewright.frontends.onnx.tensors import ELEMENTS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "onnx-support.md"
FAILURES = ROOT / "tests" / "models" / "onnx_expected_failures.txt"
CASES = 1884

HEAD = """# ONNX operators and element types

This page is written by `tools/list_onnx_operators.py` from the front end's registry; a test keeps it current.

**Element types**: {types}.

**Operators**: {count} of the standard domain have a handler, and some of ONNX Runtime's domain `com.microsoft`; they are
listed below with the versions of the operator set that the handler is for, the inputs it takes, and its attributes. Any other standard operator that ONNX defines by a
function body, and every function that a model brings along, is expanded into these. What none of this covers is one
error that lists every such node of the model, before anything is compiled.

**The ONNX project's backend suite**: {passed:,} of {cases:,} node cases pass ({share:.1%}), all in
compiled code. The other {failed:,} are listed one by one in `tests/models/onnx_expected_failures.txt`; a listed case
that passes fails the tests. They are, by the reason:

{reasons}

## Limits

- Dimensions may be symbols, bound by the shapes of each call, and sizes may be computed from data while a model runs
  (`NonZero`, `Compress`, a `Reshape` by an input). The number of dimensions of every value must follow from the model,
  or be given by `dims=` for an input without one.
- Sizes of the weights of a convolution are numbers of the model, not of the call.
- Sparse initializers and constants are made dense: 1 GiB of them in a model, or as much as `Limits(dense_bytes=…)` says.
- No strings, sequences, optionals or maps. No complex numbers other than as pairs. No floats of six bits.
- Integers of two and four bits and floats of four and eight bits are stored, moved, cast, quantized and dequantized; what
  computes takes them after a `Cast` ([Narrow types](compile-onnx.md#narrow-types)).
- Random numbers are those of a counter-based generator (Threefry-2x32): the same ones in each call, on each machine, for one
  `seed=` ([how they follow from it](compile-onnx.md#random-numbers)). They are not those of other runtimes.
- An `If` whose condition is known while the model is read is decided then; otherwise one branch runs, and no check of the
  other one fails. Where the two give different element types or ranks, as `squeeze(dim)` does in files of PyTorch, what takes
  their results is read in each of them, until all that is used later has one type in both, which it must in the end; a branch
  that is contradicted must not be taken, which each call checks. At most 20,000 nodes may be read so: an `If` costs what it does
  alone where ranks agree before the next one, and doubles what it and the next one share where they do not.
- A function that both branches of an `If` end with is called once, behind them. Any other function is read again for each call.
- Recurrent layers take any number of steps, symbolic ones too. So do `Loop` and `Scan`: the number of steps may come from
  data, a condition may end a `Loop` early, and states may change their sizes from step to step. They keep their element types
  and numbers of dimensions, and all slices of a stacked output have the size of the first one, which must not depend on data
  of the step; where they do not, a loop of at most 256 steps whose number is known while the model is read is unrolled. So are
  loops of at most 8 steps, those in one another as long as that makes at most 64 copies. An output that is stacked by no step
  has the extents of a slice, as ONNX infers them: no slices of shape [3] are [0, 3] (ONNX Runtime makes that [0, 0] where the
  body declares a name for the size, and [0] where it declares nothing). Ctrl-C ends a loop in
  Python's main thread; one whose outputs or states grow ends with a fault at `TILEWRIGHT_MEMORY_LIMIT`.
- Sums and products of 16-bit floats are kept in f32 and rounded once.
- A product of f32 or f64 and the sum that adds it up may be rounded once, by a fused multiply-add. Such a product does not become an
  infinity before it is added: -inf + 1.5·3.4·10³⁸ is -inf, where the operators one by one give inf - inf, which is NaN.
  `off=["fuse-multiply-add"]` switches this off.
- Variances of normalizations are in the type that `stash_type` names, f32 by default, as ONNX says: where squares of
  deviations are beyond its range (from 1.8·10¹⁹ on), results are those of an infinite variance, zero times the scale. ONNX
  Runtime's `LayerNormalization` gives what f64 does.
- Convolutions of f32 by 3×3 windows, stride 1 or 2, may be computed by Winograd's products of tiles. Their outputs are off by
  at most 10⁻³ of the sum of |w| times the largest |x| of a tile (random data: about 10⁻⁵ of the largest output), and an
  infinity or NaN reaches all outputs of its tiles. `TILEWRIGHT_WINOGRAD=0` switches this off. With `precision="bf16"` factors
  of tiles of 2×2 may be rounded, too ([what that does to errors](compile-onnx.md#products-in-bf16)).
- Products of f32 by constants with known numbers of rows may be computed by seven products of half the size (Strassen's
  scheme, once). Results are off by at most 10⁻⁴ of the sum of |w| times the largest |x| of a pair of rows (random data: by twice
  as much as the product itself, about 10⁻⁶ of the largest result), and an infinity or NaN reaches the row that its own is paired
  with: 0 and 1, 2 and 3, and so on. `TILEWRIGHT_STRASSEN=0` switches this off;
  with `precision="bf16"`, products whose factors are better rounded are left whole.
- Integers that sizes and places follow from (attributes, shapes, amounts of padding, steps) are at most 2⁴⁰ in magnitude,
  and a tensor has at most 2³⁶ elements, 2³² where its size comes from data; larger ones are errors that name the operator.
  Bounds that an operator clamps (the end of a `Slice`, `Shape`'s `end`) and numbers that are data may be any of 64 bits.
- Indices that come from data are checked in every call: one outside its range is an error that names the operator.

## Operators with a handler

`1-12` means the versions 1 to 12 of the operator set, `13-` from version 13 on. An attribute with `=` may be left out
and then has that value; one with `?` may be left out.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="writes docs/onnx-support.md")
    parser.add_argument("--write", action="store_true", help="write the page instead of printing it")
    parser.add_argument("--cases", type=int, help="node cases of the suite, where their number has changed")
    options = parser.parse_args()
    text = page(options.cases or cases_of(PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""))
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def cases_of(text: str) -> int:
    """The number of cases of the suite that a page speaks of."""
    found = re.search(r"of ([\d,]+) node cases pass", text)
    return int(found[1].replace(",", "")) if found else CASES


def page(cases: int) -> str:
    """The whole page."""
    listed = failures()
    failed = sum(len(names) for names in listed.values())
    types = ", ".join(element.name for element in ELEMENTS.values())
    passed = cases - failed
    head = HEAD.format(
        types=types, count=sum(not domain for domain, _ in HANDLERS.table), passed=passed, cases=cases, share=passed / cases, failed=failed,
        reasons=reasons(listed),
    )  # fmt: skip
    return "\n".join([head, *sections()])


def failures() -> dict[str, list[str]]:
    """The expected failures by the heading they stand under."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in FAILURES.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.strip():
            found.setdefault(heading, []).append(line)
    return found


def reasons(listed: dict[str, list[str]]) -> str:
    """A table of the reasons; headings `KIND: OPERATOR` are gathered by their kind."""
    gathered: dict[str, int] = defaultdict(int)
    subjects: dict[str, set[str]] = defaultdict(set)
    for heading, names in listed.items():
        kind, _, subject = heading.partition(": ")
        key = kind if re.fullmatch(r"[\w.]+( \(expanded\))?", subject) else heading
        gathered[key] += len(names)
        if key == kind and subject:
            subjects[key].add(subject.removesuffix(" (expanded)"))
    rows = ["| cases | reason |", "|---|---|"]
    for key, count in sorted(gathered.items(), key=lambda item: (-item[1], item[0])):
        of = f": {', '.join(f'`{s}`' for s in sorted(subjects[key]))}" if subjects[key] else ""
        rows.append(f"| {count} | {key}{of} |")
    return "\n".join(rows)


def sections() -> list[str]:
    """A section for each family of operators."""
    families: dict[str, list[tuple[str, Handler]]] = defaultdict(list)
    for (domain, operator), handlers in HANDLERS.table.items():
        for handler in handlers:
            family = inspect.getmodule(handler.function)
            assert family is not None
            name = f"{domain}.{operator}" if domain else operator
            families[family.__name__.rpartition(".")[2]].append((name, handler))
    parts = []
    for family, rows in sorted(families.items()):
        lines = [f"### {family}", "", "| operator | versions | inputs | attributes |", "|---|---|---|---|"]
        lines += [row(name, handler) for name, handler in sorted(rows, key=lambda r: (r[0], r[1].since))]
        parts.append("\n".join(lines) + "\n")
    return parts


def row(name: str, handler: Handler) -> str:
    """The row of a handler."""
    versions = f"{handler.since}-" + (str(handler.until) if handler.until < NEWEST else "")
    least, named, variadic = handler.inputs
    inputs = f"{least}…" if variadic else str(least) if least == named else f"{least}-{named}"
    attributes = []
    for attribute, p in sorted(handler.attributes.items()):
        default = "" if p.required else "?" if p.default is None else f"={attribute_text(p.default)}"
        attributes.append(f"`{attribute}{default}`")
    return f"| `{name}` | {versions} | {inputs} | {' '.join(attributes)} |"


def attribute_text(value: object) -> str:
    """A default as a model writes it."""
    if isinstance(value, tuple):
        return "[" + ",".join(map(attribute_text, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
