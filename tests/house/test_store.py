"""The store gives back what was put or nothing, whatever happens to its files; containers survive any bytes."""

from __future__ import annotations

import errno
import multiprocessing
import os
import struct
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.report.errors import InternalError
from tilewright.store import Damaged, Store, StoreWarning, default_path, digest, pack, unpack
from tilewright.store import store as store_module
from tilewright.store.frame import FRAME_SIZE

A, B, C, D = (digest(name=name) for name in "abcd")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield Store(tmp_path / "store")


def file_of(store: Store, key: str) -> Path:
    assert store.path is not None
    return store.path / f"{key}.entry"


# --- keys ---------------------------------------------------------------------------------------------------------


def test_a_key_depends_on_labels_kinds_and_contents_and_not_on_order() -> None:
    keys = [
        digest(a="1"),
        digest(a=1),
        digest(a=b"1"),
        digest(b="1"),
        digest(a="1", b=""),
        digest(a="", b="1"),
        digest(a="", b=""),
        digest(ab=""),
        digest(),
    ]
    assert len(set(keys)) == len(keys)
    assert digest(a="x", b=b"y") == digest(b=memoryview(b"y"), a="x")
    assert digest(a=memoryview(np.arange(4, dtype=np.int32))) == digest(a=np.arange(4, dtype=np.int32).tobytes())


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 65, "a" * 63 + "/"])
def test_what_is_not_a_key_never_reaches_the_disk(store: Store, key: str) -> None:
    for use in (store.get, store.map, lambda key: store.put(key, b"")):
        with pytest.raises(InternalError, match="is not a key"):
            use(key)


# --- round trips and damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)) * 5000], ids=len)
def test_what_was_put_comes_back_copied_and_mapped(store: Store, payload: bytes) -> None:
    assert store.get(A) is None
    assert store.map(A) is None
    assert store.put(A, payload)
    assert Store(store.path).get(A) == payload
    view = store.map(A)
    assert view == payload
    assert view.readonly
    assert store.put(A, b"other")
    assert store.get(A) == b"other"
    assert view == payload, "a mapping outlives the entry it was made from"


def test_a_mapped_payload_is_aligned(store: Store) -> None:
    store.put(A, np.arange(1000, dtype=np.float32).data)
    mapped = np.frombuffer(store.map(A), np.float32)
    assert mapped.ctypes.data % 64 == 0
    assert mapped.tolist() == list(range(1000))


@pytest.mark.parametrize("read", ["get", "map"])
def test_any_altered_byte_makes_the_entry_vanish(store: Store, read: str) -> None:
    payload = bytes(range(40))
    store.put(A, payload)
    path = file_of(store, A)
    sound = path.read_bytes()
    assert len(sound) == FRAME_SIZE + len(payload)
    for place in range(len(sound)):
        altered = bytearray(sound)
        altered[place] ^= 1 << (place % 8)
        path.write_bytes(altered)
        assert getattr(store, read)(A) is None, f"byte {place}"
        assert not path.exists()


def test_a_file_cut_short_or_grown_makes_the_entry_vanish(store: Store) -> None:
    store.put(A, bytes(range(40)))
    path = file_of(store, A)
    sound = path.read_bytes()
    for content in [*(sound[:size] for size in range(len(sound))), sound + b"\0"]:
        path.write_bytes(content)
        assert store.get(A) is None
        path.write_bytes(content)
        assert store.map(A) is None


def test_an_entry_under_another_name_is_not_believed(store: Store) -> None:
    store.put(A, b"code for a")
    file_of(store, A).rename(file_of(store, B))
    assert store.get(B) is None


def test_a_folder_in_an_entrys_place_counts_as_none(store: Store) -> None:
    store.put(A, b"")
    file_of(store, B).mkdir()
    assert store.get(B) is None
    assert store.map(B) is None


def test_verify_reports_and_drops_damage_only(store: Store) -> None:
    for key in (A, B, C):
        store.put(key, b"payload")
    with file_of(store, B).open("r+b") as file:
        file.seek(FRAME_SIZE)
        file.write(b"P")
    verdict = store.verify()
    assert verdict.checked == 3
    assert verdict.damaged == {B: "the checksum differs"}
    assert {entry.key for entry in store.entries()} == {A, C}
    assert store.verify().damaged == {}


def test_clear_drops_entries_and_leaves_other_files(store: Store) -> None:
    store.put(A, b"1")
    store.put(B, b"2")
    foreign = file_of(store, A).with_name("notes.txt")
    foreign.write_text("mine")
    assert store.clear() == 2
    assert store.entries() == ()
    assert foreign.read_text() == "mine"


# --- size ---------------------------------------------------------------------------------------------------------


def age(store: Store, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file_of(store, key), (then, then))


@pytest.mark.parametrize("read", ["get", "map"])
def test_the_least_recently_used_entries_make_room(tmp_path: Path, read: str) -> None:
    size = FRAME_SIZE + 100
    store = Store(tmp_path / "store", limit_bytes=3 * size)
    for key, seconds in ((A, 300), (B, 200), (C, 100)):
        store.put(key, bytes(100))
        age(store, key, seconds)
    assert [entry.key for entry in store.entries()] == [A, B, C]
    getattr(store, read)(A)
    assert [entry.key for entry in store.entries()] == [B, C, A]
    assert store.put(D, bytes(100))
    assert [entry.key for entry in store.entries()] == [C, A, D]
    assert store.put(B, bytes(101))
    assert [entry.key for entry in store.entries()] == [D, B]


def test_replacing_an_entry_evicts_no_other(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", limit_bytes=2 * (FRAME_SIZE + 100))
    for payload in (bytes(100), bytes(99), bytes(100)):
        store.put(A, payload)
        store.put(B, payload)
    assert {entry.key for entry in store.entries()} == {A, B}


def test_a_payload_over_the_limit_is_not_kept_and_evicts_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", limit_bytes=FRAME_SIZE + 100)
    assert store.put(A, bytes(100))
    assert not store.put(B, bytes(101))
    assert store.get(A) == bytes(100)


def test_part_files_of_dead_writers_are_swept_and_those_of_living_ones_kept(store: Store) -> None:
    store.put(A, b"")
    old = file_of(store, B).with_name(f"{B}.dead.part")
    young = file_of(store, B).with_name(f"{B}.alive.part")
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.put(C, b"")
    assert not old.exists()
    assert young.exists()
    assert {entry.key for entry in store.entries()} == {A, C}


# --- other processes ----------------------------------------------------------------------------------------------

KEYS = [digest(number=number) for number in range(6)]


def _work(path: str, seed: int) -> None:
    """Put, read and evict at random; exit code 1 when a read gives anything but a whole payload or nothing."""
    rng = np.random.default_rng(seed)
    store = Store(path, limit_bytes=4 * 5000)
    for _ in range(150):
        number = int(rng.integers(len(KEYS)))
        if rng.random() < 0.4:
            store.put(KEYS[number], bytes([number]) * 4000)
        got = store.get(KEYS[number]) if rng.random() < 0.5 else store.map(KEYS[number])
        if got is not None and got != bytes([number]) * 4000:
            os._exit(1)
    os._exit(0)


def test_processes_share_a_store(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_work, args=(str(tmp_path / "store"), seed)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    store = Store(tmp_path / "store")
    assert len(store.entries()) > 0
    assert store.verify().damaged == {}
    assert not list((tmp_path / "store").glob("*.part"))


# --- a disk that refuses ------------------------------------------------------------------------------------------


def test_a_place_that_cannot_be_a_folder_means_no_store_and_one_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for path in (blocked, blocked / "below"):
        with pytest.warns(StoreWarning, match="not kept"):
            kept = Store(path).put(A, b"1")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store = Store(path)
            assert (kept, store.put(A, b"1"), store.get(A), store.entries()) == (False, False, None, ())


def test_a_full_disk_keeps_old_entries_readable_and_leaves_no_part(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(A, b"1")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(StoreWarning, match="No space left"):
        assert not store.put(B, b"2")
    assert not store.put(B, b"2")
    assert store.get(A) == b"1"
    assert os.listdir(store.path) == [f"{A}.entry"]


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    Store(open_folder).put(A, b"planted")
    open_folder.chmod(0o777)
    store = Store(open_folder)
    with pytest.warns(StoreWarning, match="everyone may write"):
        got = store.get(A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (got, store.map(A), store.put(B, b""), Store(open_folder).get(A)) == (None, None, False, None)


def test_a_folder_of_another_user_is_not_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(A, b"1")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(store_module, "_warned", set())
    status = os.stat(store.path)
    if status.st_uid == 0:  # the system's own folders are trusted by everyone
        assert Store(store.path).get(A) == b"1"
    else:
        with pytest.warns(StoreWarning, match=f"user {status.st_uid}"):
            assert Store(store.path).get(A) is None


def test_the_folder_is_made_for_its_owner_alone(store: Store) -> None:
    store.put(A, b"")
    assert os.stat(store.path).st_mode & 0o777 == 0o700
    assert os.stat(file_of(store, A)).st_mode & 0o777 == 0o600


def test_a_folder_that_vanishes_is_made_again(store: Store) -> None:
    store.put(A, b"1")
    store.clear()
    os.rmdir(store.path)
    assert store.get(A) is None
    assert store.put(A, b"2")
    assert store.get(A) == b"2"


# --- where --------------------------------------------------------------------------------------------------------


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "here"))
    assert default_path() == tmp_path / "here"
    monkeypatch.delenv("TILEWRIGHT_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "tilewright"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_path() is not None
    assert default_path().is_absolute()


def test_off_means_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    store = Store.default()
    assert store.path is None
    assert not store.put(A, b"1")
    assert store.get(A) is None
    assert store.map(A) is None
    assert (store.entries(), store.verify().checked, store.clear()) == ((), 0, 0)


# --- the container ------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MANIFESTS = st.dictionaries(st.text(), JSON, max_size=4)
BLOBS = st.dictionaries(st.text(), st.binary(max_size=200), max_size=4)


@given(MANIFESTS, BLOBS)
def test_a_container_gives_back_what_was_packed(manifest: dict[str, object], blobs: dict[str, bytes]) -> None:
    data = pack(manifest, blobs)
    got, views = unpack(data)
    assert got == manifest
    assert {name: bytes(view) for name, view in views.items()} == blobs
    assert list(views) == list(blobs)
    assert pack(got, views) == data
    whole = np.frombuffer(data, np.uint8).ctypes.data
    for view in views.values():
        if len(view):
            assert (np.frombuffer(view, np.uint8).ctypes.data - whole) % 64 == 0


@given(MANIFESTS, BLOBS, st.data())
def test_a_container_cut_or_grown_is_damaged(manifest: dict[str, object], blobs: dict[str, bytes], data: st.DataObject):
    sound = pack(manifest, blobs)
    size = data.draw(st.integers(0, len(sound) - 1))
    for wrong in (sound[:size], sound + bytes(data.draw(st.integers(1, 70)))):
        with pytest.raises(Damaged):
            unpack(wrong)


@settings(max_examples=300)
@given(MANIFESTS, BLOBS, st.data())
def test_altered_containers_are_read_within_bounds_or_damaged(
    manifest: dict[str, object], blobs: dict[str, bytes], data: st.DataObject
) -> None:
    altered = bytearray(pack(manifest, blobs))
    for _ in range(data.draw(st.integers(1, 3))):
        altered[data.draw(st.integers(0, len(altered) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, views = unpack(bytes(altered))
    except Damaged:
        return
    assert sum(len(view) for view in views.values()) <= len(altered) - 32


def container(text: bytes, rest: bytes = b"") -> bytes:
    """A container with a sound header around this JSON text and these bytes."""
    return struct.pack("<8sIIQQ", b"TWRIGHT\0", 1, 0, len(text), 32 + len(text) + len(rest)) + text + rest


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes are fewer than the header's 32"),
        (bytes(32), "it starts with"),
        (container(b""), "does not parse"),
        (container(b"\xff"), "does not parse"),
        (container(b"[" * 100_000), "does not parse"),
        (container(b"9" * 5000), "does not parse"),
        (container(b'{"manifest":{},"manifest":{},"blobs":[]}'), "an object has a name twice"),
        (container(b'{"manifest":{"x":NaN},"blobs":[]}'), "NaN is not JSON"),
        (container(b"[]"), "not an object of blobs and manifest"),
        (container(b'{"manifest":{}}'), "not an object of blobs and manifest"),
        (container(b'{"manifest":[],"blobs":[]}'), "its manifest is not an object"),
        (container(b'{"manifest":{},"blobs":{}}'), "its blobs are not a list"),
        (container(b'{"manifest":{},"blobs":[["a",true]]}'), "a blob's row is ['a', True]"),
        (container(b'{"manifest":{},"blobs":[["a",-1]]}'), "a blob's row is ['a', -1]"),
        (container(b'{"manifest":{},"blobs":[["a",1.0]]}'), "a blob's row is ['a', 1.0]"),
        (container(b'{"manifest":{},"blobs":[["a"]]}'), "a blob's row is ['a']"),
        (container(b'{"manifest":{},"blobs":[["a",99999999999999999999]]}'), "blob 'a' needs 99999999999999999999"),
        (container(b'{"manifest":{},"blobs":[["a",0]]}'), "blob 'a' needs 0 bytes from 128 on, and the end is at 65"),
        (container(b'{"manifest":{},"blobs":[]}', b"x"), "1 bytes follow the last blob"),
        (container(b'{"manifest":{},"blobs":[["a",1]]}'.ljust(96), b"xy"), "1 bytes follow the last blob"),
        (container(b'{"manifest":{},"blobs":[["a",1]]}'.ljust(95), b"xy"), "the bytes before blob 'a' are not zero"),
        (container(b'{"manifest":{},"blobs":[["a",0],["a",0]]}'.ljust(96)), "blob 'a' appears twice"),
    ],
    ids=range(22),
)
def test_hostile_containers(data: bytes, why: str) -> None:
    with pytest.raises(Damaged) as fault:
        unpack(data)
    assert why in fault.value.why


def test_what_json_cannot_say_is_refused_when_packing() -> None:
    with pytest.raises(ValueError):
        pack({"x": float("nan")}, {})
    with pytest.raises(TypeError):
        pack({"x": object()}, {})  # type: ignore[dict-item]
