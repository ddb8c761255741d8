"""What a page tells of a program: collected once, from the executable and from a profile of a call where there is one.

Times are in seconds. A call is a place of a graph that calls a kernel; one inside a loop runs several times.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.explain.answer import KernelAnswer, Neighbour
from tilewright.explain.page.neighbours import beside
from tilewright.explain.page.pictures import Item, Kind, Picture, pictures
from tilewright.explain.page.programs import Level, kernel_programs, whole_programs
from tilewright.explain.program import Place
from tilewright.explain.why import explainer
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Expr
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Function, Reserve
from tilewright.runtime.executable import Executable
from tilewright.runtime.profile import Profile, SiteTime
from tilewright.runtime.program import Site
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a kernel: the kernel's function, how many calls of it come before (`turn`), how often it runs, its
    seconds, what planning expected, what it does and moves, what the roofline allows; None where that is not known.
    `reached` says whether it runs at a call of the program, and not while it is compiled. `main` is the front end's
    operator that most of the work is expected of, `source` all of them; `answer` says why it is so, and `beside` what
    it reads from and is read by, each with the key of the call there, empty where none is."""

    kernel: str
    turn: int
    template: str
    source: tuple[str, ...]
    main: str
    runs: int
    reached: bool
    measured: float | None
    predicted: float | None
    flops: int | None
    bytes: int | None
    bound: float | None
    balance: float | None
    answer: KernelAnswer
    beside: tuple[tuple[Neighbour, str], ...]

    @property
    def key(self) -> str:
        """What the call is named by in the address of a page: `dense` is the first call of a kernel, `dense:2` the
        second."""
        return key_of(self.kernel, self.turn)

    @property
    def seconds(self) -> float:
        """The measured time, or the predicted one where nothing was measured."""
        return self.measured if self.measured is not None else self.predicted or 0.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's function with its programs."""

    name: str
    programs: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a page tells. `seconds` is a call of the program, and `between` what no kernel had of it; `arena` is
    None where it depends on sizes that are not known."""

    title: str
    target: Target
    threads: int
    measured: bool
    seconds: float
    between: float
    weights: int
    arena: int | None
    calls: tuple[Call, ...]
    kernels: tuple[Kernel, ...]
    pictures: tuple[Picture, ...]
    programs: tuple[Level, ...]

    @property
    def flops(self) -> int | None:
        """The operations of all calls, where all are known."""
        known = [call.flops for call in self.calls if call.reached]
        return sum(n for n in known if n is not None) if None not in known else None

    @property
    def cores(self) -> int:
        """How many cores a call may use."""
        return min(self.threads, self.target.cores)

    @property
    def peak(self) -> float:
        """The operations per second that these cores may do at best."""
        return self.target.fma_gflops * self.cores * 1e9


def collect(exe: Executable, title: str, profile: Profile | None, sizes: Mapping[str, int]) -> Facts:
    """The facts of a program; `sizes` are those of its symbols, where they are known."""
    stages = exe.stages
    drawn = pictures(exe.after(stages[stages.index("plan") - 1]), exe.after("plan"))
    items = [item for picture in drawn for item in picture.items if item.kind is Kind.KERNEL]
    calls = tuple(_calls(exe, items, profile, sizes))
    operators = {item.name: item.program for item in reversed(items) if item.program is not None}
    programs = kernel_programs(exe, operators, {call.kernel: call.answer.schedule for call in calls})
    kernels = tuple(Kernel(name, programs[name]) for name in dict.fromkeys(item.name for item in items))
    seconds = math.fsum(call.seconds for call in calls)
    return Facts(
        title=title,
        target=exe.program.target,
        threads=exe.threads,
        measured=profile is not None,
        seconds=profile.seconds if profile else seconds,
        between=max(profile.between, 0.0) if profile else 0.0,
        weights=sum(c.nbytes for c in exe.program.constants),
        arena=_arena(exe, sizes),
        calls=calls,
        kernels=kernels,
        pictures=drawn,
        programs=whole_programs(exe),
    )


def _calls(exe: Executable, items: Sequence[Item], profile: Profile | None, sizes: Mapping[str, int]) -> list[Call]:
    """The calls in the order of the graphs, each with the sites of the program that are its own: those of a kernel
    stand in the same order, at one place each or, where the order of a loop alternates, at several."""
    sites = exe.program.sites
    names = [site.kernel.partition(".")[0] for site in sites]
    drawn, reached, met = Counter(item.name for item in items), Counter(names), Counter[str]()
    own: dict[tuple[str, int], list[int]] = {}
    for n, name in enumerate(names):
        own.setdefault((name, met[name] * drawn[name] // reached[name]), []).append(n)
        met[name] += 1
    planned = Counter[str]()
    keys = [(row.name, planned.update([row.name]) or planned[row.name] - 1) for row in exe.plan.kernels]
    rows = dict(zip(keys, exe.plan.kernels, strict=True))
    explained, calls = explainer(exe), list[Call]()
    expected, prices = exe.predict(sizes), dict(zip(keys, exe.plan.predict(sizes), strict=True))
    places = {(place.name, place.turn): place for place in explained.program.places}
    for item in items:
        key, row = (item.name, item.turn), rows[item.name, item.turn]
        known = [profile.sites[n] if profile else _expected(sites[n], sizes, expected[n]) for n in own.get(key, ())]
        alone = Site(item.name, row.template, row.operators, row.source, row.flops, row.bytes)
        one = _expected(alone, sizes, prices[key])
        place = places[item.name, item.turn]
        answer = explained.kernel(place, sizes=sizes)
        near = tuple((other, _key(it)) for other, it in beside(answer, place, explained.program.places))
        calls.append(_call(item, one, known, profile is not None, answer, near))
    return calls


def _expected(site: Site, sizes: Mapping[str, int], predicted: float | None) -> SiteTime:
    """What is known of a call of a site without a profile."""
    flops, moved = (None if e is None else _value(e, sizes) for e in (site.flops, site.bytes))
    return SiteTime(site, 1, 0.0, flops, moved, None, predicted, None)


def _call(
    item: Item,
    one: SiteTime,
    found: Sequence[SiteTime],
    measured: bool,
    answer: KernelAnswer,
    near: tuple[tuple[Neighbour, str], ...],
) -> Call:
    """A call of the graph from its sites; `one` is a single run of it."""
    rows = found or [one]
    balances = [row.balance for row in rows if row.balance is not None]
    flops, moved = _total([row.flops for row in rows]), _total([row.bytes for row in rows])
    return Call(
        kernel=item.name,
        turn=item.turn,
        template=one.site.template,
        source=answer.source,
        main=item.main,
        runs=sum(row.calls for row in found),
        reached=bool(found),
        measured=math.fsum(row.seconds for row in found) if measured and found else None,
        predicted=_sum([row.predicted for row in rows]),
        flops=flops,
        bytes=moved,
        bound=_sum([row.bound for row in rows]),
        balance=sum(balances) / len(balances) if balances else None,
        answer=answer,
        beside=near,
    )


def key_of(kernel: str, turn: int) -> str:
    """The key of a call: `dense` for the first, `dense:2` for the second."""
    return kernel if not turn else f"{kernel}:{turn + 1}"


def _key(place: Place | None) -> str:
    return "" if place is None else key_of(place.name, place.turn)


def _total(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return math.fsum(known) if len(known) == len(parts) else None


def _value(e: Expr, sizes: Mapping[str, int]) -> int | None:
    """What an expression comes to; None where it needs a size that is not known."""
    used = variables_of(e)
    return int(evaluate(e, {v: sizes[v.name] for v in used})) if all(v.name in sizes for v in used) else None


def _arena(exe: Executable, sizes: Mapping[str, int]) -> int | None:
    """The bytes of scratch memory of a call, where they are known before it."""
    called = exe.after("bufferize")
    main = called.functions[called.entry]
    assert isinstance(main, Function), "bufferize makes loops functions"
    found = [_value(s.bytes, sizes) for s in statements(main.body) if isinstance(s, Reserve)]
    return _total(found)
