"""Kernels that other processes compile are the same, byte for byte; a worker that fails costs time and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from drawn import LONG
from tilewright.analysis.structure import key_of
from tilewright.codegen.assemble import assemble
from tilewright.codegen.module import grouped
from tilewright.compiler import apart, compile_module, processes
from tilewright.compiler.apart import MadeGroup, make_group, produce, produce_both
from tilewright.compiler.compiled import Compiled
from tilewright.compiler.kernels import KernelPass, compile_alone, kernels_of
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import as_planned, lower, pipeline, plan_kernels
from tilewright.core import extensions
from tilewright.core import processes as core_processes
from tilewright.core.collection import OBJECTS
from tilewright.core.forced import Forced
from tilewright.core.lock import quick_turns
from tilewright.core.passes import run_passes
from tilewright.core.processes import Workers
from tilewright.core.switches import Switches
from tilewright.core.tuned import Tuned
from tilewright.graph.nodes import Module
from tilewright.graph.op import REGISTRY
from tilewright.graph.parse import parse_module
from tilewright.loops.nodes import Function
from tilewright.loops.transport import dumps, loads
from tilewright.lower.graph.eliminate_common import eliminate_common
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.report.errors import InternalError, RuntimeFault
from tilewright.runtime.plan_report import Choices
from tilewright.target import Target, native

TESTS = Path(__file__).parents[1]

MODEL = """
graph main[n](x: f32[n, 40], rows: i64[n], columns: i64[n]) -> y, sums, taken, also:
  w: f32[40, 24] = constant(name=@w)
  b: f32[24] = constant(name=@b)
  h: f32[n, 24] = contract(x, w, spec="ik,kj->ij")
  s: f32[n, 24] = add(h, b)
  t: f32[n, 24] = exp(s)
  sums: f32[n] = reduce(t, kind=sum, axes=(1,))
  y: f32[n, n] = contract(t, s, spec="ik,jk->ij")
  checked: i64[n] = checked_indices(rows, limit=n, what="row")
  others: i64[n] = checked_indices(columns, limit=40, what="column")
  taken: f32[n, 40] = take(x, checked, axis=0)
  also: f32[n, n] = take(x, others, axis=1)
"""
"""Weights to pack, a dynamic size, sums, indices that are checked."""


def model() -> Module:
    random = np.random.default_rng(0)
    constants = {"w": random.normal(size=(40, 24)).astype("f"), "b": random.normal(size=24).astype("f")}
    return parse_module(MODEL).with_constants(constants)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that this process compiles, which takes long enough for another one to begin."""
    done: list[str] = []

    def slowly(group: Sequence[Function], target: Target, tuned: Tuned) -> tuple[MadeGroup, str]:
        done.extend(kernel.name for kernel in group)
        time.sleep(2)
        return make_group(group, target, tuned)

    monkeypatch.setattr(processes, "LARGE_MODEL", 1)
    monkeypatch.setattr(apart, "make_group", slowly)
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "2")
    return done


def test_all_processes_take_what_tuning_found(here: list[str]) -> None:
    """Both products have another choice than by price; one of them is compiled here, the other elsewhere."""
    plain, names = lower(model(), native()), ("contract_add", "contract")
    assert plain.origin is not None
    planned = plan_kernels(as_planned(plain.origin), native(), Choices())
    found: dict[str, Forced] = {}
    for name in names:
        function, other = planned.functions[name], plain.choices.decisions[name].alternatives[-1]
        assert isinstance(function, Function)
        found[key_of(function)] = {"template": other.template, "choice": other.choice}
    switches = Switches(tuned=Tuned(found, "one"))
    one, two = lower(model(), native(), switches), produce(model(), native(), switches)
    assert all(made.choices.decisions[name].tuned for made in (one, two) for name in names)
    assert one.code == two.code != plain.code


def test_the_same_bytes_come_from_one_process_and_from_two(here: list[str]) -> None:
    one, two = lower(model(), native()), produce(model(), native())
    assert two.again is not None and one.again is None
    assert (one.code, one.faults, one.constants) == (two.code, two.faults, two.constants)
    assert one.choices.decisions == two.choices.decisions
    assert len(one.code) == 2 + len(grouped([*one.choices.decisions])) > 3  # the entry, and what times kernels
    assert 0 < len(here) < len(one.choices.decisions)


def small_model() -> Module:
    """Another model, of one kernel."""
    return parse_module("graph main[n](x: f32[n, 8]) -> y:\n  y: f32[n, 8] = exp(x)")


def is_same(one: Compiled, two: Compiled) -> bool:
    """Whether two processes have made the same, and know the same of it."""
    code = (one.code, one.faults, one.constants, one.sites) == (two.code, two.faults, two.constants, two.sites)
    return code and one.choices.decisions == two.choices.decisions


def test_two_modules_are_compiled_by_the_same_processes(here: list[str]) -> None:
    """While this one compiles the first, which takes a while, another one plans the second and begins with it."""
    compiled, rest = produce_both(small_model(), model(), native())
    assert is_same(lower(small_model(), native()), compiled) and here == ["exp"]
    one, two = lower(model(), native()), rest()
    assert is_same(one, two) and len(here) - 1 < len(one.choices.decisions)
    assert [str(row) for row in one.choices.plan.kernels] == [str(row) for row in two.choices.plan.kernels]


def test_a_module_that_no_other_process_plans_is_planned_here(here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(value: object) -> bytes:
        raise ValueError("this goes through no pipe")

    monkeypatch.setattr(apart, "dumps", refuse)
    compiled, rest = produce_both(small_model(), model(), native())
    one, two = lower(model(), native()), rest()
    assert is_same(lower(small_model(), native()), compiled) and is_same(one, two)
    assert set(here) == {"exp", *one.choices.decisions}


def test_what_programs_have_added_keeps_modules_in_one_process(here: list[str]) -> None:
    extensions.add("operator of a test", "", for_kernels=False)
    try:
        assert processes.processes_for_modules() == 1 and processes.processes_for_kernels() == 2
    finally:
        extensions.remove("operator of a test")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child does without other threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_compiles_the_second_module_itself(here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _, rest = produce_both(small_model(), model(), native())
    wanted = lower(model(), native()).code
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "1")
    child = os.fork()
    if child == 0:
        os._exit(0 if rest().code == wanted else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
    assert ended == (child, 0)
    assert rest().code == wanted


def test_llvm_works_in_a_thread_of_its_own_where_one_process_compiles_a_large_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def noted(text: str, target: Target, level: int = 3) -> bytes:
        threads.append(threading.get_ident())
        return assemble(text, target, level)

    monkeypatch.setattr(processes, "LARGE_MODEL", 1)
    monkeypatch.setattr(apart, "assemble", noted)
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "1")
    one, beside = lower(model(), native()), produce(model(), native())
    assert (one.code, one.faults, one.constants) == (beside.code, beside.faults, beside.constants)
    own = threading.get_ident()
    assert len(threads) == len(one.code) - 1  # what times kernels was made before
    assert threads.count(own) == 1 and len(set(threads)) == 2


def test_what_llvm_refuses_in_its_thread_ends_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, target: Target, level: int = 3) -> bytes:
        raise InternalError("LLVM refused the code we generated")

    monkeypatch.setattr(processes, "LARGE_MODEL", 1)
    monkeypatch.setattr(apart, "assemble", refuse)
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "1")
    with pytest.raises(InternalError, match="LLVM refused"):
        produce(model(), native())


def test_a_large_model_may_have_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LARGE_MODEL", 1)
    constant = np.arange(3, dtype=np.float32)
    module = parse_module(
        """
graph main(x: f32[3]) -> x, c:
  c: f32[3] = constant(name=@c)
  unread: f32[3] = exp(x)
"""
    ).with_constants({"c": constant})
    one, two = lower(module, native()), produce(module, native())
    assert (one.code, one.constants) == (two.code, two.constants)
    for got, expected in zip(compile_module(module)(-constant), (-constant, constant), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_kernel_alone_becomes_what_it_becomes_in_its_program() -> None:
    passes = pipeline(native())
    names = [step.name for step in passes]
    alone = [n for n, step in enumerate(passes) if isinstance(step, KernelPass)]
    assert [names[n] for n in range(alone[0], len(names)) if n not in alone] == ["alternate"]
    program = run_passes(model(), passes[: alone[0]], level=GRAPH)
    kernels = {f.name: f for f in kernels_of(program)}
    assert len(kernels) > 3
    some = {"schedule", "hoist", "bufferize", names[alone[-1]]}  # each that makes other functions, and the end
    for n in alone:
        program = run_passes(program, passes[n : n + 1])
        for name, kernel in kernels.items() if LONG or names[n] in some else ():
            for made in compile_alone(kernel, passes[: n + 1]).functions:
                found = program.functions[made.name]
                assert str(made) == str(found), f"{made.name} of {name} after {names[n]}"


def test_what_several_processes_made_runs_checks_and_shows_itself(here: list[str]) -> None:
    exe = compile_module(model())
    assert 0 < len(here) < len(exe.decisions)
    x, rows = np.random.default_rng(1).normal(size=(5, 40)).astype("f"), np.arange(5)[::-1].copy()
    s = x @ model().constants["w"] + model().constants["b"]
    y, sums, taken, also = exe(x, rows, rows + 7)
    np.testing.assert_allclose(y, np.exp(s) @ s.T, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(sums, np.exp(s).sum(1), rtol=1e-5)
    np.testing.assert_array_equal(taken, x[::-1])
    np.testing.assert_array_equal(also, x[:, rows + 7])
    with pytest.raises(RuntimeFault, match="row: index 13 "):
        exe(x, rows + 9, rows)
    with pytest.raises(RuntimeFault, match="column: index 44 "):
        exe(x, rows, rows + 40)
    kernels = exe.kernels
    assert set(exe.decisions) == set(kernels)
    assert "define i64 @tilewright_entry" in exe.show("llvm")
    assert kernels == exe.kernels and all(exe.show(kernel=name) for name in kernels)


def test_programs_survive_the_way() -> None:
    record = lower(model(), native()).record
    found = [f for stage in record for f in stage.program.functions.values() if isinstance(f, Function)]
    assert found
    for function in found:
        again = loads(dumps(function))
        assert str(again) == str(function) and again is not function
        assert not set(again.params) & set(function.params)
        assert dumps(again) == dumps(loads(dumps(again)))


def test_modules_survive_the_way() -> None:
    """What is computed twice is found to be, elsewhere too."""
    module = parse_module(
        """
graph main(x: f32[3, 4]) -> s:
  a: f32[4, 3] = transpose(x, perm=(1, 0))
  b: f32[4, 3] = transpose(x, perm=(1, 0))
  s: f32[4, 3] = add(a, b)
"""
    )
    again = loads(dumps(module))
    assert str(again) == str(module) and again.graph is not module.graph
    assert all(node.op is REGISTRY[node.op.name] for node in again.graph.nodes)
    assert len(eliminate_dead(eliminate_common(again)).graph.nodes) == 2


def same(data: bytes) -> bytes:
    return data


def run(function: str, tasks: list[bytes], count: int = 2, patience: float = 60.0) -> tuple[list[bytes], list[bytes]]:
    """What becomes of the tasks, and those that were done in this process."""
    here: list[bytes] = []

    def do(task: bytes) -> bytes:
        here.append(task)
        time.sleep(0.05)
        return task + task

    with Workers(f"worker_tasks:{function}", count) as workers:
        made = workers.begin(tasks, same, same).finish(do, patience)
    return made, here


def test_workers_and_this_process_share_the_tasks() -> None:
    tasks = [bytes([n]) * 100_000 for n in range(60)]
    made, here = run("double", tasks)
    assert made == [task + task for task in tasks] and 0 < len(here) < len(tasks)


def test_the_collector_of_a_worker_leaves_its_modules_alone_and_starts_rarely() -> None:
    tasks = [bytes([n]) for n in range(60)]
    made, here = run("collector", tasks)
    found = {tuple(map(int, answer.split())) for task, answer in zip(tasks, made, strict=True) if task not in here}
    assert found and all(threshold >= OBJECTS and frozen > 0 for threshold, frozen in found)


@pytest.mark.parametrize("function", ["refuse", "die", "nothing_of_this_name"])
def test_what_a_worker_fails_to_do_is_done_here(function: str) -> None:
    tasks = [bytes([n]) for n in range(10)]
    made, here = run(function, tasks)
    assert made == [task + task for task in tasks] and sorted(here) == tasks


def test_a_worker_that_does_not_answer_is_given_up() -> None:
    start = time.monotonic()
    made, _ = run("sleep", [bytes([n]) for n in range(9)], patience=0.1)
    assert made == [bytes([n, n]) for n in range(9)] and time.monotonic() - start < 30


def test_workers_rest_until_they_are_told_to_go_on() -> None:
    answers: list[bytes] = []
    with Workers("worker_tasks:double", 1) as workers:
        workers.begin([b"a"], same, same, answers.append).finish(same)
        workers.rest()
        batch = workers.begin([b"b", b"c"], same, same, answers.append)
        time.sleep(0.5)
        assert b"bb" not in answers
        workers.resume()
        deadline = time.monotonic() + 30
        while answers[-2:] != [b"bb", b"cc"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert batch.finish(lambda task: b"here") == [b"bb", b"cc"]


def test_workers_that_rest_for_long_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_processes, "REST", 0.1)
    workers = Workers("worker_tasks:double", 1)
    workers.rest()
    batch = workers.begin([b"a"], same, same)
    deadline = time.monotonic() + 30
    while _is_alive(workers.pids[0]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with workers:
        workers.resume()
        assert batch.finish(lambda task: b"here") == [b"here"]


def test_what_answers_begin_is_done_by_workers_too() -> None:
    with Workers("worker_tasks:double", 1) as workers:
        found: list[bytes] = []
        workers.begin([b"a"], same, same, lambda one: workers.begin([one], same, same, found.append) and None)
        deadline = time.monotonic() + 30
        while found != [b"aaaa"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_threads_take_quick_turns_while_anyone_wants_them_to() -> None:
    before = sys.getswitchinterval()
    with quick_turns():
        with quick_turns():
            inside = sys.getswitchinterval()
        assert sys.getswitchinterval() == inside < before
    assert sys.getswitchinterval() == before


def test_workers_end_with_an_error_here() -> None:
    def interrupt(task: bytes) -> bytes:
        raise KeyboardInterrupt

    workers = Workers("worker_tasks:sleep", 2)
    with pytest.raises(KeyboardInterrupt), workers:
        workers.begin([b"a", b"b", b"c"], same, same).finish(interrupt)
    assert all(process.returncode is not None for process in workers._processes)


SCRIPT = """
import os, signal, sys, time
from tilewright.core.forced import Forced
from tilewright.core.passes import run_passes
from tilewright.core.processes import Workers
print("begun", flush=True)
with Workers("worker_tasks:say", 1) as workers:
    batch = workers.begin([b"", b""], bytes, bytes)
    print(b"".join(batch.finish(lambda task: time.sleep(3) or b"")).decode(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_ends_when_its_parent_is_killed_and_does_not_run_the_script_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"}
    made = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60)
    begun, number = made.stdout.split()
    assert begun == "begun"
    deadline = time.monotonic() + 20
    while _is_alive(int(number)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"
