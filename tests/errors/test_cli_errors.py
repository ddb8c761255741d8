"""Wrong words on the command line, and the whole message each gets; all end with exit code 2 unless said otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from cli_models import invoke, save_affine, save_rows
from tilewright.target.host import current_host

X = "x: f32[n, 3]"
SCALE = "scale: f32[3]"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    save_affine(tmp_path)


def refuses(message: str, *words: str, code: int = 2) -> None:
    outcome = invoke(*words)
    assert (outcome.code, outcome.out, outcome.err) == (code, "", message)


def unreadable(word: str, form: str) -> str:
    return f"cannot read x.npy\nat:   --input {word}\nwhy:  it is not a {form}, or it is damaged\n"


# What the parser of the options refuses


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "Missing argument 'MODEL'."),
        (["walk", "affine.onnx"], "No such command 'walk'."),
        (["run", "affine.onnx", "--fast"], "No such option: --fast"),
    ],
)
def test_words_that_are_not_understood(words: list[str], message: str) -> None:
    outcome = invoke(*words)
    assert (outcome.code, outcome.out) == (2, "") and outcome.err.startswith("Usage: tilewright ")
    assert outcome.err.splitlines()[-1].startswith(f"Error: {message}")


@pytest.mark.parametrize("option", [("--threads", "0"), ("--threads", "many"), ("--seed", "-1")])
def test_a_number_out_of_its_range(option: tuple[str, str]) -> None:
    outcome = invoke("run", "affine.onnx", "--random", *option)
    assert (outcome.code, outcome.out) == (2, "") and option[0] in outcome.err.splitlines()[-1]


@pytest.mark.parametrize("command", ["run", "bench", "show"])
def test_a_precision_that_does_not_exist(command: str) -> None:
    refuses(
        "there is no precision 'f16'\n"
        "why:  f32 computes as the model says, bf16 may round the factors of f32 products to bf16\n"
        'fix:  take precision="bf16", or leave it out\n',
        *(command, "affine.onnx", "--precision", "f16"),
    )


# The model


def test_a_file_that_is_not_there() -> None:
    refuses(
        "cannot read the model file 'none.onnx'\nwhy:  No such file or directory\n"
        "fix:  check that it exists and that you may read it\n",
        *("run", "none.onnx", "--random"),
    )


@pytest.mark.parametrize("command", ["run", "bench", "show"])
def test_a_file_that_is_no_model(command: str) -> None:
    Path("text.onnx").write_text("this is no model, whatever its name says")
    outcome = invoke(command, "text.onnx")
    assert outcome.code == 2 and outcome.out == "" and "'text.onnx'" in outcome.err and "Traceback" not in outcome.err


# Inputs


def test_inputs_that_are_missing() -> None:
    refuses(
        f"missing inputs: {X}, {SCALE}\nfix:  give --input x=@x.npy, or --random for random data\n",
        "run",
        "affine.onnx",
    )
    refuses(
        f"missing input: {SCALE}\nfix:  give --input scale=@scale.npy, or --random for random data\n",
        *("run", "affine.onnx", "--input", "x=[[1,2,3]]"),
    )


def test_an_input_that_does_not_exist() -> None:
    refuses(
        f"no input is called 'z'\nat:   --input z=@z.npy\nwhy:  the inputs are {X}, {SCALE}\n"
        "fix:  write --input x=@x.npy\n",
        *("run", "affine.onnx", "--input", "z=@z.npy"),
    )


def test_an_input_without_a_value() -> None:
    refuses(
        "cannot use --input x\nwhy:  it has no =\nfix:  write --input x=@x.npy, or x=VALUE\n",
        *("run", "affine.onnx", "--input", "x"),
    )


def test_an_input_given_twice() -> None:
    refuses(
        "input x is given twice\nat:   --input x=2\nfix:  give it once\n",
        *("run", "affine.onnx", "--input", "x=1", "--input", "x=2"),
    )


def test_an_input_that_is_no_number() -> None:
    refuses(
        "cannot use --input x=one\nwhy:  'one' is no number and no list of numbers\n"
        "fix:  write x=0.5, x=[1,2,3], or x=@x.npy for a file\n",
        *("run", "affine.onnx", "--input", "x=one"),
    )
    refuses(
        "cannot use --input x=[[1],[2,3]]\nwhy:  '[[1],[2,3]]' is no number and no list of numbers\n"
        "fix:  write x=0.5, x=[1,2,3], or x=@x.npy for a file\n",
        *("run", "affine.onnx", "--input", "x=[[1],[2,3]]"),
    )


def test_a_value_that_the_type_does_not_hold(tmp_path: Path) -> None:
    save_rows(tmp_path)
    refuses(
        "cannot use --input indices=[0.5]\n"
        "why:  indices: i64[k] holds whole numbers from -9223372036854775808 to 9223372036854775807\n",
        *("run", "rows.onnx", "--input", "indices=[0.5]"),
    )


def test_a_wrong_shape() -> None:
    np.save("x.npy", np.zeros((2, 4), np.float32))
    refuses(
        f"input x has the wrong shape\nwhy:  dimension 1 of its shape (2, 4) is 4, and {X} expects 3\n"
        "fix:  give x the shape (n, 3)\n",
        *("run", "affine.onnx", "--input", "x=@x.npy", "--random"),
    )


def test_a_wrong_element_type() -> None:
    np.save("x.npy", np.zeros((2, 3)))
    refuses(
        f"input x has the wrong element type\nwhy:  an array of f64 came, and {X} was expected\n"
        "fix:  convert it: np.asarray(…, 'float32')\n",
        *("run", "affine.onnx", "--input", "x=@x.npy", "--random"),
    )


def test_an_array_file_that_is_not_there() -> None:
    refuses(
        "cannot read x.npy\nat:   --input x=@x.npy\nwhy:  No such file or directory\n",
        *("run", "affine.onnx", "--input", "x=@x.npy"),
    )
    refuses(
        "cannot read all.npz\nat:   --input @all.npz\nwhy:  No such file or directory\n",
        *("run", "affine.onnx", "--input", "@all.npz"),
    )


@pytest.mark.parametrize("content", [b"not an array", b"\x93NUMPY\x01\x00"])
def test_an_array_file_that_is_none(content: bytes) -> None:
    Path("x.npy").write_bytes(content)
    refuses(
        unreadable("x=@x.npy", ".npy file, as numpy.save writes it"),
        *("run", "affine.onnx", "--input", "x=@x.npy"),
    )
    refuses(
        unreadable("@x.npy", ".npz file, as numpy.savez writes it"),
        *("run", "affine.onnx", "--input", "@x.npy"),
    )


def test_an_archive_that_is_damaged() -> None:
    Path("x.npy").write_bytes(b"PK\x03\x04 and no zip file")
    for word in ("x=@x.npy", "@x.npy"):
        refuses(unreadable(word, ".npz file, as numpy.savez writes it"), "run", "affine.onnx", "--input", word)


def test_an_array_file_that_claims_more_than_it_has() -> None:
    np.save("x.npy", np.zeros((1, 3), np.float32))
    content = Path("x.npy").read_bytes()
    Path("x.npy").write_bytes(content.replace(b"(1, 3), }        ", b"(99999999999, 3)}"))
    refuses(
        unreadable("x=@x.npy", ".npy file, as numpy.save writes it"),
        *("run", "affine.onnx", "--input", "x=@x.npy"),
    )


def test_an_array_file_of_objects() -> None:
    np.save("x.npy", np.array([{}], object), allow_pickle=True)
    refuses(
        unreadable("x=@x.npy", ".npy file, as numpy.save writes it"),
        *("run", "affine.onnx", "--input", "x=@x.npy"),
    )


def test_an_empty_array_file() -> None:
    Path("x.npy").touch()
    refuses(
        "cannot read x.npy\nat:   --input x=@x.npy\nwhy:  it is empty\n"
        "fix:  give a .npy file, as numpy.save writes it\n",
        *("run", "affine.onnx", "--input", "x=@x.npy"),
    )


def test_an_archive_for_one_input() -> None:
    np.savez("x.npz", x=np.zeros(3))
    refuses(
        "cannot use x.npz for one input\nat:   --input x=@x.npz\nwhy:  it holds arrays with names of their own: x\n"
        "fix:  write --input @x.npz to give them by their names\n",
        *("run", "affine.onnx", "--input", "x=@x.npz"),
    )


# Sizes


@pytest.mark.parametrize("command", ["run", "bench"])
@pytest.mark.parametrize("text", ["-1", "1.5", "many", "", "²", "9223372036854775808"])
def test_a_size_that_is_no_number(command: str, text: str) -> None:
    random = ("--random",) if command == "run" else ()
    refuses(
        f"cannot use --size n={text}\nwhy:  {text!r} is no whole number from 0\nfix:  write --size n=32\n",
        *(command, "affine.onnx", *random, "--size", f"n={text}"),
    )


def test_a_size_without_a_value() -> None:
    refuses(
        "cannot use --size 32\nwhy:  it has no =\nfix:  write --size 32=32\n",
        *("run", "affine.onnx", "--random", "--size", "32"),
    )


def test_a_dimension_that_does_not_exist() -> None:
    refuses(
        "no dimension is called 'batch'\nat:   --size batch=4\nwhy:  the dimensions are n\nfix:  write --size n=4\n",
        *("run", "affine.onnx", "--random", "--size", "batch=4"),
    )


def test_a_size_that_an_input_contradicts() -> None:
    refuses(
        "--size n=3 does not fit input x\nwhy:  dimension 0 of its shape (1, 3) is 1\n"
        "fix:  leave --size n out, or give another x\n",
        *("run", "affine.onnx", "--random", "--size", "n=3", "--input", "x=[[1,2,3]]"),
    )


def test_a_size_beyond_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MEMORY_LIMIT", "1G")
    refuses(
        "input x is too large to make\n"
        f"why:  the shape (1000000000000, 3) of {X} takes 12,000,000,000,000 bytes, and the limit is 1,073,741,824\n"
        "fix:  take smaller sizes, or set TILEWRIGHT_MEMORY_LIMIT\n",
        *("run", "affine.onnx", "--random", "--size", "n=1000000000000"),
    )


# Outputs


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("out.txt", "numpy.load tells such a file by its name, which ends in .npz"),
        ("folder.npz", "it is a directory"),
        ("none/out.npz", "there is no directory none"),
    ],
)
def test_a_place_that_cannot_be_written(place: str, why: str) -> None:
    os.mkdir("folder.npz")
    refuses(
        f"cannot write {place}\nat:   --save-output {place}\nwhy:  {why}\nfix:  write --save-output out.npz\n",
        *("run", "affine.onnx", "--random", "--save-output", place),
    )


# Stages, targets, peers


def test_an_unknown_stage() -> None:
    outcome = invoke("show", "affine.onnx", "--after", "lunch")
    assert outcome.code == 2 and outcome.err.startswith("no stage is called lunch\nwhy:  the stages are simplify, ")


def test_an_unknown_kernel() -> None:
    outcome = invoke("show", "affine.onnx", "--after", "plan", "--kernel", "99")
    assert outcome.code == 2 and outcome.err.startswith("no kernel 99 after plan\nwhy:  its kernels are 0 ")


def test_options_of_show_that_exclude_each_other() -> None:
    refuses(
        "--stages goes alone\nwhy:  it lists what --after and --kernel may name\n",
        *("show", "affine.onnx", "--stages", "--after", "plan"),
    )
    refuses(
        "--assembly and --after exclude each other\nwhy:  assembly comes after all stages\n",
        *("show", "affine.onnx", "--assembly", "--after", "plan"),
    )
    refuses(
        "--kernel does not go with assembly\nwhy:  assembly is made of the whole program at once\n",
        *("show", "affine.onnx", "--assembly", "--kernel", "0"),
    )


def test_an_unknown_target() -> None:
    outcome = invoke("run", "affine.onnx", "--random", "--target", "pdp11")
    assert outcome.code == 2 and outcome.err.startswith("unknown target 'pdp11'\nwhy:  a target is a name")


def test_a_target_that_this_machine_cannot_run() -> None:
    own = current_host().architecture
    other = "x86-64" if own == "aarch64" else "aarch64"
    refuses(
        f"cannot run code for {other} on this machine\nat:   --target {other}\n"
        f"why:  this machine is of architecture {own}\n"
        "fix:  leave --target out; `tilewright show` compiles for any target\n",
        *("run", "affine.onnx", "--random", "--target", other),
    )


def test_an_unknown_peer() -> None:
    refuses(
        "no runtime called 'tpu' is known\nat:   --vs onnxruntime,tpu\n"
        "fix:  take some of onnxruntime, openvino, or none\n",
        *("bench", "affine.onnx", "--vs", "onnxruntime,tpu"),
    )


def test_a_peer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.cli.peers.importlib.util.find_spec", lambda name: None)
    refuses(
        "openvino is not installed\nat:   --vs openvino\nfix:  pip install openvino, or leave it out of --vs\n",
        *("bench", "affine.onnx", "--vs", "openvino"),
    )
