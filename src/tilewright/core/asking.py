"""Functions that a program gives, asked: what goes wrong inside of one is told at the program's line.

ask("the type rule of the operator snake", op.infer, context, inputs, attrs)

the type rule of the operator snake failed
at:   my_operators.py, line 12, in infer: return (inputs[1],)
why:  IndexError: tuple index out of range
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

from tilewright.core.code import OWN, is_own
from tilewright.report.errors import InternalError, RuntimeFault, TilewrightError, UserError

T = TypeVar("T")


class FunctionFailure(UserError):
    """A function that a program gave raised what is no error in a user's terms, or gave what cannot be used.

    wrong:  def infer(self, context, inputs, attrs): return inputs[0]
    why:    a type came, and a type rule gives a tuple of them: one for each result
    right:  def infer(self, context, inputs, attrs): return (inputs[0],)
    """


def ask(what: str, function: Callable[..., T], *given: Any) -> T:
    """What the function answers. Errors that it raises in a user's terms are passed on."""
    try:
        return function(*given)
    except (UserError, RuntimeFault):
        raise
    except Exception as error:
        raise failure(what, function, error) from error


def failure(what: str, function: object, error: Exception) -> FunctionFailure:
    """The error for what a function raised."""
    where = line_of(error) or place_of(function) or None
    return FunctionFailure(f"{what} failed", where=where, why=reason_of(error), fix=_fix_of(error))


def reason_of(error: Exception) -> str:
    """What an exception says."""
    if isinstance(error, TilewrightError):
        return ": ".join(part for part in (error.what, error.why) if part)
    return f"{type(error).__name__}: {error}"


def _fix_of(error: Exception) -> str | None:
    return error.fix if isinstance(error, InternalError) else None


def line_of(error: Exception) -> str:
    """The last line of a program that an exception came through; nothing where it came through none."""
    found, trace = "", error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__")  # none for constructors of nodes, which are generated
        if module is not None and str(module).partition(".")[0] != OWN:
            code = trace.tb_frame.f_code
            text = linecache.getline(code.co_filename, trace.tb_lineno).strip()
            found = f"{_file(code)}, line {trace.tb_lineno}, in {code.co_name}" + (f": {text}" if text else "")
        trace = trace.tb_next
    return found


def place_of(function: object) -> str:
    """Where a function of a program is written; nothing for one of this package, or not in Python."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType) or is_own(function):
        return ""
    return f"{_file(code)}, line {code.co_firstlineno}, {code.co_name}"


def _file(code: CodeType) -> str:
    """The name of a file, from the current folder on where it is below that."""
    try:
        path = os.path.relpath(code.co_filename)
    except ValueError:
        return code.co_filename
    return code.co_filename if path.startswith("..") else path
