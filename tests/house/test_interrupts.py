"""Loops of models that do not end can be interrupted, and what ran them goes on working."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.runtime.library.load import load

pytestmark = pytest.mark.usefixtures("interrupts")

FLOAT, BOOL, INT = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def node(op: str, inputs: str, output: str) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output])


def repeating(trips: int | None) -> ModelProto:
    """x + 1 again and again, as long as it is at most a limit that grows with a step, so always, where x begins at 0 or
    above; else once."""
    step = helper.make_graph(
        [node("Add", "h one", "n"), node("ReduceMin", "n", "least"), node("GreaterOrEqual", "least one", "again")],
        "step",
        [
            helper.make_tensor_value_info("i", INT, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("h", FLOAT, ["n"]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("again", "n")],
    )
    held = [numpy_helper.from_array(np.array([1], np.float32), "one")]
    held += [] if trips is None else [numpy_helper.from_array(np.array(trips), "trips")]
    loop = helper.make_node("Loop", ["" if trips is None else "trips", "", "x"], ["y"], body=step)
    infos = [helper.make_tensor_value_info("x", FLOAT, ["n"])]
    graph = helper.make_graph([loop], "g", infos, [helper.make_empty_tensor_value_info("y")], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


CALLS = """
import gc, signal, sys, time
import numpy as np
import tilewright as tw
exe, size = tw.load(sys.argv[1]), int(sys.argv[2])
ends = np.full(size, -5, np.float32)
for _ in range(3):
    assert (exe(ends)[0] == -4).all()
    print("running", flush=True)
    start = time.monotonic()
    try:
        exe(np.zeros(size, np.float32))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
gc.collect()
assert not [o for o in gc.get_objects() if isinstance(o, KeyboardInterrupt)]
"""


class Child:
    """A process whose lines are read one by one."""

    def __init__(self, *arguments: object, path: Path | None = None) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*([str(path)] if path else []), *sys.path])}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, *map(str, arguments)], text=True, env=environment, **pipes)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def interrupt(self, after: float) -> None:
        """Sends Ctrl-C's signal, unless the process ends before."""
        with pytest.raises(subprocess.TimeoutExpired):
            self.process.wait(after)
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """The exit status, and what was said of errors."""
        try:
            said = self.process.communicate(timeout=60)[1]
        finally:
            self.process.kill()
        return self.process.returncode, said


@pytest.fixture(scope="module", params=[None, 2**63 - 1])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loops") / "loop.tw"
    tw.compile(repeating(request.param)).save(path)
    return path


@pytest.mark.parametrize("size", [4, 100_000])
def test_an_endless_loop_is_interrupted_and_the_program_runs_again(compiled: Path, size: int) -> None:
    """The first calls are short, so that those which do not end keep Python's lock."""
    child = Child("-c", CALLS, compiled, size)
    for _ in range(3):
        assert child.line() == "running"
        child.interrupt(after=0.3)
        assert child.line() == "interrupted"
    assert child.end() == (0, "")


def test_a_handler_that_returns_lets_the_loop_go_on(compiled: Path) -> None:
    counting = """
came = []
def count(*_):
    came.append(1)
    print("came", flush=True)
    if len(came) == 2:
        raise KeyError("second")
signal.signal(signal.SIGINT, count)
print("running", flush=True)
try:
    exe(np.zeros(4, np.float32))
except KeyError:
    print("ended", exe(ends)[0][0], flush=True)
"""
    begin = CALLS[: CALLS.index("for _ in")]
    child = Child("-c", begin + counting, compiled, 4)
    assert child.line() == "running"
    for _ in range(2):
        child.interrupt(after=0.3)
        assert child.line() == "came"
    assert child.line() == "ended -4.0"
    assert child.end() == (0, "")


def test_other_threads_run_while_a_loop_does(compiled: Path) -> None:
    """A call that keeps Python's lock since those before it were short."""
    counting = """
import threading, _thread
exe(ends), exe(ends)
threading.Timer(0.2, _thread.interrupt_main).start()
try:
    exe(np.zeros(4, np.float32))
except KeyboardInterrupt:
    print("ended", flush=True)
"""
    child = Child("-c", CALLS[: CALLS.index("for _ in")] + counting, compiled, 4)
    assert child.line() == "ended"
    assert child.end() == (0, "")


def test_a_long_scan_is_interrupted(tmp_path: Path) -> None:
    """Of so many steps that are known before they begin, a millisecond each."""
    model, path = repeating(1 << 14), tmp_path / "scan.tw"
    body = next(a.g for a in model.graph.node[0].attribute if a.name == "body")
    body.node[2].CopyFrom(node("Identity", "go", "again"))
    del body.node[1]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 20
    tw.compile(model).save(path)
    child = Child(
        "-c",
        CALLS.replace("range(3)", "range(1)").replace("    assert (exe(ends)[0] == -4).all()\n", ""),
        path,
        1 << 20,
    )
    assert child.line() == "running"
    child.interrupt(after=0.3)
    assert child.line() == "interrupted"
    assert child.end() == (0, "")


TELLING = """
from tilewright.runtime.entering import Entering

enter = Entering.__call__

def telling(self, *arguments):
    print("running", flush=True)
    enter(self, *arguments)

Entering.__call__ = telling
"""


def test_the_command_run_ends_with_130(tmp_path: Path) -> None:
    path = tmp_path / "loop.onnx"
    path.write_bytes(repeating(None).SerializeToString())
    np.savez(tmp_path / "in.npz", x=np.zeros(4, np.float32))
    (tmp_path / "telling.py").write_text(TELLING)
    given = "--input", f"@{tmp_path / 'in.npz'}", "--import", "telling"
    child = Child("-m", "tilewright", "run", path, *given, path=tmp_path)
    assert child.line() == "running"
    child.interrupt(after=0.3)
    status, said = child.end()
    assert (status, "Traceback" in said) == (130, False)


def test_a_library_runs_its_loops_without_looking(tmp_path: Path) -> None:
    """It has no Python to ask: its programs end by themselves, or with their process."""
    model = repeating(None)
    body = next(a.g for a in model.graph.node[0].attribute if a.name == "body")
    body.node[2].op_type = "Less"
    exe = tw.compile(model)
    exe.save_library(tmp_path / "libloop.so")
    x = np.full(4, -1000, np.float32)
    (found,) = load(tmp_path / "libloop.so").run({"x": x}).values()
    np.testing.assert_array_equal(found, exe(x)[0])
