"""Tilewright: a compiler and runtime for machine-learning models and linear-algebra programs.

    import tilewright as tw

    exe = tw.compile("model.onnx")
    (y,) = exe(x)

Importing the package is cheap; what a name stands for is loaded when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tilewright.report.version import VERSION as __version__

if TYPE_CHECKING:
    from tilewright.api.compile import compile
    from tilewright.api.extend import register, unregister
    from tilewright.api.programs import build, evaluate, parse
    from tilewright.explain.page import page
    from tilewright.explain.why import why
    from tilewright.frontends.build.remarks import ModelWarning
    from tilewright.graph.nodes import GraphFunction, Module
    from tilewright.loops.nodes import Function
    from tilewright.plan.facts.kernel import Facts
    from tilewright.plan.template import Template
    from tilewright.report.errors import InternalError, RuntimeFault, UserError
    from tilewright.runtime.artefact import load, save
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.kernel import Kernel
    from tilewright.schedule.schedule import Schedule
    from tilewright.schedule.trace import Trace
    from tilewright.target import Target
    from tilewright.target.instructions import Instruction, Register

_HOME = {
    "build": "tilewright.api.programs",
    "compile": "tilewright.api.compile",
    "evaluate": "tilewright.api.programs",
    "load": "tilewright.runtime.artefact",
    "page": "tilewright.explain.page",
    "parse": "tilewright.api.programs",
    "register": "tilewright.api.extend",
    "save": "tilewright.runtime.artefact",
    "unregister": "tilewright.api.extend",
    "why": "tilewright.explain.why",
    "GraphFunction": "tilewright.graph.nodes",
    "Module": "tilewright.graph.nodes",
    "Facts": "tilewright.plan.facts.kernel",
    "Function": "tilewright.loops.nodes",
    "Instruction": "tilewright.target.instructions",
    "InternalError": "tilewright.report.errors",
    "ModelWarning": "tilewright.frontends.build.remarks",
    "RuntimeFault": "tilewright.report.errors",
    "UserError": "tilewright.report.errors",
    "Executable": "tilewright.runtime.executable",
    "Kernel": "tilewright.runtime.kernel",
    "Register": "tilewright.target.instructions",
    "Schedule": "tilewright.schedule.schedule",
    "Target": "tilewright.target",
    "Template": "tilewright.plan.template",
    "Trace": "tilewright.schedule.trace",
}
"""Where each public name lives."""

__all__ = [
    "Executable",
    "Facts",
    "Function",
    "GraphFunction",
    "Instruction",
    "InternalError",
    "Kernel",
    "ModelWarning",
    "Module",
    "Register",
    "RuntimeFault",
    "Schedule",
    "Target",
    "Template",
    "Trace",
    "UserError",
    "__version__",
    "build",
    "compile",
    "evaluate",
    "load",
    "page",
    "parse",
    "register",
    "save",
    "unregister",
    "why",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
