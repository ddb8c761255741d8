"""An If whose branches give tensors of different element types or ranks: what follows it runs inside of both.

    r = If(n == 1) {Squeeze(x)} else {Identity(x)}             y = If(n == 1) {r = Squeeze(x); y = f(r)}
    y = f(r)                                             =>                else {r = Identity(x); y = f(r)}

Nodes of the same scope that depend on such an If wait until the others are read. Then they are read once after each
branch, where ranks are known, and what the scope gives of it is chosen. Where what follows contradicts one branch,
there is no choice: each call checks that the condition takes the other one, and what follows is read after that alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tilewright.expr.build import equal
from tilewright.expr.nodes import Not
from tilewright.frontends.build.choice import Choice
from tilewright.frontends.build.loop import inside
from tilewright.frontends.build.names import clip
from tilewright.frontends.build.problems import AlreadyReported, Problems, Unsupported
from tilewright.frontends.build.scopes import UNREAD, Scopes
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.order import names_taken
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

MOST_COPIED = 20_000
"""How many nodes may be read inside of branches that they follow. Each If that depends on another one doubles them; the
exporters' pattern, a handful of such Ifs before some hundred nodes, stays below a tenth of this."""

DEEPEST = 20
"""How many such Ifs may depend on each other in a row: as many doublings of one node are far more than MOST_COPIED."""


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
    """Raised for an If whose branches give tensors of different element types or ranks."""

    def __init__(self, why: str, cond: Tensor, then: GraphProto, otherwise: GraphProto) -> None:
        super().__init__(why)
        self.cond, self.branches = cond, (then, otherwise)


@dataclass(frozen=True, slots=True)
class Group:
    """An If whose branches differ, the nodes that follow from it in order, and those of their values that the scope
    gives."""

    choice: NodeProto
    found: Differing
    rest: list[NodeProto]
    given: list[str]


class Waiting:
    """The nodes of a scope that depend on Ifs whose branches differ, these included."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._found: dict[int, Differing] = {}
        self._names: set[str] = set()

    def takes(self, node: NodeProto) -> bool:
        """Whether a node depends on what waits: then it waits, too."""
        waits = bool(self._names) and not self._names.isdisjoint(names_taken(node))
        if waits:
            self._add(node)
        return waits

    def start(self, node: NodeProto, found: Differing) -> None:
        """Waits with an If."""
        self._found[len(self._nodes)] = found
        self._add(node)

    def _add(self, node: NodeProto) -> None:
        self._nodes.append(node)
        self._names.update(name for name in node.output if name)

    def groups(self, outputs: Sequence[str]) -> list[Group]:
        """What waits, in groups that share no value, of a scope with these outputs."""
        groups: list[tuple[set[str], list[int]]] = []
        for n, node in enumerate(self._nodes):
            names, places = {name for name in node.output if name}, [n]
            used, apart = set(names_taken(node)), []
            for group in groups:
                if group[0].isdisjoint(used):
                    apart.append(group)
                else:
                    names |= group[0]
                    places += group[1]
            groups = [*apart, (names, sorted(places))]
        return [self._group(places, names, outputs) for names, places in groups]

    def _group(self, places: Sequence[int], names: set[str], outputs: Sequence[str]) -> Group:
        first, *rest = places
        given = [name for name in dict.fromkeys(outputs) if name in names]
        return Group(self._nodes[first], self._found[first], [self._nodes[n] for n in rest], given)


class Reader(Protocol):
    """The model being read."""

    emit: OnnxEmit
    problems: Problems
    draws: int

    @property
    def scopes(self) -> Scopes:
        """The values by name."""
        ...

    def body(self, graph: GraphProto, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of a sub-graph, which sees the values around it, for these inputs."""
        ...

    def nodes(self, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> None:
        """Reads nodes of a scope, of which `outputs` are wanted after them."""
        ...

    def inside(self, emit: OnnxEmit, values: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """Inside, another function is built, where `values` stand for those around it."""
        ...


class Choices:
    """Reads groups after branches."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._depth = 0
        self._copied = 0

    def count(self, nodes: int) -> None:
        """Notes that so many nodes are read; TooMany where more of them than may be are inside of branches."""
        self._copied += nodes if self._depth else 0
        if self._copied > MOST_COPIED:
            raise self._too_many(f"these are more than {MOST_COPIED:,} nodes")

    def _too_many(self, why: str) -> TooMany:
        what = "what follows an If whose branches differ in ranks or element types is read after each of them"
        return TooMany(
            "too much follows branches of different ranks",
            where=self._reader.emit.graph.source,
            why=f"{what}: {why}",
            fix="let both branches give tensors of the same rank and element type",
        )

    def read(self, group: Group, source: str) -> None:
        """Defines what the scope gives of a group, whose If errors call `source`."""
        reader, given = self._reader, None
        if self._depth == DEEPEST:
            raise self._too_many(f"more than {DEEPEST} such Ifs depend on each other")
        self._depth += 1
        try:
            with reader.emit.at(source):
                given = self._given(group)
        except Unsupported as error:
            reader.problems.add("If is not supported here", where=source, why=error.why)
        except AlreadyReported:
            given = None
        finally:
            self._depth -= 1
        for n, name in enumerate(group.given):
            reader.scopes.innermost[name] = UNREAD if given is None else given[n]

    def _given(self, group: Group) -> list[Tensor]:
        """What the scope gives of a group: chosen from two copies of it, or that of the only one that can be."""
        outside, drawn = self._reader.emit, self._reader.draws
        known, choice = set(outside.graph.bodies), Choice(outside, "if", group.found.cond)
        names = dict.fromkeys(name for node in (group.choice, *group.rest) for name in names_taken(node))
        seen = self._reader.scopes.visible(list(names))
        copies, errors = [], {}
        for n, b in enumerate((choice.then, choice.otherwise)):
            with self._reader.inside(b, {name: inside(b, t) for name, t in seen.items()}):
                result = self._attempt(group, n)
            if isinstance(result, UserError):
                errors[n] = result
            else:
                copies.append(result)
        if len(errors) == 2:
            raise errors[0]
        if errors:
            ((n, error),) = errors.items()
            outside.graph.forget(known)
            self._reader.draws = drawn
            _exclude(outside, group.found.cond, n == 0, error)
            return self._after(group, 1 - n)
        then, otherwise = copies
        if then is None or otherwise is None:
            raise AlreadyReported
        for name, x, y in zip(group.given, then, otherwise, strict=True):
            if x.rank != y.rank or x.dtype is not y.dtype:
                raise Unsupported(refusal(x, y, "" if name in group.choice.output else name))
        return choice.finish(then, otherwise)

    def _attempt(self, group: Group, branch: int) -> list[Tensor] | UserError | None:
        """What a branch and the group after it give; the error of what contradicts itself; None for what is not
        supported, which is reported."""
        reader = self._reader
        before, reader.problems = reader.problems, Problems()
        try:
            return self._after(group, branch)
        except TooMany:
            raise
        except UserError as error:
            reader.problems = Problems()
            return error
        except AlreadyReported:
            return None
        finally:
            before.extend(reader.problems)
            reader.problems = before

    def _after(self, group: Group, branch: int) -> list[Tensor]:
        """What a branch, and the group after it, give where the importer reads now."""
        scopes = self._reader.scopes
        results = self._reader.body(group.found.branches[branch], [])
        scopes.innermost.update(zip(group.choice.output, results, strict=False))
        self._reader.nodes(group.rest, group.given)
        given = [scopes.tensor(name, f"what follows {group.choice.op_type}") for name in group.given]
        for tensor in given:
            tensor.value  # noqa: B018  makes its nodes while this is the function
        return given


def _exclude(b: OnnxEmit, cond: Tensor, value: bool, error: UserError) -> None:
    """Each call fails where the condition is `value`: there is an error then."""
    known = None if cond.content is None else cond.content.reshape(-1)[0]
    if known is None or not known.dtype.is_bool:
        known = equal(b.size(cond, "the condition of an If", 0, 1), 1)
    b.require(
        Not(known) if value else known,
        f"what follows contradicts the branch that is chosen: {error.where}: {error.why or error.what}",
    )
