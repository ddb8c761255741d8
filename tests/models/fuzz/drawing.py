"""Random ONNX models that are valid: what recipes draw with, and what each model computes.

    d = Draw(17)                             number 17, always the same
    x = d.take(FLOATS, rank=2)               a value of the model drawn so far, or a fresh input or constant
    (y,) = d.node("Transpose", [x], {"perm": [1, 0]})

A node is evaluated by ONNX's reference evaluator when it is drawn, so that every recipe sees the shapes and elements of
what it takes, and the expected results of a model are known once it is drawn. A draw that ONNX does not allow, or that
the reference cannot compute, raises `Skip`, and the model goes on without it.
"""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, defs, helper, numpy_helper

from fuzz.elements import Style, elements
from fuzz.reference import Undefined, compute

Array = np.ndarray[Any, Any]

GROUP = 20
"""So many models, from a multiple of it on, share the version of the operator set: they compile as one."""
OPSETS = range(13, defs.onnx_opset_version() + 1)
SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 5, 7, 8, 11, 13, 17)
ELEMENTS = 600
"""A tensor that is drawn has at most so many elements."""
RESULT_ELEMENTS = 20_000
TRIES = 6

BOOLS = ("bool",)
FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ANY = (*FLOATS, *INTEGERS, *BOOLS)
NARROW = (
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("int4", "uint4", "int2", "uint2", "float4_e2m1fn"),
)


MOVEMENT = frozenset(
    {
        *("Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Concat", "Split", "Tile"),
        *("Gather", "GatherElements", "GatherND", "Expand", "Pad", "Where", "Neg", "Abs", "Max", "Min", "Relu"),
        *("ReverseSequence", "DepthToSpace", "SpaceToDepth", "Compress", "Trilu"),
    }
)
"""Operators whose results are elements of their operands, but for signs."""


class Skip(Exception):
    """This draw gives no node."""


@dataclass
class Model:
    """A model with the inputs of a call and the results it should have. `operators` are those of all of its nodes,
    `values` what its nodes give, and those of graphs inside in their first step."""

    seed: int
    nodes: list[NodeProto]
    inputs: list[ValueInfoProto]
    constants: dict[str, Array]
    feeds: dict[str, Array]
    expected: dict[str, Array]
    opset: int
    operators: list[str] = field(default_factory=list)
    values: dict[str, Array] = field(default_factory=dict)


class Draw:
    """What the recipes draw from. Names begin with the model's number, so that models can be put into one file."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = random.Random(f"opset {seed // GROUP}").choice(OPSETS)
        self.specials = self.chance.random() < 0.25
        self.dynamic = self.chance.random() < 0.4
        self.values: dict[str, Array] = {}
        self.feeds: dict[str, Array] = {}
        self.declared: dict[str, list[int | str]] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[NodeProto] = []
        self.made: list[str] = []
        self.named = 0
        self.inner: dict[str, Array] = {}

    # Chance

    def maybe(self, share: float = 0.5) -> bool:
        return self.chance.random() < share

    def pick(self, options: Sequence[Any]) -> Any:
        if not options:
            raise Skip
        return self.chance.choice(options)

    def some(self, **attributes: Any) -> dict[str, Any]:
        """The attributes of which each is left out now and then."""
        return {name: value for name, value in attributes.items() if self.maybe(0.7)}

    def size(self) -> int:
        return 0 if self.maybe(0.02) else self.chance.choice(SIZES)

    def shape(self, rank: int) -> list[int]:
        """Sizes of a tensor that is not too large."""
        sizes = [self.size() for _ in range(rank)]
        while np.prod(sizes) > ELEMENTS:
            sizes[sizes.index(max(sizes))] = self.chance.choice((1, 2, 3))
        return sizes

    def axis(self, rank: int) -> int:
        """A dimension, counted from the front or from the back."""
        return self.chance.randrange(-rank, rank) if rank else self.pick(())

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Several dimensions, none twice."""
        count = self.chance.randint(min(least, rank), rank)
        chosen = self.chance.sample(range(rank), count)
        return [a - rank if self.maybe(0.3) else a for a in chosen]

    # Values

    def name(self) -> str:
        self.named += 1
        return f"m{self.seed}_{self.named}"

    def give(self, array: Array, constant: float = 0.35, dynamic: bool = True) -> str:
        """A tensor with these elements: a constant with this probability, otherwise an input of the call, of which
        dimensions may be symbols if it is `dynamic`."""
        name = self.name()
        self.values[name] = array
        if self.maybe(constant):
            self.constants[name] = array
            return name
        self.feeds[name] = array
        self.declared[name] = list(array.shape)
        if self.dynamic and dynamic:
            for d, n in enumerate(array.shape):
                if n != 1 and self.maybe(0.6):  # a symbol never stands for a 1 that is repeated
                    self.declared[name][d] = f"m{self.seed}_n{n}" if self.maybe() else f"{name}_{d}"
        return name

    def integers(self, values: Any, dtype: Any = np.int64, constant: float = 0.75) -> str:
        """An input of a node that says sizes, axes or indices: a constant, mostly."""
        return self.give(np.asarray(values, dtype), constant, False)

    def number(self, value: Any, dtype: Any, constant: float = 0.6) -> str:
        return self.give(np.asarray(value).astype(dtype), constant)

    def new(
        self,
        types: Sequence[str] = ANY,
        shape: Sequence[int] | None = None,
        rank: int | tuple[int, int] = (0, 5),
        style: Style | None = None,
        constant: float = 0.35,
        dynamic: bool = True,
    ) -> str:
        """A fresh input or constant."""
        low, high = (rank, rank) if isinstance(rank, int) else rank
        sizes = (
            self.shape(self.chance.randint(low, min(high, low + self.chance.choice((1, 2, 2, 3, 5)))))
            if shape is None
            else shape
        )
        kind = style or self.chance.choice(tuple(Style)[: 7 if self.specials else 5])
        return self.give(elements(self.numbers, numpy_type(self.pick(types)), sizes, kind), constant, dynamic)

    def take(
        self,
        types: Sequence[str] = ANY,
        rank: int | tuple[int, int] = (0, 5),
        ok: Callable[[Array], bool] = lambda a: True,
        style: Style | None = None,
        again: float = 0.7,
        exact: bool = False,
    ) -> str:
        """A value that the model has, or a fresh one; in both cases one that is `ok`, and, where it has to be
        `exact`, one that no operator rounded."""
        low, high = (rank, rank) if isinstance(rank, int) else rank
        known = {numpy_type(t) for t in types}
        if self.maybe(again):
            fits = [n for n, a in self.values.items() if a.dtype in known and low <= a.ndim <= high and ok(a)]
            fits = [n for n in fits if not exact or self.is_exact(n)]
            if fits:
                return str(self.chance.choice(fits[-6:]))
        for _ in range(TRIES):
            before = self.snapshot()
            name = self.new(types, rank=rank, style=style)
            if ok(self.values[name]):
                return name
            self.restore(before)
        raise Skip

    def is_exact(self, name: str) -> bool:
        """Whether a value has integers, or only movement lies between it and what is given."""
        made = {n: node for node in self.nodes for n in node.output}
        waiting = [name]
        while waiting:
            node = made.get(name := waiting.pop())
            if node is None or self.values[name].dtype.kind in "iub":
                continue
            if node.op_type not in MOVEMENT:
                return False
            waiting += free_names(node)
        return True

    def like(self, name: str, shape: Sequence[int], again: float = 0.5, **options: Any) -> str:
        """A value of the same type and this shape."""
        dtype = self.values[name].dtype
        same = [n for n, a in self.values.items() if a.dtype == dtype and a.shape == tuple(shape)]
        if same and self.maybe(again):
            return str(self.chance.choice(same))
        return self.new((dtype.name,), shape, **options)

    def fitting(self, shape: Sequence[int]) -> list[int]:
        """A shape that broadcasts with this one."""
        sizes = [1 if self.maybe(0.2) else n for n in shape]
        if self.maybe(0.2):
            sizes = [self.chance.choice((2, 3, 5)) if n == 1 and self.maybe(0.3) else n for n in sizes]
        if self.maybe(0.3):
            sizes = sizes[self.chance.randint(0, len(sizes)) :]
        return sizes

    # Nodes

    def snapshot(self) -> Any:
        kept = (self.values, self.feeds, self.declared, self.constants, self.nodes, self.made)
        return [k.copy() for k in kept], self.named

    def restore(self, before: Any) -> None:
        kept, self.named = before
        self.values, self.feeds, self.declared, self.constants, self.nodes, self.made = kept

    def types(self, operator: str, of: int = 0) -> list[str]:
        """The element types, as NumPy names them, that this version of an operator takes as that input."""
        return list(types_of(operator, self.opset, of))

    def node(
        self, operator: str, inputs: Sequence[str], attributes: dict[str, Any] | None = None, outputs: int = 1
    ) -> list[str]:
        """The results of a node that is added."""
        names = [self.name() for _ in range(outputs)]
        node = helper.make_node(operator, list(inputs), names, name=f"{operator}_{names[0]}")
        for name, value in (attributes or {}).items():
            kind = AttributeProto.INTS if isinstance(value, list) and not value else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        used = free_names(node)
        try:
            found = compute(node, {n: self.values[n] for n in used}, self.opset)
        except Undefined as why:
            raise Skip from why
        if sum(a.size for a in found) > RESULT_ELEMENTS:
            raise Skip
        self.nodes.append(node)
        self.values |= dict(zip(names, found, strict=True))
        self.made += names
        return names

    def model(self) -> Model:
        """The model as it is drawn: what no node takes is a result, and some of what nodes take is one, too."""
        used = {n for node in self.nodes for n in free_names(node)}
        results = [n for n in self.made if n not in used or self.maybe(0.15)]
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(self.feeds[n].dtype), shape)
            for n, shape in self.declared.items()
            if n in used
        ]
        kept = {n: a for n, a in self.constants.items() if n in used}
        feeds = {n: a for n, a in self.feeds.items() if n in used}
        expected = {n: self.values[n] for n in results}
        return Model(
            self.seed,
            self.nodes,
            inputs,
            kept,
            feeds,
            expected,
            self.opset,
            list(operators(self.nodes)),
            {**self.inner, **self.values},
        )


def draw(seed: int, recipes: Sequence[Callable[[Draw], None]]) -> Model:
    """The model with this number."""
    d = Draw(seed)
    count = d.chance.choice((1, 2, 3, 4, 5, 6, 8, 10, 12))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for _ in range(20 * count):
            if len(d.nodes) >= count:
                break
            before = d.snapshot()
            try:
                d.chance.choice(recipes)(d)
            except Skip:
                d.restore(before)
        return d.model()


def put_together(models: Sequence[Model]) -> ModelProto:
    """One model of several, which have the same version of the operator set."""
    results = [helper.make_empty_tensor_value_info(n) for m in models for n in m.expected]
    constants = [numpy_helper.from_array(a, n) for m in models for n, a in m.constants.items()]
    nodes, inputs = [n for m in models for n in m.nodes], [i for m in models for i in m.inputs]
    graph = helper.make_graph(nodes, "drawn", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", models[0].opset)], ir_version=10)


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g


def with_inner(nodes: Collection[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of the graphs in them."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from with_inner(graph.node)


def operators(nodes: Collection[NodeProto]) -> Iterator[str]:
    """The operators of nodes and of the graphs in them."""
    return (node.op_type for node in with_inner(nodes))


def free_names(node: NodeProto) -> dict[str, None]:
    """What a node reads: its inputs, and what its graphs capture."""
    found = dict.fromkeys(n for n in node.input if n)
    for graph in graphs_of(node):
        own = {i.name for i in graph.input} | {i.name for i in graph.initializer}
        own |= {n for inner in graph.node for n in inner.output}
        reads = [n for inner in graph.node for n in free_names(inner)] + [o.name for o in graph.output]
        found |= dict.fromkeys(n for n in reads if n not in own)
    return found


@functools.cache
def numpy_type(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


@functools.cache
def types_of(operator: str, opset: int, of: int) -> tuple[str, ...]:
    try:
        schema = defs.get_schema(operator, opset)
    except defs.SchemaError as why:
        raise Skip from why
    names = schema.inputs[min(of, len(schema.inputs) - 1)].types
    found = []
    for name in sorted(names):
        inner = name.removeprefix("tensor(").removesuffix(")")
        inner = {"float": "float32", "double": "float64"}.get(inner, inner)
        if inner in ANY:
            found += [inner] * (4 if inner == "float32" else 1)
    return tuple(found)
