"""The bytes that a process has allocated, counted to the byte: what becomes resident is rounded by the system, by pages
and by some hundred KiB where it counts them for each core.

    with counted() as variables:                     for processes that begin with these in their environment
        subprocess.run([sys.executable, …], env={**os.environ, **variables})

    with Peak() as peak: …                           in such a process
    peak.bytes
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


@contextmanager
def counted() -> Iterator[dict[str, str]]:
    """The environment of processes that count. It needs a C compiler, and a system that loads ELF; raises
    CalledProcessError or FileNotFoundError where it has none."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        library = Path(folder) / "allocated.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
        yield {"LD_PRELOAD": str(library)}


class Peak:
    """Within it, the most `bytes` that were allocated beyond those before. AttributeError in a process that does not
    count."""

    bytes: int = 0

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._now, self._most = library.allocated_now, library.allocated_most
        self._now.restype = self._most.restype = ctypes.c_long
        self._before = 0

    def __enter__(self) -> Peak:
        self._most()
        self._before = self._now()
        return self

    def __exit__(self, *error: object) -> None:
        self.bytes = self._most() - self._before
