"""Where outputs may go: to fresh names and over plain files, never over what they are made of."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from cli_models import invoke, save_affine, save_product
from tilewright.store.files import find_obstacle, replace_file

WIDTH = 64


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_affine(tmp_path)


def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("compiled, though the result has no place")

    monkeypatch.setattr(tw, "compile", forbidden)
    monkeypatch.setattr(tw, "load", forbidden)


COMMANDS = {
    "--output": ("compile", "{}", "-o"),
    "--html": ("show", "{}", "--html"),
    "--trace": ("profile", "{}", "--trace"),
    "--save-output": ("run", "{}", "--random", "--save-output"),
}
"""The commands that write a file, by the option that names it."""


def refused(option: str, place: str, model: str = "affine.onnx") -> str:
    """Why a command cannot write at a place."""
    outcome = invoke(*(word.format(model) for word in COMMANDS[option]), place)
    head = f"cannot write {place}\nat:   {option} {place}\nwhy:  "
    assert outcome.code == 2 and outcome.out == "" and outcome.err.startswith(head)
    return outcome.err[len(head) :].partition("\n")[0]


@pytest.mark.parametrize("option", COMMANDS)
def test_no_command_writes_over_its_model(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_compiling(monkeypatch)
    os.rename("affine.onnx", "affine.npz")
    os.link("affine.npz", "twin.npz")
    os.mkdir("folder")
    os.symlink("../affine.npz", "folder/linked.onnx")
    os.symlink("folder", "way")
    before = Path("affine.npz").read_bytes()
    for model, place in (
        ("affine.npz", "affine.npz"),
        ("affine.npz", "twin.npz"),
        ("folder/linked.onnx", "affine.npz"),
        ("affine.npz", "way/../affine.npz"),
    ):
        assert refused(option, place, model) == f"it is the file {model}, from which this is made"
    assert Path("affine.npz").read_bytes() == before


@pytest.mark.parametrize("option", COMMANDS)
def test_no_command_writes_over_the_weights_of_its_model(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_compiling(monkeypatch)
    model = save_with_weights_beside("weights.npz")
    before = Path("weights.npz").read_bytes()
    assert refused(option, "weights.npz", model).endswith("weights.npz, from which this is made")
    assert Path("weights.npz").read_bytes() == before


@pytest.mark.parametrize("option", COMMANDS)
def test_outputs_go_to_plain_files_and_fresh_names(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_compiling(monkeypatch)
    os.mkdir("folder.npz")
    os.symlink("folder.npz", "to_folder.npz")
    os.symlink("nowhere", "to_nothing.npz")
    Path("plain").write_text("plain")
    os.symlink("plain", "to_file.npz")
    os.mkfifo("pipe.npz")
    assert refused(option, "folder.npz") == "it is a directory"
    assert refused(option, "pipe.npz") == "it is a device, pipe or socket"
    for link, end in (("to_folder", "folder.npz"), ("to_nothing", "nowhere"), ("to_file", "plain")):
        assert refused(option, f"{link}.npz") == f"it is a link to {os.path.realpath(end)}"
    assert stat.S_ISFIFO(os.lstat("pipe.npz").st_mode) and Path("plain").read_text() == "plain"


def test_a_device_is_an_obstacle() -> None:
    """Only asked about: a test that fails must not replace the machine's own device. What is saved meets a pipe."""
    assert find_obstacle(Path(os.devnull)) == "it is a device, pipe or socket"
    os.mkfifo("pipe")
    with pytest.raises(tw.UserError, match="it is a device, pipe or socket"):
        tw.compile("affine.onnx").save("pipe")
    assert stat.S_ISFIFO(os.lstat("pipe").st_mode)


def test_outputs_of_a_call_do_not_replace_its_inputs() -> None:
    np.savez("x.npz", x=np.ones((2, 3), np.float32), scale=np.ones(3, np.float32))
    np.save("y.npy", np.ones((2, 3), np.float32))
    os.link("y.npy", "y.npz")
    run = ("run", "affine.onnx", "--random", "--save-output")
    for place, words in (("x.npz", "@x.npz"), ("y.npz", "x=@y.npy")):
        before = Path(place).read_bytes()
        outcome = invoke(*run, place, "--input", words)
        assert outcome.code == 2 and f"it is the file {words.partition('@')[2]}, from which" in outcome.err
        assert Path(place).read_bytes() == before


def test_what_is_made_of_a_compiled_file_does_not_replace_it() -> None:
    tw.compile("affine.onnx").save("affine.npz")
    assert "from which this is made" in refused("--save-output", "affine.npz", "affine.npz")
    with pytest.raises(tw.UserError, match="from which this is made"):
        tw.load("affine.npz").save("affine.npz")


@pytest.mark.parametrize("store", ["store", "off"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_program_is_not_saved_over_what_it_was_made_of(
    store: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when it was compiled, nor when it was found in the store; from wherever it is saved."""
    monkeypatch.setenv("TILEWRIGHT_STORE", "off" if store == "off" else str(tmp_path / "kept"))
    model = save_with_weights_beside("weights.bin")
    exes = [tw.compile(model) for _ in range(times)]
    assert exes[-1].cached == (store != "off" and times == 2)
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    for name in (model, "weights.bin"):
        path = tmp_path / name
        before = path.read_bytes()
        for save in (exes[-1].save, lambda place: tw.save(place, exes[0], exes[-1])):
            with pytest.raises(
                tw.UserError, match=f"^cannot write .*{name}\nwhy:  it is the file .*{name}, from which"
            ):
                save(path)
        assert path.read_bytes() == before


def test_a_file_made_before_is_replaced() -> None:
    for _ in range(2):
        assert invoke("compile", "affine.onnx", "-o", "affine.tw").code == 0
    exe = tw.load("affine.tw")
    tw.compile("affine.onnx").save("affine.tw")
    x, scale = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    assert np.array_equal(exe(x, scale)[0], tw.load("affine.tw")(x, scale)[0])


def test_every_file_goes_the_same_way(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("plain")
    with pytest.raises(tw.UserError, match="it is a link to"):
        replace_file(link, lambda file: None)
    assert link.is_symlink() and not (tmp_path / "plain").exists()
    assert "embedded null" in str(find_obstacle(Path("no\0name")))
    assert find_obstacle(tmp_path / "affine.onnx" / "inside") == "Not a directory"


def save_with_weights_beside(name: str) -> str:
    model = onnx.load(save_product(Path.cwd(), WIDTH))
    onnx.save(model, "beside.onnx", save_as_external_data=True, location=name)
    return "beside.onnx"
