"""The command line does what its help says: on a terminal, in a pipe, as JSON, and when it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tilewright
from cli_models import invoke, save_affine, save_product, save_rows, save_slow_memory
from tilewright.cli import bench as bench_module
from tilewright.cli import guard, options, streams
from tilewright.cli import peers as peers_module
from tilewright.cli import run as run_module
from tilewright.cli.durations import read_duration
from tilewright.cli.entry import SUMMARIES
from tilewright.cli.rounds import count_together, take_turns
from tilewright.plan.template import registered
from tilewright.schedule.schedule import Schedule

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "tilewright.cli")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))


# The help


def test_help_lists_every_command_without_loading_any() -> None:
    program = "import sys; from tilewright.cli.entry import application\ntry: application([])(['--help'])\nfinally: "
    program += "print(*[m for m in sys.modules if m in ('numpy', 'llvmlite', 'onnx', 'rich')], file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and run.stderr == "\n"
    for name, summary in SUMMARIES.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", run.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", SUMMARIES)
def test_help_of_a_command_opens_with_its_summary_and_has_an_example(name: str) -> None:
    outcome = invoke(name, "--help")
    assert outcome.code == 0
    assert outcome.out.splitlines()[2].strip() == SUMMARIES[name]
    assert re.search(rf"Examples:\n +tilewright {name}\b", outcome.out)


def test_help_lists_what_options_take() -> None:
    told = {name: " ".join(invoke(name, "--help").out.split()) for name in SUMMARIES}
    with pytest.raises(tilewright.UserError) as target:
        tilewright.Target.parse("no such machine")
    targets = re.match("take one of (.*); with features: (.*)", str(target.value.fix))
    assert targets is not None and set(re.findall(r"[\w-]+", options.TARGETS)) >= set(targets[1].split(", "))
    with pytest.raises(tilewright.UserError) as off:
        tilewright.compile(tilewright.parse("graph main(x: f32[2]) -> y:\n  y: f32[2] = neg(x)"), off="nothing")
    assert off.value.fix == f"take some of {options.PASSES}"
    for name in ("run", "compile", "bench", "profile", "show", "why"):
        assert re.sub(r"\s", "", options.PASSES) in re.sub(r"\s", "", told[name]), name
    for name in ("run", "compile", "show", "why"):
        assert re.sub(r"\s", "", options.TARGETS) in re.sub(r"\s", "", told[name]), name


def test_the_version() -> None:
    assert invoke("--version").out == f"tilewright {tilewright.__version__}\n"


# run


def test_run_computes_from_files_and_values(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    model, out = save_affine(tmp_path), tmp_path / "out.npz"
    words = ["run", model, "--input", f"x=@{tmp_path}/x.npy", "--input", "scale=[1,10,100]", "--compare"]
    outcome = invoke(*words, "--save-output", out)
    assert outcome.code == 0, outcome.err
    assert re.search(r"^x +f32\[2, 3\] +\S+x.npy$", outcome.out, re.MULTILINE)
    assert re.search(r"^y +f32\[2, 3\] +2 +\S+ +601 +2 21 301 5 51 601$", outcome.out, re.MULTILINE)
    assert re.search(r"^y +0 +0 +0 +\S+ +agrees$", outcome.out, re.MULTILINE)
    with np.load(out) as archive:
        assert archive.files == ["y"]
        np.testing.assert_array_equal(archive["y"], np.array([[2, 21, 301], [5, 51, 601]], np.float32))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["affine.onnx", "out.npz", "x.npy"]


def test_a_comparison_allows_what_the_precision_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MACHINE", str(save_slow_memory(tmp_path)))
    model = save_product(tmp_path, 1024)
    plain, rounded = (
        json.loads(invoke("run", model, "--random", "--compare", "--precision", p, "--json").out)["compare"][0]
        for p in ("f32", "bf16")
    )
    assert plain["agrees"] and rounded["agrees"]
    assert plain["allowed"] < 1e-3 < rounded["relative"] < rounded["allowed"] < 0.5, "the weights were rounded"
    assert plain["relative"] < 1e-5


def test_run_takes_its_inputs_from_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.zeros((1, 3), np.float32), scale=np.ones(3, np.float32))
    outcome = invoke("run", save_affine(tmp_path), "--input", f"@{tmp_path}/all.npz", "--json")
    assert json.loads(outcome.out)["outputs"][0]["first"] == [1.0, 1.0, 1.0]


def test_random_data_fills_what_is_missing_and_is_the_same_each_time(tmp_path: Path) -> None:
    model = save_affine(tmp_path)
    first, again, other = (
        json.loads(invoke("run", model, "--random", "--size", "n=4", "--seed", seed, "--json").out) for seed in "112"
    )
    assert first["sizes"] == {"n": 4} and first["assumed_sizes"] == []
    assert first["inputs"][0] == {"name": "x", "dtype": "f32", "shape": [4, 3], "from": "random, seed 1"}
    assert first["outputs"] == again["outputs"] != other["outputs"]


def test_a_size_that_nobody_chose_is_told(tmp_path: Path) -> None:
    outcome = invoke("run", save_affine(tmp_path), "--random")
    assert outcome.err == "note: n = 1: choose another size with --size n=2\n"
    assert re.search(r"^x +f32\[1, 3\] +random, seed 0$", outcome.out, re.MULTILINE)


def test_given_arrays_tell_the_sizes_of_random_ones(tmp_path: Path) -> None:
    outcome = invoke("run", save_affine(tmp_path), "--random", "--input", "x=[[1,2,3],[4,5,6]]", "--json")
    record = json.loads(outcome.out)
    assert record["sizes"] == {"n": 2} and [i["from"] for i in record["inputs"]] == ["given", "random, seed 0"]


def test_one_number_fills_an_input(tmp_path: Path) -> None:
    outcome = invoke("run", save_affine(tmp_path), "--input", "x=2", "--input", "scale=3", "--size", "n=2", "--json")
    assert json.loads(outcome.out)["outputs"][0]["first"] == [7.0] * 6


def test_a_comparison_that_fails_is_exit_code_1_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.npz"
    out.write_text("what was there")
    monkeypatch.setattr(run_module, "_call", lambda executable, feeds: ({"y": np.full((1, 3), 1.001, np.float32)}, 1.0))
    words = ["run", save_affine(tmp_path), "--input", "x=0", "--input", "scale=0"]
    outcome = invoke(*words, "--compare", "--save-output", out)
    assert outcome.code == 1
    assert re.search(r"^y +0.001 +0.0005 +0 +\S+e-08 +DIFFERS$", outcome.out, re.MULTILINE)
    assert outcome.err.endswith(f"note: {out} was not written, for the outputs differ\n")
    assert out.read_text() == "what was there"
    record = json.loads(invoke(*words, "--compare", "--json").out)
    assert record["compare"][0]["agrees"] is False


def test_a_fault_at_run_time_leaves_the_old_output(tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    out.write_text("what was there")
    outcome = invoke("run", save_rows(tmp_path), "--input", "indices=[7]", "--save-output", out)
    assert outcome.code == 3 and "7" in outcome.err and "Traceback" not in outcome.err
    assert out.read_text() == "what was there"


# bench


def test_bench_measures_all_in_turns(tmp_path: Path) -> None:
    outcome = invoke("bench", save_affine(tmp_path), "--size", "n=8", "--rounds", "2", "--threads", "1", "--json")
    assert outcome.code == 0, outcome.err
    record = json.loads(outcome.out)
    ours = record["programs"][0]
    assert record["sizes"] == {"n": 8} and record["threads"] == 1 and record["rounds"] == 2
    assert ours["name"] == "tilewright" and ours["ratio"] == 1.0
    for program in record["programs"]:
        assert 0 < program["best_seconds"] <= program["median_seconds"] and program["compile_seconds"] > 0
        assert program.get("difference", 0) <= 1e-4
        latency = program["latency_seconds"]
        assert latency["p50"] == pytest.approx(program["median_seconds"])
        assert program["best_seconds"] <= latency["p50"] <= latency["p90"] <= latency["p99"]


def test_bench_counts_what_several_callers_get(tmp_path: Path) -> None:
    words = ("--callers", "3", "--threads", "1", "--rounds", "2", "--warmup", "1")
    outcome = invoke("bench", save_affine(tmp_path), "--size", "n=8", *words, "--json")
    assert outcome.code == 0, outcome.err
    record = json.loads(outcome.out)
    assert record["callers"] == 3 and record["rounds"] == 2
    ours = record["programs"][0]
    for program in record["programs"]:
        rate = program["inferences_per_second"]
        assert 0 < rate <= program["best_inferences_per_second"] and program["calls"] >= 6
        assert program["ratio"] == pytest.approx(ours["inferences_per_second"] / rate)
    told = invoke("bench", save_affine(tmp_path), "--size", "n=8", "--vs", "none", *words).out
    assert told.startswith("affine.onnx for native, up to 1 thread a call, 3 callers, 2 rounds\n")
    heads = ["a", "call", "inferences/s", "best", "p50", "p90", "p99", "×", "ours", "calls", "differs", "by"]
    assert told.splitlines()[2].split() == heads


def test_each_caller_makes_calls_of_its_own_at_the_same_time() -> None:
    made: dict[int, set[str]] = {0: set(), 1: set()}
    both = threading.Barrier(2, timeout=30)

    def call(n: int) -> None:
        name = threading.current_thread().name
        is_first, _ = name not in made[n], made[n].add(name)
        if is_first and threading.current_thread() is not threading.main_thread():
            both.wait()  # which a thread alone would not get past; later calls of the two need not be as many
        time.sleep(0.03)

    (timing,), rounds = count_together([[lambda: call(0), lambda: call(1)]], 1, 0.0, 0)
    assert rounds == 1 and timing.calls >= 4 and timing.rate is not None
    assert 0.03 <= timing.median < 1 and timing.rate <= 2 / 0.03
    assert all(len(names) == 2 for names in made.values())  # the main thread, to warm up, and its own


def test_warming_up_takes_as_many_calls_as_are_asked_for() -> None:
    calls: list[str] = []
    timings, _ = take_turns([lambda: calls.append("a") or time.sleep(0.03)], 1, 0.0, 5)
    assert len(calls) == 7 and timings[0].calls == 1  # five to warm up, one before the turn, one that is timed


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("5", 5.0), ("500ms", 0.5), (".5 s", 0.5), ("2m", 120.0), ("1h", 3600.0), ("0", 0.0)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert read_duration(text, "--duration") == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "5 days", "inf", "nan", "25h", "1e400"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(tilewright.UserError, match="cannot use --duration") as raised:
        read_duration(text, "--duration")
    assert raised.value.fix == "write --duration 5s, --duration 500ms or --duration 2m"


def test_bench_prints_tables(tmp_path: Path) -> None:
    outcome = invoke("bench", save_affine(tmp_path), "--rounds", "1", "--vs", "none", "--threads", "2")
    title, calls, compiles = (part.splitlines() for part in outcome.out.split("\n\n"))
    assert title == ["affine.onnx for native, up to 2 threads, 1 round"]
    assert calls[0].split() == ["a", "call", "p50", "p90", "p99", "best", "×", "ours", "calls", "differs", "by"]
    assert re.fullmatch(r"tilewright \S+( +[\d.]+ [µm]s){4} +1.00 +\d+", calls[1])
    assert re.fullmatch(r" +from the store +[\d.]+ ms", compiles[-1])


def test_bench_skips_a_peer_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = peers_module.Peer("no_such_runtime", lambda path, threads: lambda feeds: [])
    monkeypatch.setattr(peers_module, "PEERS", (absent,))
    outcome = invoke("bench", save_affine(tmp_path), "--size", "n=1", "--rounds", "1", "--json")
    assert outcome.code == 0
    assert outcome.err == "note: no_such_runtime is not installed, and so not measured\n"
    assert len(json.loads(outcome.out)["programs"]) == 1


def test_bench_goes_on_without_a_peer_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str, threads: int) -> peers_module.Program:
        raise RuntimeError("no kernel for Mul\nat line 3")

    monkeypatch.setattr(bench_module, "choose", lambda words: ([peers_module.Peer("other", fail)], []))
    outcome = invoke("bench", save_affine(tmp_path), "--size", "n=1", "--rounds", "1", "--json")
    assert outcome.code == 0
    assert outcome.err == "note: other cannot run this model: no kernel for Mul\n"


def test_bench_leaves_the_store_variable_as_it_was(tmp_path: Path) -> None:
    before = os.environ["TILEWRIGHT_STORE"]
    assert invoke("bench", save_affine(tmp_path), "--rounds", "1", "--vs", "none").code == 0
    assert os.environ["TILEWRIGHT_STORE"] == before


def test_turns_go_round_and_every_timed_call_counts() -> None:
    calls: list[str] = []
    programs = [lambda: calls.append("a"), lambda: calls.append("b") or time.sleep(0.03)]
    timings, rounds = take_turns(programs, None, 0.0)
    assert rounds == 3
    warm_a, warm_b, a, b_b, a_a, b = re.findall(r"a+|b+", "".join(calls))
    assert warm_a[0] == a[0] == "a" and warm_b[0] == "b" and len(a_a) == 2 * len(a)
    assert (b_b, b) == ("bbbb", "bb")  # in a turn, one call that does not count and one that fills it
    assert timings[1].calls == 3 and timings[1].best >= 0.03 and timings[0].best < timings[1].best


# show


def test_show_lists_stages_and_kernels(tmp_path: Path) -> None:
    outcome = invoke("show", save_affine(tmp_path), "--stages")
    lines = outcome.out.splitlines()
    assert lines[0] == "stages" and lines[lines.index("kernels") - 1] == "  assembly"
    assert re.fullmatch(r" +0  \w+  nests", lines[lines.index("kernels") + 1])
    assert lines.index("kernels") + 2 == len(lines)


def test_show_prints_programs_that_read_back(tmp_path: Path) -> None:
    text = invoke("show", save_affine(tmp_path), "--after", "simplify").out
    assert text.startswith("graph main[n](x: f32[n, 3], scale: f32[3])")
    assert str(tilewright.parse(text)).strip() == text.strip()


def test_show_prints_one_kernel(tmp_path: Path) -> None:
    model = save_affine(tmp_path)
    by_number = invoke("show", model, "--after", "plan", "--kernel", "0").out
    assert by_number.startswith("func ")
    name = re.match(r"func (\w+)", by_number)[1]
    assert invoke("show", model, "--after", "plan", "--kernel", name).out == by_number


def test_show_says_which_template_refused_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = registered()["strassen input"]
    monkeypatch.setattr(template, "recognise", lambda facts: facts)
    monkeypatch.setattr(template, "choices", lambda shape, target: [None])
    monkeypatch.setattr(template, "price", lambda choice, shape, target: 0.0)
    monkeypatch.setattr(template, "begin", lambda facts: Schedule(facts.function))
    monkeypatch.setattr(template, "apply", lambda s, shape, choice: s.unroll("missing"))
    model = save_affine(tmp_path)
    *_, kernel, refusal = invoke("show", model, "--stages").out.splitlines()
    assert kernel.endswith("  nests")
    name = kernel.split()[1]
    assert re.fullmatch(
        rf' +strassen input refused at s.unroll\("missing"\): no loop missing in {name}: its loops are .*', refusal
    )
    text = invoke("show", model, "--after", "schedule", "--kernel", name).out
    assert text.startswith(f"# scheduled by nests\n# {refusal.strip()}\nfunc {name}")
    assert str(tilewright.parse(text)) == text[text.index("func ") :].strip()
    assert invoke("show", model, "--after", "plan", "--kernel", name).out.startswith("func ")


def test_show_prints_machine_code(tmp_path: Path) -> None:
    model = save_affine(tmp_path)
    assert "define " in invoke("show", model, "--after", "llvm").out
    assert invoke("show", model, "--assembly").out == invoke("show", model, "--after", "assembly").out


def test_show_has_colours_only_where_they_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("show", save_affine(tmp_path), "--after", "plan")
    plain = invoke(*words).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = invoke(*words).out
    assert "\033[" not in plain and "\033[1;34mfunc\033[0m" in coloured
    assert re.sub(r"\033\[[\d;]*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert invoke(*words).out == plain


# doctor


def test_doctor_knows_the_machine_the_packages_and_the_store(tmp_path: Path) -> None:
    outcome = invoke("doctor", "--no-calibrate", "--json")
    record = json.loads(outcome.out)
    assert outcome.code == 0 and record["problems"] == []
    assert record["target"]["vector_bits"] >= 128 and record["target"]["origins"] == {}
    assert record["packages"]["numpy"] == np.__version__
    assert record["store"]["path"] == os.environ["TILEWRIGHT_STORE"] and record["store"]["entries"] == 0


def test_doctor_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREAD", "2")
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "maybe")
    outcome = invoke("doctor", "--no-calibrate")
    assert outcome.code == 1
    assert outcome.out.endswith(
        """\
2 problems

cannot use TILEWRIGHT_VERIFY=maybe
at:   the environment
why:  it is a switch
fix:  set TILEWRIGHT_VERIFY to 1 or 0, or unset it

unknown variable TILEWRIGHT_NUM_THREAD
at:   the environment
fix:  did you mean TILEWRIGHT_NUM_THREADS?
"""
    )


def test_doctor_says_that_there_is_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    assert "\nstore       off: nothing is kept\n" in invoke("doctor", "--no-calibrate").out


# How a command ends


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m tilewright.cli doctor --no-calibrate | head -c 1; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", command], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("t", "")


def test_output_that_nobody_reads_ends_quietly() -> None:
    program = "import sys; from tilewright.cli import guard\ndef command(): print('x' * 1000000); return 0\n"
    program += "import typer; app = typer.Typer(); app.command()(guard.guarded(command)); app([])"
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write)
    assert (run.returncode, run.stderr) == (streams.UNREAD, "")


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_ends_quietly_with_130(tmp_path: Path) -> None:
    command = [*PROGRAM, "bench", str(save_affine(tmp_path)), "--vs", "none", "--seconds", "60"]
    environment = {**ENVIRONMENT, "TILEWRIGHT_SHOW": "1", "TILEWRIGHT_STORE": "off"}
    run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    first = run.stderr.readline()
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert first.strip() and (run.returncode, out) == (guard.INTERRUPTED, "")
    assert "Traceback" not in err


def test_a_defect_is_told_as_one_with_its_traceback_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*options: object) -> object:
        raise ZeroDivisionError("no such number")

    monkeypatch.setattr("tilewright.cli.doctor._look_at_store", fail)
    outcome = invoke("doctor", "--no-calibrate")
    assert outcome.code == 70
    found = re.fullmatch(
        r"internal error: ZeroDivisionError in test_cli\.py, line \d+\nat:   (\S+)\nwhy:  no such number\n"
        r"fix:  report it with that file\nThis is a defect in Tilewright, not in your program\.\n",
        outcome.err,
    )
    assert found is not None
    report = Path(found[1])
    assert "ZeroDivisionError: no such number" in report.read_text()
    report.unlink()


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (MemoryError(), 3, "there is not enough memory\nfix:  take smaller inputs (see --size), or free memory\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_what_else_ends_a_command(
    raised: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*options: object) -> object:
        raise raised

    monkeypatch.setattr("tilewright.cli.doctor._look_at_store", fail)
    monkeypatch.setattr(streams, "drop", lambda stream: None)
    outcome = invoke("doctor", "--no-calibrate")
    assert (outcome.code, outcome.err) == (code, text)
