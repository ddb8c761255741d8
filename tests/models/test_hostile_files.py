"""A slice of the files that `make fuzz-files` draws, the corpus of traps, and what their harness notices."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fuzzers
import isolated
import numpy as np
import pytest
from file_corpus import CORPUS, LARGE
from file_mutations import _nest, draw
from file_seeds import Seed, own_seeds
from onnx import ModelProto
from wire_mutations import fields, read_varint, varint

import tilewright as tw
from drawn import LONG
from tilewright.graph.nodes import GraphFunction
from tilewright.graph.parse import parse_module

COUNT = 500


def test_an_error_or_a_right_run() -> None:
    counts = fuzzers.counts(fuzzers.run("file_runs.py", "--count", str(COUNT), "--processes", "2"))
    assert sum(counts.values()) == COUNT
    assert counts["refused"] > COUNT // 3 and counts["result"] > COUNT // 20


def test_every_trap_ends_in_an_error_or_a_right_run() -> None:
    """Also of as many nodes as take minutes where the time grows with their square, where many cases run."""
    names = set(CORPUS) | set(LARGE if LONG else ())
    ran = fuzzers.run("file_runs.py", "--corpus", "--processes", "2", *["--large"] * LONG)
    lines = [line.split("\t") for line in ran.stdout.splitlines() if line.split("\t")[0] in names]
    assert ran.returncode == 0, "\n".join("\t".join(line) for line in lines if line[1] == "defect") + ran.stdout[-3000:]
    assert {line[0] for line in lines} == names


@pytest.mark.parametrize("seed", own_seeds(), ids=lambda seed: seed.name)
def test_the_seeds_are_right(seed: object, tmp_path: Path) -> None:
    from file_runs import compared, feeds_of, read, written

    path = written(seed, tmp_path)  # type: ignore[arg-type]
    module = read(path, warn=False)
    exe = tw.compile(module, level=1)
    feeds = feeds_of(exe, 0)
    assert feeds is not None and compared(module, feeds, exe.run(feeds)) == ""


def test_the_steps_of_loops_are_counted(tmp_path: Path) -> None:
    """A network that runs in no time may have more steps than the evaluator has time for."""
    from file_runs import nodes_run, read, written

    for name, steps in (("attention", 0), ("long_loop", 20)):
        module = read(written(next(s for s in own_seeds() if s.name == name), tmp_path), warn=False)
        inner = [len(f.nodes) for f in module.functions.values() if isinstance(f, GraphFunction)]
        assert nodes_run(module) == inner[0] + steps * sum(inner[1:]) and bool(steps) == (len(inner) > 1)


def test_a_case_is_the_same_each_time() -> None:
    seeds = own_seeds()
    for number in range(40):
        assert draw(number, seeds, len(seeds)) == draw(number, seeds, len(seeds))
    done = Counter(draw(n, seeds, len(seeds)).done[0].split()[0] for n in range(400))
    assert set(done) == {"bytes", "wire", "fields", "structure"}


def test_a_large_graph_is_nested_without_copies_of_it() -> None:
    """A copy a level takes minutes."""
    proto = ModelProto.FromString(own_seeds()[0].data)
    proto.graph.doc_string = "n" * (1 << 24)
    model, begin, depths = proto.SerializeToString(), time.process_time(), set()
    for number in range(12):
        data, depth = _nest(random.Random(number), ModelProto.FromString(model), ()), 0
        if data.count(b"then_branch") < 50:
            inner = ModelProto.FromString(data).graph
            while inner.node[0].op_type == "If":
                inner, depth = inner.node[0].attribute[0].g, depth + 1
            assert inner == proto.graph
        depths.add(depth)
    assert time.process_time() - begin < 10 and len(depths) > 2


def test_a_module_that_breaks_a_law_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import file_runs

    broken = parse_module("graph main(x: f32[2]) -> y:\n  y: f32[3] = exp(x)\n")
    assert "exp gives f32[2], not f32[3]" in file_runs.fault_of(broken)
    monkeypatch.setattr(file_runs, "read", lambda path, warn: broken)
    assert file_runs.Files(own_seeds(), len(own_seeds())).run(0)[0] == "defect"


def test_what_nothing_reads_may_fail() -> None:
    from file_runs import compared

    text = """
graph main(x: f32[2], i: i64[1]) -> y:
  c: i64[1] = checked_indices(i, limit=2, what="row")
  t: f32[1] = take(x, c, axis=0)
  y: f32[2] = neg(x)
"""
    feeds = {"x": np.ones(2, np.float32), "i": np.array([5])}
    found = tw.compile(parse_module(text)).run(feeds)
    assert compared(parse_module(text), feeds, found) == ""
    assert "not" in compared(parse_module(text), feeds, {"y": found["y"] + 1})
    read = parse_module(text.replace("-> y", "-> y, t"))
    assert "the evaluator stops" in compared(read, feeds, found)


def test_models_whose_names_are_no_text_are_changed() -> None:
    output = b"\x12\x01y"
    odd = [Seed(s.name, s.data.replace(output, b"\x12\x01\xff")) for s in own_seeds() if output in s.data]
    drawn = [draw(n, odd, len(odd)) for n in range(400)]
    assert len({case.data for case in drawn}) > 300


def test_numbers_in_base_128() -> None:
    for number in (0, 1, 127, 128, 300, 2**32, 2**64 - 1):
        for least in (1, 3, 10):
            data = varint(number, least)
            assert read_varint(data, 0, len(data)) == (number, len(data)) and len(data) >= least
    assert read_varint(b"\x80", 0, 1) is None
    assert fields(b"\x08\x01\x12\x02ab", 0, 6) is not None and fields(b"\x12\x05ab", 0, 4) is None


def test_a_crash_a_hang_and_a_lack_of_memory_are_defects_of_their_case() -> None:
    """In a process without threads: cases before and behind a bad one still run, and so does one that waits often."""
    ran = fuzzers.run(BAD)
    assert ran.returncode == 0, ran.stderr
    found = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert found.keys() == set("0123456789")
    assert "ends the process by SIGABRT" in found.pop("2")
    assert "takes too long" in found.pop("5")
    assert "takes too long" in found.pop("4") and "MemoryError" in found.pop("6")
    assert "ends the process with 3" in found.pop("8")
    assert {text.strip() for text in found.values()} == {"result"}


BAD = """
import os, time, isolated
def run(number):
    if number == 5: time.sleep(1000)
    for _ in range(20 * (number == 7)):
        time.sleep(0.1)
        end = time.process_time() + 0.01
        while time.process_time() < end: pass
    if number == 2: os.abort()
    while number == 4: pass
    if number == 6: bytearray(1 << 40)
    if number == 8: os._exit(3)
    return "result", ""
for number, kind, text in isolated.outcomes(run, range(10), 2, isolated.Limits(processor=0.5, clock=1, bytes=1 << 28)):
    print(number, kind, *text.split("\\n"))
"""


def test_a_process_with_threads_is_not_forked() -> None:
    ran = fuzzers.run(THREADED)
    assert "a process with threads cannot be forked" in ran.stderr and ran.returncode == 1


def test_what_was_right_is_known_to_the_processes_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    from file_runs import Files

    def told(run: object, numbers: list[int], processes: int, limits: object) -> Iterator[tuple[int, str, str]]:
        yield from ((0, "result", "0a0b"), (1, "fault", "text"), (2, "same", ""))

    monkeypatch.setattr(isolated, "outcomes", told)
    files = Files([], 0)
    assert [kind for _, kind, _ in files.outcomes([0, 1, 2], 1)] == ["result", "fault", "same"]
    assert files.known == {b"\x0a\x0b"}


THREADED = """
import threading, isolated
threading.Thread(target=threading.Event().wait, daemon=True).start()
list(isolated.outcomes(lambda number: ("result", ""), range(2)))
"""


def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = [(n, "defect" if n == 1 else "result", "text") for n in range(3)]
    assert isolated.report(iter(found), 3) == {"result": 2, "defect": 1}
    shown = capsys.readouterr()
    assert shown.out == "case 1: text\n\n" and shown.err.startswith("3 of 3 (1 defect, 2 result)")
    assert time.monotonic() > 0
