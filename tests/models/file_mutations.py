"""Model files made wrong: seeds (file_seeds.py) whose bytes, fields or structure are changed.

    case = draw(17, seeds)      a file, and files beside it, for each number always the same

Bytes are flipped, cut, repeated, exchanged with those of other models. Fields of the format, set or not, get the ends
of their ranges, are repeated, emptied, made very long, or replaced by another message of their kind. In the structure,
edges become cycles, names are used twice or by nobody, tensors and sub-graphs change places, sub-graphs are nested a
thousand deep, attributes and external data name what they should not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from file_seeds import Seed
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from wire_mutations import mutate_wire

INTEGERS = (0, 1, -1, 2, 127, 128, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), float("-inf"), 3.4e38, 1e-45, 1e30)
TEXTS = (
    "",
    "x",
    "y",
    "\0",
    "é",
    "\u202e",
    "../w.bin",
    "/etc/passwd",
    "w.bin",
    "ai.onnx",
    "com.microsoft",
    "{0}",
    "@",
    "If",
)
BYTES = (b"", b"\0", b"\xff" * 8, b"\xff\xfe text", bytes(1 << 16), b"../w.bin")
MOST_MESSAGES = 3000
LONG = 1 << 16


@dataclass(frozen=True)
class Case:
    """A model file, the files beside it, what was done, and whether its program checks its accesses."""

    name: str
    data: bytes
    files: dict[str, bytes]
    done: tuple[str, ...]
    level: int
    checked: bool


def draw(number: int, seeds: Sequence[Seed], own: int) -> Case:
    """The case of this number. The first `own` seeds are drawn as often as all others."""
    chance = random.Random(number)
    seed = seeds[chance.randrange(own)] if chance.random() < 0.5 else chance.choice(seeds)
    mutator = _Mutator(chance, seeds)
    data, files, done = seed.data, dict(seed.files), []
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5))):
        kind = chance.choice(("fields", "fields", "fields", "structure", "structure", "structure", "wire", "bytes"))
        change: Callable[[bytes], bytes] = getattr(mutator, kind)
        data = change(data)
        done.append(f"{kind} {mutator.last}")
    if files and chance.random() < 0.3:
        files = {name: chance.choice((b"", body[:5], body * 3)) for name, body in files.items()}
    return Case(seed.name, data, files, tuple(done), chance.choice((3, 3, 1, 0)), chance.random() < 0.5)


class _Mutator:
    """Changes one model in one way after the other; `last` says what was done."""

    def __init__(self, chance: random.Random, seeds: Sequence[Seed]) -> None:
        self.chance, self.seeds = chance, seeds
        self.last = ""

    # Bytes

    def bytes(self, data: bytes) -> bytes:
        chance, body = self.chance, bytearray(data)
        at = chance.randrange(len(body) + 1)
        end = min(len(body), at + chance.choice((1, 1, 4, 30)))
        self.last = chance.choice(("flip", "set", "cut", "delete", "repeat", "splice"))
        if self.last == "flip" and at < len(body):
            body[at] ^= 1 << chance.randrange(8)
        elif self.last == "set":
            body[at:end] = bytes(chance.choice((0, 1, 0x7F, 0x80, 0xFF)) for _ in range(end - at))
        elif self.last == "cut":
            del body[at:]
        elif self.last == "delete":
            del body[at:end]
        elif self.last == "repeat":
            body[at:at] = body[at:end] * chance.choice((1, 2, 100))
        elif self.last == "splice":
            other = chance.choice(self.seeds).data
            begin = chance.randrange(len(other) + 1)
            body[at:end] = other[begin : begin + chance.choice((4, 40, 400))]
        return bytes(body)

    def wire(self, data: bytes) -> bytes:
        self.last, changed = mutate_wire(data, self.chance)
        return changed

    # Fields

    def fields(self, data: bytes) -> bytes:
        """One field of one message, set or not, becomes something else."""
        return self._changed(data, self._field)

    def _changed(self, data: bytes, change: Callable[[ModelProto], bytes]) -> bytes:
        """A change of the model; of its bytes, where they are no model, or hold names that are no text."""
        proto = _parsed(data)
        if proto is None:
            return self.bytes(data)
        try:
            return change(proto)
        except UnicodeDecodeError:
            return self.bytes(data)

    def _field(self, proto: ModelProto) -> bytes:
        found = _messages(proto)
        message = self.chance.choice(found)
        field = self.chance.choice(message.DESCRIPTOR.fields)
        self.last = f"{message.DESCRIPTOR.name}.{field.name}"
        if field.is_repeated:
            self._repeated(message, field, found)
        elif field.message_type is not None:
            self._single(message, field, found)
        else:
            self._set(message, field)
        return proto.SerializeToString()

    def _set(self, message: Message, field: FieldDescriptor) -> None:
        setattr(message, field.name, self._scalar(field))

    def _scalar(self, field: FieldDescriptor) -> Any:
        """A value at an end of a field's range."""
        chance = self.chance
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return chance.choice(field.enum_type.values).number
        if field.type == FieldDescriptor.TYPE_BYTES:
            return chance.choice(BYTES)
        if field.type == FieldDescriptor.TYPE_STRING:
            return chance.choice((*TEXTS, "n" * LONG)) if chance.random() < 0.9 else chance.choice(TEXTS) * LONG
        if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            return chance.choice(FLOATS)
        low, high = _RANGES[field.cpp_type]
        return chance.choice([n for n in (*INTEGERS, chance.randrange(40)) if low <= n <= high])

    def _repeated(self, message: Message, field: FieldDescriptor, found: Sequence[Message]) -> None:
        items, chance = getattr(message, field.name), self.chance
        action = chance.choice(("clear", "add", "add", "delete", "repeat", "set", "swap", "set"))
        if action == "clear":
            message.ClearField(field.name)
        elif action == "delete" and len(items):
            del items[chance.randrange(len(items))]
        elif action == "repeat" and len(items):
            items.extend([items[chance.randrange(len(items))]] * chance.choice((1, 2, 40, 1000)))
        elif field.message_type is not None:
            added = items[chance.randrange(len(items))] if action == "set" and len(items) else items.add()
            self._replace(added, found)
        elif action == "set" and len(items):
            items[chance.randrange(len(items))] = self._scalar(field)
        elif action == "swap" and len(items) > 1:
            kept = list(items)
            chance.shuffle(kept)
            items[:] = kept
        else:
            items.append(self._scalar(field))

    def _single(self, message: Message, field: FieldDescriptor, found: Sequence[Message]) -> None:
        if self.chance.random() < 0.3:
            message.ClearField(field.name)
        else:
            self._replace(getattr(message, field.name), found)

    def _replace(self, message: Message, found: Sequence[Message]) -> None:
        """Another message of its kind of this model; or none of its fields, but that it is there."""
        others = [m for m in found if m.DESCRIPTOR is message.DESCRIPTOR and m is not message]
        if others and self.chance.random() < 0.8:
            copy = type(message)()
            copy.CopyFrom(self.chance.choice(others))
            message.CopyFrom(copy)
        else:
            message.SetInParent()

    # Structure

    def structure(self, data: bytes) -> bytes:
        """Nodes, tensors, names or graphs of the model change."""
        return self._changed(data, self._restructured)

    def _restructured(self, proto: ModelProto) -> bytes:
        change = self.chance.choice(STRUCTURES)
        self.last = change.__name__.strip("_")
        return change(self.chance, proto, self.seeds)


_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_BOOL: (0, 1),
}


def _parsed(data: bytes) -> ModelProto | None:
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
        proto.SerializeToString()
    except (DecodeError, ValueError):
        return None
    return proto


def _messages(proto: Message) -> list[Message]:
    """A message and those in it, the first ones of many."""
    found: list[Message] = [proto]
    for message in found:
        if len(found) > MOST_MESSAGES:
            break
        for field, content in message.ListFields():
            if field.message_type is not None:
                found += list(content)[:MOST_MESSAGES] if field.is_repeated else [content]
    return found


def _of(kind: type[Message], proto: ModelProto) -> list[Any]:
    return [m for m in _messages(proto) if isinstance(m, kind)]


Change = Callable[[random.Random, ModelProto, Sequence[Seed]], bytes]


def _names(proto: ModelProto) -> list[str]:
    """The names of values in a model."""
    return [name for n in _of(NodeProto, proto) for name in (*n.input, *n.output)] or [""]


def _rewire(chance: random.Random, proto: ModelProto, _: Sequence[Seed]) -> bytes:
    """A node reads another value: a later one, its own, one of another graph, or one that nobody makes."""
    nodes = [n for n in _of(NodeProto, proto) if n.input]
    if nodes:
        node = chance.choice(nodes)
        node.input[chance.randrange(len(node.input))] = chance.choice([*_names(proto), "nobody", ""])
    return proto.SerializeToString()


def _rename(chance: random.Random, proto: ModelProto, _: Sequence[Seed]) -> bytes:
    """A value, an initializer, an input or an output has the name of another one."""
    named = [*_of(TensorProto, proto), *proto.graph.input, *proto.graph.output]
    nodes = [n for n in _of(NodeProto, proto) if n.output]
    if nodes and (chance.random() < 0.5 or not named):
        node = chance.choice(nodes)
        node.output[chance.randrange(len(node.output))] = chance.choice([*_names(proto), ""])
    elif named:
        chance.choice(named).name = chance.choice([*_names(proto), "nobody", ""])
    return proto.SerializeToString()


def _swap(chance: random.Random, proto: ModelProto, _: Sequence[Seed]) -> bytes:
    """Two messages of one kind change places: tensors, nodes, sub-graphs, attributes."""
    kind = chance.choice((TensorProto, NodeProto, GraphProto, AttributeProto))
    found = _of(kind, proto)
    if len(found) > 1:
        one, other = chance.sample(found, 2)
        first, second = kind(), kind()
        first.CopyFrom(one)
        second.CopyFrom(other)
        if kind is TensorProto and chance.random() < 0.7:
            first.name, second.name = second.name, first.name
        one.CopyFrom(second)
        if second.ByteSize() < 1 << 20:
            other.CopyFrom(first)
    return proto.SerializeToString()


def _other_operator(chance: random.Random, proto: ModelProto, seeds: Sequence[Seed]) -> bytes:
    """A node is another operator, of another domain, or in another version."""
    nodes = _of(NodeProto, proto)
    if nodes:
        node, other = chance.choice(nodes), _parsed(chance.choice(seeds).data)
        donors = _of(NodeProto, other) if other is not None else []
        if donors:
            donor = chance.choice(donors)
            node.op_type = donor.op_type
            if chance.random() < 0.7:
                del node.attribute[:]
                node.attribute.extend(donor.attribute)
    for imported in proto.opset_import:
        if chance.random() < 0.2:
            imported.version = chance.choice((0, 1, 6, 7, 9, 10, 11, 13, 18, 26, 27, 10**9, -1, 2**63 - 1))
    return proto.SerializeToString()


def _attribute(chance: random.Random, proto: ModelProto, seeds: Sequence[Seed]) -> bytes:
    """An attribute of another type, of another value, given twice, or one that is not known."""
    attributes = _of(AttributeProto, proto)
    nodes = _of(NodeProto, proto)
    if nodes and (not attributes or chance.random() < 0.3):
        attributes = [
            chance.choice(nodes).attribute.add(name=chance.choice(("axis", "to", "pads", "perm", "body", "k")))
        ]
    if attributes:
        one = chance.choice(attributes)
        one.type = chance.choice(AttributeProto.AttributeType.values())
        field = chance.choice(
            ("i", "f", "s", "ints", "floats", "strings", "t", "g", "tensors", "graphs", "ref_attr_name")
        )
        number = chance.choice(INTEGERS)
        if field in ("i", "f", "s", "ref_attr_name"):
            setattr(one, field, {"i": number, "f": chance.choice(FLOATS), "s": b"text"}.get(field, "slope"))
        elif field == "ints":
            one.ints.extend([number] * chance.choice((1, 2, 3, 4, 8, 100)))
        elif field == "floats":
            one.floats.extend([chance.choice(FLOATS)] * 4)
        elif field == "strings":
            one.strings.extend([b"a", b"\xff"])
        elif field in ("t", "tensors"):
            made = one.t if field == "t" else one.tensors.add()
            made.CopyFrom(chance.choice(_of(TensorProto, proto) or [TensorProto()]))
        elif field == "g":
            graph = GraphProto()
            graph.CopyFrom(chance.choice(_of(GraphProto, proto) or [graph]))
            one.g.CopyFrom(graph)
    return proto.SerializeToString()


def _tensor(chance: random.Random, proto: ModelProto, _: Sequence[Seed]) -> bytes:
    """A tensor whose type, sizes and data do not agree, or whose data is elsewhere."""
    found = _of(TensorProto, proto)
    if not found:
        return proto.SerializeToString()
    tensor = chance.choice(found)
    action = chance.randrange(6)
    if action == 0:
        tensor.data_type = chance.choice((*TensorProto.DataType.values(), 99, -1))
    elif action == 1:
        dims = [chance.choice((*INTEGERS, 1, 2, 3)) for _ in range(chance.choice((0, 1, 2, 3, 33, 5000)))]
        del tensor.dims[:]
        tensor.dims.extend(dims)
    elif action == 2 and tensor.dims:
        tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice(INTEGERS)
    elif action == 3:
        size = chance.choice((0, 1, len(tensor.raw_data) - 1, len(tensor.raw_data) + 1, len(tensor.raw_data) * 2, 4096))
        tensor.raw_data = bytes(chance.randrange(256) for _ in range(max(0, size)))
    elif action == 4:
        tensor.data_location = TensorProto.EXTERNAL
        for _ in range(chance.choice((1, 2, 4))):
            key = chance.choice(("location", "location", "offset", "length", "checksum", "basepath", "", "x" * 1000))
            text = chance.choice(
                (*TEXTS, "0", "8", "-1", "24", str(2**63), "1e9", "9" * 5000, " 8", "0x8", "model.onnx")
            )
            tensor.external_data.add(key=key, value=text)
    else:
        tensor.float_data.extend([1.0] * chance.choice((1, 3, 1000)))
        tensor.int32_data.extend([chance.choice((-1, 2**31 - 1))] * chance.choice((0, 1, 3)))
    return proto.SerializeToString()


def _interface(chance: random.Random, proto: ModelProto, _: Sequence[Seed]) -> bytes:
    """An input or output declared otherwise: its rank, sizes, names of sizes, type."""
    infos = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    if not infos:
        return proto.SerializeToString()
    info = chance.choice(infos)
    kind = info.type.tensor_type
    if chance.random() < 0.3:
        kind.elem_type = chance.choice((*TensorProto.DataType.values(), 99))
    dims = kind.shape.dim
    for _ in range(chance.choice((1, 1, 3))):
        if dims and chance.random() < 0.3:
            del dims[chance.randrange(len(dims))]
            continue
        dim = chance.choice(dims) if dims and chance.random() < 0.6 else dims.add()
        if chance.random() < 0.5:
            dim.dim_value = chance.choice((*INTEGERS, 2, 3, 4))
        else:
            dim.dim_param = chance.choice((*TEXTS, "n", "m", "n*2", "n" * 500))
    return proto.SerializeToString()


def _repeat_nodes(chance: random.Random, proto: ModelProto, _: Sequence[Seed]) -> bytes:
    """Nodes deleted, repeated, or in another order."""
    graph = chance.choice(_of(GraphProto, proto) or [proto.graph])
    nodes = list(graph.node)
    if nodes:
        action = chance.randrange(3)
        if action == 0:
            del graph.node[chance.randrange(len(nodes))]
        elif action == 1:
            graph.node.extend([chance.choice(nodes)] * chance.choice((1, 10, 200)))
        else:
            chance.shuffle(nodes)
            copies = [NodeProto.FromString(n.SerializeToString()) for n in nodes]
            del graph.node[:]
            graph.node.extend(copies)
    return proto.SerializeToString()


def _functions(chance: random.Random, proto: ModelProto, _: Sequence[Seed]) -> bytes:
    """A function of the model for an operator of its: of other nodes, or one that calls itself."""
    nodes = _of(NodeProto, proto)
    if not nodes:
        return proto.SerializeToString()
    node = chance.choice(nodes)
    made = proto.functions.add(name=node.op_type, domain=node.domain)
    made.input.extend(node.input[: chance.choice((0, 1, 9))])
    made.output.extend(node.output)
    made.opset_import.extend(proto.opset_import[: chance.choice((0, 9))])
    inner = [NodeProto.FromString(chance.choice(nodes).SerializeToString()) for _ in range(chance.choice((0, 1, 3)))]
    made.node.extend(inner)
    return proto.SerializeToString()


def _nest(chance: random.Random, proto: ModelProto, _: Sequence[Seed]) -> bytes:
    """The graph inside of branches inside of branches."""
    data = proto.graph.SerializeToString()
    heads, tail, size = [], bytes((0xA0, 0x01, 5)) + _field(2, b"g"), len(data)  # a graph may be of many megabytes
    for _ in range(chance.choice((1, 3, 20, 31, 100, 1000))):
        inside = _field(1, b"then_branch") + _opening(6, size)
        inside = _opening(5, len(inside) + size + 3) + inside
        inside = _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + inside
        heads.append(_opening(1, len(inside) + size + 3) + inside)
        size += len(heads[-1]) + len(tail)
    del proto.graph.node[:]
    return b"".join((proto.SerializeToString(), _opening(7, size), *reversed(heads), data, tail * len(heads)))


def _field(number: int, payload: bytes) -> bytes:
    """A field of bytes."""
    return _opening(number, len(payload)) + payload


def _opening(number: int, length: int) -> bytes:
    """What is before so many bytes of a field."""
    digits = bytearray()
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    digits.append(length)
    return bytes((number * 8 + 2,)) + bytes(digits)


STRUCTURES: tuple[Change, ...] = (
    _rewire,
    _rename,
    _swap,
    _other_operator,
    _attribute,
    _attribute,
    _tensor,
    _tensor,
    _interface,
    _interface,
    _repeat_nodes,
    _functions,
    _nest,
)
