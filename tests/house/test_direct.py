"""Long files past the system's cache: the same bytes as by an ordinary write, wherever the bytes lie in memory."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
import pytest

from libraries import linux
from tilewright.store import direct
from tilewright.store.direct import FILE_ALIGNMENT, write_past_cache

pytestmark = linux

START = 3 * FILE_ALIGNMENT
BLOCK = direct._BLOCK
SIZES = (0, 1, 64, 3072, FILE_ALIGNMENT, FILE_ALIGNMENT + 1, direct._WORTH, BLOCK - 64, BLOCK, BLOCK + 5000, 3 * BLOCK)

Write = Callable[[int, memoryview, int], int]


def mapped(path: Path, sizes: Sequence[int], gaps: Sequence[int]) -> list[memoryview]:
    """Views of a mapped file, with so many bytes in front of each."""
    path.write_bytes(random.Random(len(sizes)).randbytes(sum(sizes) + sum(gaps)))
    with path.open("rb") as file:
        whole = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
    made, at = [], 0
    for size, gap in zip(sizes, gaps, strict=True):
        made.append(whole[at + gap : at + gap + size])
        at += gap + size
    return made


def some_parts(seed: int, folder: Path) -> list[bytes | memoryview]:
    choose = random.Random(seed)
    count = choose.randrange(1, 9)
    gaps = [choose.choice((0, 1, 64, 512, 4096)) for _ in range(count)]
    views = mapped(folder / "source", [choose.choice(SIZES) for _ in range(count)], [1, *gaps[1:]])
    return [part for view in views for part in (view, bytes(choose.choice((0, 0, 1, 64))))]


def written(path: Path, parts: Sequence[bytes | memoryview]) -> bytes:
    with path.open("w+b") as file:
        file.write(b"x" * START)
        file.flush()
        assert write_past_cache(file, parts, START)
    content = path.read_bytes()
    assert content[:START] == b"x" * START
    return content[START:]


def noted_writes(monkeypatch: pytest.MonkeyPatch, refuses: Callable[[memoryview], bool]) -> list[memoryview]:
    """What is given to the disk; some of it is refused as by one that takes it from other places only."""
    write, noted = os.pwrite, []

    def pwrite(file: int, data: memoryview, place: int) -> int:
        noted.append(data)
        if refuses(data):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return write(file, data, place)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return noted


@pytest.mark.parametrize("seed", range(16))
def test_parts_follow_one_another(seed: int, tmp_path: Path) -> None:
    parts = some_parts(seed, tmp_path)
    assert written(tmp_path / "x", parts) == b"".join(parts)


def test_what_lies_right_is_taken_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [3072, 2 * BLOCK + FILE_ALIGNMENT, 1024, BLOCK]
    parts = mapped(tmp_path / "source", sizes, [0, 0, 0, 1])
    noted = noted_writes(monkeypatch, lambda _: False)
    assert written(tmp_path / "x", parts) == b"".join(parts)
    large = memoryview(parts[1])
    inside = [data for data in noted if data.obj is large.obj]
    # the first part ends 1 KiB before a block of the file does, which the large one fills; the last does not lie right
    assert [data.nbytes for data in inside] == [BLOCK, BLOCK]
    monkeypatch.undo()
    noted = noted_writes(monkeypatch, lambda data: data.obj is large.obj)
    assert written(tmp_path / "y", parts) == b"".join(parts)
    assert sum(data.obj is large.obj for data in noted) == 2


def test_many_small_parts(tmp_path: Path) -> None:
    parts = [bytes([n % 256]) * (n % 700) for n in range(5000)]
    assert written(tmp_path / "x", parts) == b"".join(parts)


def test_pages_of_mapped_files_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    monkeypatch.setattr(direct, "release", lambda part: released.append(memoryview(part).nbytes))
    sizes = [7, 2 * BLOCK, 100, BLOCK // 2]
    parts = mapped(tmp_path / "source", sizes, [1, 1, 1, 1])
    assert written(tmp_path / "x", parts) == b"".join(parts)
    assert sorted(released) == sorted(sizes)


@pytest.mark.parametrize("lacks", ["the flag", "the file system", "the writes"])
def test_systems_that_cannot(lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacks == "the flag":
        monkeypatch.delattr(os, "O_DIRECT")
    elif lacks == "the writes":
        noted_writes(monkeypatch, lambda _: True)
    else:

        def refuses(*_: object) -> int:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(os, "open", refuses)
    with (tmp_path / "x").open("w+b") as file:
        assert not write_past_cache(file, [bytes(BLOCK)], START)


@pytest.mark.parametrize("first", [True, False])
def test_a_disk_without_room(first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(direct, "reserve", full) if first else monkeypatch.setattr(os, "pwrite", full)
    with (tmp_path / "x").open("w+b") as file, pytest.raises(OSError, match="No space left"):
        write_past_cache(file, [bytes(3 * BLOCK)], START)


def test_an_error_of_any_thread_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        raise MemoryError

    monkeypatch.setattr(direct, "_gathered", broken)
    with (tmp_path / "x").open("w+b") as file, pytest.raises(MemoryError):
        write_past_cache(file, [bytes(3 * BLOCK + 1)], START)
