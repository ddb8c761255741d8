"""Tilewright: a compiler and runtime for machine-learning models and linear-algebra programs.

    import tilewright as tw

    exe = tw.compile("model.onnx")
    (y,) = exe(x)
"""

from __future__ import annotations

__version__ = "0.1.0"

from tilewright.api import build, compile, evaluate, parse
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.loops.nodes import Function
from tilewright.report.errors import InternalError, RuntimeFault, UserError
from tilewright.runtime.executable import Executable
from tilewright.runtime.kernel import Kernel
from tilewright.target import Target

__all__ = [
    "Executable",
    "Function",
    "GraphFunction",
    "InternalError",
    "Kernel",
    "Module",
    "RuntimeFault",
    "Target",
    "UserError",
    "build",
    "compile",
    "evaluate",
    "parse",
]
