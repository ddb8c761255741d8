"""The process's one thread pool: loaded when code that forks is loaded first, shared by all executables.

It stays in memory until the process ends, and its functions are given to all code that is loaded later. Workers start
with the first loop that is worth forking. A child process that `os.fork` makes has none of its parent's threads: its
pool begins anew. When Python ends, workers are stopped and joined, and the pool is never free again: whoever still
calls runs alone.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Mapping

from tilewright.codegen.abi import LEAVE, PARALLEL, VERSION
from tilewright.codegen.pool import RESET, STOP, pool_text
from tilewright.runtime.loader import Loaded, load_code
from tilewright.store import Damaged, Store, digest
from tilewright.target import Target, native
from tilewright.target.machine import llvm_stamp

EXPORTS = (PARALLEL, LEAVE, STOP, RESET)

_lock = threading.Lock()
_loaded: list[Loaded] = []


def pool_functions() -> Mapping[str, int]:
    """The addresses of the pool's functions by name; the first call takes the pool from the store or compiles it."""
    with _lock:
        if not _loaded:
            _loaded.append(_load())
        return {name: _loaded[0].address(name) for name in (PARALLEL, LEAVE)}


def _load() -> Loaded:
    target, store = native(), Store.default()
    parts = {"pool": pool_text(target.triple, ""), "target": target.fingerprint(), "llvm": llvm_stamp()}
    key = digest(**parts, abi=VERSION)
    kept = store.get(key)
    pool = None if kept is None else _find(kept, target)
    if pool is None:
        code = _compile(target)
        store.put(key, code)
        pool = load_code((code,), target, dict)
    pool.stay()
    action = ctypes.CFUNCTYPE(None)
    stop, reset = (action(pool.address(name)) for name in (STOP, RESET))
    atexit.register(stop)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return pool


def _find(code: bytes, target: Target) -> Loaded | None:
    """The pool that the store has, where it is one."""
    try:
        return load_code((code,), target, dict)
    except Damaged:
        return None


def _compile(target: Target) -> bytes:
    from tilewright.codegen.assemble import assemble  # brings LLVM along
    from tilewright.codegen.link import link_code

    (code,) = link_code([assemble(pool_text(target.triple, target.data_layout), target)], target, EXPORTS)
    return code
