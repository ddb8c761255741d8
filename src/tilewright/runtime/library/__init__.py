"""Programs as shared libraries with a C header: files that run without Python.

`Executable.save_library` writes one; `load` runs one from Python, as any other program would.
"""

from __future__ import annotations

from tilewright.runtime.library.load import Library, load

__all__ = ["Library", "load"]
