"""`tilewright show --html`: a page about a model, written to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import tilewright as tw
from tilewright.cli.feeds import make_feeds
from tilewright.cli.guard import note
from tilewright.cli.model import How, compile_model, tell_assumptions
from tilewright.cli.tables import size
from tilewright.report.errors import RuntimeFault, UserError
from tilewright.report.progress import progress
from tilewright.store.files import find_obstacle, replace_file
from tilewright.target import Target
from tilewright.target.host import current_host


@dataclass(frozen=True, slots=True)
class Measured:
    """Whether calls are measured, and on which inputs, in the words of the options."""

    wanted: bool
    inputs: Sequence[str]
    sizes: Sequence[str]
    seed: int

    def option(self) -> str | None:
        """One of these options that was given, if any was; sizes are of use to others, too."""
        given = {"--no-measure": not self.wanted, "--input": self.inputs, "--seed": self.seed}
        return next((option for option, value in given.items() if value), None)


def write_page(model: str, file: str, target: str, threads: int | None, how: How, measured: Measured) -> None:
    """Writes the page of a model to a file: all of it, or what was there stays."""
    place = _place(file)
    executable = compile_model(model, target, threads, how)
    runs = Target.parse(target).is_runnable_on(current_host())
    if measured.wanted and not runs:
        note(f"{target} does not run on this machine: the page has the times that planning expected")
    feeds = make_feeds(executable.inputs, measured.inputs, measured.sizes, random=True, seed=measured.seed)
    tell_assumptions(feeds, measured.sizes)
    try:
        with progress("measuring and drawing" if measured.wanted and runs else "drawing"):
            text = tw.page(executable, feeds.arrays, title=Path(model).stem, measure=measured.wanted and runs)
    except RuntimeFault as fault:
        mend = "give inputs that it takes with --input, or leave measuring out with --no-measure"
        raise RuntimeFault(fault.what, where=fault.where, why=fault.why, mend=mend) from None
    data = text.encode()
    replace_file(place, lambda out: _write(out, data))
    note(f"{place} holds the page, {size(len(data))}; open it with a browser")


def _write(out: BinaryIO, data: bytes) -> None:
    out.write(data)


def _place(file: str) -> Path:
    """Where the page goes, if it can be written there; asked before the work."""
    place = Path(file)
    obstacle = find_obstacle(place)
    if obstacle is not None:
        raise UserError(f"cannot write {file}", where=f"--html {file}", why=obstacle, mend="name a file of yours")
    return place
