"""How much a model may ask for before it is refused.

The defaults admit every model that a machine of today can run. Each limit is named in the error that enforces it, so a
user who owns a larger model knows which one to raise.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_RANK = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one model file may hold.

    tensor_bytes     size of one tensor's data, in bytes
    dense_bytes      size of all sparse tensors as they are read, made dense, in bytes: their zeros take none in a file
    structure_bytes  size of all that stays in memory once large tensors are left in the file, in bytes
    entries          number of protobuf fields looked at: nodes, attributes, names, initializers and what they hold
    nesting          sub-graphs inside sub-graphs; above 30 the protobuf library itself refuses some models
    nodes            nodes, with the bodies of functions, branches and unrolled loops in place of what runs them
    """

    tensor_bytes: int = 1 << 40
    dense_bytes: int = 1 << 30
    structure_bytes: int = 256 << 20
    entries: int = 1_000_000
    nesting: int = 30
    nodes: int = 200_000
