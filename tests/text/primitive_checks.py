"""What the tests of all primitives ask of a schedule: its golden text, that it replays, and its golden refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from golden_files import check

import tilewright as tw
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify

Steps = Callable[[tw.Schedule], object]


def check_program(request: pytest.FixtureRequest, golden: str, before: Function, s: tw.Schedule) -> None:
    """The scheduled program is valid, reads back from its text, and stands with its steps in the golden file."""
    verify(s.func)
    assert same(parse(str(s.func)), s.func)
    told = s.trace.explain().replace("\n", "\n# ")
    check(request, golden, f"{before}\n\n# {told}\n\n{s.func}")


def check_replay(before: Function, s: tw.Schedule) -> None:
    """The trace, as Python and as JSON, leads from the plain program to the same one."""
    again = tw.Schedule(before)
    exec(str(s.trace), {"s": again})
    assert same(again.func, s.func)
    once_more = tw.Schedule(before)
    once_more.replay(tw.Trace.from_json(s.trace.to_json()))
    assert same(once_more.func, s.func)


def case_collector(cases: dict[str, tuple[str, Steps]]) -> Callable[[str, str], Callable[[Steps], Steps]]:
    """A decorator that adds (program, steps) under a name."""

    def on(name: str, text: str) -> Callable[[Steps], Steps]:
        def keep(steps: Steps) -> Steps:
            cases[name] = text, steps
            return steps

        return keep

    return on


def collector(wrong: list[tuple[str, Steps]]) -> Callable[[str], Callable[[Steps], Steps]]:
    """A decorator that adds (program, steps that must be refused) to the list."""

    def on(text: str) -> Callable[[Steps], Steps]:
        def keep(steps: Steps) -> Steps:
            wrong.append((text, steps))
            return steps

        return keep

    return on
