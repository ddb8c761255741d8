"""Tuning: what is found is kept and taken, what crashes, hangs or is wrong costs itself alone, and nothing slower is
kept."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from cli_models import invoke, save_affine, save_product
from tilewright.artifact.stored import compiler_version
from tilewright.cli.tune_table import TuneTable
from tilewright.compiler.pipeline import as_planned, plan_kernels
from tilewright.loops.nodes import Function
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import cheapest
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable
from tilewright.runtime.machine import measured
from tilewright.runtime.plan_report import Choices
from tilewright.store import Store
from tilewright.target import Target
from tilewright.tune import measure, parcels, search, trial
from tilewright.tune.candidates import Candidates
from tilewright.tune.measure import Failed, Makers, Trials
from tilewright.tune.network import Row, Tuning, read_budget
from tilewright.tune.parcels import LARGE, Packed, Parcel, pack
from tilewright.tune.records import Record, Records, read_text
from tilewright.tune.residual import Residual
from tilewright.tune.search import Search
from tilewright.tune.space import Choice, space_of
from tilewright.tune.strategy import BATCH, Strategy
from tilewright.tune.task import CALLERS, Maker, Task, task_alone, task_of

WIDTH = 96


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TILEWRIGHT_TUNED", "1")
    return Store.default()


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.parse("x86-64-v3") if "avx2" in measured(Target.parse("native")).features else Target.parse("native")


def task_in(model: Path, target: Target) -> Task:
    """The task of the only kernel of a model."""
    origin = tw.compile(model, target=target).origin
    assert origin is not None
    planned = plan_kernels(as_planned(origin), target, Choices())
    (kernel,) = [f for f in planned.functions.values() if isinstance(f, Function)]
    task = task_of(planned, kernel, {})
    assert task is not None
    return task


@pytest.fixture
def task(tmp_path: Path, target: Target) -> Task:
    return task_in(save_product(tmp_path, WIDTH), target)


class Crash:
    """A program that ends the process that loads it."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",)


class CrashAgain:
    """A program that ends the process that loads it, but for the first one."""

    def __init__(self, mark: Path, program: bytes) -> None:
        self.mark, self.program = mark, program

    def __reduce__(self) -> tuple[object, ...]:
        end = "__import__('os')._exit(1) if __import__('os').path.exists(mark) else open(mark, 'x').close()"
        code = f"({end}, __import__('pickle').loads(program))[1]"
        return eval, (code, {"mark": str(self.mark), "program": self.program})


class Hang:
    """A program that never ends."""

    def __reduce__(self) -> tuple[object, ...]:
        return time.sleep, (1000,)


def programs(task: Task, target: Target) -> tuple[Parcel, Parcel, Parcel]:
    """The default's program, one by another choice, and one that computes something else."""
    with Makers(target, 1) as makers:
        default, other = makers.make(task, [None, space_of(task, target)[1].asked])
        (wrong,) = makers.make(Task(task.function, 1, task.sizes, {1: np.ones((WIDTH, WIDTH), np.float32)}), [None])
    assert isinstance(default, Parcel)
    assert isinstance(other, Parcel)
    assert isinstance(wrong, Parcel)
    return default, other, wrong


def test_what_crashes_hangs_or_is_wrong_costs_itself_alone(
    task: Task, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, other, wrong = programs(task, target)
    with Trials(task.sizes, 0) as trials:
        trials.load(0, default)
        trials.load(1, other)
        with pytest.raises(Failed, match="is off by"):
            trials.load(2, wrong)
        with pytest.raises(Failed, match="ended the process"):
            trials.load(3, pickle.dumps(Crash()))
        rows = trials.time([0, 1], 3)
        assert [len(row) for row in rows] == [3, 3] and all(t > 0 for row in rows for t in row)
        monkeypatch.setattr(measure, "PATIENCE", 2.0)
        with pytest.raises(Failed, match="ended the process"):
            trials.load(4, pickle.dumps(Hang()))
        monkeypatch.undo()
        assert len(trials.time([0, 1], 2)) == 2


def test_what_crashes_when_it_is_loaded_again_costs_itself_alone(task: Task, target: Target, tmp_path: Path) -> None:
    default, other, _ = programs(task, target)
    with Trials(task.sizes, 0) as trials:
        for number, program in enumerate((default, pickle.dumps(CrashAgain(tmp_path / "loaded", other)), other)):
            trials.load(number, program)
        with pytest.raises(Failed, match="ended the process"):
            trials.load(3, pickle.dumps(Crash()))
        assert len(trials.time([0, 2], 2)) == 2
        with pytest.raises(Failed, match="could not be loaded again"):
            trials.time([0, 1], 2)
        trials.forget([1, 2])
        assert len(trials.time([0], 2)) == 1


def test_programs_whose_arrays_are_in_files_are_loaded_again(
    task: Task, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After another one has ended the process, and by the next trials."""
    monkeypatch.setattr(parcels, "LARGE", 1 << 8)
    with Makers(target, 1) as makers:
        (default,) = makers.make(task, [None])
        assert isinstance(default, Parcel) and default._files
        for _ in range(2):
            with Trials(task.sizes, 0) as trials:
                trials.load(0, default)
                with pytest.raises(Failed, match="ended the process"):
                    trials.load(1, pickle.dumps(Crash()))
                assert len(trials.time([0], 2)) == 1


def test_large_arrays_of_programs_are_in_files_while_anyone_has_the_program(tmp_path: Path) -> None:
    value = {"small": np.arange(10), "large": np.arange(LARGE // 4, dtype=np.float32)}
    packed, same = pack(value, str(tmp_path)), pack(value, str(tmp_path))
    other = pack({**value, "large": value["large"] + 1}, str(tmp_path))
    assert packed.digest == same.digest != other.digest and len(packed.data) < LARGE // 8
    kept, gone = Parcel.of(packed), Parcel.of(same)
    assert len(list(tmp_path.iterdir())) == 3
    del gone
    assert len(list(tmp_path.iterdir())) == 2
    for _ in range(2):
        found = pickle.loads(kept)
        assert all(np.array_equal(found[name], value[name]) for name in value)
    del kept
    assert list(map(str, tmp_path.iterdir())) == [*other.files]


def test_programs_are_whole_pickles_where_files_cannot_be_written(tmp_path: Path) -> None:
    value = np.arange(LARGE)
    packed = pack(value, str(tmp_path / "missing"))
    assert packed.files == () and np.array_equal(pickle.loads(packed.data), value)


class Idle:
    """A program that stores nothing."""

    def __call__(self, *feeds: np.ndarray[Any, Any], out: Any = None) -> Any:
        return out


def test_programs_store_to_the_same_memory(task: Task, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which one that stores nothing does not find the right results."""
    default, other, _ = programs(task, target)
    monkeypatch.setattr(trial, "_state", trial._State())
    trial.work(pickle.dumps(trial.Begin(task.sizes, 1 << 10)))
    for number, program in enumerate((default, other)):
        assert not pickle.loads(trial.work(pickle.dumps(trial.Load(number, program)))).wrong
    (memory,) = trial._state.results
    right = memory.copy()
    memory[...] = 0
    assert len(pickle.loads(trial.work(pickle.dumps(trial.Time((1,), 2, 0))))[0]) == 2
    assert memory == pytest.approx(right, rel=trial.TOLERANCE)
    assert "is off by nan" in trial._load(2, Idle()).wrong  # type: ignore[arg-type]
    assert list(trial._state.programs) == [0, 1]


def test_a_function_alone_is_measured_with_inputs_as_programs_have_them(task: Task, target: Target) -> None:
    with Makers(target, 1) as makers:
        (program,) = makers.make(task, [None])
    alone = task_alone(task.function, task.sizes)
    assert isinstance(alone, Task)
    assert (task.shift, alone.shift) == (0, CALLERS)
    for shift in (task.shift, alone.shift):
        (array, *_) = trial.feeds_of(pickle.loads(program), task.sizes, shift)
        assert array.ctypes.data % 64 == shift


def test_a_process_that_ends_between_messages_is_begun_again(task: Task, target: Target) -> None:
    default, other, _ = programs(task, target)
    with Trials(task.sizes, 0) as trials:
        trials.load(0, default)
        trials.load(1, other)
        assert trials.pid is not None
        os.kill(trials.pid, signal.SIGKILL)
        trials.forget([1])
        assert len(trials.time([0], 2)) == 1


class FakeMakers(Makers):
    """Makes programs in this process; the first of a batch crashes, the second hangs, the third is wrong."""

    def __init__(self, target: Target, bad: list[Parcel]) -> None:
        super().__init__(target, 1)
        self.bad = bad

    def make_each(self, task: Task, asked: Any, then: Any, holder: str = "") -> None:
        made = self.make(task, asked) if holder else []
        if not holder:
            super().make_each(task, asked, then)
        while len(made) > 1 and self.bad:
            made[len(self.bad) - 1] = self.bad.pop()
        for place, program in enumerate(made):
            then(place, program)


def test_a_search_survives_bad_candidates(task: Task, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, wrong = programs(task, target)
    bad = [
        *(Parcel.of(Packed(pickle.dumps(end), (), end.__class__.__name__.encode())) for end in (Crash(), Hang())),
        wrong,
    ]
    monkeypatch.setattr(measure, "PATIENCE", 5.0)
    with FakeMakers(target, bad) as makers, Search(task, target, makers, 0) as found:
        drawn = found.step()
        why = list(found.failed.values())
        assert (
            sum("it ended the process" in each for each in why) == 2 and sum("is off by" in each for each in why) == 1
        )
        assert drawn == min(BATCH, len(found.space)) and len(found.measured) == drawn - len(why) > 0
        record = found.confirm()
    assert record.key == task.key and set(record.measured) == set(found.measured)


def test_programs_that_are_alike_are_made_and_loaded_once(
    task: Task, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = space_of(task, target)[0].asked
    compiled: list[Function] = []
    compile_alone = Maker.compile

    def spy(self: Maker, function: Function) -> Executable:
        compiled.append(function)
        return compile_alone(self, function)

    monkeypatch.setattr(Maker, "compile", spy)
    with Makers(target, 1) as makers, Trials(task.sizes, 0) as trials:
        candidates = Candidates(makers, trials, task)
        default = candidates.load({0: None})[0]
        made = candidates.load({1: asked, 2: asked}) | candidates.load({3: asked, 4: None})
        assert [made[n].is_loaded for n in (1, 2, 3, 4)] == [True, False, False, False]
        assert made[1].digest == made[2].digest == made[3].digest != default.digest == made[4].digest
        assert len(compiled) == 2 and not any(one.why for one in made.values())
        assert Candidates(makers, trials, task).load({5: asked})[5].is_loaded  # another search has nothing yet
        assert len(compiled) == 3


def test_a_program_that_cannot_be_measured_says_so_each_time(
    task: Task, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Trials, number: int, program: bytes) -> object:
        raise Failed("it is tired")

    monkeypatch.setattr(Trials, "load", refuse)
    with Makers(target, 1) as makers, Trials(task.sizes, 0) as trials:
        candidates = Candidates(makers, trials, task)
        assert [candidates.load({n: None})[n].why for n in range(2)] == ["it is tired"] * 2


def test_a_search_knows_the_default_again(task: Task, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with Makers(target, 1) as makers, Search(task, target, makers, 0) as found:
        _, decision = cheapest(Facts(task.function), target)
        assert decision.taken is not None
        taken = replace(found.space[0], template=decision.taken.template, record=decision.taken.choice)
        monkeypatch.setattr(Strategy, "draw", lambda self: [taken])
        found.step()
        assert found.measured[taken.name] == 1.0


@pytest.mark.parametrize(("ratio", "is_kept"), [(0.5, True), (0.97, True), (0.99, False), (1.2, False)])
def test_only_what_beats_the_default_is_kept(
    task: Task, target: Target, monkeypatch: pytest.MonkeyPatch, ratio: float, is_kept: bool
) -> None:
    def time_in_turns(self: Trials, numbers: list[int], rounds: int, seed: int = 0) -> list[list[float]]:
        return [[1e-3 * (ratio if number >= search.OTHER else 1)] * rounds for number in numbers]

    monkeypatch.setattr(Trials, "time", time_in_turns)
    with Makers(target, 1) as makers, Search(task, target, makers, 0) as found:
        found.step()
        record = found.confirm()
    assert record.is_better is is_kept and (record.wins == record.pairs > 0) is is_kept


def test_a_gain_that_fresh_pairs_do_not_show_is_not_kept(
    task: Task, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lucky(self: Trials, numbers: list[int], rounds: int, seed: int = 0) -> list[list[float]]:
        fast = 1.05 if search.AGAIN in numbers else 0.5
        return [[1e-3 * (fast if number >= search.OTHER else 1)] * rounds for number in numbers]

    monkeypatch.setattr(Trials, "time", lucky)
    with Makers(target, 1) as makers, Search(task, target, makers, 0) as found:
        found.step()
        assert found.ratio == 0.5 and not found.confirm().is_better


def test_a_gain_is_that_of_pairs_where_the_machine_changes_its_pace(
    task: Task, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = [1.0] * 8 + [10.0] * 7, [0.95] * 6 + [10.0] * 2 + [9.5] * 7

    def two_paces(self: Trials, numbers: list[int], rounds: int, seed: int = 0) -> list[list[float]]:
        if search.AGAIN not in numbers:
            return [[0.5 if number else 1.0] * rounds for number in numbers]
        return [[row.pop(0) for _ in range(rounds)] for row in (first, other)]

    monkeypatch.setattr(Trials, "time", two_paces)
    with Makers(target, 1) as makers, Search(task, target, makers, 0) as found:
        found.step()
        record = found.confirm()
    assert record.wins == 13 and record.seconds == pytest.approx(0.95 * record.default_seconds)


def other_choice(task: Task, target: Target) -> Choice:
    return space_of(task, target)[-1]


def record_for(task: Task, target: Target) -> Record:
    choice = other_choice(task, target)
    return Record(task.key, "contract", choice.template, choice.record, 2e-3, 1e-3, 15, 15, {choice.name: 0.5})


def test_what_is_known_is_taken_and_told(tmp_path: Path, target: Target, store: Store) -> None:
    model = save_product(tmp_path, WIDTH)
    task = task_in(model, target)
    plain = tw.compile(model, target=target)
    record = record_for(task, target)
    Records.of(store, target, compiler_version()).keep([record])
    found = tw.compile(model, target=target)
    assert not found.cached, "the program of before is not taken for it"
    (name,) = found.kernels
    decision = found.decisions[name]
    assert decision.tuned and decision.taken is not None and decision.taken.choice == record.choice
    assert "was found by tuning" in str(tw.why(found, name))
    x = np.random.default_rng(0).standard_normal((1, WIDTH)).astype(np.float32)
    np.testing.assert_allclose(found(x)[0], plain(x)[0], rtol=1e-4, atol=1e-5)
    assert tw.compile(model, target=target).cached
    assert not tw.compile(model, target=target, tune="off").decisions[name].tuned


def test_a_choice_that_is_refused_counts_for_nothing(tmp_path: Path, target: Target, store: Store) -> None:
    model = save_product(tmp_path, WIDTH)
    task = task_in(model, target)
    stale = Record(task.key, "contract", "contraction", {"no": "such field"}, 2e-3, 1e-3, 15, 15)
    Records.of(store, target, compiler_version()).keep([stale])
    found = tw.compile(model, target=target)
    assert not any(decision.tuned for decision in found.decisions.values())


def test_records_of_two_processes_come_together(task: Task, target: Target, store: Store) -> None:
    one, other = (Records.of(store, target, "1") for _ in range(2))
    keys = [f"{n:064x}" for n in range(40)]
    threads = [
        threading.Thread(target=lambda at=at, rows=rows: [rows.keep([Record(key, "k")]) for key in keys[at::2]])
        for at, rows in enumerate((one, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Records.of(store, target, "1")) == set(keys)
    assert not Records.of(store, target, "2"), "another compiler's are not taken"


def test_damaged_records_are_dropped(task: Task, target: Target, store: Store) -> None:
    kept = Records.of(store, target, "1")
    kept.keep([record_for(task, target), Record("0" * 64, "k")])
    text = kept.text()
    (key,) = [entry.key for entry in store.entries() if b"tuning" in bytes(store.peek(entry.key) or b"")]
    good, bad = text.splitlines()
    store.put(key, f'{{"tuning": 1}}\n{bad[:-9]}\n{good}\nnull\n[]\n'.encode())
    assert list(Records.of(store, target, "1")) == [json.loads(good)["key"]]
    store.put(key, b"\xff\xfe nothing")
    assert not Records.of(store, target, "1") and not Records.of(store, target, "1").tuned()


def test_a_full_disk_loses_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save_product(tmp_path, WIDTH)
    monkeypatch.setattr(Store, "put", lambda self, *parts: False)
    with pytest.raises(UserError, match="tuning is lost"):
        tw.autotune(model, budget="100ms")


def test_the_command_tunes_and_tells(tmp_path: Path) -> None:
    model = save_product(tmp_path, WIDTH)
    outcome = invoke("tune", model, "--budget", "2s", "--json")
    assert outcome.code == 0, outcome.err
    told = json.loads(outcome.out)
    assert told["kernels"] == 1 and told["rows"][0]["kernel"] and told["kept"] in (True, False)
    listed = invoke("cache", "ls").out
    assert "tuning of 1 kernel" in listed
    assert "measured" in invoke("tune", model, "--budget", "500ms").out


def test_the_command_takes_kernels_and_threads(tmp_path: Path) -> None:
    model = save_product(tmp_path, WIDTH)
    told = json.loads(invoke("tune", model, "--budget", "4s", "--kernels", "contract", "--threads", "2", "--json").out)
    (row,) = told["rows"]
    assert row["measured"] > 0 and 0 < row["roofline"] < 2
    none = json.loads(invoke("tune", model, "--budget", "500ms", "--kernels", "no such", "--json").out)
    assert none["kernels"] == 0 and none["rows"] == []
    wrong = invoke("tune", model, "--kernels", "(")
    assert wrong.code == 2 and "it is no pattern" in wrong.err


def test_the_display_has_the_rows_as_they_stand() -> None:
    from rich.console import Console

    with TuneTable("tuning x.onnx", 60) as show:
        show(Row("conv1", 2, 0.5, 2e-3, 1.0, 8, bound=1e-3))
        show(Row("conv1", 2, 0.5, 2e-3, 0.8, 16, bound=1e-3))
        console = Console(width=100)
        with console.capture() as told:
            console.print(show.table())
    text = told.get()
    assert "s left" in text and "1.25x" in text and "62%" in text and text.count("conv1") == 1


def test_what_was_measured_before_an_interrupt_is_kept(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, steps = save_product(tmp_path, WIDTH), []

    def interrupt(row: Row) -> None:
        steps.append(row.measured)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tw.autotune(model, target=target, budget="20s", watch=interrupt)
    records = Records.of(Store.default(), target, compiler_version())
    (record,) = records.values()
    assert len(record.measured) == steps[0] > 0 and not record.is_better
    monkeypatch.setattr(Search, "step", lambda self: pytest.fail("what was measured is known"))
    monkeypatch.setattr(Search, "goes_on", property(lambda self: False))
    result = tw.autotune(model, target=target, budget="1s")
    assert result.rows[0].measured == steps[0]


def test_records_move_as_text(tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_in(save_product(tmp_path, WIDTH), target)
    words = ("--target", str(target))
    Records.of(Store.default(), target, compiler_version()).keep([record_for(task, target)])
    file = tmp_path / "kernels.jsonl"
    assert invoke("tune", "export", file, *words).code == 0
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["kernel"] == "contract" and read_text(line, "here") == [record_for(task, target)]
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "other"))
    assert invoke("tune", "import", file, *words).code == 0
    assert task.key in Records.of(Store.default(), target, compiler_version())


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save_affine(tmp_path)
    file = tmp_path / "bad.jsonl"
    file.write_text('{"key": "no"}\n')
    told = invoke("tune", "import", file)
    assert told.code == 2 and "cannot read tuning records" in told.err and "line 1 is no record" in told.err
    assert "needs a file" in invoke("tune", "export").err
    assert "cannot tune for so long" in invoke("tune", model, "--budget", "soon").err
    assert "a model is tuned alone" in invoke("tune", model, "other.onnx").err
    foreign = invoke("tune", model, "--target", "aarch64")
    assert foreign.code == 2 and "this machine cannot" in foreign.err
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    assert "cannot tune without a store" in invoke("tune", model).err


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("2m", 120), ("500ms", 0.5), (3, 3), ("1.5h", 5400)])
def test_budgets(text: str | int, seconds: float) -> None:
    assert read_budget(text) == seconds


def test_what_prices_leave_out_is_learned() -> None:
    """Choices with one value of a field take twice as long as their prices say."""
    choices = [("t", {"a": a, "b": b}) for a in range(3) for b in range(5)]
    rows = [n for n, (_, c) in enumerate(choices) if c["b"] < 4]
    residual = Residual(choices, [0.0] * 15)
    belief = residual.belief(rows, np.log([2.0 if choices[n][1]["a"] == 1 else 1.0 for n in rows]))
    found = dict(zip(((c["a"], c["b"]) for _, c in choices), np.exp(belief.mean), strict=True))
    assert found[1, 4] > 1.5 > 1.2 > found[0, 4]
    assert list(residual.belief([], []).mean) == [0.0] * 15


def test_what_holds_for_two_fields_together_is_learned() -> None:
    """Choices are slow where exactly one of two flags is set, which no sum over fields can say."""
    choices = [("t", {"a": a, "b": b, "c": c}) for a in (False, True) for b in (False, True) for c in range(6)]
    rows = [n for n, (_, c) in enumerate(choices) if c["c"] < 5]
    logs = [float(choices[n][1]["a"] != choices[n][1]["b"]) for n in rows]
    mean = Residual(choices, [0.0] * 24).belief(rows, logs).mean
    slow, fast = (
        [mean[n] for n in (5, 11, 17, 23) if (choices[n][1]["a"] != choices[n][1]["b"]) == is_slow]
        for is_slow in (True, False)
    )
    assert min(slow) > 0.8 > 0.2 > max(fast)


def test_templates_have_words_of_their_own() -> None:
    """Choices of few fields are known as well as those of many, and say nothing of those of another template."""
    choices = [
        *(("short", {"a": a}) for a in range(3)),
        *(("long", {"a": a, "b": b}) for a in range(2) for b in range(2)),
    ]
    residual = Residual(choices, [0.0] * 7)
    for known, others in ((1, range(3, 7)), (4, range(3))):
        belief, before = residual.belief([known], [0.5]), residual.belief([known], [0.0])
        assert belief.deviation[known] < 0.03
        moved = belief.mean - before.mean
        near = max(moved[n] for n in range(7) if n not in others and n != known)
        assert moved[known] > near > max(moved[n] for n in others)


def test_prices_may_be_too_flat() -> None:
    """Times grow with the third power of what is expected: the slope is learned."""
    choices = [("t", n) for n in range(20)]
    expected = [0.1 * n for n in range(20)]
    mean = Residual(choices, expected).belief(range(10), [3 * e for e in expected[:10]]).mean
    assert mean[19] - mean[9] > 2


def test_what_is_supposed_is_as_if_it_had_been_measured() -> None:
    choices = [("t", {"a": a, "b": b}) for a in range(3) for b in range(5)]
    residual = Residual(choices, [0.01 * n for n in range(15)])
    belief = residual.belief([0, 7], [0.1, -0.2])
    belief.suppose(4)
    again = residual.belief([0, 7, 4], [0.1, -0.2, float(belief.mean[4])])
    assert again.mean == pytest.approx(belief.mean) and again.deviation == pytest.approx(belief.deviation)
    assert belief.deviation[4] < 0.03 < belief.deviation[5]


def test_results_are_compared_by_what_rounding_explains() -> None:
    one = np.array([1.0, 2.0, 1000.0], np.float32)
    assert not trial.difference([one + np.float32(0.5)], [one])
    assert "is off by" in trial.difference([one + np.float32(5)], [one])
    assert "differs" in trial.difference([one.astype(np.int32) + 1], [one.astype(np.int32)])
    assert not trial.difference([np.array([np.nan, np.inf])], [np.array([np.nan, np.inf])])
    assert trial.difference([np.array([1.0, np.nan])], [np.array([1.0, 2.0])])


def test_time_goes_where_a_program_spends_it(tmp_path: Path, target: Target) -> None:
    task = task_in(save_product(tmp_path, WIDTH), target)
    origin = tw.compile(save_product(tmp_path, WIDTH), target=target).origin
    assert origin is not None
    planned = plan_kernels(as_planned(origin), target, Choices())
    tuning = Tuning(planned, target, Records.of(Store.default(), target, "1"), {})
    assert len(tuning) == 1 and tuning.keys == {task.key}
