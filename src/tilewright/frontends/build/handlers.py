"""Handlers: functions that build a model's operators, found by name and version, checked by their own signatures.

    HANDLERS = Handlers()

    @HANDLERS.handles("leaky_relu")
    def leaky_relu(b: Emit, x: Tensor, *, alpha: float = 0.01) -> Tensor: ...

Positional parameters after the builder are inputs (`Tensor | None = None` may be left out, `Tensor | None` where others
follow, `*rest` takes any number), keyword parameters are attributes with their type and default; one without a default
must be given. So a node can be checked before anything is built.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tilewright.core.asking import failure, place_of
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import AlreadyReported, Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.report.errors import RuntimeFault, TilewrightError, UserError

Results = Tensor | tuple[Tensor | None, ...]
HandlerFunction = Callable[..., Results]
F = TypeVar("F", bound=HandlerFunction)

NEWEST = 1 << 30
"""Later than any version of a set of operators."""


@dataclass(frozen=True)
class Parameter:
    """An attribute that a handler takes: the first word of its annotation (`int` of `int | None`), its default, and
    whether it is `required`, having none."""

    kind: str
    default: Any
    required: bool


@dataclass(frozen=True)
class Handler:
    """A handler and the operator versions it is for."""

    function: HandlerFunction
    since: int
    until: int
    added: str = ""
    """What a program calls the operator that it has added the handler for; nothing for those of the package."""

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())[1:]

    @cached_property
    def inputs(self) -> tuple[int, int, bool]:
        """The inputs it takes: how many must be there, how many have a name, and whether any number may follow."""
        positional = [p for p in self._parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        variadic = any(p.kind is p.VAR_POSITIONAL for p in self._parameters)
        return sum(p.default is p.empty for p in positional), len(positional), variadic

    @cached_property
    def _needed(self) -> list[bool]:
        """Which of the inputs that must have a place must be there."""
        return [not _may_be_none(p.annotation) for p in self._parameters[: self.inputs[0]]]

    @cached_property
    def attributes(self) -> Mapping[str, Parameter]:
        """The attributes it takes, by name."""
        return {p.name: _parameter(p) for p in self._parameters if p.kind is p.KEYWORD_ONLY}

    def check(self, inputs: Sequence[bool], given: Iterable[str]) -> list[str]:
        """What about a node the handler does not take. `inputs` says for each input whether it is there, `given` has
        the names of the node's attributes."""
        problems = []
        least, named, variadic = self.inputs
        absent = [not there for there, needed in zip(inputs, self._needed, strict=False) if needed]
        present = len(inputs) - next((n for n, there in enumerate(reversed(inputs)) if there), len(inputs))
        if present < least or any(absent):
            problems.append(f"it needs {least} inputs, but has {sum(inputs[:least])} of them")
        if variadic and not all(inputs[named:]):
            problems.append("one of its inputs is left out")
        if not variadic and present > named:
            problems.append(f"it has {present} inputs; at most {named} are supported")
        names = set(given)
        problems += [f"its attribute {n!r} is not supported" for n in given if n not in self.attributes]
        missing = [n for n, p in self.attributes.items() if p.required and n not in names]
        return problems + [f"its attribute {n!r} is missing" for n in missing]

    def call(
        self, b: Emit, inputs: Sequence[Tensor | None], attributes: Callable[[], Mapping[str, Any]], fix: str
    ) -> tuple[Tensor | None, ...]:
        """The outputs of a node that `check` has nothing against. What goes wrong names the node: an exception of
        another kind than ours becomes a UserError that says `fix`."""
        _, named, variadic = self.inputs
        try:
            results = self.function(b, *(inputs if variadic else inputs[:named]), **attributes())
        except UserError as error:
            if error.where:
                raise
            raise UserError(error.what, where=b.graph.source, why=error.why, fix=error.fix) from None
        except (Unsupported, AlreadyReported):
            raise
        except Exception as error:
            if self.added and not isinstance(error, RuntimeFault):
                raise self._failure(b, error) from error
            if isinstance(error, TilewrightError):
                raise
            raise misfit(b.graph.source, error, fix) from error
        made = self._checked(b, results) if self.added else results if isinstance(results, tuple) else (results,)
        for result in made:
            if result is not None:
                b.require_few(result.rank, f"the result has {result.rank} dimensions")
        return made

    def _failure(self, b: Emit, error: Exception) -> UserError:
        """The error for what a program's handler raised, at its line and at the node that it was asked for."""
        found = failure(f"the handler of {self.added}", self.function, error)
        return UserError(found.what, where=found.where, why=f"{found.why}\n(for {b.graph.source})", fix=found.fix)

    def _checked(self, b: Emit, results: object) -> tuple[Tensor | None, ...]:
        """The results of a program's handler, which are tensors."""
        made = results if isinstance(results, tuple) else (results,)
        came = next((r for r in made if not isinstance(r, Tensor | None)), None)
        if came is None and results is not None:
            return made
        why = f"a {type(came).__name__} came, and it is a tensor or a tuple of them\n(for {b.graph.source})"
        what = f"the handler of {self.added} gives no result that can be used"
        raise UserError(what, where=place_of(self.function) or None, why=why, fix='return b.map("snake", x)')


class Handlers:
    """The handlers of a front end by domain ("" where operators have none) and operator."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], list[Handler]] = {}

    def handles(self, *operators: str, since: int = 1, until: int = NEWEST, domain: str = "") -> Callable[[F], F]:
        """Registers the function as the handler of these operators, for versions since … until."""

        def register(function: F) -> F:
            for operator in operators:
                self.table.setdefault((domain, operator), []).append(Handler(function, since, until))
            return function

        return register

    def find(self, operator: str, version: int = 1, domain: str = "") -> Handler | None:
        """The handler for an operator of this version of its set, or None."""
        for handler in self.table.get((domain, operator), ()):
            if handler.since <= version <= handler.until:
                return handler
        return None


def misfit(source: str, error: Exception, fix: str) -> UserError:
    """The error for a node that a handler cannot make sense of."""
    why = f"reading it ended with {type(error).__name__}: {error}"
    return UserError("a node does not fit its operator", where=source, why=why, fix=fix)


def _parameter(p: inspect.Parameter) -> Parameter:
    required = p.default is p.empty
    return Parameter(kind_of(p.annotation), None if required else p.default, required)


def kind_of(annotation: object) -> str:
    """The kind of attribute that an annotation names, as text or as a type: its first word, without its module."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return kind_of(typing.get_args(annotation)[0])
    first = str(annotation).split(" |")[0]
    return _LISTS.get(first, first.rpartition(".")[2])


def _may_be_none(annotation: object) -> bool:
    return "None" in str(annotation) or "Optional" in str(annotation)


_LISTS = {"tuple[int, ...]": "Ints", "tuple[float, ...]": "Floats", "tuple[str, ...]": "Strs"}
