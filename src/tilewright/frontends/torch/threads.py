"""PyTorch's own threads, which compiled code borrows for its loops.

PyTorch's threads are those of OpenMP, and wait awake for the next loop of an eager operator for milliseconds: threads
of ours would find no core. So a call has its loops run by the same ones, through the functions that compilers call for
a parallel region: `GOMP_parallel(share, data, threads, 0)` runs share(data) on so many threads, which know their
numbers by `omp_get_thread_num`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

import torch


@cache
def lent() -> int:
    """The address of the record of PyTorch's threads for calls of compiled code; 0 where there are none to lend. In a
    child process that `os.fork` makes OpenMP has none of its parent's threads, and waits for them: there the record
    lends nothing."""
    if not sys.platform.startswith("linux") or not torch.backends.openmp.is_available():
        return 0
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    except (OSError, AttributeError):
        return 0
    functions = (ctypes.c_void_p * len(found))(*found)
    record = (ctypes.c_void_p * 2)(0, ctypes.addressof(functions))

    def forget() -> None:
        record[1] = None

    _kept.append((record, functions))
    os.register_at_fork(after_in_child=forget)
    return ctypes.addressof(record)


_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num")

_kept: list[object] = []
"""What native code has the addresses of."""
