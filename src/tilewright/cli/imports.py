"""`--import MODULE`: modules of a program that register operators, handlers, templates or instructions."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from tilewright.core.asking import failure
from tilewright.report.errors import TilewrightError, UserError

_FIX = "name a module that Python finds from here, as my_operators, or its file, as path/to/my_operators.py"


def import_modules(names: Sequence[str]) -> None:
    """Imports each module, by its name or by the path of its file, once. UserError for one that there is not, and at
    the line of what it raises."""
    for name in names:
        _import(name)


def _import(name: str) -> None:
    is_file = name.endswith(".py")
    folder = os.path.dirname(os.path.abspath(name)) if is_file else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if is_file and not os.path.isfile(name):
        raise UserError(f"cannot import {name}", where="--import", why="there is no such file", fix=_FIX)
    try:
        _import_file(name) if is_file else importlib.import_module(name)
    except TilewrightError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"cannot import {name}", where="--import", why="there is no such module", fix=_FIX
            ) from None
        raise failure(f"importing {name}", None, error) from error
    except ValueError as error:
        raise UserError(f"cannot import {name!r}", where="--import", why=str(error), fix=_FIX) from None
    except Exception as error:
        raise failure(f"importing {name}", None, error) from error


def _import_file(path: str) -> ModuleType:
    """The module of a file, under the name of the file."""
    name, place = os.path.splitext(os.path.basename(path))[0], os.path.abspath(path)
    known = sys.modules.get(name)
    if known is not None:
        if os.path.abspath(getattr(known, "__file__", None) or "") == place:
            return known
        why = f"there is another module of the name {name}"
        raise UserError(f"cannot import {path}", where="--import", why=why, fix="give the file another name")
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
