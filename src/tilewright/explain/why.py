"""`why`: the answer to a name, of a program that was compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import tilewright.explain.text  # noqa: F401  (answers print by it)
from tilewright.analysis.dataflow import is_free
from tilewright.explain.answer import Answer, KernelAnswer, Measured
from tilewright.explain.kernels import explain_kernel, sources
from tilewright.explain.names import Found, find
from tilewright.explain.program import Place, ProgramFacts, facts_of, is_constant, is_view
from tilewright.report.arguments import check_kind
from tilewright.runtime.executable import Executable
from tilewright.runtime.profile import Profile, SiteTime
from tilewright.store import Json


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A place where a program calls a kernel, to choose from: its number, name and template, what it holds, and the
    seconds that planning expects and, where it was measured, that a call takes: both of the same sizes then."""

    number: int
    name: str
    template: str
    source: tuple[str, ...]
    predicted: float
    measured: Measured | None = None

    def record(self) -> dict[str, Json]:
        """The row as JSON says it."""
        what: dict[str, Json] = {"number": self.number, "kernel": self.name, "template": self.template}
        times: dict[str, Json] = {"predicted_s": self.predicted}
        times["measured"] = None if self.measured is None else self.measured.record()
        return {**what, "source": list(self.source), **times}


class Explainer:
    """What can be asked of one executable. The passes before the schedules run again when it is made; each kernel's
    facts are made when they are asked for."""

    def __init__(self, executable: Executable) -> None:
        self.program = facts_of(executable.origin)

    def find(self, name: str) -> Found:
        """What a name stands for. UserError where that is nothing, or several things."""
        return find(self.program, name)

    def why(self, name: str, profile: Profile | None = None) -> Answer:
        """What holds the operator, value or kernel of that name, and why it is so; with a profile, measured times, too.

        UserError for a name that stands for nothing, or for several things.
        """
        found = self.find(name)
        places = _places(self.program, found)
        kernels = tuple(self.kernel(p, profile) for p in places)
        return Answer(name, found.what, kernels, tuple(_notes(self.program, found, bool(places))))

    def kernel(
        self, place: Place, profile: Profile | None = None, sizes: Mapping[str, int] | None = None
    ) -> KernelAnswer:
        """The facts of one of `program.places`, priced for the sizes of the profile's call, or for these."""
        known = profile.sizes if profile is not None else sizes or {}
        answer = explain_kernel(self.program, place, known)
        return answer if profile is None else replace(answer, measured=self._measured(place, profile))

    def lines(self, profile: Profile | None = None) -> list[KernelLine]:
        """The kernels in the order of the plan."""
        return [
            KernelLine(
                p.number,
                p.name,
                p.kernel.template,
                sources(p),
                self.program.cost(p, {} if profile is None else profile.sizes)[0].seconds,
                None if profile is None else self._measured(p, profile),
            )
            for p in self.program.places
        ]

    def _measured(self, place: Place, profile: Profile) -> Measured | None:
        """The rows of a profile that are of this place: a loop whose order alternates calls it at several."""
        rows = [row for row in profile.sites if row.site.kernel == place.name]
        count = sum(p.name == place.name for p in self.program.places)
        mine = [row for n, row in enumerate(rows) if n * count // len(rows) == place.turn]
        return _sum(mine, profile.threads) if mine else None


def _sum(rows: list[SiteTime], threads: int) -> Measured:
    calls = sum(row.calls for row in rows) or 1
    seconds = sum(row.seconds for row in rows) / calls
    first = max(rows, key=lambda row: row.seconds)
    return Measured(seconds, first.roofline, first.gflops, first.gbs, threads)


_EXPLAINERS: WeakKeyDictionary[Executable, Explainer] = WeakKeyDictionary()


def explainer(executable: Executable) -> Explainer:
    """What can be asked of an executable; made once for each."""
    if executable not in _EXPLAINERS:
        _EXPLAINERS[executable] = Explainer(executable)
    return _EXPLAINERS[executable]


def why(executable: Executable, name: str, feeds: Mapping[str, Any] | None = None, *, seconds: float = 1.0) -> Answer:
    """Why a kernel of a compiled model is as it is: which operators it holds and which not, what else was priced, how
    its operands are stored, and the schedule as Python that replays it.

    `name` is an operator or a value of the model, or a kernel by its name or number. With `feeds`, arrays by input,
    calls are measured for so many seconds and set against what was predicted. The answer prints as text; its fields are
    data, and `record()` gives them as JSON.

    UserError for a name that stands for nothing (with the nearest ones), or for several things.
    """
    check_kind("executable", executable, Executable, "what tilewright.compile returns", "why(executable, name)")
    check_kind("name", name, str, "the name of an operator, a value or a kernel", 'why(executable, "conv1")')
    asked = explainer(executable)
    asked.find(name)
    profile = None if feeds is None else executable.profile(feeds, seconds=seconds)
    return asked.why(name, profile)


def _places(program: ProgramFacts, found: Found) -> list[Place]:
    """The kernels to tell of: the one that was asked for, else those that hold the nodes."""
    if found.place is not None:
        return [found.place]
    if found.parameter or all(is_constant(n) for n in found.nodes):
        return []
    held = set(found.nodes)
    if all(is_free(n) for n in held):
        return []
    return [p for p in program.places if not held.isdisjoint(p.kernel.nodes)]


def _notes(program: ProgramFacts, found: Found, held: bool) -> list[str]:
    """What there is to say of a name beside the kernels that hold it."""
    if found.name.startswith("kernel:") and found.place is None:
        return ["pass own-states made it: it copies the next state of a loop over the state before it"]
    if not found.nodes and found.source:
        last = program.last_pass_with(found.source)
        return [f"no operator of the planned graph comes from {found.source}: pass {last} left none of it"]
    if found.parameter:
        readers = [p for p in program.places if not set(found.nodes).isdisjoint(p.kernel.nodes)]
        return [f"kernel {p.name} ({p.number}) reads it, by {_readers(p, found)}" for p in readers]
    if held:
        return []
    return [note for node in found.nodes for note in _alone(program, node)]


def _readers(place: Place, found: Found) -> str:
    return ", ".join(dict.fromkeys(n.op.name for n in found.nodes if n in place.kernel.nodes))


def _alone(program: ProgramFacts, node: object) -> list[str]:
    """Why a node is in no kernel."""
    for graph in program.graphs.values():
        for n in graph.function.nodes:
            if n is node:
                return [_outside(program, graph.name(n.outputs[0]) if n.outputs else n.op.name, n)]
    return []


def _outside(program: ProgramFacts, name: str, node: Any) -> str:
    if is_constant(node):
        made = program.constants.get(node.attrs.name, "")
        return f"{name} is a constant: " + (f"pass {made} computed it" if made else "the model has it")
    if is_view(node):
        return f"{name} is the memory that {node.op.name} reads, in another shape: no kernel computes it"
    if is_free(node):
        return f"{name} reads nothing: each kernel that uses it makes it for itself"
    return f"{node.op.name} is part of the program that calls kernels"
