"""Other runtimes that `tilewright bench` compares with: loaded when installed, configured to give their best.

Each gets the same number of threads, the same arrays, and 32-bit floats where the model says 32-bit floats.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from tilewright.report.errors import UserError

Array = np.ndarray[Any, Any]
Program = Callable[[Mapping[str, Array]], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Peer:
    """A runtime: the name of its package, and how it opens a model (path, threads) as a function of named arrays.
    `open_callers` (path, threads, callers) gives one for each thread that calls, where they cannot share one."""

    name: str
    open: Callable[[str, int], Program]
    open_callers: Callable[[str, int, int], Sequence[Program]] | None = None

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.name) is not None

    def open_for(self, path: str, threads: int, callers: int) -> Sequence[Program]:
        """A program for each of several threads that call at once."""
        if callers > 1 and self.open_callers is not None:
            return self.open_callers(path, threads, callers)
        return [self.open(path, threads)] * callers

    @property
    def version(self) -> str:
        return find_version(self.name) or "?"


def find_version(package: str) -> str | None:
    """The version of an installed package, None for one that is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _open_onnxruntime(path: str, threads: int) -> Program:
    import onnxruntime

    choices = onnxruntime.SessionOptions()
    choices.intra_op_num_threads = threads
    choices.inter_op_num_threads = 1
    choices.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, choices, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def _open_openvino(path: str, threads: int) -> Program:
    return _openvino_requests(path, {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}, 1)[0]


def _open_openvino_callers(path: str, threads: int, callers: int) -> Sequence[Program]:
    """A request for each caller, and a stream of threads for each request."""
    choices = {"INFERENCE_NUM_THREADS": threads * callers, "PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": callers}
    return _openvino_requests(path, choices, callers)


def _openvino_requests(path: str, choices: Mapping[str, object], count: int) -> list[Program]:
    import openvino

    model = openvino.Core().compile_model(path, "CPU", {**choices, "INFERENCE_PRECISION_HINT": "f32"})

    def program() -> Program:
        request = model.create_infer_request()

        def call(feeds: Mapping[str, Array]) -> Sequence[Array]:
            return tuple(request.infer(feeds, share_inputs=True, share_outputs=True).to_tuple())

        return call

    return [program() for _ in range(count)]


PEERS = (Peer("onnxruntime", _open_onnxruntime), Peer("openvino", _open_openvino, _open_openvino_callers))


def choose(words: str | None) -> tuple[list[Peer], list[str]]:
    """The peers that `words` (names between commas) ask for, or all; and the names of those not installed.

    `none` asks for no peer. UserError for an unknown name, and for one asked for by name that is not installed.
    """
    if words is None:
        return [p for p in PEERS if p.is_installed], [p.name for p in PEERS if not p.is_installed]
    chosen = []
    for name in dict.fromkeys(word.strip() for word in words.split(",")):
        peer = next((p for p in PEERS if p.name == name), None)
        if name == "none" and words.strip() == "none":
            continue
        if peer is None:
            known = ", ".join(p.name for p in PEERS)
            raise UserError(
                f"no runtime called {name!r} is known", where=f"--vs {words}", fix=f"take some of {known}, or none"
            )
        if not peer.is_installed:
            raise UserError(
                f"{name} is not installed", where=f"--vs {words}", fix=f"pip install {name}, or leave it out of --vs"
            )
        chosen.append(peer)
    return chosen, []
