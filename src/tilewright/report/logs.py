"""What programs that use Python's `logging` are told, by the logger `tilewright`: levels DEBUG and INFO alone.

A program that asks for messages has imported `logging`, so nothing is imported here, and nothing is printed by itself.
What is wrong with a model is a warning (`warnings`), which `logging.captureWarnings(True)` brings to logging, too.
"""

from __future__ import annotations

import sys

NAME = "tilewright"
DEBUG = 10
INFO = 20


def debug(text: str, *values: object) -> None:
    """A step on the way: a pass, what the store has. `text` is filled with values as `logging` fills it."""
    _log(DEBUG, text, values)


def info(text: str, *values: object) -> None:
    """What was done for the caller."""
    _log(INFO, text, values)


def _log(level: int, text: str, values: tuple[object, ...]) -> None:
    get = getattr(sys.modules.get("logging"), "getLogger", None)
    if get is not None:
        get(NAME).log(level, text, *values, stacklevel=3)
