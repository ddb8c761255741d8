"""Writes requested files: complete, or, on any failure, leaving what was there before."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tilewright.artifact.stored import files_with_weights
from tilewright.cli.feeds import files_given
from tilewright.report.errors import UserError
from tilewright.runtime.file import is_compiled
from tilewright.store.files import find_obstacle, replace_file

Array = np.ndarray[Any, Any]


def place_for(path: str, option: str, model: str = "", inputs: Sequence[str] = (), ending: str = "") -> Path:
    """The place that an option gives for what is made of a model, if of one, and of the inputs that `--input` gives, if
    a file can be written there; asked before the work whose result it shall hold. Arrays go to a file of the `ending`
    that numpy.load looks for."""
    place = Path(path)
    sources = (model, *files_given(inputs)) if model else ()
    why = f"numpy.load tells such a file by its name, which ends in {ending}"
    obstacle = find_obstacle(place, sources) if not ending or place.suffix == ending else why
    if obstacle is None and model and os.path.lexists(place) and not is_compiled(model):
        obstacle = find_obstacle(place, files_with_weights(model))
    if obstacle is not None:
        fix = f"write {option} out{ending}" if ending else "give a fresh name in a directory of yours"
        raise UserError(f"cannot write {path}", where=f"{option} {path}", why=obstacle, fix=fix)
    return place


def save_text(place: Path, text: str) -> None:
    """Writes text, as UTF-8."""

    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    replace_file(place, write)


def save(place: Path, arrays: Mapping[str, Array]) -> None:
    """Writes the arrays under their names, as numpy.savez does."""
    replace_file(place, lambda file: _write(file, arrays))


def _write(file: Any, arrays: Mapping[str, Array]) -> None:
    """A zip file with one .npy member an array; numpy.savez itself cannot take an array named `file`. Of types that
    NumPy itself lacks the bytes are written."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                known = np.asanyarray(array)
                written = known if known.dtype.isbuiltin == 1 else known.view(f"V{known.dtype.itemsize}")
                np.lib.format.write_array(member, written, allow_pickle=False)
