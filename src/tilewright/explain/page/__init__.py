"""One page about a program: its graph before and after planning, and for each kernel its times, its place on the
roofline, its alternatives and its programs at every level.

Promises: a page is one file that loads nothing; it tells what the compiler chose and what was measured, and which of
both a figure is; whatever names a model has, they are text. The same facts give the same page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.explain.page.document import render
from tilewright.explain.page.facts import collect
from tilewright.expr.nodes import Var
from tilewright.report.arguments import check_kind
from tilewright.runtime.executable import Executable

__all__ = ["page"]


def page(
    exe: Executable,
    feeds: Mapping[str, Any] | None = None,
    *,
    title: str = "program",
    seconds: float = 1.0,
    measure: bool = True,
) -> str:
    """A page about a program, as the text of an HTML file. With `feeds`, arrays by the names of the inputs, calls are
    measured for so many seconds, unless `measure` is false; without them, times are those that planning expected of one
    core.

    Raises UserError for what was compiled without a plan, as by `build`, and for what was loaded from a compiled file,
    which has nothing to look into.
    """
    check_kind("exe", exe, Executable, "what tilewright.compile returns", "page(executable)")
    given = {} if feeds is None else feeds
    exe.plan  # noqa: B018  (tells what has no plan, before the work)
    profile = exe.profile(given, seconds=seconds) if feeds is not None and measure else None
    sizes: dict[str, int] = {}
    for port in exe.inputs:
        shape = getattr(given.get(port.name), "shape", ())
        sizes |= {e.name: n for e, n in zip(port.shape, shape, strict=False) if isinstance(e, Var)}
    return render(collect(exe, title, profile, sizes))
