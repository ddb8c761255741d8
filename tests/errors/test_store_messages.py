"""What is said when the store cannot be used, or a container is none: the whole message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.store import Damaged, Store, StoreWarning, digest, pack, unpack


def test_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.warns(StoreWarning) as shown:
        Store(blocked / "store").put(digest(), b"")
    assert (
        str(shown[0].message)
        == f"""\
compiled code is not kept in {blocked / "store"}
why:  Not a directory
fix:  set TILEWRIGHT_STORE to a folder you may write, or to off"""
    )


def test_a_store_that_everyone_may_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.warns(StoreWarning) as shown:
        Store(tmp_path).get(digest())
    assert (
        str(shown[0].message)
        == f"""\
compiled code is not kept in {tmp_path}
why:  everyone may write to it, and so put code into it
fix:  chown and chmod 700 {tmp_path}, or set TILEWRIGHT_STORE to a folder of your own"""
    )


def test_a_container_cut_short() -> None:
    with pytest.raises(Damaged) as fault:
        unpack(pack({"a": 1}, {"b": b"123"})[:-1])
    assert (
        str(fault.value)
        == """\
these bytes are not a container of this compiler
why:  it should have 131 bytes and has 130
fix:  delete the file they came from and make it again"""
    )
