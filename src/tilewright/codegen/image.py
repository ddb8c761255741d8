"""Images: linked object files, ready to be loaded at any page of memory.

    code        executed                 at 0
    constants   read                     at the next multiple of ALIGNMENT
    data        read and written         at the next one

Code is position-independent. Functions outside, `imports`, are called through stubs in the code, which jump to what
slots among the constants hold: the loader writes an address into each. A library puts other stubs in their place
(`library/shared_object.py`). `exports` are the offsets of the image's own functions by name.

As bytes an image is a container (`store/entry.py`). When it is read back, every offset is checked to be within its
part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.store import Damaged, Json, pack, unpack
from tilewright.target.code_pages import ALIGNMENT

X86_64: Final = 62
AARCH64: Final = 183
RISCV: Final = 243
MACHINES: Final = {"x86_64": X86_64, "aarch64": AARCH64, "riscv64": RISCV}
"""ELF's number for each architecture."""

SLOT: Final = 8
"""Bytes of a slot, which holds an address."""

STUBS: Final = {X86_64: 8, AARCH64: 16, RISCV: 16}
"""Bytes of a stub, which jumps to the address that a slot holds."""

_KIND = "image"
_MOST_DATA = 1 << 30


@dataclass(frozen=True, slots=True)
class Image:
    """A linked program. `machine` is ELF's number of its architecture; `room` is the bytes that its data takes, zeros
    at the beginning; `exports` are places in the code, `imports` places of slots in the constants, `stubs` those of the
    stubs in the code, by the same names."""

    machine: int
    code: bytes
    constants: bytes
    room: int
    exports: Mapping[str, int]
    imports: Mapping[str, int]
    stubs: Mapping[str, int]

    @property
    def constants_at(self) -> int:
        return round_up(len(self.code))

    @property
    def data_at(self) -> int:
        return self.constants_at + round_up(len(self.constants))

    @property
    def size(self) -> int:
        """The bytes of memory that it takes."""
        return self.data_at + self.room

    def encode(self) -> bytes:
        """The image as bytes; `decode` reads them."""
        manifest: dict[str, Json] = {
            "kind": _KIND,
            "machine": self.machine,
            "room": self.room,
            "exports": dict(self.exports),
            "imports": dict(self.imports),
            "stubs": dict(self.stubs),
        }
        return pack(manifest, {"code": self.code, "constants": self.constants})


def decode(data: bytes | memoryview) -> Image:
    """The image in bytes that `encode` made. Raises Damaged for anything else."""
    manifest, blobs = unpack(data)
    top: Mapping[str, Any] = manifest
    try:
        code, constants = bytes(blobs["code"]), bytes(blobs["constants"])
        names = _places(top["exports"]), _places(top["imports"]), _places(top["stubs"])
        image = Image(int(top["machine"]), code, constants, int(top["room"]), *names)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged("the container holds no machine code", why=f"{type(error).__name__}: {error}") from error
    exports, slots, stubs = (places.values() for places in (image.exports, image.imports, image.stubs))
    stub = STUBS.get(image.machine, SLOT)
    if (
        top.get("kind") != _KIND
        or image.machine not in MACHINES.values()
        or not 0 <= image.room <= _MOST_DATA
        or image.imports.keys() != image.stubs.keys()
        or any(not 0 <= place < len(code) for place in exports)
        or any(place % SLOT or not 0 <= place <= len(constants) - SLOT for place in slots)
        or any(place % stub or not 0 <= place <= len(code) - stub for place in stubs)
        or len(set(slots)) < len(slots)
        or len(set(stubs)) < len(stubs)
    ):
        raise Damaged("the container holds no machine code", why="a place lies outside its part")
    return image


def _places(value: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(place) for name, place in value.items()}


def round_up(size: int) -> int:
    """The next place at which a part may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT
