"""An If whose branches give tensors of different element types or ranks: what follows it runs inside of both.

    r = If(n == 1) {Squeeze(x)} else {Identity(x)}             y = If(n == 1) {r = Squeeze(x); y = f(r)}
    y = f(r)                                             =>                else {r = Identity(x); y = f(r)}
    z = g(y)                                                   z = g(y)

Such an If stays open. A node of the same scope that takes what it gives is read in both branches, where ranks are
known; every other node is read outside. The If is closed, and what the branches give is chosen from, as soon as all
that is used later has one type in both, whatever came of it between. Where a branch opens another one, or a node takes
what several give, an If is closed already where sizes differ, if no constant is lost by that: so Ifs one after the
other cost what each costs by itself. Where a node contradicts one branch, there is no choice: each call checks that the
condition takes the other one, which becomes part of what is around it.

An If whose condition is known while the model is read is no choice: the nodes of the branch that it takes are read as
nodes of the scope around it, so that an If that stays open among them does so behind the branch, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from tilewright.expr.build import equal
from tilewright.expr.nodes import Const, Expr, Not
from tilewright.frontends.build.choice import Choice
from tilewright.frontends.build.names import clip
from tilewright.frontends.build.problems import Problems, Unsupported
from tilewright.frontends.build.scopes import UNREAD, Scope, Scopes
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.branches.spliced import names_defined, results_of
from tilewright.frontends.onnx.branches.uses import At, Uses
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.order import names_taken
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

MOST_COPIED = 20_000
"""How many nodes may be read inside of branches that they follow. Each If that is open inside of another one doubles
them; the exporters' pattern, a handful of such Ifs before some hundred nodes, stays below a tenth of this."""


class TooMany(UserError):
    """More than may follow branches that differ. What contradicts a branch is another UserError."""


def refusal(x: Tensor, y: Tensor, name: str = "") -> str:
    """Why two results cannot be chosen from: those of the branches, or those of the value `name` that follows."""
    who = f"{clip(name)}, which follows from the branches of an If" if name else "the branches of an If"
    must = "must be" if name else "must give tensors"
    return (
        f"{who} with a condition from data {must} of the same element type and rank,"
        f" not {x.dtype} of {x.rank} dimensions and {y.dtype} of {y.rank}"
    )


class Differing(Unsupported):
    """Raised for an If whose branches, which the choice holds, give results of different element types or ranks."""

    def __init__(self, why: str, choice: Choice[OnnxEmit], results: Sequence[list[Tensor]]) -> None:
        super().__init__(why)
        self.choice, self.results = choice, results


class Reader(Protocol):
    """The model being read."""

    emit: OnnxEmit
    problems: Problems

    @property
    def scopes(self) -> Scopes:
        """The values by name."""
        ...

    def count_nodes(self, nodes: int) -> None:
        """Counts nodes that are read; an error where they are more than a model may have."""
        ...

    def node(self, node: NodeProto) -> None:
        """Reads a node; Differing where it is an If that stays open."""
        ...

    def place_of(self, node: NodeProto) -> str:
        """How errors call a node."""
        ...

    def taken(self, node: NodeProto) -> GraphProto | None:
        """The branch that an If takes, where its condition is known."""
        ...

    def begun(self, branch: GraphProto) -> Sequence[NodeProto]:
        """The nodes of a branch, which are counted, once its constants are in the innermost scope."""
        ...

    def inside(self, emit: OnnxEmit, scope: Scope) -> AbstractContextManager[None]:
        """Inside, another function is built, with `scope` around what it defines."""
        ...


class Place:
    """Where nodes are read: a function, what is defined there, the errors so far, and the Ifs that are open."""

    def __init__(self, emit: OnnxEmit, scope: Scope, problems: Problems) -> None:
        self.emit, self.scope, self.problems = emit, scope, problems
        self.opened: list[Open] = []
        self.error: UserError | None = None

    def known(self, name: str) -> Tensor | None:
        """A tensor that is defined here."""
        found = self.scope.get(name)
        return found if isinstance(found, Tensor) else None


class Open:
    """An If that is open: its node, the nodes read in its branches, the names that these define."""

    def __init__(self, node: NodeProto, choice: Choice[OnnxEmit], results: Sequence[list[Tensor]], source: str) -> None:
        self.nodes, self.choice, self.source = [node], choice, source
        self.sides = [
            Place(emit, dict(zip(node.output, tensors, strict=False)), Problems())
            for emit, tensors in zip((choice.then, choice.otherwise), results, strict=True)
        ]
        self.names = dict.fromkeys(name for name in node.output if name)


class Choices:
    """What all that is read counts of open Ifs."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.depth = 0
        self._copied = 0

    def count(self, nodes: int) -> None:
        """Notes that so many nodes are read; TooMany where more of them than may be are inside of branches."""
        self._copied += nodes if self.depth else 0
        if self._copied > MOST_COPIED:
            what = "what follows an If whose branches differ in ranks or element types is read after each of them"
            raise TooMany(
                "too much follows branches of different ranks",
                where=self.reader.emit.graph.source,
                why=f"{what}: these are more than {MOST_COPIED:,} nodes",
                fix="let both branches give tensors of the same rank and element type",
            )

    @contextmanager
    def inside(self, one: Open, side: Place, names: Sequence[str]) -> Iterator[None]:
        """Inside, nodes that take these names are read in a branch of an If that is open."""
        reader = self.reader
        missing = [name for name in names if name not in side.scope]
        seen = reader.scopes.visible(missing)
        side.scope.update((name, one.choice.inside(side.emit, t)) for name, t in seen.items())
        side.emit.graph.late.update(reader.emit.graph.late)
        before, reader.problems = reader.problems, side.problems
        self.depth += 1
        try:
            with reader.inside(side.emit, side.scope):
                yield
        finally:
            self.depth -= 1
            reader.problems = before


class Following:
    """The nodes of a scope while they are read, in order; `outputs` are wanted after them."""

    def __init__(self, choices: Choices, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> None:
        self._choices, self._reader = choices, choices.reader
        self._nodes, self._uses = nodes, Uses(nodes, outputs)
        self._top = Place(self._reader.emit, self._reader.scopes.innermost, self._reader.problems)
        self._done: At = ()

    def read_all(self) -> None:
        """Reads the nodes, and closes every If."""
        self._read_in_order(self._nodes, ())
        self._settle(self._top, end=True)

    def _read_in_order(self, nodes: Sequence[NodeProto], at: At) -> None:
        """Reads the nodes of the scope, or those read in place of the node `at` a place."""
        for n, node in enumerate(nodes):
            self._done = (*at, n)
            if not self._splice(node):
                self._read(self._top, node, None)
            self._done = (*at, n + 1)
            if self._top.opened:
                self._settle(self._top)

    def _splice(self, node: NodeProto) -> bool:
        """Reads the branch of an If whose condition is known as if its nodes were in the place of the If, so that what
        stays open in it does behind it, too; False for any other node, and where names of the branch mean something
        here."""
        top, at = self._top, self._done
        hidden = [one.names for one in top.opened]
        branch = None if any(name in names for name in node.input for names in hidden) else self._reader.taken(node)
        if branch is None:
            return False
        own = names_defined(branch)
        if self._reader.scopes.has_any(own) or any(name in names for name in own for names in hidden):
            return False
        inner = [*self._reader.begun(branch), *results_of(node, branch)]
        self._uses.splice(inner, at)
        self._read_in_order(inner, at)
        if not top.opened:
            for name in own:
                if name not in node.output:
                    top.scope.pop(name, None)
        return True

    def _read(self, place: Place, node: NodeProto, around: Open | None) -> None:
        """Reads a node in a place: inside of an open If where it takes what that gives. Differing where it is an If
        that would stay open in the place, and the one `around` can be closed instead."""
        taken = names_taken(node) if place.opened else []
        touched = [one for one in place.opened if not one.names.keys().isdisjoint(taken)]
        if not touched:
            try:
                self._reader.node(node)
            except Differing as found:
                if around is not None and self._agree(around, exactly=False):
                    raise
                self._open(place, node, found)
            return
        if not self._uses.is_wanted(node):
            place.scope.update(dict.fromkeys(node.output, UNREAD))
            return
        if len(touched) > 1:
            for one in touched:
                if self._agree(one, exactly=False):
                    self._close(place, one)
            touched = [one for one in touched if one in place.opened]
        if not touched:
            self._read(place, node, around)
            return
        first, *others = touched
        again = [inner for other in others for inner in other.nodes]
        place.opened = [one for one in place.opened if one not in others]
        for inner in (*again, node):
            if first in place.opened:
                self._follow(place, first, inner, around)
            else:
                self._read(place, inner, None)

    def _open(self, place: Place, node: NodeProto, found: Differing) -> None:
        if self._uses.is_wanted(node):
            place.opened.append(Open(node, found.choice, found.results, self._reader.place_of(node)))
        else:
            place.scope.update(dict.fromkeys(node.output, UNREAD))

    def _follow(self, place: Place, one: Open, node: NodeProto, around: Open | None) -> None:
        """Reads a node in both branches of an open If of the place, which is a branch of the one `around`, if any."""
        taken = names_taken(node)
        for side in one.sides:
            self._reader.count_nodes(1)
            try:
                with self._choices.inside(one, side, taken):
                    self._choices.count(1)
                    self._read(side, node, one)
            except TooMany:
                raise
            except Differing:
                self._close(place, one)
                self._read(place, node, around)
                return
            except UserError as error:
                side.error = error
        one.nodes.append(node)
        one.names.update(dict.fromkeys(name for name in node.output if name))
        self._exclude(place, one)

    # Closing

    def _agree(self, one: Open, *, exactly: bool) -> bool:
        """Whether what is used later of an open If has the same types in both branches, and nothing is lost by closing
        it: no difference at all if `exactly`, else none of two constants."""
        if any(side.opened or side.error for side in one.sides):
            return False
        pairs = [[side.known(name) for side in one.sides] for name in self._uses.live([*one.names], self._done)]
        return all(x is not None and y is not None and _alike(x, y, exactly) for x, y in pairs)

    def _settle(self, place: Place, *, end: bool = False) -> None:
        """Closes the Ifs of a place that can be, those inside of branches first; all of them at the end."""
        for one in list(place.opened):
            for side in one.sides:
                self._settle(side, end=end)
            if end or self._agree(one, exactly=True):
                self._close(place, one)

    def _close(self, place: Place, one: Open) -> None:
        """Defines what is used later of an open If: chosen from what its branches give."""
        names = self._uses.live([*one.names], self._done)
        for side in one.sides:
            try:
                for name in names:
                    tensor = side.known(name)
                    if tensor is not None:
                        tensor.value  # noqa: B018  makes its nodes in the branch
            except UserError as error:
                side.error = error
        if self._exclude(place, one):
            return
        place.opened.remove(one)
        place.scope.update(dict.fromkeys(one.names, UNREAD))
        for side in one.sides:
            place.problems.extend(side.problems)
        given: dict[str, tuple[Tensor, Tensor]] = {}
        for name in names:
            x, y = (side.known(name) for side in one.sides)
            if x is None or y is None:
                continue
            if x.rank != y.rank or x.dtype is not y.dtype:
                why = refusal(x, y, "" if name in one.nodes[0].output else name)
                place.problems.add("If is not supported here", where=one.source, why=why)
            else:
                given[name] = x, y
        if given:
            with place.emit.at(one.source):
                chosen = one.choice.finish(*([pair[n] for pair in given.values()] for n in range(2)))
            place.scope.update(zip(given, chosen, strict=True))

    def _exclude(self, place: Place, one: Open) -> bool:
        """Where what follows contradicts one branch of an If, the other one is what runs, and each call checks that."""
        errors = [side.error for side in one.sides]
        if not any(errors):
            return False
        for n, error in enumerate(errors):
            other = one.sides[1 - n]
            if error is not None and other.error is not None:
                raise error
            if error is None:
                continue
            with place.emit.at(one.source):
                _check(place.emit, one.choice.cond, n == 0, error)
            becomes = one.choice.graft(1 - n)
            for inner in other.opened:
                inner.choice.move(place.emit, becomes)
            at = place.opened.index(one)
            place.opened[at : at + 1] = other.opened
            place.scope.update((name, other.scope[name]) for name in one.names if name in other.scope)
            place.problems.extend(other.problems)
        return True


def _alike(x: Tensor, y: Tensor, exactly: bool) -> bool:
    """Whether two tensors are of one type, and as much is known of one that is chosen from them."""
    if x.dtype is not y.dtype or x.rank != y.rank:
        return False
    pairs: list[tuple[Expr, Expr]] = list(zip(x.shape, y.shape, strict=True))
    if x.content is not None and y.content is not None and x.content.shape == y.content.shape:
        pairs += zip(x.content.reshape(-1), y.content.reshape(-1), strict=True)
    elif exactly and (x.content is not None or y.content is not None):
        return False
    if exactly:
        return all(a is b for a, b in pairs)
    return all(a is b or not (isinstance(a, Const) and isinstance(b, Const)) for a, b in pairs)


def _check(b: OnnxEmit, cond: Tensor, value: bool, error: UserError) -> None:
    """Each call fails where the condition is `value`: there is an error then."""
    known = None if cond.content is None else cond.content.reshape(-1)[0]
    if known is None or not known.dtype.is_bool:
        known = equal(b.size(cond, "the condition of an If", 0, 1), 1)
    b.require(
        Not(known) if value else known,
        f"what follows contradicts the branch that is chosen: {error.where}: {error.why or error.what}",
    )
