"""The weights of a library, written while the compiler still makes its code.

    with Ahead(place) as ahead:                              by one who knows where the library goes
        exe = tw.compile(model)                              the compiler calls `tell_constants` when they are final
        write_library(place, [exe.program], name, ahead=ahead)

A thread writes them to a file without a name beside the place, from WEIGHTS_AT on, where a library has them unless its
code is longer than that; a file for weights alone has them from its beginning. Whatever does not come to be that way is
written afterwards: the library has the same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from tilewright.codegen.library.places import WEIGHTS_AT
from tilewright.runtime.library.weights import Weights, lay_out
from tilewright.runtime.program import Program
from tilewright.store.blocks import LARGE_PAGE, write_parts
from tilewright.store.files import unnamed_file

Array = np.ndarray[Any, Any]

_asked: ContextVar[Ahead | None] = ContextVar("asked", default=None)


def tell_constants(constants: Sequence[Array]) -> None:
    """Says that a program will take these constants, in this order, whatever its code will be."""
    ahead = _asked.get()
    if ahead is not None:
        ahead.begin(constants)


class Ahead:
    """The weights of a library at a place, or of a file for them, for the one program that is compiled inside of its
    `with`. Nothing is left of them where no library takes them, and nothing is written where the system has no files
    without names."""

    def __init__(self, place: Path, alone: bool = False, meanwhile: Callable[[], None] | None = None) -> None:
        """`alone`: the file at the place is to hold nothing but the weights. `meanwhile` is called by a thread while
        they are written."""
        self._place, self._alone, self._meanwhile = place, alone, meanwhile
        self._sizes: list[int] | None = None
        self._is_one = True
        self._thread: threading.Thread | None = None
        self._made: tuple[Weights, list[list[int]]] | None = None
        self._file: BinaryIO | None = None
        self._before: Token[Ahead | None] | None = None

    def __enter__(self) -> Ahead:
        self._before = _asked.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._before is not None
        _asked.reset(self._before)
        self._join()
        if self._file is not None:
            self._file.close()

    def begin(self, constants: Sequence[Array]) -> None:
        """Has a thread write these constants. Those of a second program make it unclear whose they are: none are used
        then."""
        if self._sizes is not None:
            self._is_one = False
            return
        self._sizes = [array.nbytes for array in constants]
        if sum(self._sizes) >= LARGE_PAGE and (file := unnamed_file(self._place.parent)) is not None:
            self._file = file
            self._thread = threading.Thread(target=self._write, args=(file, list(constants)), daemon=True)
            self._thread.start()
            if self._meanwhile is not None:
                threading.Thread(target=self._meanwhile, daemon=True).start()

    def _write(self, file: BinaryIO, constants: Sequence[Array]) -> None:
        laid_out = lay_out([constants])
        weights = laid_out[0]
        try:
            write_parts(file, weights.parts, self._start)
            if self._alone:
                weights.stamp()  # whoever writes the library asks for it
        except OSError:  # the disk is full: whoever writes the library says so
            return
        self._made = laid_out

    @property
    def _start(self) -> int:
        return 0 if self._alone else WEIGHTS_AT

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def weights_of(self, programs: Sequence[Program]) -> tuple[Weights, list[list[int]]] | None:
        """The weights of programs, as `lay_out` gives them; None where they were not written."""
        self._join()
        if len(programs) != 1 or not self._is_one or self._sizes != [array.nbytes for array in programs[0].constants]:
            return None
        return self._made

    def take(self) -> tuple[BinaryIO, Mapping[int, int]]:
        """The file, which is the caller's from then on, and where parts of the weights lie in it, by their `id`."""
        assert self._file is not None
        assert self._made is not None
        file, self._file = self._file, None
        return file, self._made[0].inside(self._start)
