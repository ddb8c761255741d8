"""`tilewright cache` tells what the store holds, drops what is damaged, and empties it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilewright as tw
from cli_models import invoke, save_affine
from tilewright.store import Store


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    return Store.default()


def test_an_empty_store_is_no_error() -> None:
    assert invoke("cache", "ls").out.splitlines()[0].endswith("0 entries, 0 B of at most 2 GiB")
    assert invoke("cache", "clear").code == invoke("cache", "verify").code == 0


def test_ls_names_models_and_targets(tmp_path: Path, store: Store) -> None:
    model = save_affine(tmp_path)
    tw.compile(model)
    tw.compile(model, target="x86-64-v2")
    used = {entry.key: entry.used for entry in store.entries()}
    shown = invoke("cache", "ls")
    assert "affine.onnx for native" in shown.out and "affine.onnx for x86-64-v2" in shown.out
    record = json.loads(invoke("cache", "ls", "--json").out)
    assert {row["key"] for row in record["entries"]} == set(used)
    assert record["bytes"] == sum(row["bytes"] for row in record["entries"])
    assert {entry.key: entry.used for entry in store.entries()} == used, "a look is no use"


def test_verify_drops_the_damaged_and_says_so(tmp_path: Path, store: Store) -> None:
    tw.compile(save_affine(tmp_path))
    assert invoke("cache", "verify").code == 0
    entry = max(store.entries(), key=lambda e: e.bytes)
    assert store.path is not None
    path = store.path / f"{entry.key}.entry"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    outcome = invoke("cache", "verify", "--json")
    assert outcome.code == 1 and json.loads(outcome.out)["damaged"] == {entry.key: "the checksum differs"}
    assert not path.exists() and invoke("cache", "verify").code == 0


def test_clear_empties_the_store(tmp_path: Path, store: Store) -> None:
    tw.compile(save_affine(tmp_path))
    count = len(store.entries())
    assert json.loads(invoke("cache", "clear", "--json").out)["dropped"] == count > 0
    assert not store.entries()


def test_without_a_store_there_is_nothing_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    outcome = invoke("cache", "ls")
    assert outcome.code == 2 and outcome.err.startswith("there is no store\n")


def test_an_unknown_action_lists_those_there_are() -> None:
    outcome = invoke("cache", "empty")
    assert outcome.code == 2 and "'ls', 'verify', 'clear'" in outcome.err
