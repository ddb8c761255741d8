"""Runs models with extreme integers (hostile_models.py) in processes of their own: an error, or a right result.

    python tests/models/hostile_runs.py --count 3000 --first 0         every defect, with the number that draws it again
    python tests/models/hostile_runs.py --show 17                      one case: its model, its inputs, what came of it

A case is right when compiling or running ends in an error for users (`UserError`, `RuntimeFault`), or when the results
are those of the graph's evaluator, bit for bit the same wherever the arrays lie. Inputs and results lie against pages
that nobody may touch: once they end where such a page begins, once they begin where one ends. A crash, a hang, another
exception, more memory than a case may take, or another result is a defect.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import isolated
import numpy as np
from hostile_models import Case, draw

import tilewright as tw
from tilewright.api.programs import compile_model  # noqa: F401  loads the compiler before processes are forked
from tilewright.frontends.onnx.importer import read
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.lower.graph.fix_dimensions import fix_dimensions
from tilewright.report.errors import RuntimeFault, UserError
from tilewright.runtime.checked import Guarded

LIMITS = isolated.Limits(processor=60.0)

Array = np.ndarray[Any, Any]


def run_case(seed: int) -> tuple[str, str]:
    """(refused, fault, result or defect; what there is to say about it)."""
    case = draw(seed)
    try:
        model = tw.parse(case.model) if isinstance(case.model, str) else case.model
        exe = tw.compile(model, dims=case.dims or None)
    except UserError as error:
        return "refused", str(error)
    guarded = Guarded()
    found: list[dict[str, Array]] = []
    for at_end in (True, False):
        feeds = {name: guarded.copy(a, at_end) for name, a in case.feeds.items()}
        try:
            if found:
                out = {name: guarded.array(a.shape, a.dtype, at_end) for name, a in found[0].items()}
                exe.run(feeds, out=out)
                found.append({name: np.array(a) for name, a in out.items()})
                continue
            first = exe.run(feeds)
            out = {name: guarded.array(a.shape, a.dtype, at_end) for name, a in first.items()}
            exe.run(feeds, out=out)
            found += [first, {name: np.array(a) for name, a in out.items()}]
        except (RuntimeFault, UserError) as error:
            return ("defect", f"a second call fails: {error}") if found else ("fault", str(error))
    for other in found[1:]:
        for name, array in other.items():
            if array.tobytes() != found[0][name].tobytes():
                return "defect", f"{name} differs with the place of the arrays"
    return compared(case, model, found[0])


def compared(case: Case, model: bytes | GraphFunction, found: dict[str, Array]) -> tuple[str, str]:
    """Whether the results are those of the evaluator."""
    module = read(model) if isinstance(model, bytes) else Module({model.name: model}, {}, model.name)
    try:
        expected = evaluate(fix_dimensions(module, case.dims), case.feeds)
    except UserError as error:  # an empty array of a shape beyond NumPy's, which the program never makes
        if "the evaluator cannot hold" not in str(error):
            raise
        return "result", ", ".join(f"{name}{list(a.shape)}" for name, a in found.items())
    for name, wanted in expected.items():
        got = found[name]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            return "defect", f"{name} is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        if not np.allclose(got, wanted, rtol=1e-3, atol=1e-3, equal_nan=True):
            return "defect", f"{name} is {got.reshape(-1)[:8]}, not {wanted.reshape(-1)[:8]}"
    return "result", ", ".join(f"{name}{list(a.shape)}" for name, a in found.items())


def outcome(seed: int) -> tuple[str, str]:
    """What came of a case; whatever is no error for users is a defect."""
    try:
        return run_case(seed)
    except Exception as error:
        return "defect", f"{type(error).__name__}: {error}"


def show(seed: int) -> None:
    """Prints a case and what came of it, in this process."""
    from onnx import ModelProto, printer

    case = draw(seed)
    if isinstance(case.model, str):
        print(case.model)
    else:
        proto = ModelProto.FromString(case.model)
        print(printer.to_text(proto))
    for name, array in case.feeds.items():
        print(f"{name}: {array.dtype}{list(array.shape)} {array.reshape(-1)[:16]}")
    print(case.kind, case.dims, flush=True)
    print(*run_case(seed), sep="\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int)
    chosen = parser.parse_args()
    isolated.prepare()
    np.seterr(all="ignore")
    if chosen.show is not None:
        show(chosen.show)
        return 0
    numbers = range(chosen.first, chosen.first + chosen.count)
    counts = isolated.report(isolated.outcomes(outcome, numbers, chosen.processes, LIMITS), chosen.count)
    print(isolated.describe(counts))
    return 1 if counts.get("defect") else 0


if __name__ == "__main__":
    sys.exit(main())
