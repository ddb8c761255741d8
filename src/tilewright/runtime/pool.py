"""The process's one thread pool: loaded when code that forks is loaded first, shared by all executables.

It lies in an engine of its own that is never unmapped, under names that LLVM's loader finds, so that any object code
loaded later is bound to it. Workers start with the first loop that is worth forking. A child process that `os.fork`
makes has none of its parent's threads: its pool begins anew. When Python ends, workers are stopped and joined, and the
pool is never free again: whoever still calls runs alone.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from typing import Any

import llvmlite.binding as llvm

from tilewright.codegen.abi import LEAVE, PARALLEL
from tilewright.codegen.assemble import assemble
from tilewright.codegen.pool import RESET, STOP, pool_text
from tilewright.store import Store, digest
from tilewright.target import native

_lock = threading.Lock()
_loaded: list[Any] = []


def load_pool() -> None:
    """Makes the pool known to code that is loaded after this; the first call takes it from the store or compiles it."""
    with _lock:
        if not _loaded:
            _loaded.append(_load())


def _load() -> Any:
    target = native()
    text, store = pool_text(target.triple, target.data_layout), Store.default()
    key = digest(pool=text, target=target.fingerprint(), llvm=str(llvm.llvm_version_info))
    code = store.get(key)
    if code is None:
        code = assemble(text, target)
        store.put(key, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.create_machine())
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    for name in (PARALLEL, LEAVE):
        llvm.add_symbol(name, engine.get_function_address(name))
    action = ctypes.CFUNCTYPE(None)
    stop, reset = (action(engine.get_function_address(name)) for name in (STOP, RESET))
    engine.detach()
    atexit.register(stop)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return engine
