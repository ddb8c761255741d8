"""External data that could lead out of the model's folder or past a file's end: refused with one whole message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import FIX_EXISTS, FIX_INLINE, FIX_SAVE, about_tensor, external, folder, message, read_all, refusal

from tilewright.frontends.build.names import clip
from tilewright.frontends.onnx.file import from_proto, open_model
from tilewright.report.errors import UserError

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({}, "it names no file: the key 'location' is missing"),
        (
            {"location": "w.bin", "lengthh": "16"},
            "the key 'lengthh' is unknown; ONNX defines location, offset, length, checksum",
        ),
        (
            {"location": "w.bin", "offset": "-4"},
            "its offset is '-4', not a number of bytes in at most 19 decimal digits",
        ),
        (
            {"location": "w.bin", "offset": "0x10"},
            "its offset is '0x10', not a number of bytes in at most 19 decimal digits",
        ),
        ({"location": "w.bin", "length": ""}, "its length is '', not a number of bytes in at most 19 decimal digits"),
        (
            {"location": "w.bin", "length": "٣"},
            "its length is '٣', not a number of bytes in at most 19 decimal digits",
        ),
        (
            {"location": "w.bin", "length": "9" * 5000},
            f"its length is '{'9' * 77}...', not a number of bytes in at most 19 decimal digits",
        ),
    ],
)
def test_external_data_entries(entries: dict[str, str], why: str) -> None:
    assert refusal(external(**entries)) == about_tensor("cannot use the external data of a tensor", why, FIX_SAVE)


def test_external_data_key_given_twice() -> None:
    proto = external(location="w.bin")
    proto.graph.initializer[0].external_data.add(key="location", value="other.bin")
    assert refusal(proto) == about_tensor(
        "cannot use the external data of a tensor", "the key 'location' is given twice", FIX_SAVE
    )


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("/etc/passwd", "the path is absolute or not written with '/': it must be relative to the model's folder"),
        ("C:w.bin", "the path is absolute or not written with '/': it must be relative to the model's folder"),
        ("a\\w.bin", "the path is absolute or not written with '/': it must be relative to the model's folder"),
        ("../w.bin", "the path has a component '..': it must stay in the model's folder"),
        ("a/../../w.bin", "the path has a component '..': it must stay in the model's folder"),
        ("w.bin/..", "the path has a component '..': it must stay in the model's folder"),
        ("w\0.bin", "the path has a zero character"),
        ("a/", "the path names no file"),
        (".", "the path names no file"),
    ],
)
def test_external_path_out_of_the_folder(location: str, why: str) -> None:
    assert refusal(external(location=location)) == about_tensor(
        f"refused to open the data file {location!r}", why, FIX_SAVE
    )


def test_external_location_that_is_reserved_for_the_model_itself() -> None:
    assert refusal(external(location="", offset="0", length="16")) == about_tensor(
        "a tensor has no data", "its external data names no file"
    )


def linked_out(name: str, target: str, location: str = "w.bin") -> str:
    return about_tensor(
        f"refused to open the data file {location!r}",
        f"{clip(name)} is a symbolic link to {clip(target)}, "
        "which is neither below the model's folder nor beside the model's file",
        FIX_INLINE,
    )


def read_values() -> list[float]:
    opened = open_model("m.onnx")
    return [float(x) for tensor in opened.tensors() for x in opened.tensor(tensor)]


DATA = np.arange(4, dtype=np.float32)


def write_model(place: str = "m.onnx", location: str = "w.bin") -> None:
    Path(place).write_bytes(external(location=location).SerializeToString())


@pytest.mark.parametrize("absolute", [False, True])
def test_links_within_the_models_folder_are_followed(absolute: bool) -> None:
    """A link to a file, one to a folder, and one to a link."""
    Path("a/b").mkdir(parents=True)
    Path("a/b/real.bin").write_bytes(DATA.tobytes())
    start = os.getcwd() if absolute else "."
    os.symlink(f"{start}/a/b", "folder")
    os.symlink(f"{start}/folder/real.bin", "w.bin")
    os.symlink("../../w.bin", "a/b/back.bin")
    for location in ("w.bin", "folder/real.bin", "folder/back.bin"):
        write_model(location=location)
        assert read_values() == [0, 1, 2, 3]


def test_a_cache_of_downloads() -> None:
    """Model and data are links in the folder of a snapshot to files in a folder of blobs."""
    Path("snapshots/1f3c").mkdir(parents=True)
    Path("blobs").mkdir()
    write_model("blobs/aa", "model.onnx_data")
    Path("blobs/bb").write_bytes(DATA.tobytes())
    os.symlink("../../blobs/aa", "snapshots/1f3c/model.onnx")
    os.symlink("../../blobs/bb", "snapshots/1f3c/model.onnx_data")
    os.symlink("snapshots/1f3c", "main")
    for start in ("snapshots/1f3c", "main", f"{os.getcwd()}/main"):
        opened = open_model(f"{start}/model.onnx")
        (tensor,) = opened.tensors()
        assert [float(x) for x in opened.tensor(tensor)] == [0, 1, 2, 3]


def test_a_cache_of_downloads_leads_nowhere_else() -> None:
    """Beside the model's file means beside: not below, not above, and only where a link says so."""
    Path("snapshots/1f3c").mkdir(parents=True)
    Path("blobs/deeper").mkdir(parents=True)
    write_model("blobs/aa", "data")
    os.symlink("../../blobs/aa", "snapshots/1f3c/model.onnx")
    for place in ("blobs/deeper/bb", "bb", "snapshots/bb"):
        Path(place).write_bytes(DATA.tobytes())
        os.symlink(f"../../{place}", "snapshots/1f3c/data")
        with pytest.raises(UserError, match=r"'data' is a symbolic link to .*, which is neither below"):
            read_all(open_model("snapshots/1f3c/model.onnx"))
        os.unlink("snapshots/1f3c/data")
    Path("blobs/data").write_bytes(DATA.tobytes())
    with pytest.raises(UserError, match="No such file or directory"):
        read_all(open_model("snapshots/1f3c/model.onnx"))
    os.symlink("../../blobs/deeper", "snapshots/1f3c/in")
    write_model("blobs/aa", "in/bb")
    with pytest.raises(UserError, match=r"'in' is a symbolic link to .*, which is neither below"):
        read_all(open_model("snapshots/1f3c/model.onnx"))


def test_links_out_of_the_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "w.bin").write_bytes(bytes(16))
    os.mkfifo(outside / "pipe")
    Path("in").mkdir()
    for target in ("/etc/passwd", "/dev/zero", "/dev/stdin", f"{outside}/w.bin", f"{outside}/pipe", "/", "/etc/none"):
        os.symlink(target, "w.bin")
        assert refusal(external(location="w.bin")) == linked_out("w.bin", target)
        os.unlink("w.bin")
    os.symlink(outside, "in/link")
    target = f"{outside}/w.bin"
    assert refusal(external(location="in/link/w.bin")) == linked_out("in/link", target, "in/link/w.bin")
    for target in ("..", "../../../etc/passwd", "in/../../x", "."):
        os.symlink(target, "w.bin")
        assert refusal(external(location="w.bin")) == linked_out("w.bin", f"{os.getcwd()}/{target}")
        os.unlink("w.bin")


def test_a_link_that_leads_out_through_another() -> None:
    """Names above a link are not those above its target: what counts is where the way ends."""
    Path("in").mkdir()
    os.symlink("/etc", "in/etc")
    os.symlink("in/etc/passwd", "w.bin")
    assert refusal(external(location="w.bin")) == linked_out("in/etc", "/etc/passwd")


def test_links_that_lead_in_a_circle() -> None:
    os.symlink("b", "w.bin")
    os.symlink("w.bin", "b")
    assert refusal(external(location="w.bin")) == about_tensor(
        "refused to open the data file 'w.bin'", "its links lead on after 16 of them", FIX_INLINE
    )


def test_links_to_what_is_no_file_within_the_folder() -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe")
    for target, why, fix in (
        ("none", "No such file or directory", FIX_EXISTS),
        ("folder", "it is a folder", "give the path of an ordinary file"),
        ("pipe", "it is a device, pipe or socket", "give the path of an ordinary file"),
    ):
        os.symlink(target, "w.bin")
        assert refusal(external(location="w.bin")) == about_tensor("cannot read the data file 'w.bin'", why, fix)
        os.unlink("w.bin")


def test_a_link_to_a_hard_link() -> None:
    Path("real.bin").write_bytes(bytes(16))
    os.link("real.bin", "second.bin")
    os.symlink("second.bin", "w.bin")
    assert "the file has 2 hard links" in refusal(external(location="w.bin"))


def test_a_file_that_becomes_a_link_while_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a check and its use, names are exchanged for links out of the folder: nothing behind them is opened."""
    Path("in").mkdir()
    Path("in/real.bin").write_bytes(DATA.tobytes())
    os.symlink("in/real.bin", "w.bin")
    write_model()
    readlink, opened = os.readlink, []

    def exchanged(path: str, **options: Any) -> str:
        text = readlink(path, **options)
        if path == "w.bin" and not os.path.islink("in"):
            os.rename("in", "gone")
            os.symlink("/etc", "in")
        return text

    original = os.open

    def watched(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        fd = original(path, flags, *rest, **options)
        opened.append(os.readlink(f"/proc/self/fd/{fd}"))
        return fd

    monkeypatch.setattr(os, "readlink", exchanged)
    monkeypatch.setattr(os, "open", watched)
    with pytest.raises(UserError, match=r"'in' is a symbolic link to '/etc/real.bin'"):
        read_all(open_model("m.onnx"))
    assert all(path.startswith(os.getcwd()) for path in opened)


def test_external_hard_link() -> None:
    Path("real.bin").write_bytes(bytes(16))
    os.link("real.bin", "w.bin")
    assert refusal(external(location="w.bin")) == about_tensor(
        "refused to open the data file 'w.bin'",
        "the file has 2 hard links: it may be another folder's file under a second name",
        FIX_INLINE,
    )


def test_external_file_missing_or_no_file() -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("file").write_bytes(bytes(16))
    for location, why, fix in (
        ("w.bin", "No such file or directory", FIX_EXISTS),
        ("none/w.bin", "No such file or directory", FIX_EXISTS),
        ("file/w.bin", "Not a directory", FIX_EXISTS),
        ("folder", "it is a folder", "give the path of an ordinary file"),
        ("pipe", "it is a device, pipe or socket", "give the path of an ordinary file"),
    ):
        assert refusal(external(location=location)) == about_tensor(f"cannot read the data file {location!r}", why, fix)


@pytest.mark.parametrize(
    ("entries", "size"),
    [({"offset": "1"}, 16), ({"offset": "9" * 19}, 16), ({}, 15), ({}, 0), ({"offset": "17", "length": "16"}, 16)],
)
def test_external_data_past_the_end(entries: dict[str, str], size: int) -> None:
    Path("w.bin").write_bytes(bytes(size))
    start = int(entries.get("offset", "0"))
    assert refusal(external(location="w.bin", **entries)) == about_tensor(
        "a tensor has its data past the end of the file",
        f"it needs bytes {start} to {start + 16} of 'w.bin', which has {size}",
    )


def test_external_length_that_does_not_fit_the_shape() -> None:
    Path("w.bin").write_bytes(bytes(64))
    assert refusal(external(location="w.bin", length="32")) == about_tensor(
        "a tensor has data of the wrong length", "[4] elements of float32 are 16 bytes, but it has 32"
    )


def test_external_data_beside_data_of_its_own() -> None:
    for data in (bytes(16), bytes(1600)):
        proto = external(dims=[len(data) // 4], location="w.bin")
        proto.graph.initializer[0].raw_data = data
        assert refusal(proto) == about_tensor(
            "a tensor has ambiguous data", "it holds elements and names external data, too"
        )


def test_external_data_without_a_folder() -> None:
    with pytest.raises(UserError) as caught:
        from_proto(external(location="w.bin"))
    assert str(caught.value) == message(
        "cannot find the data file 'w.bin'",
        "tensor 'w' in the model in memory",
        "the model came from memory, without the folder that its external data is relative to",
        "give the folder: from_proto(model, base_dir='…')",
    )
