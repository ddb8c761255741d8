"""The processes that work on one compilation: how many, and workers beside this one."""

from __future__ import annotations

from tilewright.core import extensions
from tilewright.core.processes import Workers
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.report import settings
from tilewright.target.host import current_host

LARGE_MODEL = 64
"""Operators of a model whose kernels take long enough to compile that other processes, which take half a second to
begin, are of use."""


def useful_processes(module: Module) -> int:
    """How many processes are to compile the kernels of a module. A compilation that is shown or verified pass by pass
    stays in one process."""
    return 1 if is_watched() or not is_large(module) else processes_for_kernels()


def processes_for_kernels() -> int:
    """How many processes may make kernels apart: others lack registered templates and instructions."""
    return 1 if extensions.are_for_kernels() else most_processes()


def processes_for_modules() -> int:
    """How many processes may plan modules: others lack all that programs have added."""
    return 1 if extensions.are_there() or is_watched() else most_processes()


def begin_workers(processes: int) -> Workers:
    """Workers that plan modules and make kernels (`work` in `apart.py`), so many processes with this one."""
    alone = {settings.COMPILE_PROCESSES.name: "1"}
    return Workers("tilewright.compiler.apart:work", processes - 1, alone)


def is_watched() -> bool:
    """Whether compilations are shown or verified pass by pass."""
    show = settings.SHOW.read()
    return show.lines or show.directory is not None or settings.VERIFY.read()


def most_processes() -> int:
    """How many processes, or threads, may work on one compilation."""
    return settings.COMPILE_PROCESSES.read() or current_host().cores


def is_large(module: Module) -> bool:
    """Whether kernels become several object files, which several processes may make."""
    plain = len(module.functions) == 1 and isinstance(module.main, GraphFunction)
    return plain and len(module.graph.nodes) >= LARGE_MODEL
