"""Libraries that `tilewright compile` writes: which files they are, asked before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilewright.cli.saving import place_for
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable
from tilewright.runtime.library.ahead import Ahead, Places
from tilewright.runtime.library.codes import check_name
from tilewright.runtime.library.targets import MODULE, check_ending, check_targets, is_shared
from tilewright.runtime.library.weights import Stamp
from tilewright.runtime.program import Program
from tilewright.target import Target

ENDINGS = (".so", ".o", ".a", MODULE)


class Library:
    """A library at a place, if it ends as one does, and the files beside it that options name."""

    def __init__(self, place: Path, model: str, beside: Mapping[str, str | None], name: str | None) -> None:
        """Raises UserError for options that belong to a library where none is written, for a name that is none in C,
        and for places where no file can be written."""
        check_ending(place)
        self.place, self._name = place, name or "model"
        self.wanted = place.suffix in ENDINGS or is_shared(place)
        given = {option: file for option, file in beside.items() if file is not None}
        if place.suffix == MODULE and "--weights" in given:
            raise UserError(
                "--weights does not go with a module of WebAssembly",
                why=f"{place} holds its weights",
                fix="leave --weights out",
            )
        if not self.wanted and (given or name is not None):
            option = next(iter(given), "--name")
            raise UserError(
                f"{option} belongs to a library, and {place} is none",
                why=f"a library is a file whose name ends in {', '.join(ENDINGS)}",
                fix=f"write one: --output lib{self._name}.so",
            )
        check_name(self._name)
        self._ahead: Ahead | None = None
        self._beside = {option: place_for(file, option, model) for option, file in given.items()}

    @property
    def target(self) -> str:
        """What it is for, if nobody says."""
        return "wasm" if self.place.suffix == MODULE else "native"

    def check_targets(self, names: Sequence[str]) -> None:
        """Raises UserError for machines that one library cannot be for."""
        if self.wanted:
            check_targets([Target.parse(name) for name in names], self.place.suffix == MODULE)

    @contextmanager
    def expected(self, programs: int) -> Iterator[None]:
        """Has much of a library with one program made while the rest of it is compiled, inside of the `with`, and
        saved there: its own code, and the weights of a shared library, or those that go to a file of their own."""
        weights = self._beside.get("--weights")
        if programs != 1 or not self.wanted or self.place.suffix == MODULE:
            yield
            return
        place = self.place if is_shared(self.place) else None
        with Ahead(weights or place, self._prepare, weights is not None) as self._ahead:
            yield

    def _prepare(
        self, program: Program, forks: bool, places: Places, stamp: Callable[[], Stamp | None]
    ) -> tuple[object, bytes]:
        """The code of the library beside the program."""
        from tilewright.runtime.library.write import prepare  # brings LLVM along

        return prepare(self._name, is_shared(self.place), program, forks, places, stamp)

    def save(self, executables: Sequence[Executable]) -> None:
        """Writes the library."""
        from tilewright.runtime.library.write import in_order, write_library  # brings LLVM along

        header, weights = self._beside.get("--header"), self._beside.get("--weights")
        programs = in_order([executable.program for executable in executables])
        write_library(self.place, programs, self._name, header, weights, self._ahead)
