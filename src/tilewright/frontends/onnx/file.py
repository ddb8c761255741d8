"""ONNX models opened safely and without copying their weights.

`open_model(path)` maps the file, takes the large tensors out of the protobuf message by walking its bytes, and parses
only what remains. The floor above gets a `ModelFile`: the model as a ModelProto, and the data of each of its tensors as
an array over the mapped file. What the file says is checked before it is used: nesting, opsets, names, functions,
shapes, data lengths, and the places of external data. Every fault is a UserError; no other exception leaves this module
because of what a file holds.

The arrays stay valid as long as they are referenced. The files must not be changed or shortened while they are.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tilewright.frontends.build.names import clip
from tilewright.frontends.build.remarks import Remarks
from tilewright.frontends.onnx.external import ExternalFiles, reference
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.sloppy import check_format
from tilewright.frontends.onnx.sparse import check_room, dense, dense_bytes
from tilewright.frontends.onnx.structure import bad_text, check_opset, check_structure, scopes, tensors
from tilewright.frontends.onnx.tensors import (
    ELEMENTS,
    Element,
    bad_tensor,
    check_count,
    check_length,
    data_in_proto,
    element_of,
    shape_of,
    tensor_name,
    typed_fields,
    view,
)
from tilewright.frontends.onnx.wire import OWN_FILE, damaged, skeleton
from tilewright.report.errors import UserError
from tilewright.store.files import MappedFile, map_file
from tilewright.store.kinds import ONNX, recognise, wrong_kind
from tilewright.store.pages import release

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from onnx import ModelProto, SparseTensorProto, TensorProto

_CHUNK = 1 << 20
_IN_MEMORY = "the model in memory"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a tensor's bytes are in a file; the offset has any alignment."""

    path: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A tensor's data in a mapped file, checked to be inside it."""

    file: MappedFile
    offset: int
    element: Element
    shape: tuple[int, ...]
    nbytes: int


def open_model(path: str | os.PathLike[str], limits: Limits | None = None) -> ModelFile:
    """Open the ONNX model at a path. External data is looked for in the folder of that path
    (`external.py`)."""
    name = os.fspath(path)
    mapped = map_file(name, "model file")
    return ModelFile(mapped, repr(name), ExternalFiles.of_model(name), limits or Limits())


def from_bytes(data: bytes, base_dir: str | os.PathLike[str] | None = None, limits: Limits | None = None) -> ModelFile:
    """Open a model that is in memory as bytes. Without `base_dir`, external data is an error."""
    folder = None if base_dir is None else os.path.abspath(os.fspath(base_dir))
    return ModelFile(MappedFile(None, bytes(data)), _IN_MEMORY, ExternalFiles(folder), limits or Limits())


def from_proto(
    proto: ModelProto, base_dir: str | os.PathLike[str] | None = None, limits: Limits | None = None
) -> ModelFile:
    """Open a model that is in memory as a message; the message is copied and may be changed afterwards."""
    try:
        data = proto.SerializeToString()
    except Exception as error:
        why = f"it cannot be written as bytes: {error}"
        fix = "save its weights as external data, and open the file"
        raise UserError("cannot take the model from memory", where=_IN_MEMORY, why=why, fix=fix) from None
    return from_bytes(data, base_dir, limits)


class ModelFile:
    """An opened model.

    `proto` is the model with its large tensors emptied: they keep name, dims and data_type, and their data is in the
    external location "", which means the model's own bytes. Ask `tensor` for data, of these and of all other tensors.
    `bodies` are its graphs and functions; `remarks` what was found in the file that ONNX does not allow; `nodes` how
    many nodes were read of it, `dense_bytes` of how many bytes its sparse tensors were, made dense.
    """

    def __init__(self, mapped: MappedFile, source: str, external: ExternalFiles, limits: Limits) -> None:
        self._mapped = mapped
        self._source = source
        self._external = external
        self._limits = limits
        self.nodes = self.dense_bytes = 0
        if not len(mapped.data):
            raise damaged(source, "it is empty")
        try:
            stripped = skeleton(mapped.data, limits, source)
            release(mapped.data)
            self.proto: ModelProto = _parse(stripped.data, source)
        except UserError as error:
            other = None if recognise(mapped.data) is ONNX else wrong_kind(error.what, source, mapped.data)
            raise other or error from None
        self._payloads = stripped.payloads
        self.remarks = Remarks()
        check_format(self.proto, source, self.remarks)
        check_opset(self.proto, source, self.remarks)
        self.bodies = list(scopes(self.proto))
        check_structure(self.proto, self.bodies, limits.nesting, source, self.remarks)
        for tensor in tensors(self.bodies):
            self._check(tensor)

    def tensor(self, tensor: TensorProto) -> np.ndarray:
        """The data of one of this model's tensors, as a read-only array of the tensor's shape.

        Large and external data is a view of the mapped file, possibly unaligned. UserError for element types that are
        not supported and for data that does not fit type and shape.
        """
        where = tensor_name(tensor, self._source)
        element = element_of(tensor, where)
        found = self._find(tensor, element, where)
        if found is not None:
            return view(found.file.data, found.offset, element, found.shape, where)
        shape, nbytes = shape_of(tensor, element, self._limits, where)
        return data_in_proto(tensor, element, shape, nbytes, where)

    def dense(self, sparse: SparseTensorProto) -> np.ndarray:
        """One of this model's sparse tensors, dense and read-only. UserError as for `tensor`, for indices that do not
        fit, and where the sparse tensors that were read so far are too large."""
        where = f"sparse {tensor_name(sparse.values, self._source)}"
        element = element_of(sparse.values, where)
        self.dense_bytes += dense_bytes(sparse, element.dtype.itemsize, where)
        check_room(self.dense_bytes, self._limits.dense_bytes, where)
        values, indices = self.tensor(sparse.values), self.tensor(sparse.indices)
        return dense(tuple(sparse.dims), values, indices, where)

    def again(self) -> ModelFile:
        """The same file, for a reading that is a trial: its nodes and sparse tensors count apart, and its remarks are
        its own."""
        trial = copy.copy(self)
        trial.nodes, trial.dense_bytes, trial.remarks = 0, 0, Remarks()
        return trial

    def locate(self, tensor: TensorProto) -> Location | None:
        """Where a tensor's data is in a file; None if it is in `proto`, or if the model came from memory."""
        where = tensor_name(tensor, self._source)
        found = self._find(tensor, element_of(tensor, where), where)
        if found is None or found.file.path is None:
            return None
        return Location(found.file.path, found.offset, found.nbytes)

    def count_nodes(self, more: int, where: str | None) -> None:
        """Notes that so many nodes are read now. Raises UserError where they are too many: functions that call
        functions several times are small files of any number of nodes."""
        self.nodes += more
        self.check_nodes(self.nodes, where)

    def is_too_large(self, nodes: int) -> bool:
        """Whether a model may not have so many nodes."""
        return nodes > self._limits.nodes

    def check_nodes(self, nodes: int, where: str | None) -> None:
        """Raises UserError where so many nodes are too many."""
        if self.is_too_large(nodes):
            raise UserError(
                "the model has too many nodes",
                where=where or self._source,
                why=f"with the bodies of functions, branches and loops in their places there are more than "
                f"{self._limits.nodes:,}",
                fix="split the model, or let its functions call each other less often",
            )

    def digest(self) -> str:
        """SHA-256, in hexadecimal, over the model and its external data files, each preceded by its length."""
        state = hashlib.sha256()
        for file in self.files():
            state.update(len(file.data).to_bytes(8, "little"))
            with memoryview(file.data) as data:
                for start in range(0, len(data), _CHUNK):
                    state.update(data[start : start + _CHUNK])
        return state.hexdigest()

    def files(self) -> list[MappedFile]:
        """The model's own file, then the external data files opened so far."""
        return [self._mapped, *self._external.opened()]

    def tensors(self) -> Iterator[TensorProto]:
        """All tensors of the model: initializers, dense and sparse, and those in attributes, at any depth."""
        return tensors(self.bodies)

    def _check(self, tensor: TensorProto) -> None:
        """Refuse a wrong shape, length or place; the element type is judged when the data is asked for."""
        where = tensor_name(tensor, self._source)
        if tensor.HasField("segment"):
            raise bad_tensor("is stored in segments", where, "ONNX defines the field but no way to join the segments")
        element = ELEMENTS.get(tensor.data_type)
        if element is None:
            return
        if self._find(tensor, element, where) is None:
            shape, nbytes = shape_of(tensor, element, self._limits, where)
            raw = tensor.raw_data
            if raw or not len(getattr(tensor, element.field)):
                check_length(len(raw), element, shape, nbytes, where)
            else:
                check_count(tensor, element, shape, nbytes, where)

    def _find(self, tensor: TensorProto, element: Element, where: str) -> _Found | None:
        """The tensor's data in a file; None if the tensor carries its data itself."""
        if tensor.data_location != tensor.EXTERNAL:
            return None
        if tensor.raw_data or typed_fields(tensor):
            raise bad_tensor("has ambiguous data", where, "it holds elements and names external data, too")
        shape, nbytes = shape_of(tensor, element, self._limits, where)
        place = reference([(entry.key, entry.value) for entry in tensor.external_data], where)
        if place.location == OWN_FILE:
            file = self._mapped
            if place.length is None or self._payloads.get(place.offset) != place.length:
                raise bad_tensor("has no data", where, "its external data names no file")
        else:
            file = self._external.get(place.location, where)
        if place.length is not None:
            check_length(place.length, element, shape, nbytes, where)
        size = len(file.data)
        if place.offset + nbytes > size:
            why = (
                f"it needs bytes {place.offset} to {place.offset + nbytes} of {clip(place.location)}, which has {size}"
            )
            what = "has its data past the end of the file"
            kind = recognise(file.data)
            if kind is not None:
                raise bad_tensor(what, where, f"{why}: it is {kind.name}", kind.fix)
            raise bad_tensor(what, where, why)
        return _Found(file, place.offset, element, shape, nbytes)


def _parse(data: bytes, source: str) -> ModelProto:
    """The model from its bytes without large tensors; UserError unless it is one and all its text is UTF-8."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise damaged(source, "its fields do not follow the ONNX format") from None
    try:
        _strict_model()().ParseFromString(data)
    except DecodeError:
        raise bad_text(proto, source) from None
    if not proto.HasField("graph"):
        raise damaged(source, "it has no graph")
    return proto


@cache
def _strict_model() -> type[Message]:
    """ModelProto under the rules of proto3, by which the parser itself refuses strings that are not UTF-8."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass
    from onnx import ModelProto

    schema = FileDescriptorProto()
    ModelProto.DESCRIPTOR.file.CopyToProto(schema)
    schema.syntax = "proto3"
    pool = DescriptorPool()
    pool.Add(schema)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(ModelProto.DESCRIPTOR.full_name))
    return found
