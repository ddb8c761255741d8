"""What programs have added to the compiler, templates and instructions: part of the key of what is compiled with it.

What the store holds was made by the compiler alone, or by the same additions. Other processes do not have them, so a
compilation with any stays in one.
"""

from __future__ import annotations

import hashlib
import os
import sys

_ADDED: dict[str, str] = {}
_OWN = __name__.partition(".")[0]


def add(what: str, code: str) -> None:
    """Takes note of an addition and of the text that it is, as far as that can be told."""
    _ADDED[what] = code


def remove(what: str) -> None:
    """Forgets what was added by this name."""
    _ADDED.pop(what, None)


def stamp() -> str:
    """Text that differs whenever what was added may be other code; empty where nothing was."""
    return "; ".join(f"{what}: {code}" for what, code in sorted(_ADDED.items()))


def is_own(kind: type) -> bool:
    """Whether a class is of this package."""
    return kind.__module__.partition(".")[0] == _OWN


def source_of(kind: type) -> str:
    """Text for the code of a class: the digest of its module's file; the number of this process where there is none, as
    at a prompt."""
    module = kind.__module__
    path = getattr(sys.modules.get(module), "__file__", None)
    try:
        with open(path or "", "rb") as file:
            return f"{module} {hashlib.sha256(file.read()).hexdigest()}"
    except OSError:
        return f"{module} in process {os.getpid()}"
