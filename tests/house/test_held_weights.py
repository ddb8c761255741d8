"""Weights are held once: what compiling makes of them goes to files, and executables read what the store has."""

from __future__ import annotations

import errno
import math
import mmap
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from cli_models import save_product
from tilewright.compiler import constants
from tilewright.compiler.constants import put_down_made
from tilewright.runtime.executable import Executable
from tilewright.store import Store, digest, parts_of
from tilewright.store.frame import FRAME_SIZE
from tilewright.store.pages import SPILL_START, Spill, release, rounded, spilled, trim

WIDTH = 64
FEEDS = {"x": np.linspace(-1, 1, WIDTH, dtype=np.float32).reshape(1, WIDTH)}
KEY, OTHER = digest(name="a"), digest(name="b")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    return Store.default()


# Executables


def files_behind(exe: Executable) -> set[str]:
    """The inodes of the files that an executable's constants lie in; "0" is memory of the process."""
    found = set()
    # by newlines alone: the name of a file may hold other ends of lines
    rows = Path("/proc/self/maps").read_bytes().split(b"\n")[:-1]
    spans = [row.decode("utf-8", "replace").split(maxsplit=5) for row in rows]
    for array in exe.program.constants:
        for span, _, _, _, inode, *_ in spans:
            begin, end = (int(part, 16) for part in span.split("-"))
            if begin <= array.ctypes.data < end:
                found.add(inode)
    return found


def test_what_was_just_compiled_reads_the_entry_like_what_is_found_later(tmp_path: Path, store: Store) -> None:
    model = save_product(tmp_path, WIDTH)
    compiled, found = tw.compile(model), tw.compile(model)
    assert (compiled.cached, found.cached) == (False, True)
    entries = {str(path.stat().st_ino) for path in (tmp_path / "store").glob("*.entry")}
    assert files_behind(compiled) == files_behind(found)
    assert files_behind(found) <= entries and files_behind(found)
    (first,), (second,) = compiled.run(FEEDS).values(), found.run(FEEDS).values()
    assert np.array_equal(first, second)


def test_without_a_store_weights_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    monkeypatch.setattr(constants, "SPILLED_BYTES", 0)
    model = save_product(tmp_path, WIDTH)
    exe = tw.compile(model)
    assert not (tmp_path / "store").exists()
    assert files_behind(exe) == {"0"} and np.isfinite(next(iter(exe.run(FEEDS).values()))).all()


def test_packed_weights_of_a_large_model_lie_in_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32)
    text = f"""
graph main(x: f32[1, {WIDTH}]) -> y:
  w: f32[{WIDTH}, {WIDTH}] = constant(name=@w)
  y: f32[1, {WIDTH}] = contract(x, w, spec="ik,kj->ij")
"""
    product = tw.parse(text)
    assert isinstance(product, tw.GraphFunction)
    module = tw.Module({"main": product}, {"w": weights}, "main")
    plain = tw.compile(module)
    monkeypatch.setattr(constants, "SPILLED_BYTES", 1)
    spilled = tw.compile(module)
    assert files_behind(plain) == {"0"} != files_behind(spilled)
    assert list((tmp_path / "store").iterdir()) == []
    assert np.array_equal(plain(*FEEDS.values())[0], spilled(*FEEDS.values())[0])
    assert spilled.program.code == plain.program.code


def test_only_what_passes_made_is_put_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "SPILLED_BYTES", 1)
    given, made = np.arange(12.0), np.arange(5.0)
    before = tw.Module({}, {"a": given}, "main")
    after = put_down_made(before.with_constants({"a": given.reshape(3, 4), "b": made}), before)
    assert np.shares_memory(after.constants["a"], given)
    assert not np.shares_memory(after.constants["b"], made) and np.array_equal(after.constants["b"], made)


# The store


def test_what_is_put_is_mapped_at_once(store: Store) -> None:
    mapped = store.put_mapped(KEY, b"one", b"two")
    assert mapped == b"onetwo" == store.map(KEY) and mapped.readonly
    store.clear()
    assert mapped == b"onetwo"
    assert Store(None).put_mapped(KEY, b"one") is None


def test_a_spill_keeps_arrays_of_many_threads_and_leaves_nothing_behind(tmp_path: Path, store: Store) -> None:
    arrays = [np.full((n % 7, 300), n, np.int32) for n in range(40)]
    spill = store.spill(sum(max(array.nbytes, 1) + mmap.PAGESIZE for array in arrays))
    assert spill is not None
    with spill, ThreadPoolExecutor(8) as threads:
        kept = list(threads.map(spill.keep, arrays))
    for array, other in zip(arrays, kept, strict=True):
        assert np.array_equal(array, other) and array.dtype == other.dtype
        assert not array.size or not (other.flags.writeable or np.shares_memory(array, other))
    assert list((tmp_path / "store").iterdir()) == []
    assert Store(None).spill(8) is None


@pytest.mark.parametrize("shape", [(3, 700, 301), (1, 2, 1 << 20), (5, 1), (600_000, 2)])
def test_a_spill_keeps_views_in_row_major_order(store: Store, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    views = [array.T, array[::-1], array[..., ::2], np.broadcast_to(array, (2, *shape))]
    spill = store.spill(sum(view.nbytes + mmap.PAGESIZE for view in views))
    assert spill is not None
    with spill:
        for view in views:
            kept = spill.keep(view)
            assert kept is not view and kept.flags.c_contiguous and np.array_equal(kept, view)


def spilled_arrays(store: Store, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    spill = store.spill(sum(rounded(array.nbytes) for array in arrays))
    assert spill is not None
    with spill:
        return [spill.keep(array) for array in arrays]


def inode(store: Store, key: str) -> int:
    assert store.path is not None
    return (store.path / f"{key}.entry").stat().st_ino


@pytest.mark.parametrize("text", [0, SPILL_START])
def test_an_entry_is_made_of_the_file_that_holds_its_constants(store: Store, text: int) -> None:
    """Not where what the entry says of itself is longer than the room in front of them."""
    arrays = [np.arange(n, dtype=np.int32) for n in (1000, 3, 50_000)]
    kept = spilled_arrays(store, arrays)
    (held, _), *places = (found for array in kept if (found := spilled(array)))
    assert held.file is not None
    number = os.fstat(held.file.fileno()).st_ino
    blobs = {str(n): memoryview(array.view(np.uint8)) for n, array in enumerate(kept)}
    assert [place for _, place in places] == [SPILL_START + 4032, SPILL_START + 4032 + 64]
    parts = parts_of({"text": " " * text}, {**blobs, "code": b"code"}, SPILL_START - FRAME_SIZE)
    mapped = store.put_mapped(KEY, *parts)
    assert mapped is not None
    assert mapped == b"".join(parts) == store.get(KEY)
    assert (inode(store, KEY) == number) is (text == 0)
    again = store.put_mapped(OTHER, *parts)
    assert again == mapped
    assert inode(store, OTHER) != inode(store, KEY)
    assert not store.verify().damaged
    assert all(np.array_equal(a, b) for a, b in zip(arrays, kept, strict=True))


def test_constants_that_are_not_in_place_are_written(store: Store) -> None:
    kept = spilled_arrays(store, [np.arange(1000), np.ones(1000)])
    parts = [memoryview(array.view(np.uint8)) for array in reversed(kept)]
    assert store.put_mapped(KEY, *parts) == b"".join(parts) == store.get(KEY)


def test_a_spill_without_room_leaves_arrays_as_they_are(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = store.spill(8192)
    assert spill is not None
    large, small = np.zeros(2000), np.zeros(2)
    assert spill.keep(large) is large

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    with spill:
        assert spill.keep(small) is small


def resident(kind: str) -> int:
    """The bytes of the process that are in memory, of files ("RssFile") or its own ("RssAnon")."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))


def test_released_pages_leave_memory_and_come_back(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 16 << 20
    np.arange(size // 8).tofile(path)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = np.frombuffer(mapped, np.int64)
    total = int(whole.sum())
    before = resident("RssFile")
    release(whole[: size // 16])
    half = resident("RssFile")
    release(memoryview(mapped))
    after = resident("RssFile")
    assert before - half > size // 3 and half - after > size // 3
    assert int(whole.sum()) == total


def test_what_is_not_only_read_is_never_released(tmp_path: Path) -> None:
    """A private copy of a page has no other place, and so has memory of the process."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    with path.open("rb") as file:
        private = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    own = np.zeros(1 << 20, np.uint8)
    for array in (private, own):
        array[:] = 7
        release(array)
        assert (array == 7).all()


def test_a_spill_needs_a_file_of_that_size(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file, pytest.raises((OSError, ValueError)):
        Spill(file, 1 << 62)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    """Small blocks lie in a heap of the thread; one that stays at its end keeps the allocator from giving any back."""

    def work() -> np.ndarray:
        blocks = [np.ones(60_000, np.uint8) for _ in range(400)]
        return blocks[-1]

    with ThreadPoolExecutor(1) as thread:
        kept = thread.submit(work).result()
        before = resident("RssAnon")
        trim()
        assert before - resident("RssAnon") > 400 * 60_000 // 2
        assert kept.all()
