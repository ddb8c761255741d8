"""The content-addressed store on disk: compiled code, calibrations and tuned traces outlive the process here.

Promises to the floors above: what `get` or `map` returns is byte for byte what some `put` under that key wrote, or it
is None; no failure of the disk (missing, full, read-only, damaged, shared with other processes) ever raises out of
them.
"""

from __future__ import annotations

from .entry import Damaged, Json, pack, parts_of, unpack
from .keys import digest
from .store import DEFAULT_LIMIT, OFF, Entry, Store, StoreWarning, Verdict, default_path

__all__ = [
    "DEFAULT_LIMIT",
    "OFF",
    "Damaged",
    "Entry",
    "Json",
    "Store",
    "StoreWarning",
    "Verdict",
    "default_path",
    "digest",
    "pack",
    "parts_of",
    "unpack",
]
