"""The engines of a race: each opens a problem as a call without arguments, whose result is checked before it is timed.

Every engine gets the same arrays and as many threads as the race is for, through its own option. An engine that is not
installed, or cannot do what a problem asks, takes no part.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from benchmarks.problems import Array, Problem, WrongResult
from tilewright.cli.peers import PEERS
from tilewright.target import native

Call = Callable[[], object]


def set_threads(threads: int) -> None:
    """How many threads NumPy's and PyTorch's products use from here on; both have one number for the process."""
    if importlib.util.find_spec("threadpoolctl"):
        from threadpoolctl import threadpool_limits

        threadpool_limits(threads, user_api="blas")
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(threads)


def open_ours(problem: Problem, threads: int) -> tuple[Call, float]:
    """Our call, checked, and the seconds that compiling took, which uses nothing kept in the store."""
    start = time.perf_counter()
    exe = tw.compile(problem.model, threads=threads)
    seconds = time.perf_counter() - start
    arrays = [problem.feeds[port.name] for port in exe.inputs]
    return checked("tilewright", lambda: exe(*arrays), problem), seconds


def open_peers(problem: Problem, threads: int, leave_out: Callable[[str], object]) -> dict[str, Call]:
    """The checked calls of the peers that can solve the problem; `leave_out` hears of each that is wrong."""
    opened: dict[str, Call | None] = {}
    if problem.operands is not None:
        opened["numpy"] = _open_numpy(*problem.operands)
        opened["torch"] = _open_torch(*problem.operands) if importlib.util.find_spec("torch") else None
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(problem.model)
        for peer in PEERS:
            opened[peer.name] = _open_session(peer.name, path, problem, threads) if peer.is_installed else None
    right: dict[str, Call] = {}
    for name, call in opened.items():
        try:
            if call is not None:
                right[name] = checked(name, call, problem)
        except WrongResult as error:
            leave_out(str(error))
    return right


def checked(name: str, call: Call, problem: Problem) -> Call:
    problem.check(name, as_array(call()))
    return call


def as_array(result: Any) -> Array:
    """An engine's result, an array or a tensor or a sequence of one, as an array."""
    if isinstance(result, tuple | list):
        (result,) = result
    if hasattr(result, "detach"):
        result = result.detach()
        return np.asarray(result.float().numpy() if result.is_floating_point() else result.numpy())
    return np.asarray(result)


def _open_numpy(a: Array, b: Array) -> Call | None:
    if a.dtype != np.float32 or not importlib.util.find_spec("threadpoolctl"):
        return None  # other types do not reach the library behind it, and its threads could not be counted
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    return lambda: np.matmul(a, b, out=out)


def _open_torch(a: Array, b: Array) -> Call:
    import torch

    if a.dtype == ml_dtypes.bfloat16:
        left, right = (torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) for x in (a, b))
    else:
        left, right = torch.from_numpy(a), torch.from_numpy(b)
    if a.dtype == np.int8:
        return lambda: torch._int_mm(left, right)
    out = torch.empty((a.shape[0], b.shape[1]), dtype=left.dtype)
    return lambda: torch.matmul(left, right, out=out)


def _open_session(name: str, path: Path, problem: Problem, threads: int) -> Call | None:
    """A session of ONNX Runtime or OpenVINO; None where it has no kernel for the problem."""
    halves = any(array.dtype == ml_dtypes.bfloat16 for array in problem.feeds.values())
    if halves and (name != "openvino" or not native().has_bf16_dot):
        return None  # ONNX Runtime has no kernel; OpenVINO would multiply floats of 32 bits
    if halves:
        return open_openvino_bf16(path, problem.feeds, threads)
    program = next(peer for peer in PEERS if peer.name == name).open(str(path), threads)
    return lambda: program(problem.feeds)


def open_openvino_bf16(path: Path, feeds: dict[str, Array], threads: int) -> Call:
    """A call of OpenVINO that multiplies in bf16, its caller's arrays shared."""
    import openvino

    choices = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16"}
    request = openvino.Core().compile_model(path, "CPU", choices).create_infer_request()
    return lambda: request.infer(feeds, share_inputs=True, share_outputs=True).to_tuple()
