"""Long files: the same bytes as by an ordinary write, in calls that end where a large page of the file does."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.store import blocks
from tilewright.store.blocks import LARGE_PAGE, write_parts

SIZES = (0, 1, 4095, 4096, LARGE_PAGE - 1, LARGE_PAGE, LARGE_PAGE + 1, 3 * LARGE_PAGE + 17)


def written(path: Path, parts: Sequence[bytes | memoryview]) -> bytes:
    with path.open("w+b") as file:
        write_parts(file, parts)
        assert file.tell() == sum(memoryview(part).nbytes for part in parts)
    return path.read_bytes()


def some_parts(seed: int) -> list[bytes]:
    choose = random.Random(seed)
    return [choose.randbytes(choose.choice(SIZES)) for _ in range(choose.randrange(1, 9))]


@pytest.mark.parametrize("seed", range(12))
def test_parts_follow_one_another(seed: int, tmp_path: Path) -> None:
    parts = some_parts(seed)
    assert written(tmp_path / "x", parts) == b"".join(parts)


@pytest.mark.parametrize("seed", range(12))
def test_parts_that_are_there_already(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay where they are, and are written where they are elsewhere."""
    choose, parts = random.Random(seed), some_parts(seed)
    starts = [sum(map(len, parts[:n])) for n in range(len(parts))]
    there = {n for n, part in enumerate(parts) if part and choose.random() < 0.5}
    moved = {n for n in there if choose.random() < 0.3}
    with (tmp_path / "x").open("w+b") as file:
        for n in there - moved:
            write_parts(file, [parts[n]], starts[n])
        write, count = os.pwritev, [0]

        def counted(file: int, views: list[memoryview], at: int) -> int:
            count[0] += sum(map(len, views))
            return write(file, views, at)

        monkeypatch.setattr(os, "pwritev", counted)
        write_parts(file, parts, 0, {id(parts[n]): starts[n] + (n in moved) for n in there})
        assert count[0] == sum(len(part) for n, part in enumerate(parts) if n not in there - moved)
        assert file.tell() == sum(map(len, parts))
    assert (tmp_path / "x").read_bytes() == b"".join(parts)


def test_many_small_parts(tmp_path: Path) -> None:
    parts = [bytes([n % 256]) * (n % 7) for n in range(5000)]
    assert written(tmp_path / "x", parts) == b"".join(parts)


def test_calls_that_write_less_than_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, choose = os.pwritev, random.Random(1)

    def less(file: int, views: list[memoryview], at: int) -> int:
        return write(file, [views[0][: choose.randrange(1, 1 << 20)]], at)

    monkeypatch.setattr(os, "pwritev", less)
    parts = some_parts(3)
    assert written(tmp_path / "x", parts) == b"".join(parts)


def test_calls_end_with_large_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, ends = os.pwritev, []

    def noted(file: int, views: list[memoryview], at: int) -> int:
        ends.append(at + sum(map(len, views)))
        return write(file, views, at)

    monkeypatch.setattr(os, "pwritev", noted)
    parts = [bytes(100), bytes(5 * LARGE_PAGE), bytes(300)]
    written(tmp_path / "x", parts)
    assert ends == [*(n * LARGE_PAGE for n in range(1, 6)), 5 * LARGE_PAGE + 400]


def test_pages_of_mapped_files_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = random.Random(0).randbytes(5 * LARGE_PAGE)
    (tmp_path / "source").write_bytes(content)
    with (tmp_path / "source").open("rb") as file:
        mapped = np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), np.uint8)
    released: list[int] = []
    monkeypatch.setattr(blocks, "release", lambda part: released.append(memoryview(part).nbytes))
    parts = [mapped[:7].data, mapped[7 : 4 * LARGE_PAGE].data, mapped[4 * LARGE_PAGE :].data]
    assert written(tmp_path / "x", parts) == content
    assert released == [part.nbytes for part in parts]


def test_a_system_without_these_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = some_parts(5)
    monkeypatch.setattr(blocks, "_system", lambda: object())
    assert written(tmp_path / "x", parts) == b"".join(parts)
    monkeypatch.delattr(os, "pwritev")
    assert written(tmp_path / "y", parts) == b"".join(parts)


@pytest.mark.parametrize(("number", "refused"), [(errno.ENOSPC, True), (errno.EOPNOTSUPP, False)])
def test_a_disk_without_room(number: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class System:
        def fallocate(self, *_: Any) -> int:
            return -1

    monkeypatch.setattr(blocks, "_system", System)
    monkeypatch.setattr("ctypes.get_errno", lambda: number)
    parts = [bytes(LARGE_PAGE), b"x"]
    if refused:
        with pytest.raises(OSError, match=os.strerror(number)):
            written(tmp_path / "x", parts)
    else:
        assert written(tmp_path / "x", parts) == b"".join(parts)
