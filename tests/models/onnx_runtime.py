"""Sessions of ONNX Runtime to compare with."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import ModelProto


def session_of(model: ModelProto, threads: int = 0) -> Any:
    """A session on the CPU, on so many threads (0: as many as it likes); the test is skipped where the package is not
    installed. Products of bytes are exact: on processors without VNNI it otherwise clips sums of two to 16 bits."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.x64quantprecision", "1")
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
