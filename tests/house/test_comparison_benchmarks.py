"""What the races of random architectures and of two versions compute besides times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks import architectures, before_after, machines
from benchmarks.architecture_models import Drawn, draw, read_list, usable
from benchmarks.cases import SETS, list_cases
from benchmarks.contest import Options
from benchmarks.network_models.builder import Graph
from benchmarks.network_race import Engine, Measured, Prepared, Run
from benchmarks.timing import Samples
from benchmarks.versions import ROOT, Seconds, find_version, here

from tilewright.target import Target, native

# Drawing

FAMILIES = {"a": ["a1", "a2"], "b": ["b1"], "c": [f"c{n}" for n in range(20)]}


def drawn_with(seed: int, failing: set[str], had: list[Drawn], count: int) -> list[Drawn]:
    drawing = draw(FAMILIES, seed, had)
    while len(usable(had, count)) < count:
        family, name = next(drawing)
        had.append(Drawn(name, family, (3, 8, 8), reason="too large" if name in failing else ""))
    return had


def test_each_family_has_one_before_any_has_two() -> None:
    drawn = drawn_with(0, set(), [], 5)
    assert sorted(one.family for one in drawn[:3]) == ["a", "b", "c"]
    assert sorted(one.family for one in drawn[3:]) == ["a", "c"]
    assert len({tuple(one.name for one in drawn_with(seed, set(), [], 5)) for seed in range(20)}) > 3


def test_what_fails_is_replaced_by_the_next_of_its_family() -> None:
    plain = drawn_with(0, set(), [], 3)
    first = next(one for one in plain if one.family == "c")
    drawn = drawn_with(0, {first.name}, [], 3)
    at = [one.name for one in drawn].index(first.name)
    assert drawn[at].reason and drawn[at + 1].family == "c" and not drawn[at + 1].reason
    assert sorted(one.family for one in usable(drawn, 3)) == ["a", "b", "c"]


def test_a_longer_list_begins_with_the_shorter_one() -> None:
    failing = {"c1", "c5", "a2"}
    whole = drawn_with(3, failing, [], 12)
    assert drawn_with(3, failing, drawn_with(3, failing, [], 4), 12) == whole


def test_a_list_is_read_back(tmp_path: Path) -> None:
    assert read_list(tmp_path, 0) == []
    row = {
        "name": "a1",
        "family": "a",
        "size": [3, 8, 8],
        "parameters": 5,
        "flops": 1e9,
        "reason": "",
        "is_too_large": False,
    }
    (tmp_path / "seed-0.json").write_text(json.dumps([row]), encoding="utf-8")
    (one,) = read_list(tmp_path, 0)
    assert one == Drawn("a1", "a", (3, 8, 8), 5, 1e9)
    assert one.feeds().shape == (1, 3, 8, 8)


# The table of architectures


def measured(name: str, ours: float, **peers: float) -> Measured:
    engines = {n: Engine(Samples((s, 2 * s)), 0.5, None) for n, s in {"tilewright": ours, **peers}.items()}
    return Measured(name, 1, engines, limit=Samples((0.02, 0.03)))


def test_what_failed_counts_as_slower() -> None:
    chosen = [Drawn(name, name, (3, 8, 8), 5, 1e9) for name in ("a", "b", "c")]
    rows = [measured("a", 0.04, onnxruntime=0.02, openvino=0.08), measured("b", 0.04, onnxruntime=0.08)]
    report = architectures.report_architectures(chosen, rows)
    assert report.rows[0] == ("a", "8×8", "1.00", "1", "40.00", "20.00", "80.00", "0.50", "0.50", "50%", "0.50")
    assert report.data[-1]["over faster"] == pytest.approx(1.0) and report.data[-1]["at least as fast"] == 1
    assert "1 of 3" in report.note
    assert {len(row) for row in report.rows} == {len(report.heads)}


def test_what_was_replaced_is_listed_and_what_was_too_large_is_counted() -> None:
    drawn = [Drawn("a", "a"), Drawn("b", "b", reason="broken"), Drawn("c", "c", reason="9 GFLOP", is_too_large=True)]
    report = architectures.report_replaced(drawn)
    assert report.rows == [("b", "broken")]
    assert report.note == "of 3 drawn; 1 were larger than the draw allows"


# Two versions


def small(folder: Path) -> Prepared:
    graph = Graph("small")
    graph.end(y=graph.gemm(graph.numbers("x", 2, 3), 4))
    onnx.save(graph.model(), folder / "small.onnx")
    np.savez(folder / "small.npz", **graph.feeds)  # type: ignore[arg-type]
    return Prepared("small", folder / "small.onnx", folder / "small.npz", graph.flops)


def run_in(folder: Path) -> Run:
    return Run(Options(2, 0.002), folder, folder)


def plan_of(before: Path | str, folder: Path) -> before_after.Plan:
    versions = (find_version("before", str(before), folder), here(folder))
    return before_after.Plan(versions, ("native",), (1,), 2, 1)


def test_a_version_is_raced_and_compiled_against_itself(tmp_path: Path) -> None:
    case = list_cases(("pools",), Options(only="max 3×3/2 4×64"))[0]
    run = run_in(tmp_path)
    calls, compiled = before_after.measure_case(run, case, plan_of(ROOT, tmp_path))
    assert run.failures.cases == []
    (one,), (made,) = calls, compiled
    assert len(one.before.seconds) == len(one.after.seconds) == 2 * 2
    assert one.faster.best > 0 and made.share.cpu > 0 and made.before.wall > 0


def test_another_result_is_a_failure(tmp_path: Path) -> None:
    run, prepared = run_in(tmp_path), small(tmp_path)
    other = tmp_path / "other"
    (other / "tilewright").mkdir(parents=True)
    (other / "tilewright" / "__init__.py").write_text(FAKE, encoding="utf-8")
    versions = (find_version("before", str(other), tmp_path), here(tmp_path))
    versions[1].compile(prepared, "native")
    with pytest.raises(before_after.WorkerFailed, match="not the result of before: output 0 is off by"):
        before_after.race_pairs(run, prepared, "native", 1, before_after.Plan(versions, ("native",), (1,), 1, 1))


FAKE = """
import numpy as np

class Port:
    name = "x"

class Program:
    inputs = [Port]
    def __call__(self, x):
        return np.full((2, 4), 1e3, np.float32)

Executable = Program

def compile(model, **options):
    return Program()
"""
"""A package whose programs give something else."""


def test_nothing_is_timed_where_the_machine_cannot_be_measured(tmp_path: Path) -> None:
    """A version may measure a few times, each process going on where the one before ended."""
    for busy in (3, 99):
        folder = tmp_path / str(busy)
        other = folder / "other" / "tilewright"
        other.mkdir(parents=True)
        (other / "__init__.py").write_text(UNSETTLED.format(busy=busy), encoding="utf-8")
        plan = plan_of(folder / "other", folder)
        if busy > 3:
            with pytest.raises(SystemExit, match=r"before: the machine is too busy .*: gather_cycles\. Run it while"):
                before_after.require_settled(plan)
        else:
            before_after.require_settled(plan)
            assert (folder / "before-store.kept" / "processes").read_text() == "3"


UNSETTLED = """
import os, pathlib

def parse(text):
    return text

class Program:
    pass

def compile(model, target):
    store = pathlib.Path(os.environ["TILEWRIGHT_STORE"])
    store.mkdir(exist_ok=True)
    count = store / "processes"
    had = int(count.read_text()) if count.exists() else 0
    count.write_text(str(had + 1))
    found = "measured" if had + 1 >= {busy} else "estimate: its measurements do not agree: the machine was busy"
    made = Program()
    made.program = made.target = made
    made.origins = [("ghz", "measured"), ("gather_cycles", found)]
    return made
"""
"""A package that measures its machine in so many processes."""


def test_a_version_that_cannot_compile_says_why(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    broken = Prepared("broken", tmp_path / "model.onnx", tmp_path / "none.npz", 0.0)
    with pytest.raises(RuntimeError, match=r"^after: "):
        here(tmp_path).compile(broken, "native")


def test_words_that_name_no_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="neither a folder with the package nor a commit"):
        find_version("before", "no-such-commit", tmp_path)


def test_ratios_below_their_bar_are_marked() -> None:
    calls = [
        before_after.Calls("a", "native", 1, Samples((0.9, 1.2)), Samples((1.0, 1.2))),
        before_after.Calls("b", "native", 1, Samples((1.6, 2.0)), Samples((1.0, 1.0))),
    ]
    report = before_after.report_calls(calls)
    assert [row[-3:] for row in report.rows[:2]] == [("0.900", "0.950", "slower"), ("1.600", "1.800", "")]
    assert report.data[-1]["best"] == pytest.approx((0.9 * 1.6) ** 0.5)
    made = before_after.report_compiled([before_after.Compiled("a", "native", Seconds(2.0, 1.0), Seconds(1.0, 0.8))])
    assert made.rows[0] == ("a", "native", "2.000", "1.000", "0.500", "0.800")


def test_every_list_of_cases_has_names_of_its_own() -> None:
    options = Options()
    for name in SETS:
        names = [case.name for case in list_cases((name,), options)]
        assert len(set(names)) == len(names), name
    assert len(list_cases(("networks",), options)) == 9


# Machines with other rates


def test_rates_put_in_by_hand_replace_those_of_the_machine(tmp_path: Path) -> None:
    here, other = native(), machines.with_rates(native(), {"peaks": {"memory_gbs": 7.0}})
    assert other.peaks.memory_gbs == 7.0 and other.core == here.core
    assert isinstance(other, Target) and other.fingerprint() != here.fingerprint()
    with pytest.raises(SystemExit, match="typo"):
        machines.with_rates(native(), {"peaks": {"typo": 7.0}})
