"""ONNX models as graphs: `read` gives a Module of one graph function, `main`.

Nodes are read in order. Each becomes the operators that its handler adds (operators/), or those of its function body.
What is unsupported anywhere in the model is collected and raised as one error that lists all of it; values that depend
on something unsupported are followed only as far as their nodes can be checked without them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tilewright.core.reading import LENIENT, Reading
from tilewright.expr import dtypes
from tilewright.frontends.build.handlers import NEWEST, misfit
from tilewright.frontends.build.loop import Changing
from tilewright.frontends.build.names import Dimensions, clip
from tilewright.frontends.build.problems import AlreadyReported, Failed, Problems, Unsupported
from tilewright.frontends.build.scopes import UNREAD, Known, Scope, Scopes
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx import functions
from tilewright.frontends.onnx.added import how_to_register
from tilewright.frontends.onnx.branches.differing import Choices, Differing, Following
from tilewright.frontends.onnx.branches.spliced import branches_of, fits
from tilewright.frontends.onnx.declared import Inputs, check_declared
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.file import ModelFile, from_bytes, from_proto, open_model
from tilewright.frontends.onnx.functions import Body
from tilewright.frontends.onnx.kinds import OPSET_MISSING, OUTPUT_TWICE
from tilewright.frontends.onnx.names import source_of
from tilewright.frontends.onnx.operators import HANDLERS
from tilewright.frontends.onnx.operators.repeat import truth
from tilewright.frontends.onnx.order import check_order, in_order
from tilewright.frontends.onnx.ranks import Shapes, find_ranks, inputs_without_rank
from tilewright.frontends.onnx.registry import attribute_values, check_call, without_hints
from tilewright.frontends.onnx.sloppy import check_attributes, check_default, check_names, check_values, newest_version
from tilewright.frontends.onnx.structure import FunctionKey, domain_of, initializer_names
from tilewright.graph.build import GraphBuilder
from tilewright.graph.nodes import Module, Value
from tilewright.report.errors import TilewrightError, UserError
from tilewright.report.logs import debug
from tilewright.types.tensor import TensorType

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

DEEPEST_CALL = 32
"""How deep functions may call functions: those of a model and those that ONNX defines."""

_CHECK = "see what onnx.checker.check_model(model, full_check=True) says; if it finds nothing, this is our defect"


def read(
    model: str | os.PathLike[str] | bytes | ModelProto | ModelFile, reading: Reading = LENIENT, *, warn: bool = True
) -> Module:
    """The model as a Module: one graph function `main`, its weights as constants that are views of the file.

    Takes a path, a serialised model, a ModelProto, or a file that is already open. UserError for what is wrong with the
    model; for what is not supported, one UserError that lists everything. What ONNX does not allow and other runtimes
    read nevertheless (`kinds.py`) is a `ModelWarning` each kind, or an error if the `reading` is strict; `warn` is for
    a model that was read before.
    """
    if isinstance(model, ModelFile):
        file = model
    elif isinstance(model, bytes | bytearray):
        file = from_bytes(bytes(model))
    elif isinstance(model, str | os.PathLike):
        file = open_model(model)
    else:
        file = from_proto(model)
    known = [info.name for info in file.proto.graph.input]
    reading.check_shapes(known, inputs_without_rank(file.proto.graph))
    shapes, unknown = find_ranks(file, dict(reading.shapes), _problems_with)
    module = Importer(file, reading.seed, shapes, unknown).module()
    if reading.strict:
        file.remarks.check()
    if warn:
        file.remarks.tell()
    return module


def _problems_with(file: ModelFile, shapes: Shapes) -> Problems:
    importer = Importer(file, 0, shapes)
    importer.results()
    return importer.problems


class Importer:
    """Reads one model. Handlers of control flow call back `body` for the sub-graphs that they take. `shapes` and
    `unknown` are what is known of inputs without a rank (`Inputs`)."""

    def __init__(
        self, file: ModelFile, seed: int | str, shapes: Shapes, unknown: Mapping[str, str] | None = None
    ) -> None:
        self.file = file
        self.draws = 0
        self.copies = 1
        self.patterns: dict[tuple[object, ...], Changing] = {}
        self.decided: set[tuple[object, ...]] = set()
        self._seed = seed
        self.graph = GraphBuilder("main")
        self.emit = OnnxEmit(self.graph, self)
        self.problems = Problems()
        self._inputs = Inputs(Dimensions(self.graph), shapes, unknown or {}, self.problems, file.remarks)
        self.opsets: Mapping[str, int] = {domain_of(o.domain): o.version for o in file.proto.opset_import}
        self.attributes: Mapping[str, AttributeProto] = {}
        self.scopes = Scopes()
        self._functions = functions.local_functions(file.proto)
        self._depth = 0
        self._choices = Choices(self)
        self._path = ""

    def module(self) -> Module:
        """The whole model."""
        results = self.results()
        self.problems.check("the model uses what is not supported")
        return self.graph.module(results)

    def results(self) -> dict[str, Value]:
        """Reads the whole model; its outputs, unless there are problems."""
        proto, remarks = self.file.proto.graph, self.file.remarks
        check_names(proto, self.file.bodies, remarks)
        nodes = in_order(proto.node, [i.name for i in proto.input], initializer_names(proto), remarks)
        with self.scopes.inner({}):
            self._initializers(proto)
            self._params(proto)
            self.emit.seed = self._seed_of_draws()
            self.nodes(nodes, [o.name for o in proto.output])
            results = self._results(proto)
            check_values(proto.value_info, self.scopes.innermost, remarks)
        return results

    def _seed_of_draws(self) -> Tensor:
        """The seed of draws without one of their own, possibly an input of its own."""
        if isinstance(self._seed, int):
            return self.emit.of_array(np.array(self._seed, np.uint64), "seed")
        if any(v.name == self._seed for v in self.graph.params):
            fix = "give the seed another name"
            raise UserError(f"the model has an input {clip(self._seed)} already", where="the argument seed", fix=fix)
        return self.emit.of_value(self.graph.param(self._seed, TensorType.of(dtypes.u64, [])))

    def body(self, graph: GraphProto, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of a sub-graph, which sees the values around it, for these inputs."""
        if len(inputs) != len(graph.input):
            raise self.emit.error(
                f"the sub-graph {clip(graph.name)} takes {len(graph.input)} inputs, not {len(inputs)}"
            )
        own = [i.name for i in graph.input]
        check_order(graph.node, own, initializer_names(graph))
        with self.scopes.inner(dict(zip(own, inputs, strict=True))):
            self._initializers(graph)
            self.nodes(graph.node, [o.name for o in graph.output])
            return [self.scopes.tensor(o.name, f"the outputs of {clip(graph.name)}") for o in graph.output]

    def is_function(self, node: NodeProto) -> bool:
        """Whether a node calls a function of the model."""
        return (domain_of(node.domain), node.op_type, node.overload) in self._functions

    def call(self, node: NodeProto, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """What a node gives, which sees the values around it and these inputs."""
        with self.scopes.inner(dict(inputs)):
            self.nodes([node], node.output)
            return tuple([self.scopes.tensor(name, self.place_of(node)) for name in node.output])

    def visible(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Those of the names that are tensors here."""
        return self.scopes.visible(names)

    def attempt(
        self, graph: GraphProto, inputs: Sequence[Tensor], emit: OnnxEmit, values: Mapping[str, Tensor]
    ) -> list[Tensor] | Failed:
        """The outputs of a sub-graph in another function, where `values` stand for those around it; what kept it from
        being read there."""
        before, self.problems = self.problems, Problems()
        draws, found = self.draws, self.problems
        error: Exception | None = None
        try:
            results = self.within(graph, inputs, emit, values)
            if not found:
                return results
        except (TilewrightError, Unsupported, AlreadyReported) as raised:
            error = raised
        finally:
            self.problems = before
        self.draws = draws
        return Failed(found, error)

    def report(self, failed: Failed) -> NoReturn:
        """Raises what kept a sub-graph from being read."""
        failed.report(self.problems)

    def within(
        self, graph: GraphProto, inputs: Sequence[Tensor], emit: OnnxEmit, values: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """The outputs of a sub-graph in another function, where `values` stand for those around it."""
        with self.inside(emit, dict(values)):
            results = self.body(graph, inputs)
            for tensor in results:
                tensor.value  # noqa: B018  makes its nodes while this is the function
        return results

    @contextmanager
    def inside(self, emit: OnnxEmit, scope: Scope) -> Iterator[None]:
        """Inside, another function is built, with `scope` around what it defines."""
        before, self.emit = self.emit, emit
        try:
            with self.scopes.inner(scope):
                yield
        finally:
            self.emit = before

    def tensor_data(self, tensor: TensorProto) -> np.ndarray[Any, Any]:
        """The data of a tensor in an attribute, of the model's file or of a function that ONNX defines."""
        return self.file.tensor(tensor)

    def dense_data(self, sparse: SparseTensorProto) -> np.ndarray[Any, Any]:
        """The data of a sparse tensor in an attribute, dense."""
        return self.file.dense(sparse)

    # The model's interface

    def _initializers(self, proto: GraphProto) -> None:
        scope = self.scopes.innermost
        for tensor in proto.initializer:
            try:
                scope[tensor.name] = self.emit.of_array(self.file.tensor(tensor), tensor.name)
            except UserError as error:
                self.problems.append(error)
                scope[tensor.name] = UNREAD
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            try:
                scope[name] = self.emit.of_array(self.file.dense(sparse), name)
            except UserError as error:
                self.problems.append(error)
                scope[name] = UNREAD

    def _params(self, proto: GraphProto) -> None:
        """The graph's inputs; one with an initializer of its name is that constant."""
        scope = self.scopes.innermost
        for info in proto.input:
            if info.name in scope:
                given = scope[info.name]
                if isinstance(given, Tensor):
                    check_default(info, given, self.file.proto.ir_version, self.file.remarks)
                continue
            type = self._inputs.type_of(info)
            scope[info.name] = (
                UNREAD if type is None else self.emit.of_value(self.graph.param(info.name, type), info.name)
            )

    def _results(self, proto: GraphProto) -> dict[str, Value]:
        results: dict[str, Value] = {}
        for info in proto.output:
            tensor = self.scopes.find(info.name, "the model's outputs")
            if info.name in results:
                self.file.remarks.add(OUTPUT_TWICE, f"output {clip(info.name)}", "it is listed twice")
            if info.name in results or not isinstance(tensor, Tensor):
                continue
            check_declared(info, tensor, self.file.remarks)
            with self.graph.at(f"output {clip(info.name)}"):
                results[info.name] = tensor.value
        return results

    # Nodes

    def nodes(self, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> None:
        """Reads nodes of a scope, of which `outputs` are wanted."""
        self.count_nodes(len(nodes))
        self._choices.count(len(nodes))
        Following(self._choices, nodes, outputs).read_all()

    def count_nodes(self, nodes: int) -> None:
        """Counts nodes that are read; an error where they are more than a model may have."""
        self.file.count_nodes(nodes, self._path.removesuffix(" › "))

    def taken(self, node: NodeProto) -> GraphProto | None:
        """The branch that an If takes, where its condition is known and nothing is wrong with the node."""
        branches = (
            None if self.is_function(node) else branches_of(node, functions.resolve(node.attribute, self.attributes))
        )
        if branches is None:
            return None
        cond = self.scopes.find(node.input[0], self.place_of(node))
        way = truth(cond) if isinstance(cond, Tensor) else None
        branch = None if way is None else branches[0 if way else 1]
        return branch if branch is not None and fits(node, branch) else None

    def begun(self, branch: GraphProto) -> Sequence[NodeProto]:
        """The nodes of a branch, which are counted, once its constants are in the innermost scope."""
        check_order(branch.node, [], initializer_names(branch))
        self._initializers(branch)
        self.count_nodes(len(branch.node))
        self._choices.count(len(branch.node))
        nodes: Sequence[NodeProto] = branch.node
        return nodes

    def place_of(self, node: NodeProto) -> str:
        """How errors call a node."""
        return f"{self._path}{source_of(node)}"

    def node(self, node: NodeProto) -> None:
        """Reads a node; Differing where it is an If with branches of different types."""
        source = self.place_of(node)
        given = functions.resolve(node.attribute, self.attributes)
        check_attributes(node, source, self.file.remarks)
        inputs = [self.scopes.find(name, source) if name else None for name in node.input]
        outputs: Sequence[Tensor | None] | None = None
        try:
            outputs = self._call(node, given, inputs, source)
        except Differing:
            raise
        except Unsupported as error:
            self.problems.add(f"{node.op_type} is not supported here", where=source, why=error.why, fix=error.fix)
        except AlreadyReported:
            outputs = None
        for n, name in enumerate(node.output):
            if name:
                self.scopes.innermost[name] = UNREAD if outputs is None else self._output(node, outputs, n, source)

    def _output(self, node: NodeProto, outputs: Sequence[Tensor | None], n: int, source: str) -> Known:
        tensor = outputs[n] if n < len(outputs) else None
        if tensor is None:
            why = f"its output {n} is not supported"
            self.problems.add(f"{node.op_type} is not supported here", where=source, why=why)
            return UNREAD
        if not tensor.name:
            tensor.name = node.output[n]
        return tensor

    def _call(
        self, node: NodeProto, given: Mapping[str, AttributeProto], inputs: list[Known], source: str
    ) -> Sequence[Tensor | None] | None:
        """The outputs of a node, by its own function, its handler, or the body that ONNX gives for it; None where they
        depend on what is not supported."""
        domain = domain_of(node.domain)
        unread = any(i is UNREAD for i in inputs)
        tensors = [i if isinstance(i, Tensor) else None for i in inputs]
        wanted = tuple(bool(name) for name in node.output)
        key = functions.key_of_call(node)
        local = self._functions.get(key)
        if local is not None:
            if HANDLERS.find(node.op_type, NEWEST, domain) is not None:
                debug("%s is computed by the function of the model, not by the handler of its operator", source)
            if unread:
                return None
            self._check_size(key, source)
            return self._expand(functions.local_body(local, given, self.opsets), tensors, source, wanted)
        version = self._version(domain, node, source)
        given = without_hints(given, version, domain)
        handler = HANDLERS.find(node.op_type, version, domain)
        if handler is None:
            return self._standard(node, given, version, None if unread else tensors, source, wanted)
        problems = check_call(handler, [i is not None for i in inputs], given)
        for why in problems:
            self.problems.add(f"{node.op_type} is not supported here", where=source, why=why)
        if problems or unread:
            return None
        with self.emit.node(source, version, wanted):
            return handler.call(self.emit, tensors, lambda: attribute_values(handler, given, self.emit.error), _CHECK)

    @cached_property
    def _sizes(self) -> Mapping[FunctionKey, int]:
        return functions.expanded_sizes(self._functions)

    def _check_size(self, key: FunctionKey, source: str) -> None:
        """Raises UserError for a call of a function that comes to more nodes than a model may have, unless one that it
        calls does so alone: that is the one to name."""
        if self.file.is_too_large(self._sizes[key]):
            called = map(functions.key_of_call, self._functions[key].node)
            if not any(self.file.is_too_large(self._sizes.get(c, 0)) for c in called):
                self.file.check_nodes(self._sizes[key], source)

    def _version(self, domain: str, node: NodeProto, source: str) -> int:
        """The version of an operator set: that of its import, or else the newest one that is known."""
        version = self.opsets.get(domain)
        if version is not None:
            return version
        newest, shown = newest_version(domain), clip(domain or "ai.onnx")
        if newest is None:
            why = f"the model does not import the operator set {shown}"
            raise UserError(f"cannot tell what {node.op_type} means", where=source, why=why)
        self.file.remarks.add(OPSET_MISSING, source, f"it is of {shown}, which becomes version {newest}")
        return newest

    def _standard(
        self,
        node: NodeProto,
        given: Mapping[str, AttributeProto],
        version: int,
        inputs: list[Tensor | None] | None,
        source: str,
        wanted: tuple[bool, ...],
    ) -> Sequence[Tensor | None] | None:
        """The outputs of a node without a handler, by the body that ONNX gives for it."""
        domain = domain_of(node.domain)
        if not functions.has_standard_body(node.op_type, version, domain):
            name = f"{domain}.{node.op_type}" if domain else node.op_type
            what, why = f"the operator {name} is not supported", f"opset {version} is imported"
            self.problems.add(what, where=source, why=why, fix=how_to_register(domain, node.op_type))
            return None
        if inputs is None:
            return None
        try:
            body = functions.standard_body(node, given, version, domain, inputs)
        except Exception as error:  # whatever the operator's own definition raises for a node that it is not for
            raise misfit(source, error, _CHECK) from error
        if body is None:
            raise Unsupported("ONNX gives no definition of it for these inputs")
        return self._expand(body, inputs, source, wanted)

    def _expand(
        self, body: Body, inputs: list[Tensor | None], source: str, wanted: tuple[bool, ...]
    ) -> Sequence[Tensor | None]:
        """The wanted outputs of a function for these inputs."""
        names = list(body.proto.input)
        if self._depth >= DEEPEST_CALL:
            raise UserError("functions call each other too deeply", where=source, why=f"more than {DEEPEST_CALL} calls")
        if len(inputs) > len(names):
            raise UserError("a function is called with too many inputs", where=source, why=f"it takes {len(names)}")
        check_order(body.proto.node, names, [])
        scope: Scope = dict.fromkeys(names)
        scope.update(zip(names, inputs, strict=False))
        before = self.opsets, self.attributes, self._path
        self.opsets, self.attributes, self._path = body.opsets, body.attributes, f"{source} › "
        self._depth += 1
        try:
            with self.scopes.apart(scope):
                self.nodes(body.proto.node, body.proto.output)
                return [
                    self.scopes.tensor(name, source) if want else None
                    for name, want in zip(body.proto.output, wanted, strict=False)
                ]
        finally:
            self.opsets, self.attributes, self._path = before
            self._depth -= 1
