"""Random models against ONNX's reference evaluator.

    python tests/models/fuzz_models.py --count 20000 --first 0      every defect, with the number that draws it again
    python tests/models/fuzz_models.py --show 17                    one model, and what comes of it
    python tests/models/fuzz_models.py --show 17 --write it.onnx    its file, of the nodes that lead to the defect alone

Models are compiled several at a time, in processes of their own, so that a crash or a hang is a defect of its models.
What is drawn stands in `fuzz/`; where the reference evaluator is wrong, in `fuzz/reference.py`; what is refused, and
why, in `fuzz/refusals.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import isolated
import numpy as np
from fuzz.drawing import GROUP, put_together
from fuzz.outcomes import Outcome, drawn, of_models, outcome, reduced
from onnx import printer, save
from rich.console import Console
from rich.table import Table

from tilewright.api.programs import compile_model  # noqa: F401  loads the compiler before processes are forked

KINDS = ("right", "refused", "defect")

LIMITS = isolated.Limits(processor=120.0, cases=8)
"""Of the models of a group."""


def of_group(group: int) -> list[tuple[int, str, str, tuple[str, ...]]]:
    """What comes of the models of a group."""
    return [astuple(o) for o in of_models([drawn(seed) for seed in range(group * GROUP, (group + 1) * GROUP)])]


def of_model(seed: int) -> list[tuple[int, str, str, tuple[str, ...]]]:
    """What comes of one model."""
    return [astuple(o) for o in of_models([drawn(seed)])]


def run(groups: range, processes: int) -> Iterator[Outcome]:
    """What comes of the models of these groups; where a group ends its process, of one model after another."""
    for group, answer in isolated.answers(of_group, groups, processes, LIMITS):
        if isinstance(answer, isolated.Ended):
            yield from one_by_one(range(group * GROUP, (group + 1) * GROUP), answer.how)
        else:
            yield from (Outcome(*each) for each in answer)


def one_by_one(seeds: range, how: str) -> list[Outcome]:
    """What comes of models that together ended their process: at least one of them is a defect."""
    found = []
    for seed, answer in isolated.answers(of_model, seeds, 1, LIMITS):
        found.append(Outcome(seed, "defect", answer.how) if isinstance(answer, isolated.Ended) else Outcome(*answer[0]))
    if all(o.kind != "defect" for o in found):
        found[0] = Outcome(found[0].seed, "defect", f"together with those up to {seeds[-1]}: {how}")
    return found


def summary(found: list[Outcome]) -> Table:
    """Operators by how many models that are right, refused or defects have them."""
    by = {kind: Counter(name for o in found if o.kind == kind for name in set(o.operators)) for kind in KINDS}
    table = Table("operator", *KINDS)
    for name in sorted(set().union(*by.values())):
        table.add_row(name, *(str(by[kind][name] or "") for kind in KINDS))
    return table


def fuzz(first: int, count: int, processes: int) -> int:
    """Prints defects as they are found, then what the operators came to."""
    groups = range(first // GROUP, -(-(first + count) // GROUP))
    found: list[Outcome] = []

    def each() -> Iterator[isolated.Outcome]:
        for o in run(groups, processes):
            found.append(o)
            yield o.seed, o.kind, o.text

    counts = isolated.report(each(), len(groups) * GROUP)
    Console(soft_wrap=True, markup=False, highlight=False).print(summary(found))
    print(isolated.describe(counts))
    return 1 if counts.get("defect") else 0


def show(seed: int, path: Path | None) -> int:
    """Prints a model and what comes of it, in this process; writes the part of it that is to blame."""
    model = drawn(seed)
    model, (kind, text) = reduced(model) if path else (model, outcome([model]))
    proto = put_together([model])
    print(printer.to_text(proto))
    for name, array in model.feeds.items():
        print(f"{name}: {array.dtype}{list(array.shape)} {array.reshape(-1)[:16]}")
    print(kind, text)
    if path:
        save(proto, path)
    return 1 if kind == "defect" else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int)
    parser.add_argument("--write", type=Path)
    chosen = parser.parse_args()
    isolated.prepare()
    np.seterr(all="ignore")
    if chosen.show is not None:
        return show(chosen.show, chosen.write)
    return fuzz(chosen.first, chosen.count, chosen.processes)


if __name__ == "__main__":
    sys.exit(main())
