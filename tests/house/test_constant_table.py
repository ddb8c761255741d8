"""Constants lie where compiled code loads them fastest; what is large, or mapped and in place, stays where it is."""

from __future__ import annotations

import ctypes
import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.constant_table import BEHIND, MOST_COPIED, ConstantTable, placed
from tilewright.store.pages import mapping_of
from tilewright.types.room import LINE, PAGE, at_line

Array = np.ndarray[Any, Any]


def lying(size: int, behind: int) -> Array:
    """So many bytes that begin `behind` the start of a page."""
    made = at_line((size,), np.dtype(np.uint8), behind, PAGE)
    made[...] = np.arange(size) % 251
    return made


def mapped(tmp_path: Path, size: int, behind: int) -> Array:
    """The same in a mapped file."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(behind) + lying(size, 0).tobytes())
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(content, np.uint8, size, behind)


@pytest.mark.parametrize("behind", [1, 4, 16, LINE, BEHIND + LINE])
@pytest.mark.parametrize("size", [1, 100, PAGE - 1, PAGE, 9 * PAGE, MOST_COPIED])
def test_constants_in_memory_are_copied_to_their_places(size: int, behind: int) -> None:
    array = lying(size, behind)
    made = placed(array)
    assert np.array_equal(made, array)
    wanted = (BEHIND, PAGE) if size >= PAGE else (0, LINE)
    assert made.ctypes.data % wanted[1] == wanted[0]
    assert placed(made) is made


def test_large_constants_stay() -> None:
    array = lying(MOST_COPIED + 1, 1)
    assert placed(array) is array
    turned = lying(MOST_COPIED + 2, 1).reshape(2, -1).T
    made = placed(turned)
    assert made.flags.c_contiguous and np.array_equal(made, turned)


@pytest.mark.parametrize("size", [100, 3 * PAGE])
def test_what_is_mapped_stays_where_it_begins_at_a_line(tmp_path: Path, size: int) -> None:
    array = mapped(tmp_path, size, LINE)
    assert mapping_of(array) is not None
    assert placed(array) is array
    made = placed(mapped(tmp_path, size, LINE + 1))
    assert mapping_of(made) is None and made.ctypes.data % LINE == 0


def test_a_table_holds_what_it_refers_to() -> None:
    arrays = [lying(100, 3), lying(PAGE, 5), np.array(2.5, np.float32)]
    table = ConstantTable(arrays)
    places = (ctypes.c_void_p * len(arrays)).from_address(table.address)
    for place, array in zip(places, arrays, strict=True):
        assert place is not None and ctypes.string_at(place, array.nbytes) == array.tobytes()
    assert ConstantTable([]).address


def test_programs_read_the_copies() -> None:
    """Of a model in memory, and of a pickled one."""
    weights = lying(4 * 1200, 4).view(np.float32)
    weights[...] = np.arange(1200)
    graph = tw.parse("graph main(x: f32[1200]) -> y:\n  w: f32[1200] = constant(name=@w)\n  y: f32[1200] = add(x, w)")
    exe = tw.compile(tw.Module({"main": graph}, {"w": weights}, "main"), threads=1)
    for one in (exe, pickle.loads(pickle.dumps(exe))):
        (constant,) = one._constants._held
        assert constant.ctypes.data % PAGE == BEHIND
        assert np.array_equal(one(np.ones(1200, np.float32))[0], weights + 1)
