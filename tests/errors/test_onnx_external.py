"""External data that could lead out of the model's folder or past a file's end: refused with one whole message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from onnx_models import FIX_EXISTS, FIX_INLINE, FIX_SAVE, about_tensor, external, folder, message, refusal

from tilewright.frontends.onnx.file import from_proto
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


def test_external_symbolic_link() -> None:
    Path("real.bin").write_bytes(bytes(16))
    os.symlink("real.bin", "w.bin")
    assert refusal(external(location="w.bin")) == about_tensor(
        "refused to open the data file 'w.bin'", "'w.bin' is a symbolic link", FIX_INLINE
    )


def test_external_folder_that_is_a_symbolic_link(tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "w.bin").write_bytes(bytes(16))
    Path("in").mkdir()
    os.symlink(outside, "in/link")
    assert refusal(external(location="in/link/w.bin")) == about_tensor(
        "refused to open the data file 'in/link/w.bin'", "'in/link' is a symbolic link", FIX_INLINE
    )


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
