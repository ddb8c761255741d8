"""Handlers that programs add, for operators of domains of their own.

@onnx_operator("com.example", "Snake")
def snake(b: Emit, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return b.map("snake", x, alpha)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

from tilewright.core import extensions
from tilewright.core.asking import place_of
from tilewright.core.code import code_of
from tilewright.frontends.build.handlers import NEWEST, Handler, HandlerFunction, kind_of
from tilewright.frontends.build.names import clip
from tilewright.frontends.onnx.operators import HANDLERS
from tilewright.frontends.onnx.registry import KINDS, MICROSOFT
from tilewright.frontends.onnx.structure import domain_of
from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError

F = TypeVar("F", bound=HandlerFunction)

EXAMPLE = '@tilewright.onnx_operator("com.example", "Snake")'


def onnx_operator(domain: str, *operators: str, since: int = 1, until: int | None = None) -> Callable[[F], F]:
    """Registers a function as the handler of these operators of an ONNX domain, for versions since … until of its
    operator set.

    The function is given the builder and the node's inputs as tensors, and its attributes by name; its signature says
    which of them it takes: `Tensor`, `Tensor | None = None`, `*rest: Tensor`; `int`, `float`, `str`, tuples of these
    (`tuple[int, ...]`), `TensorProto`, `GraphProto`, each possibly `| None`. It returns the results. Raises UserError
    for a signature that is none, and where there is a handler for an operator in one of these versions already.
    """
    check_kind("domain", domain, str, "the name of an operator set", EXAMPLE)
    for name in operators:
        check_kind("operator", name, str, "the name of an operator", EXAMPLE)
    check_kind("since", since, int, "a version of the operator set", f"{EXAMPLE[:-1]}, since=1)")
    last = NEWEST if until is None else until
    check_kind("until", last, int, "a version of the operator set", f"{EXAMPLE[:-1]}, until=3)")
    if not operators or since > last:
        why = "it names no operator" if not operators else f"there is no version from {since} to {last}"
        raise UserError("cannot register a handler", where=f"the domain {domain}", why=why, fix=f"write {EXAMPLE}")

    def register(function: F) -> F:
        check_signature(function)
        for name in operators:
            _check_free(domain_of(domain), name, since, last)
        for name in operators:
            handler = Handler(function, since, last, _shown(domain_of(domain), name))
            HANDLERS.table.setdefault((domain_of(domain), name), []).append(handler)
            extensions.add(_what(handler), f"{since} to {last}, {code_of(function)}", for_kernels=False)
        return function

    return register


def unregister(function: object) -> bool:
    """Takes away a handler that was added, for all of its operators. Whether there was any."""
    found = False
    for key, handlers in list(HANDLERS.table.items()):
        for handler in [h for h in handlers if h.added and h.function is function]:
            handlers.remove(handler)
            extensions.remove(_what(handler))
            found = True
        if not handlers:
            del HANDLERS.table[key]
    return found


def how_to_register(domain: str, operator: str) -> str | None:
    """What to do about an operator that nothing reads; None for those of the domains of ONNX and of ONNX Runtime."""
    if domain in ("", "ai.onnx.ml", MICROSOFT):
        return None
    versions = [h.since for h in HANDLERS.table.get((domain, operator), ())]
    if versions:
        return f"register a handler for this version, too: there is one since version {min(versions)}"
    written = f"@tilewright.onnx_operator({clip(domain)}, {clip(operator)})"
    return f"register a handler of it: {written}, in a module of --import"


def check_signature(function: object) -> None:
    """UserError for a function whose parameters are no builder, inputs and attributes."""
    if not inspect.isfunction(function):
        raise UserError(
            f"cannot take a {type(function).__name__} for a handler", fix=f"write {EXAMPLE} over a function"
        )
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.POSITIONAL_ONLY,
    ):
        raise _odd(function, "its first parameter is the builder, and it has none")
    for p in parameters[1:]:
        if p.kind in (p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise _odd(function, f"its parameter {p.name} is neither an input nor an attribute by its name")
        kind = "" if p.annotation is p.empty else kind_of(p.annotation)
        if p.kind is p.KEYWORD_ONLY and kind not in KINDS:
            has = f"is of type {kind}" if kind else "has no type"
            raise _odd(function, f"its attribute {p.name} {has}: attributes are {', '.join(_SPELT)}")


def _odd(function: object, why: str) -> UserError:
    fix = "def snake(b: tilewright.Emit, x: tilewright.Tensor, *, alpha: float = 1.0) -> tilewright.Tensor"
    return UserError("cannot register a handler", where=place_of(function) or None, why=why, fix=fix)


_SPELT = ("int", "float", "str", "tuple[int, ...]", "tuple[float, ...]", "tuple[str, ...]", "TensorProto", "GraphProto")


def _check_free(domain: str, operator: str, since: int, until: int) -> None:
    for handler in HANDLERS.table.get((domain, operator), ()):
        if handler.since <= until and since <= handler.until:
            last = "on" if handler.until == NEWEST else f"to {handler.until}"
            fix = "take it away first: tilewright.unregister(handler)" if handler.added else "take another domain"
            raise UserError(
                f"there is a handler of {_shown(domain, operator)} already",
                where=(place_of(handler.function) or None) if handler.added else "the operators of the package",
                why=f"it is for versions {handler.since} {last} of the operator set",
                fix=fix,
            )


def _shown(domain: str, operator: str) -> str:
    return f"{domain}.{operator}" if domain else operator


def _what(handler: Handler) -> str:
    return f"handler of {handler.added} since {handler.since}"
