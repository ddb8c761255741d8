"""What programs have added to the compiler, templates, instructions, operators and handlers: part of the key of what is
compiled with it.

What the store holds was made by the compiler alone, or by the same additions. Kernels are compiled in several
processes, which do not have them: what a kernel is compiled by, once it is planned, keeps a compilation in one.
"""

from __future__ import annotations

_ADDED: dict[str, str] = {}
_FOR_KERNELS: set[str] = set()


def add(what: str, code: str, *, for_kernels: bool) -> None:
    """Takes note of an addition and of the text that it is, as far as that can be told. `for_kernels`: whether kernels
    are compiled by it after they are planned."""
    _ADDED[what] = code
    if for_kernels:
        _FOR_KERNELS.add(what)


def remove(what: str) -> None:
    """Forgets what was added by this name."""
    _ADDED.pop(what, None)
    _FOR_KERNELS.discard(what)


def stamp() -> str:
    """Text that differs whenever what was added may be other code; empty where nothing was."""
    return "; ".join(f"{what}: {code}" for what, code in sorted(_ADDED.items()))


def are_there() -> bool:
    """Whether anything was added, which other processes lack."""
    return bool(_ADDED)


def are_for_kernels() -> bool:
    """Whether kernels are compiled by any addition, which other processes lack."""
    return bool(_FOR_KERNELS)
