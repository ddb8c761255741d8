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
    from tilewright.api.autoschedule import autoschedule
    from tilewright.api.autotune import autotune
    from tilewright.api.check_operator import check_operator
    from tilewright.api.compile import compile
    from tilewright.api.extend import elementwise, onnx_operator, register, unregister
    from tilewright.api.from_torch import from_torch
    from tilewright.api.programs import build, evaluate, parse
    from tilewright.explain.page import page
    from tilewright.explain.why import why
    from tilewright.frontends.build.emit import Emit
    from tilewright.frontends.build.remarks import ModelWarning
    from tilewright.frontends.build.values import Tensor
    from tilewright.graph.nodes import GraphFunction, Module
    from tilewright.graph.op import Attributes, Pattern
    from tilewright.graph.op import Op as Operator
    from tilewright.loops.nodes import Function
    from tilewright.plan.facts.kernel import Facts
    from tilewright.plan.template import Template
    from tilewright.report.errors import InternalError, RuntimeFault, UserError
    from tilewright.runtime.artefact import load, save, save_library
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.kernel import Kernel
    from tilewright.schedule.schedule import Schedule
    from tilewright.schedule.trace import Trace
    from tilewright.target import Target
    from tilewright.target.instructions import Instruction, Register

_HOME = {
    "autoschedule": "tilewright.api.autoschedule",
    "autotune": "tilewright.api.autotune",
    "build": "tilewright.api.programs",
    "check_operator": "tilewright.api.check_operator",
    "compile": "tilewright.api.compile",
    "elementwise": "tilewright.api.extend",
    "evaluate": "tilewright.api.programs",
    "from_torch": "tilewright.api.from_torch",
    "load": "tilewright.runtime.artefact",
    "onnx_operator": "tilewright.api.extend",
    "page": "tilewright.explain.page",
    "parse": "tilewright.api.programs",
    "register": "tilewright.api.extend",
    "save": "tilewright.runtime.artefact",
    "save_library": "tilewright.runtime.artefact",
    "unregister": "tilewright.api.extend",
    "why": "tilewright.explain.why",
    "Attributes": "tilewright.graph.op",
    "Emit": "tilewright.frontends.build.emit",
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
    "Operator": "tilewright.graph.op:Op",
    "Pattern": "tilewright.graph.op",
    "Register": "tilewright.target.instructions",
    "Schedule": "tilewright.schedule.schedule",
    "Target": "tilewright.target",
    "Template": "tilewright.plan.template",
    "Tensor": "tilewright.frontends.build.values",
    "Trace": "tilewright.schedule.trace",
}
"""Where each public name lives, and what it is called there if not by it."""

_MODULES = ("torch",)
"""Public modules, which are imported when they are first used."""

__all__ = [
    "Attributes",
    "Emit",
    "Executable",
    "Facts",
    "Function",
    "GraphFunction",
    "Instruction",
    "InternalError",
    "Kernel",
    "ModelWarning",
    "Module",
    "Operator",
    "Pattern",
    "Register",
    "RuntimeFault",
    "Schedule",
    "Target",
    "Template",
    "Tensor",
    "Trace",
    "UserError",
    "__version__",
    "autoschedule",
    "autotune",
    "build",
    "check_operator",
    "compile",
    "elementwise",
    "evaluate",
    "from_torch",
    "load",
    "onnx_operator",
    "page",
    "parse",
    "register",
    "save",
    "save_library",
    "unregister",
    "why",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tilewright.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    module, _, own = home.partition(":")
    value = getattr(import_module(module), own or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
