"""Random models against ONNX's reference evaluator.

    python tests/models/fuzz_models.py --count 20000 --first 0      every defect, with the number that draws it again
    python tests/models/fuzz_models.py --show 17                    one model, and what comes of it
    python tests/models/fuzz_models.py --show 17 --write it.onnx    its file, of the nodes that lead to the defect alone

Models are compiled several at a time, in processes of their own, so that a crash or a hang is a defect of its models.
What is drawn stands in `fuzz/`; where the reference evaluator is wrong, in `fuzz/reference.py`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SECONDS = 120
"""The models of a group take at most so long; more is a hang."""
CHUNK = 5
"""So many groups share a process."""


def work(first: int, groups: int, single: bool) -> None:
    """A worker: a line before each group, or model, and a line for each outcome."""
    from fuzz.outcomes import drawn, of_group, of_models
    from hostile_runs import prepare

    prepare()
    for at in range(first, first + groups):
        print(json.dumps(["begin", at]), flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        found = of_models([drawn(at)]) if single else of_group(at)
        faulthandler.cancel_dump_traceback_later()
        for o in found:
            print(json.dumps([o.seed, o.kind, o.text, *o.operators]), flush=True)


def run_worker(first: int, count: int, single: bool) -> tuple[list[list[Any]], int | None, str]:
    """(outcomes, the group or model at which the process ended, how it ended)."""
    command = [sys.executable, __file__, "--work", str(first), str(count), *(["--single"] if single else [])]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # its threads wait for ever where memory is limited
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    found, began = [line for line in lines if line[0] != "begin"], [line[1] for line in lines if line[0] == "begin"]
    if done.returncode == 0 and len(began) == count:
        return found, None, ""
    how = "runs on" if "Timeout (" in done.stderr else f"ends the process with {done.returncode}"
    return found, began[-1] if began else first, f"{how}\n{done.stderr[-1500:]}"


def run_chunk(first: int, count: int, single: bool = False) -> list[list[Any]]:
    """What came of these groups, or models: [number, kind, text, operators …]. The models of a group that ends its
    process run one by one."""
    from fuzz.drawing import GROUP

    found: list[list[Any]] = []
    end = first + count
    while first < end:
        outcomes, at, how = run_worker(first, end - first, single)
        if at is None:
            return found + outcomes
        if single:
            found += [*outcomes, [at, "defect", how]]
        else:
            numbers = range(at * GROUP, (at + 1) * GROUP)
            found += [o for o in outcomes if o[0] not in numbers] + run_chunk(at * GROUP, GROUP, True)
        first = at + 1
    return found


def run(first: int, count: int, processes: int) -> Iterator[list[Any]]:
    """What came of the models of these groups."""
    chunks = [(at, min(CHUNK, first + count - at)) for at in range(first, first + count, CHUNK)]
    with ThreadPoolExecutor(processes) as pool:
        for found in pool.map(lambda chunk: run_chunk(*chunk), chunks):
            yield from found


def summary(found: list[list[Any]]) -> Any:
    """Operators by how many models that are right, refused or defects have them."""
    from rich.table import Table

    by = {kind: Counter(name for line in found if line[1] == kind for name in set(line[3:])) for kind in KINDS}
    table = Table("operator", *KINDS)
    for name in sorted(set().union(*by.values())):
        table.add_row(name, *(str(by[kind][name] or "") for kind in KINDS))
    return table


KINDS = ("right", "refused", "defect")


def fuzz(first: int, count: int, processes: int) -> int:
    """Prints defects as they are found, then what the operators came to."""
    from fuzz.drawing import GROUP
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(soft_wrap=True, markup=False, highlight=False)
    found: list[list[Any]] = []
    groups = -(-count // GROUP)
    with Progress(
        *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn(), console=console
    ) as bar:
        task = bar.add_task("models", total=groups * GROUP)
        for line in run(first // GROUP, groups, processes):
            found.append(line)
            bar.advance(task)
            if line[1] == "defect":
                console.print(f"model {line[0]}: {line[2]}\n")
    console.print(summary(found))
    kinds = Counter(line[1] for line in found)
    console.print(", ".join(f"{kinds[kind]} {kind}" for kind in KINDS))
    return 1 if kinds["defect"] else 0


def show(seed: int, path: Path | None) -> int:
    """Prints a model and what comes of it, in this process; writes the part of it that is to blame."""
    from fuzz.drawing import put_together
    from fuzz.outcomes import drawn, outcome, reduced
    from hostile_runs import prepare
    from onnx import printer, save

    prepare()
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
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--single", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(*chosen.work, chosen.single)
        return 0
    if chosen.show is not None:
        return show(chosen.show, chosen.write)
    return fuzz(chosen.first, chosen.count, chosen.processes)


if __name__ == "__main__":
    sys.exit(main())
