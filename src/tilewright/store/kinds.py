"""What a file is that is not what it should be: told from its first bytes, and what to do about it.

A model's file is looked at here only after it was found to be none, so that no guess keeps a model from being read.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..report.errors import UserError
from .files import Buffer
from .frame import MAGIC

_LOOKED_AT = 512
"""How many bytes are looked at."""

_LEAST_TEXT = 12
"""How many characters are called a text: fewer printable bytes may be anything, unless brackets enclose them."""

_BRACKETS = ("{}", "[]", "<>")

_SHOWN = 40
"""How many characters of a text are shown."""

_LFS = "version https://git-lfs"
_ZIP = b"PK\x03\x04"
_ZIP_NAME, _ZIP_LENGTH = 30, 26
"""Where the first entry of an archive has its name, and the length of that."""

_MOST_SAFETENSORS = 100_000_000
"""The longest header that a safetensors file may have, in bytes."""

_EXPORT = "export the model from its framework: torch.onnx.export(model, inputs, 'model.onnx')"
_ONNX_FILE = "give the .onnx file, or what tilewright.compile saved"
_LIBRARY = f"{_ONNX_FILE}; a library of a model is loaded by tilewright.runtime.library.load(path)"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: what it is, with its article, and what to do to get a model from it."""

    name: str
    fix: str


COMPILED = Kind("a file that Tilewright compiled", "load it: tilewright.load(path)")
ONNX = Kind("an ONNX model", "compile it: tilewright.compile(path)")

_BY_MAGIC: tuple[tuple[int, bytes, Kind], ...] = (
    (0, MAGIC, COMPILED),
    (0, b"\x7fELF", Kind("an ELF file, the machine code of a program or library", _LIBRARY)),
    (0, b"\0asm", Kind("a module of WebAssembly", _ONNX_FILE)),
    (0, b"\x1f\x8b", Kind("a file that gzip compressed", "unpack it with gunzip, and give what was in it")),
    (0, b"\xfd7zXZ\0", Kind("a file that xz compressed", "unpack it with unxz, and give what was in it")),
    (0, b"BZh", Kind("a file that bzip2 compressed", "unpack it with bunzip2, and give what was in it")),
    (0, b"\x28\xb5\x2f\xfd", Kind("a file that zstd compressed", "unpack it with unzstd, and give what was in it")),
    (257, b"ustar", Kind("a tar archive", "unpack it with tar -x, and give the model that was in it")),
    (0, b"\x93NUMPY", Kind("an array that NumPy saved", "give the model; arrays are inputs, such as --input x=@x.npy")),
    (0, b"\x89HDF\r\n\x1a\n", Kind("an HDF5 file, as Keras writes them", "convert the model to ONNX, with tf2onnx")),
    (0, b"GGUF", Kind("a GGUF file, weights for llama.cpp", _EXPORT)),
    (4, b"TFL3", Kind("a TensorFlow Lite model", "convert it to ONNX: python -m tf2onnx.convert --tflite FILE")),
    (4, b"ORTM", Kind("a model in ONNX Runtime's own format", "give the .onnx file that it was made of")),
    *(
        (0, bytes((0x80, protocol)), Kind("a pickle, as PyTorch and scikit-learn write them", _EXPORT))
        for protocol in range(2, 6)
    ),
)


def recognise(data: Buffer | memoryview) -> Kind | None:
    """The kind of file that begins with these bytes; None for what is not known."""
    head = bytes(data[:_LOOKED_AT])
    for at, magic, kind in _BY_MAGIC:
        if head.startswith(magic, at):
            return kind
    return _archive(head) or _safetensors(head) or _text(head) or (ONNX if _is_onnx(head) else None)


def wrong_kind(what: str, where: str | None, data: Buffer | memoryview) -> UserError | None:
    """The error for a file that is of another kind than it should be; None where that is not known."""
    kind = recognise(data)
    return None if kind is None else UserError(what, where=where, why=f"it is {kind.name}", fix=kind.fix)


def _archive(head: bytes) -> Kind | None:
    """ZIP archives, which PyTorch's and NumPy's files are, too: their first entry tells."""
    if not head.startswith(_ZIP):
        return None
    length = int.from_bytes(head[_ZIP_LENGTH : _ZIP_LENGTH + 2], "little")
    name = head[_ZIP_NAME : _ZIP_NAME + length].decode("utf-8", "replace")
    if name.endswith("/data.pkl"):
        return Kind("a PyTorch file (.pt)", _EXPORT)
    if name.endswith(".npy"):
        return Kind("an archive of NumPy arrays (.npz)", "give the model; arrays are inputs, such as --input @x.npz")
    held = f" that begins with {name[:_SHOWN]!r}" if name else ""
    return Kind(f"a ZIP archive{held}", "unpack it, and give the model that was in it")


def _safetensors(head: bytes) -> Kind | None:
    """A length of eight bytes, then JSON of that length."""
    size = int.from_bytes(head[:8], "little")
    if head[8:9] != b"{" or not 2 <= size <= _MOST_SAFETENSORS:
        return None
    return Kind("a safetensors file, weights without the model that uses them", _EXPORT)


def _text(head: bytes) -> Kind | None:
    """Text, and what it is in: pages that a server sent in place of a file, and pointers to files, above all."""
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(head) < _LOOKED_AT or error.start < _LOOKED_AT - 3:  # not just a character that was cut
            return None
        text = head[: error.start].decode("utf-8-sig")
    begin = text.lstrip()
    enclosed = begin[:1] + begin.rstrip()[-1:] in _BRACKETS
    if (len(begin) < _LEAST_TEXT and not enclosed) or any(not c.isprintable() and not c.isspace() for c in text):
        return None
    if begin.startswith(_LFS):
        return Kind("a pointer of Git LFS, which stands for the file", "fetch the file itself: git lfs pull")
    lower, line = begin.lower(), begin.splitlines()[0]
    if lower.startswith(("<!doctype html", "<html", "<head", "<body")):
        fix = "download the file itself; a page came, such as one of an error or of a login"
        return Kind("an HTML page", fix)
    form = "XML" if lower.startswith("<") else "JSON" if lower.startswith(("{", "[")) else "text"
    return Kind(f"{form} that begins {line[:_SHOWN]!r}", _ONNX_FILE)


def _is_onnx(head: bytes) -> bool:
    """Whether the bytes begin as ONNX models are mostly written: the version of the format, then the producer, the
    imports of operator sets, or the graph."""
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x40 and head[2] in (0x12, 0x1A, 0x22, 0x28, 0x3A, 0x42)
