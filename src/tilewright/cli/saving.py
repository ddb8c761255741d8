"""Writing arrays to a .npz file: all of it or nothing, with what was there before left as it was on any failure."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.report.errors import UserError

Array = np.ndarray[Any, Any]


def check_place(path: str) -> Path:
    """The path, if a file can be written there; asked before the work whose result it shall hold."""
    place = Path(path)
    why = None
    if place.suffix != ".npz":
        why = "numpy.load tells such a file by its name, which ends in .npz"
    elif place.is_dir():
        why = "it is a directory"
    elif not place.parent.is_dir():
        why = f"there is no directory {place.parent}"
    elif not os.access(place.parent, os.W_OK | os.X_OK):
        why = f"you may not write into the directory {place.parent}"
    if why is not None:
        raise UserError(
            f"cannot write {path}", where=f"--save-output {path}", why=why, mend="write --save-output out.npz"
        )
    return place


def save(place: Path, arrays: Mapping[str, Array]) -> None:
    """Writes the arrays under their names, as numpy.savez does: into a new file, which is renamed when complete."""
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            _write(file, arrays)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_mask())
        os.replace(temporary, place)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise UserError(f"cannot write {place}", why=error.strerror or str(error)) from None
        raise


def _write(file: Any, arrays: Mapping[str, Array]) -> None:
    """A zip file with one .npy member an array; numpy.savez itself cannot take an array named `file`."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def _mask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
