"""Graphs of ATen operators as modules: nodes of a torch.fx graph, as AOTAutograd makes it, become a graph function.

Every node carries a fake tensor of its result (`meta["val"]`): its shape, strides and element type. A handler builds
the numbers; what it gives is compared with the fake tensor, and a node for which the two differ is not supported.
Tensors that are dense in another order of their dimensions (channels last, transposed matrices) are parameters
and results in that order, with a transpose in the graph: nothing is copied.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

import tilewright.ops as _ops  # noqa: F401  (registers the operators)
from tilewright.expr import dtypes
from tilewright.expr.build import equal
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.handlers import Handler
from tilewright.frontends.build.problems import AlreadyReported, Unsupported
from tilewright.frontends.build.scopes import UNREAD, Unread
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.operators import HANDLERS
from tilewright.frontends.torch.pairs import BY_PARTS, PAIRS, PARTS, is_pair, joined, part
from tilewright.frontends.torch.ports import VIEWS, Layout, Node, Ports, array_of, is_number, is_size
from tilewright.frontends.torch.reals import real
from tilewright.frontends.torch.registry import arrange
from tilewright.frontends.torch.sizes import Symbols, is_in_order, symbolic
from tilewright.frontends.torch.types import dtype_of, is_plain
from tilewright.graph.build import GraphBuilder
from tilewright.graph.constants import Weight
from tilewright.graph.nodes import Value
from tilewright.report.errors import UserError
from tilewright.types.tensor import TensorType

Known = Tensor | Expr | tuple["Known", ...] | Unread

_CHECK = "this is a defect of ours: say which operator it is"


@dataclass
class Reader:
    """Reads `nodes`, from `inputs` and of which `outputs` are wanted; `constant` finds what a get_attr node stands for.
    `failed` has the nodes that are not supported, with the reasons; what they give are further parameters.

    Inputs that are `held` are the constants of these tensors, those that are `steady` are weights, and those that are
    `spent` may be written over. Where inputs have `names`, parameters are called so and, as results, lie in order."""

    inputs: Sequence[Node]
    nodes: Sequence[Node]
    outputs: Sequence[Node]
    constant: Callable[[str], Any]
    failed: dict[Node, str] = field(default_factory=dict)
    held: Mapping[Node, Any] = field(default_factory=dict)
    names: Mapping[Node, str] = field(default_factory=dict)
    steady: Collection[Node] = ()
    spent: Collection[Node] = ()

    def __post_init__(self) -> None:
        self.graph = GraphBuilder("main")
        self.emit = TorchEmit(self.graph)
        self.symbols = Symbols(self.graph.symbol)
        self.values: dict[Node, Known] = {}
        self.taken: list[Node] = []
        self.written_over: set[str] = set()
        self.weights: list[tuple[Node, Weight]] = []

    def read(self) -> None:
        """Everything; `module` and `found` are what was read, of no use where `failed` is not empty."""
        for node in self.inputs:
            if node in self.held:
                self.values[node] = self.emit.of_array(array_of(self.held[node]), node.name)
            else:
                self._take(node)
        for node in self.nodes:
            self._read(node)
        results = {self._called_result(n, node): self._result(node) for n, node in enumerate(self.outputs)}
        held = {d for p in self.graph.params for d in p.type.shape if isinstance(d, Var)}
        spare = [symbol for symbol in self.symbols.known.values() if symbol not in held]
        for symbol in spare:
            self.graph.param(f"extent_{symbol.name}", TensorType.of(dtypes.u8, (symbol,)))
        module = replace(self.graph.module(results), spent=frozenset(self.written_over))
        self.results, self.module = results, module
        self.found = Ports(self.taken, list(self.outputs), list(self.symbols.known), len(spare), self.weights)

    def _take(self, node: Node) -> None:
        """A value from outside as a parameter, sizes as their expressions."""
        fake = node.meta.get("val")
        try:
            if is_number(fake):
                self.values[node] = self._number(fake)
            elif is_plain(fake) or is_pair(fake):
                self.values[node] = self._param(node, fake)
            else:
                self.values[node] = UNREAD
        except Unsupported:
            self.values[node] = UNREAD

    def _param(self, node: Node, fake: Any) -> Tensor:
        shape, layout = self.symbols.shape(fake.shape), Layout.of(fake)
        moves = layout.moves and not self.names
        order = layout.order if moves and layout.order is not None else tuple(range(len(shape)))
        behind, last = ((const(2),), (len(order),)) if is_pair(fake) else ((), ())
        dtype = PARTS[fake.dtype] if is_pair(fake) else dtype_of(fake.dtype)
        type = TensorType.of(dtype, (*[shape[a] for a in order], *behind))
        with self.graph.at(node.name):
            tensor = self.emit.of_value(self._outside(node, type), node.name)
            return self.emit.transpose(tensor, [*[order.index(a) for a in range(len(order))], *last])

    def _outside(self, node: Node, type: TensorType) -> Value:
        """A parameter of the graph for an input, or a weight where it is steady and its size is known."""
        shape = type.static_shape()
        if node in self.steady and shape is not None:
            weight = Weight(node.name, type.dtype.numpy, shape)
            self.weights.append((node, weight))
            return self.graph.constant(node.name, weight.held)
        self.taken.append(node)
        value = self.graph.param(self.names.get(node, node.name), type)
        if node in self.spent:
            self.written_over.add(value.name)
        return value

    def _called_result(self, n: int, node: Node) -> str:
        """What a result is called: by its node where inputs have names."""
        return node.name if self.names and self.outputs.index(node) == n else f"r{n}"

    def _result(self, node: Node) -> Value:
        """The value of a wanted node as it is to lie in memory."""
        tensor = self.values.get(node)
        if not isinstance(tensor, Tensor):
            return self.emit.scalar(False, dtypes.bool_).value  # the read failed
        order = None if self.names else Layout.of(node.meta["val"]).order
        if order is not None and is_pair(node.meta["val"]):
            order = (*order, len(order))
        with self.graph.at(node.name):
            return (tensor if order is None else self.emit.transpose(tensor, order)).value

    # Nodes

    def _read(self, node: Node) -> None:
        """Reads a node. Where it is not supported, what it gives comes from outside."""
        try:
            self.values[node] = self._value(node)
        except AlreadyReported:
            self._fail(node, "it takes what is no tensor that is supported")
        except Unsupported as error:
            self._fail(node, error.why)
        except UserError as error:
            self._fail(node, f"{error.what}: {error.why}" if error.why else error.what)

    def _fail(self, node: Node, why: str) -> None:
        self.failed[node] = why
        fake = node.meta.get("val")
        if isinstance(fake, list | tuple):
            self.values[node] = UNREAD
        else:
            self._take(node)

    def _value(self, node: Node) -> Known:
        fake = node.meta.get("val")
        if node.op == "get_attr":
            return self._constant(node)
        if is_size(node):
            return self._number(fake)
        if node.target is operator.getitem:
            whole = self.values[node.args[0]]
            if isinstance(whole, tuple):
                found: Known = whole[node.args[1]]
                return found
            if node.args[0] in self.failed:
                self._take(node)
                self.failed[node] = self.failed[node.args[0]]
                return self.values[node]
            raise AlreadyReported
        return self._called(node, fake)

    def _called(self, node: Node, fake: Any) -> Known:
        """What a call of an ATen operator gives."""
        name = str(node.target)
        several = isinstance(fake, list | tuple)
        fakes = fake if several else [fake]
        operands = [a for a in node.all_input_nodes if is_pair(a.meta.get("val"))]
        if not operands and not any(is_pair(one) for one in fakes):
            made = self._built(node, fakes, HANDLERS.find(name), self.values)
        elif PAIRS.find(name) is not None:
            self.emit.pairs = [known for a in operands if isinstance(known := self.values.get(a), Tensor)]
            self.emit.gives_pairs = is_pair(fakes[0])
            made = self._built(node, fakes, PAIRS.find(name), self.values)
        elif name in BY_PARTS:
            made = self._by_parts(node, fakes, operands)
        else:
            raise Unsupported("there is no handler for it that takes complex tensors")
        return made if several else made[0]

    def _by_parts(self, node: Node, fakes: Sequence[Any], operands: Sequence[Node]) -> tuple[Known, ...]:
        """The handler for real tensors, of real and of imaginary parts. A real operand has imaginary parts of 0."""
        handler, found = HANDLERS.find(str(node.target)), []
        for n in range(2):
            values = dict(self.values)
            for a in node.all_input_nodes:
                known = values.get(a)
                if isinstance(known, Tensor) and a in operands:
                    values[a] = part(self.emit, known, n)
                elif isinstance(known, Tensor) and n:
                    values[a] = known * 0
            found.append(self._built(node, fakes, handler, values, whole=False))
        return tuple([self._joined(a, c) for a, c in zip(*found, strict=True)])

    def _joined(self, real: Known, imaginary: Known) -> Known:
        """The pairs of two parts."""
        if isinstance(real, Tensor) and isinstance(imaginary, Tensor):
            return joined(self.emit, real, imaginary)
        return UNREAD

    def _built(
        self,
        node: Node,
        fakes: Sequence[Any],
        handler: Handler | None,
        values: Mapping[Node, Known],
        whole: bool = True,
    ) -> tuple[Known, ...]:
        """What a handler gives for the values of a node's operands. Complex results are pairs, or, unless `whole`, one
        of their parts."""
        if handler is None:
            raise Unsupported("there is no handler for it")
        types = [self._type(one, whole) for one in fakes]
        if len(types) == 1 and types[0] is None:
            raise Unsupported("its result is no tensor that is supported")
        self.emit.results, self.emit.promote = types, lambda: promoted(node)
        args = [self._argument(a, values) for a in node.args]
        kwargs = {name: self._argument(a, values) for name, a in node.kwargs.items()}
        self.emit.is_contiguous, self.emit.is_in_order = begins_contiguous(node), lies_in_order(node)
        source = f"{node.target} '{node.name}'"
        with self.emit.at(source, wanted(node, len(types))):
            arguments = arrange(node.target._schema, args, kwargs, handler, self.emit.number)
            problems = arguments.problems(handler)
            if problems:
                raise Unsupported("; ".join(problems))
            made = handler.call(self.emit, arguments.inputs, lambda: arguments.attributes, _CHECK)
            return tuple([self._compared(t, type) for t, type in zip(made, types, strict=False)])

    def _type(self, fake: Any, whole: bool = True) -> TensorType | None:
        if is_pair(fake):
            shape = self.symbols.shape(fake.shape)
            return TensorType.of(PARTS[fake.dtype], (*shape, const(2)) if whole else shape)
        if not is_plain(fake):
            return None
        return TensorType.of(dtype_of(fake.dtype), self.symbols.shape(fake.shape))

    def _compared(self, tensor: Tensor | None, type: TensorType | None) -> Known:
        """What a handler gave, which is of the type that the fake tensor has. Unsupported otherwise."""
        if tensor is None or type is None:
            return UNREAD
        if tensor.dtype is not type.dtype or tensor.rank != len(type.shape):
            raise Unsupported(f"its handler gives {tensor.dtype}{list(tensor.shape)} in place of {type}")
        for made, expected in zip(tensor.shape, type.shape, strict=True):
            verdict = simplify(equal(made, expected))
            if not isinstance(verdict, Const):
                self.graph.require(verdict, f"a size of {self.graph.source} is not what PyTorch says")
            elif not verdict.value:
                raise Unsupported(f"its handler gives {tensor.dtype}{list(tensor.shape)} in place of {type}")
        return tensor if tensor.shape == type.shape else self.emit.reshape(tensor, type.shape)

    def _argument(self, argument: Any, values: Mapping[Node, Known]) -> Any:
        """An argument with values for nodes. AlreadyReported where one of them could not be read."""
        if isinstance(argument, torch.fx.Node):
            if argument not in values and is_size(argument):
                return self._number(argument.meta["val"])
            value = values.get(argument)
            if isinstance(value, Tensor | Expr):
                return value
            raise AlreadyReported
        if isinstance(argument, list | tuple):
            return [self._argument(a, values) for a in argument]
        return argument

    def _number(self, fake: Any) -> Tensor | Expr:
        """A size as an expression, a real number computed of sizes as a tensor."""
        if isinstance(fake, torch.SymFloat):
            return real(self.emit, self.symbols, symbolic(fake))
        return self.symbols.size(fake)

    def _constant(self, node: Node) -> Tensor:
        tensor = self.constant(node.target)
        if not is_plain(tensor):
            raise Unsupported("it is no tensor that is supported")
        return self.emit.of_array(array_of(tensor), node.name)


def wanted(node: Node, count: int) -> tuple[bool, ...]:
    """Which results of a node have a use."""
    if count == 1:
        return (True,)
    used = {user.args[1] for user in node.users if user.target is operator.getitem}
    return tuple(n in used for n in range(count))


def begins_contiguous(node: Node) -> bool:
    """Whether the first operand is contiguous and is all of its memory. Of an input or a view nobody knows: where it
    begins in its memory is not guarded."""
    first = node.args[0] if node.args else None
    if not isinstance(first, torch.fx.Node) or first.op == "placeholder" or str(first.target) in VIEWS:
        return False
    return lies_in_order(node) and symbolic(first.meta["val"].storage_offset()) == 0


def lies_in_order(node: Node) -> bool:
    """Whether the first operand is contiguous: of a dimension of one element, any stride is."""
    first = node.args[0] if node.args else None
    fake: Any = first.meta.get("val") if isinstance(first, torch.fx.Node) else None
    if not is_plain(fake):
        return False
    lying = [(n, step) for n, step in zip(fake.shape, fake.stride(), strict=True) if symbolic(n) != symbolic(1)]
    return is_in_order([n for n, _ in lying], [step for _, step in lying])


def promoted(node: Node) -> DType:
    """The type that PyTorch's rules give the operands of an element-wise operator."""
    parts = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args]
    plain = [p for p in parts if isinstance(p, torch.Tensor | int | float | torch.SymInt | torch.SymFloat)]
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    return dtype_of(elementwise_dtypes(*plain, type_promotion_kind=kind)[1])


def inputs_of(nodes: Iterable[Node], among: Mapping[Node, object] | None = None) -> list[Node]:
    """The values that nodes take from outside of them, in order: of those that are known, if `among` is given."""
    own = set(nodes)
    found = dict.fromkeys(a for node in nodes for a in node.all_input_nodes if a not in own)
    return [n for n in found if among is None or n in among]
