"""Writing arrays to a .npz file: all of it or nothing, with what was there before left as it was on any failure."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.report.errors import UserError
from tilewright.store.files import find_obstacle, replace_file

Array = np.ndarray[Any, Any]


def check_place(path: str) -> Path:
    """The path, if a file can be written there; asked before the work whose result it shall hold."""
    place = Path(path)
    named = place.suffix == ".npz"
    why = find_obstacle(place) if named else "numpy.load tells such a file by its name, which ends in .npz"
    if why is not None:
        raise UserError(
            f"cannot write {path}", where=f"--save-output {path}", why=why, mend="write --save-output out.npz"
        )
    return place


def save(place: Path, arrays: Mapping[str, Array]) -> None:
    """Writes the arrays under their names, as numpy.savez does: into a new file, which is renamed when complete."""
    replace_file(place, lambda file: _write(file, arrays))


def _write(file: Any, arrays: Mapping[str, Array]) -> None:
    """A zip file with one .npy member an array; numpy.savez itself cannot take an array named `file`."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
