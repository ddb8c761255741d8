"""`tilewright show --html`: a page about a model, written to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tilewright as tw
from tilewright.cli.feeds import make_feeds
from tilewright.cli.guard import note
from tilewright.cli.model import How, compile_model, graph_of, tell_assumptions
from tilewright.cli.saving import place_for, save_text
from tilewright.cli.tables import size
from tilewright.report.errors import RuntimeFault
from tilewright.report.progress import progress
from tilewright.target import Target
from tilewright.target.host import current_host


@dataclass(frozen=True, slots=True)
class Measured:
    """Whether calls are measured, for how long (None: a second), and on which inputs, in the words of the options."""

    wanted: bool
    seconds: float | None
    inputs: Sequence[str]
    sizes: Sequence[str]
    seed: int

    def option(self) -> str | None:
        """One of these options that was given, if any was; sizes are of use to others, too."""
        given = {"--no-measure": not self.wanted, "--seconds": self.seconds is not None, "--input": bool(self.inputs)}
        given |= {"--seed": self.seed != 0}
        return next((option for option, is_given in given.items() if is_given), None)


def write_page(model: str, file: str, target: str, threads: int | None, how: How, measured: Measured) -> None:
    """Writes the page of a model to a file: all of it, or what was there stays."""
    place = place_for(file, "--html", model, measured.inputs)
    executable = compile_model(model, target, threads, how)
    runs = Target.parse(target).is_runnable_on(current_host())
    if measured.wanted and not runs:
        note(f"{target} does not run on this machine: the page has the times that planning expected")
    feeds = make_feeds(
        executable.inputs, measured.inputs, measured.sizes, random=True, seed=measured.seed, graph=graph_of(executable)
    )
    tell_assumptions(feeds, measured.sizes)
    try:
        with progress("measuring and drawing" if measured.wanted and runs else "drawing"):
            seconds = 1.0 if measured.seconds is None else measured.seconds
            measure = measured.wanted and runs
            text = tw.page(executable, feeds.arrays, title=Path(model).stem, seconds=seconds, measure=measure)
    except RuntimeFault as fault:
        fix = "give inputs that it takes with --input, or leave measuring out with --no-measure"
        raise RuntimeFault(fault.what, where=fault.where, why=fault.why, fix=fix) from None
    save_text(place, text)
    note(f"{place} holds the page, {size(place.stat().st_size)}; open it with a browser")
