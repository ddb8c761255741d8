"""The process's one thread pool: loaded when code that forks is loaded first, shared by all executables.

It stays in memory until the process ends, and its functions are given to all code that is loaded later. Workers start
with the first loop that is worth forking. A child process that `os.fork` makes has none of its parent's threads: its
pool begins anew. When Python ends, workers are stopped and joined, and the pool stays busy: later calls run on their
own thread alone.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Mapping
from functools import cache, partial

from tilewright.codegen.abi import LEAVE, PARALLEL, RESET, STOP, VERSION
from tilewright.runtime.loader import Loaded, load_code
from tilewright.store import Store, digest
from tilewright.target import Target, native
from tilewright.target.host import current_host
from tilewright.target.machine import llvm_stamp

EXPORTS = (PARALLEL, LEAVE, STOP, RESET)

_lock = threading.Lock()
_loaded: list[Loaded] = []


def pool_functions(code: bytes | None = None) -> Mapping[str, int]:
    """The addresses of the pool's functions by name. The first call loads the pool: `code`, or, where that is None,
    what the store has or the compiler makes. Raises Damaged for what is no pool."""
    with _lock:
        if not _loaded:
            _loaded.append(_load(code))
        return {name: _loaded[0].address(name) for name in (PARALLEL, LEAVE)}


@cache
def pool_code(target: Target) -> bytes:
    """The pool for a target: from the store, or compiled. Programs that fork bring it along, so that where they are
    loaded no compiler is needed."""
    from tilewright.codegen.pool import pool_text

    text, store = pool_text(target.triple, ""), Store.default()
    key = digest(
        pool=text, cpu=target.cpu, tuned=target.model, features=target.feature_text, llvm=llvm_stamp(), abi=VERSION
    )
    code = store.get(key)
    if code is None:
        from tilewright.codegen.assemble import assemble  # brings LLVM along
        from tilewright.codegen.link import link_code

        part = assemble(pool_text(target.triple, target.data_layout), target, level=0)
        (code,) = link_code([part], target, EXPORTS)
        store.put(key, code)
    return code


def _load(code: bytes | None) -> Loaded:
    target = native()
    pool = load_code((pool_code(target) if code is None else code,), target, _none)
    stop = ctypes.CFUNCTYPE(None)(pool.address(STOP))
    reset = partial(ctypes.CFUNCTYPE(None, ctypes.c_int64)(pool.address(RESET)), current_host().cores)
    reset()
    pool.stay()
    atexit.register(stop)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return pool


def _none(code: bytes | None) -> Mapping[str, int]:
    """What the pool itself needs of a pool."""
    return {}
