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
import faulthandler
import json
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime.checked import Guarded

HERE = Path(__file__).resolve().parent
SECONDS = 60
"""A case may take so long; a larger one hangs."""
BYTES = 6 << 30
"""The address space of a worker."""
RESULT_BYTES = "64M"
"""What a call may take for results and buffers."""
CHUNK = 50
"""So many cases share a process."""

Array = np.ndarray[Any, Any]


def run_case(seed: int) -> tuple[str, str]:
    """(refused, fault, result or defect; what there is to say about it)."""
    from hostile_models import draw

    import tilewright as tw
    from tilewright.report.errors import RuntimeFault, UserError

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


def compared(case: Any, model: Any, found: dict[str, Array]) -> tuple[str, str]:
    """Whether the results are those of the evaluator."""
    from tilewright.frontends.onnx.importer import read
    from tilewright.graph.evaluate import evaluate
    from tilewright.graph.nodes import Module
    from tilewright.lower.graph.fix_dimensions import fix_dimensions

    module = read(model) if isinstance(model, bytes) else Module({model.name: model}, {}, model.name)
    expected = evaluate(fix_dimensions(module, case.dims), case.feeds)
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


def work(first: int, count: int) -> None:
    """A worker: a line for each case before it begins and after it, so that the last one is known after a crash."""
    prepare()
    for seed in range(first, first + count):
        print(json.dumps([seed, "begin", ""]), flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        kind, text = outcome(seed)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps([seed, kind, text]), flush=True)


def prepare() -> None:
    """What bounds a case in this process."""
    os.environ |= {"TILEWRIGHT_STORE": "off", "TILEWRIGHT_MEMORY_LIMIT": RESULT_BYTES}
    os.environ["TILEWRIGHT_COMPILE_PROCESSES"] = "1"
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")


def run_chunk(first: int, count: int) -> list[tuple[int, str, str]]:
    """What came of these cases, each in a worker; another one takes over behind a case that ends the first."""
    found: list[tuple[int, str, str]] = []
    end = first + count
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # its threads wait for ever where memory is limited
    while first < end:
        command = [sys.executable, __file__, "--work", str(first), str(end - first)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        lines = [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]
        found += [line for line in lines if line[1] != "begin"]
        began = [line[0] for line in lines if line[1] == "begin"]
        if done.returncode == 0 and len(began) == end - first:
            break
        last = began[-1] if began else first
        if not any(line[0] == last and line[1] != "begin" for line in lines):
            how = "runs on" if "Timeout (" in done.stderr else f"ends the process with {done.returncode}"
            found.append((last, "defect", f"{how}\n{done.stderr[-1500:]}"))
        first = last + 1
    return found


def run(first: int, count: int, processes: int) -> Iterator[tuple[int, str, str]]:
    """What came of cases first … first + count: (number, refused/fault/result/defect, what there is to say)."""
    chunks = [(at, min(CHUNK, first + count - at)) for at in range(first, first + count, CHUNK)]
    with ThreadPoolExecutor(processes) as pool:
        for found in pool.map(lambda chunk: run_chunk(*chunk), chunks):
            yield from found


def show(seed: int) -> None:
    """Prints a case and what came of it, in this process."""
    from hostile_models import draw
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
    prepare()
    print(*run_case(seed), sep="\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int)
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(*chosen.work)
        return 0
    if chosen.show is not None:
        show(chosen.show)
        return 0
    counts: dict[str, int] = {}
    for done, (seed, kind, text) in enumerate(run(chosen.first, chosen.count, chosen.processes), 1):
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "defect":
            print(f"case {seed}: {text}\n", flush=True)
        if sys.stderr.isatty():
            print(f"\r{done} of {chosen.count}", end="", file=sys.stderr)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if counts.get("defect") else 0


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())
