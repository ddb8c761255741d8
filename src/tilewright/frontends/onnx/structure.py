"""Checks on a model's structure that hold for every model, whatever its operators: text, opsets, names, functions.

Each check is a function from a ModelProto to nothing, or to what it found; it raises UserError on the first fault, and
remarks on what can be read nevertheless. All walks keep their own stack: a model's depth never becomes Python's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tilewright.frontends.build.names import clip
from tilewright.frontends.build.remarks import Remarks
from tilewright.frontends.onnx.kinds import INITIALIZER_TWICE, OPSET_TWICE
from tilewright.frontends.onnx.wire import too_deep
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto

MAX_CUSTOM_OPSET = 1_000_000
"""The highest version believed of an operator set that the installed `onnx` does not define."""

_NO_OPSET = "it imports no operator set"
_PLAIN_ATTRIBUTES = frozenset((1, 2, 3, 6, 7, 8))

FunctionKey = tuple[str, str, str]


class Scope(NamedTuple):
    """A body of nodes: a graph, or a model-local function, for which `graph` is None.

    `attributes` are those of its nodes, and a function's own, that can hold tensors or graphs.
    """

    label: str
    nodes: Iterable[NodeProto]
    graph: GraphProto | None
    attributes: list[AttributeProto]
    depth: int
    function: FunctionKey | None


def check_opset(proto: ModelProto, source: str = "the model", remarks: Remarks | None = None) -> dict[str, int]:
    """The version of each operator set that the model imports, by domain ("" is ONNX's own).

    UserError if there is none, if a domain is imported with two versions, or if a version is not one that exists.
    """
    remarks = remarks or Remarks()
    versions = _opsets(proto.opset_import, source, remarks)
    for function in proto.functions:
        if function.opset_import:
            _opsets(function.opset_import, f"function {clip(function.name)} in {source}", remarks)
    return versions


def check_structure(proto: ModelProto, bodies: Iterable[Scope], nesting: int, source: str, remarks: Remarks) -> None:
    """Names of functions are unique, functions do not call themselves, sub-graphs are not too deep. A remark on names
    of two initializers."""
    functions = _functions(proto, source)
    calls: dict[FunctionKey, set[FunctionKey]] = {key: set() for key in functions}
    for scope in bodies:
        if scope.depth > nesting:
            raise too_deep(source, nesting)
        if scope.graph is not None:
            _check_names(scope.graph, f"{scope.label} in {source}", remarks)
        if scope.function is not None:
            called = {(domain_of(n.domain), n.op_type, n.overload) for n in scope.nodes}
            calls[scope.function] |= called & functions.keys()
    _check_acyclic(calls, source)


def scopes(proto: ModelProto) -> Iterator[Scope]:
    """All bodies of nodes: the main graph, training graphs, functions, and the sub-graphs of each."""
    stack = [_graph_scope(proto.graph, 0, None)]
    for training in proto.training_info:
        stack += [_graph_scope(training.initialization, 0, None), _graph_scope(training.algorithm, 0, None)]
    for function in proto.functions:
        label = f"function {clip(function.name)}"
        attributes = [*_holders(function.attribute_proto), *_attributes(function.node)]
        stack.append(Scope(label, function.node, None, attributes, 0, function_key(function)))
    while stack:
        scope = stack.pop()
        yield scope
        for attribute in scope.attributes:
            for graph in _graphs(attribute):
                stack.append(_graph_scope(graph, scope.depth + 1, scope.function))


def tensors(bodies: Iterable[Scope]) -> Iterator[TensorProto]:
    """All tensors of a model's bodies: initializers, dense and sparse, and those in attributes."""
    for scope in bodies:
        if scope.graph is not None:
            yield from scope.graph.initializer
            for sparse in scope.graph.sparse_initializer:
                yield sparse.values
                yield sparse.indices
        for attribute in scope.attributes:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            inner = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            for sparse in [*inner, *attribute.sparse_tensors]:
                yield sparse.values
                yield sparse.indices


def initializer_names(graph: GraphProto) -> list[str]:
    """The names of a graph's initializers, dense and sparse."""
    return [tensor.name for tensor in (*graph.initializer, *(s.values for s in graph.sparse_initializer))]


def function_key(function: FunctionProto) -> FunctionKey:
    """What a node says to call this function: domain, name, overload."""
    return domain_of(function.domain), function.name, function.overload


def bad_text(proto: ModelProto, source: str) -> UserError:
    """The error for a model that protobuf refused because a string is not UTF-8: it names the string's place."""
    stack: list[tuple[str, Message]] = [("model", proto)]
    place = "a string of the model"
    while stack:
        path, message = stack.pop()
        for field, value in message.ListFields():
            if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
                continue
            single = isinstance(value, str | bytes) or hasattr(value, "ListFields")
            for position, item in enumerate([value] if single else value):
                name = f"{path}.{field.name}" + ("" if single else f"[{position}]")
                if field.type == field.TYPE_MESSAGE:
                    stack.append((name, item))
                elif isinstance(item, bytes):  # protobuf hands out a string that does not decode as the bytes it found
                    place = name
    fix = "write the name in UTF-8 with the tool that made the model"
    return UserError("a string is not UTF-8", where=source, why=f"{place} holds other bytes", fix=fix)


def _opsets(imports: Iterable[OperatorSetIdProto], where: str, remarks: Remarks) -> dict[str, int]:
    from onnx import defs

    versions: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        shown = clip(domain or "ai.onnx")
        if versions.get(domain) == entry.version:
            remarks.add(OPSET_TWICE, where, f"{shown} is imported twice, with version {entry.version}")
        elif domain in versions:
            why = f"the operator set {shown} is imported twice, with versions {versions[domain]} and {entry.version}"
            raise _bad_opset(where, why, "keep one import of each operator set")
        newest = defs.onnx_opset_version() if domain == "" else MAX_CUSTOM_OPSET
        if not 1 <= entry.version <= newest:
            why = f"the operator set {shown} has version {entry.version}; versions 1 to {newest} are known"
            raise _bad_opset(where, why, "convert the model: onnx.version_converter.convert_version(model, version)")
        versions[domain] = entry.version
    if not versions:
        raise _bad_opset(where, _NO_OPSET, "export the model again with an opset, or add one to model.opset_import")
    return versions


def _bad_opset(where: str, why: str, fix: str) -> UserError:
    return UserError("cannot tell what the model's operators mean", where=where, why=why, fix=fix)


def domain_of(domain: str) -> str:
    """The domain as it is compared: ONNX's own has two names."""
    return "" if domain == "ai.onnx" else domain


def _graph_scope(graph: GraphProto, depth: int, function: FunctionKey | None) -> Scope:
    return Scope(f"graph {clip(graph.name)}", graph.node, graph, _attributes(graph.node), depth, function)


def _attributes(nodes: Iterable[NodeProto]) -> list[AttributeProto]:
    return [attribute for node in nodes for attribute in _holders(node.attribute)]


def _holders(attributes: Iterable[AttributeProto]) -> list[AttributeProto]:
    """The attributes that can hold tensors or graphs."""
    return [attribute for attribute in attributes if attribute.type not in _PLAIN_ATTRIBUTES]


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _functions(proto: ModelProto, source: str) -> dict[FunctionKey, FunctionProto]:
    found: dict[FunctionKey, FunctionProto] = {}
    for function in proto.functions:
        key = function_key(function)
        if key in found:
            why = f"{_called(key)} is defined twice"
            fix = "give each function its own name, domain or overload"
            raise UserError("two model-local functions have the same name", where=source, why=why, fix=fix)
        found[key] = function
    return found


def _check_names(graph: GraphProto, where: str, remarks: Remarks) -> None:
    names = initializer_names(graph)
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            remarks.add(INITIALIZER_TWICE, where, f"{clip(name)} names more than one initializer")
        seen.add(name)


def _check_acyclic(calls: dict[FunctionKey, set[FunctionKey]], source: str) -> None:
    """Depth-first over the call graph; a function met again while it is open closes a cycle."""
    done: set[FunctionKey] = set()
    for root in calls:
        path: list[FunctionKey] = []
        open_keys: set[FunctionKey] = set()
        stack = [(root, False)]
        while stack:
            key, leaving = stack.pop()
            if leaving:
                path.pop()
                open_keys.discard(key)
                done.add(key)
            elif key in open_keys:
                cycle = [*path[path.index(key) :], key]
                why = " calls ".join(_called(k) for k in cycle[:8])
                fix = "use the operator Loop for repetition; ONNX functions are expanded where they are called"
                raise UserError("a model-local function calls itself", where=source, why=why, fix=fix)
            elif key not in done:
                path.append(key)
                open_keys.add(key)
                stack.append((key, True))
                stack += [(callee, False) for callee in sorted(calls[key])]


def _called(key: FunctionKey) -> str:
    domain, name, overload = key
    return clip("::".join(part for part in (domain, name, overload) if part))
