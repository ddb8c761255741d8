"""Run every node case of the ONNX backend suite, rewrite `onnx_expected_failures.txt` and print the share that passes.

    python tests/models/update_expected_failures.py [--jobs N]

Each job is a process of its own that is started again when a case crashes it or runs into the time limit. Such a case
is printed and not listed, for a crash is never an expected failure; the exit status is then 1. So it is when a case
that was not listed before fails now: it is listed, but also printed by name, to be looked at before the list is kept.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import onnx
from onnx.backend.test.case.test_case import TestCase
from test_onnx_backend import CASES, LIMIT, LIST, read_list, run_case

from tilewright.report.errors import UserError

CRASHED = "crashes the process or exceeds the time limit"
UNKNOWN = ("FLOAT6", "COMPLEX")
BASES = {case.name: case.model.graph.node[0] for case in CASES if "_expanded" not in case.name}


def subject(case: TestCase) -> str:
    """The operator under test; of a function's expansion the function."""
    name, expanded, _ = case.name.partition("_expanded")
    node = BASES[name]
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
    return f"{domain}{node.op_type}{' (expanded)' if expanded else ''}"


def unsupported_value(case: TestCase) -> str | None:
    """What about the kind of the case's inputs and outputs the compiler does not have."""
    for value in (*case.model.graph.input, *case.model.graph.output):
        if not value.type.HasField("tensor_type"):
            return "values that are not tensors: sequences, optionals, maps"
        element = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
        if element == "STRING":
            return "strings"
        if element.startswith(UNKNOWN):
            return "element types: floats of six bits, complex numbers"
    return None


def is_random(case: TestCase) -> bool:
    """The expected values are one draw of NumPy's generator."""
    return "bernoulli" in case.name or "training_dropout" in case.name


def reason_of(case: TestCase, error: Exception) -> str:
    """The heading under which a failed case is listed."""
    if is_random(case) and isinstance(error, AssertionError):
        return "random values: the case expects the draw of another generator"
    if case.name.startswith("test_dft_inverse") and isinstance(error, AssertionError):
        return "rounding: the case expects that of NumPy's f32 transform, to 1e-7; ours is nearer to the exact result"
    if isinstance(error, AssertionError):
        return f"another result: {subject(case)}"
    if isinstance(error, UserError):
        return unsupported_value(case) or f"refused: {subject(case)}"
    return f"{type(error).__name__}: {subject(case)}"


def serve(jobs: Connection) -> None:
    """A job's loop: indices of cases come in, reasons (None: passed) go out."""
    while True:
        case = CASES[jobs.recv()]
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        try:
            run_case(case)
            reason = None
        except Exception as error:
            reason = reason_of(case, error)
        faulthandler.cancel_dump_traceback_later()
        jobs.send(reason)


@dataclass
class Job:
    """A process and the case it has in hand."""

    process: BaseProcess
    pipe: Connection
    case: int


def start(case: int) -> Job:
    """A new process, forked so that it has the loaded cases, with a case in hand."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    ours.send(case)
    return Job(process, ours, case)


def outcomes(jobs: int) -> Iterator[tuple[TestCase, str | None]]:
    """Each case with the reason why it fails, or None, as they finish."""
    rest = iter(range(len(CASES)))
    busy = {job.pipe: job for job in (start(case) for case in islice(rest, jobs))}
    while busy:
        for pipe in wait(list(busy)):
            job = busy.pop(pipe)
            try:
                reason = job.pipe.recv()
            except (EOFError, ConnectionError):
                reason = CRASHED
            yield CASES[job.case], reason
            following = next(rest, None)
            if following is None:
                job.process.kill()
                job.process.join()
            elif reason == CRASHED:
                fresh = start(following)
                busy[fresh.pipe] = fresh
            else:
                job.case = following
                job.pipe.send(following)
                busy[pipe] = job


def write_list(failures: dict[str, str]) -> None:
    """Write the failures, one name a line, grouped under their reasons."""
    groups = defaultdict(list)
    for name, reason in failures.items():
        groups[reason].append(name)
    sections = ("\n".join((f"# {reason}", *sorted(groups[reason]))) for reason in sorted(groups))
    LIST.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def main() -> int:
    """Run all cases and rewrite the list; 1 if any crashed or stopped passing."""
    parser = argparse.ArgumentParser(description="rewrite the list of node cases that do not pass")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    options = parser.parse_args()
    os.environ["TILEWRIGHT_STORE"] = "off"
    before = read_list().keys()
    results = {case.name: reason for case, reason in outcomes(options.jobs)}
    crashed = sorted(name for name, reason in results.items() if reason == CRASHED)
    failures = {name: reason for name, reason in results.items() if reason not in (None, CRASHED)}
    write_list(failures)
    lost = sorted(failures.keys() - before)
    passed = len(results) - len(failures) - len(crashed)
    for heading, names in ((CRASHED, crashed), ("not listed before", lost), ("won", sorted(before - failures.keys()))):
        print(f"{heading}: {len(names)}", *names, sep="\n  ")
    print(f"{passed} of {len(results)} cases pass: {passed / len(results):.1%} ({len(failures)} listed)")
    return 1 if crashed or lost else 0


if __name__ == "__main__":
    sys.exit(main())
