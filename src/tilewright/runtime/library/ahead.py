"""What of a library is made while the compiler still makes its program: the file of its weights, and the code beside
the program.

    with Ahead(place, prepare) as ahead:                     by one who knows where the library goes
        exe = tw.compile(model)                              the compiler calls `tell_program` when constants are final
        write_library(place, [exe.program], name, ahead=ahead)

A thread writes the weights to a file without a name beside the place, from WEIGHTS_AT on, where a library has them
unless its code is longer than that; a file for weights alone has them from its beginning. Another one makes the code.
Whatever does not come to be that way is made afterwards: the library has the same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tilewright.codegen.library.places import WEIGHTS_AT
from tilewright.report.errors import UserError
from tilewright.runtime.library.weights import Stamp, Weights, lay_out
from tilewright.runtime.program import Program
from tilewright.store.blocks import LARGE_PAGE, write_parts
from tilewright.store.files import unnamed_file

_asked: ContextVar[Ahead | None] = ContextVar("asked", default=None)

Places = Sequence[Sequence[int]]
"""Where constants of programs begin among the weights."""

Prepare = Callable[[Program, bool, Places, Callable[[], Stamp | None]], tuple[object, bytes]]
"""Makes the code beside a program, given whether that uses the pool, the places of its constants, and what waits for
the stamp of its weights: what the code was made for, to be compared, and an object file."""


def tell_program(program: Callable[[], Program], forks: bool) -> None:
    """Says what program is being compiled, without its code, its sites and what it was made from, and whether it uses
    the pool."""
    ahead = _asked.get()
    if ahead is not None:
        ahead.begin(program(), forks)


class Ahead:
    """The weights of a library at a place, or of a file for them, and the code beside the one program that is compiled
    inside of its `with`. Nothing is left of them where no library takes them. No weights are written where the system
    has no files without names."""

    def __init__(self, place: Path | None, prepare: Prepare, alone: bool = False) -> None:
        """`alone`: the file at the place is to hold nothing but the weights. Without a place no weights are written."""
        self._place, self._prepare, self._alone = place, prepare, alone
        self._sizes: list[int] | None = None
        self._is_one = True
        self._threads: list[threading.Thread] = []
        self._made: tuple[Weights, list[list[int]]] | None = None
        self._code: tuple[object, bytes] | None = None
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

    def begin(self, program: Program, forks: bool) -> None:
        """Has threads make what a library of this program needs. After a second program it is unclear whose that is:
        none of it is used then."""
        if self._sizes is not None:
            self._is_one = False
            return
        self._sizes = [array.nbytes for array in program.constants]
        laid_out = lay_out([program.constants])
        writer: threading.Thread | None = None
        if self._place is not None and sum(self._sizes) >= LARGE_PAGE:
            self._file = unnamed_file(self._place.parent)
        if self._file is not None:
            writer = self._start(self._write, self._file, laid_out)

        def stamp() -> Stamp | None:
            if not self._alone:
                return None
            if writer is not None:
                writer.join()  # which reads all weights for it
            return laid_out[0].stamp()

        self._start(self._make_code, program, forks, laid_out[1], stamp)

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _write(self, file: BinaryIO, laid_out: tuple[Weights, list[list[int]]]) -> None:
        weights = laid_out[0]
        try:
            write_parts(file, weights.parts, self._at)
            if self._alone:
                weights.stamp()  # whoever writes the library asks for it
        except OSError:  # the disk is full: whoever writes the library says so
            return
        self._made = laid_out

    def _make_code(self, program: Program, forks: bool, places: Places, stamp: Callable[[], Stamp | None]) -> None:
        try:
            self._code = self._prepare(program, forks, places, stamp)
        except UserError:  # what no library can hold: whoever writes it says so
            return

    @property
    def _at(self) -> int:
        """Where the weights begin in their file."""
        return 0 if self._alone else WEIGHTS_AT

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def weights_of(self, programs: Sequence[Program]) -> tuple[Weights, list[list[int]]] | None:
        """The weights of programs, as `lay_out` gives them; None where they were not written."""
        self._join()
        if len(programs) != 1 or not self._is_one or self._sizes != [array.nbytes for array in programs[0].constants]:
            return None
        return self._made

    def code_for(self, asks: object) -> bytes | None:
        """The object file of the code beside the program, where it was made for what `asks` is equal to."""
        self._join()
        return None if self._code is None or self._code[0] != asks else self._code[1]

    def take(self) -> tuple[BinaryIO, Mapping[int, int]]:
        """The file, which is the caller's from then on, and where parts of the weights lie in it, by their `id`."""
        assert self._file is not None
        assert self._made is not None
        file, self._file = self._file, None
        return file, self._made[0].inside(self._at)
