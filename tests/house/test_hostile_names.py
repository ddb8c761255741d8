"""Names in models and of files are anybody's: none reaches a terminal with what a terminal would obey."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from cli_models import Outcome, invoke
from tilewright.report.progress import progress

NASTY = "\x1b]0;owned\x07\x1b[31m\r\u202ered\u2066\x9b2J\x7f[red]\nforged: {0} @ line"
"""A title, a colour, an overwritten line, text from right to left, a cleared screen, markup and a forged line."""


def nasty(name: str) -> str:
    return f"{name}{NASTY}"


def check(outcome: Outcome | str, *codes: int) -> None:
    """Nothing but printable characters and ends of lines, and no line that a name began: what goes on behind `why:` is
    moved in."""
    text = outcome if isinstance(outcome, str) else outcome.out + outcome.err
    strange = {c for c in text if not c.isprintable() and c not in "\n\t"}
    assert not strange, f"{sorted(map(ascii, strange))} in {text!r}"
    assert not any(line.startswith("forged") for line in text.splitlines()), text
    if isinstance(outcome, Outcome):
        assert outcome.code in codes, text


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names of the first command's program come out of the model, those of later ones out of what was stored."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def model(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model of which each text is nasty, in a file of such a name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(store))
    x, y, w, dim = nasty("x"), nasty("y"), nasty("w"), nasty("n")
    weights = numpy_helper.from_array(np.eye(3, dtype=np.float32), w)
    nodes = [
        helper.make_node("MatMul", [x, w], [nasty("t")], nasty("node"), doc_string=NASTY),
        helper.make_node("Relu", [nasty("t")], [nasty("r")], nasty("relu")),
        helper.make_node("Gather", [nasty("r"), "indices"], [y], nasty("pick"), axis=1),
    ]
    ports = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [dim, 3], doc_string=NASTY)]
    ports.append(helper.make_tensor_value_info("indices", TensorProto.INT64, [nasty("k")]))
    result = [helper.make_tensor_value_info(y, TensorProto.FLOAT, [dim, nasty("k")])]
    graph = helper.make_graph(nodes, nasty("graph"), ports, result, [weights], doc_string=NASTY)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, doc_string=NASTY)
    made.producer_name = NASTY
    helper.set_model_props(made, {nasty("key"): NASTY})
    path = nasty("model").replace("/", "") + ".onnx"
    Path(path).write_bytes(made.SerializeToString())
    return path


def save(made: onnx.ModelProto) -> str:
    path = nasty("other") + ".onnx"
    Path(path).write_bytes(made.SerializeToString())
    return path


COMMANDS = [
    ("run", "{}", "--random", "--compare"),
    ("run", "{}", "--random", "--save-output", nasty("out") + ".npz"),
    ("run", "{}", "--random", "--json"),
    ("compile", "{}", "-o", nasty("out") + ".tw"),
    ("compile", "{}", "--json"),
    ("bench", "{}", "--vs", "none", "--seconds", "0.01"),
    ("profile", "{}", "--seconds", "0.01", "--calls", "--trace", nasty("trace") + ".json"),
    ("profile", "{}", "--seconds", "0.01", "--json"),
    ("show", "{}"),
    ("show", "{}", "--after", "fold"),
    ("show", "{}", "--after", "llvm"),
    ("show", "{}", "--stages"),
    ("show", "{}", "--plan"),
    ("show", "{}", "--plan", "--json"),
    ("show", "{}", "--memory"),
    ("show", "{}", "--memory", "--json"),
    ("show", "{}", "--html", nasty("page") + ".html", "--no-measure"),
    ("why", "{}"),
    ("why", "{}", "0"),
    ("why", "{}", nasty("relu")),
    ("why", "{}", "0", "--json"),
]


@pytest.mark.parametrize(
    "words", COMMANDS, ids=lambda words: " ".join(words[:1] + words[2:])[:24].encode("ascii", "replace")
)
def test_what_commands_print(words: tuple[str, ...], model: str) -> None:
    outcome = invoke(*(word.replace("{}", model) if word == "{}" else word for word in words))
    check(outcome, 0)
    if "--json" in words:
        assert isinstance(json.loads(outcome.out), dict)


WRONG = [
    ("run", "{}"),
    ("run", "{}", "--random", "--input", nasty("z") + "=1"),
    ("run", "{}", "--random", "--input", nasty("x") + "=one"),
    ("run", "{}", "--random", "--input", "@" + nasty("none.npz")),
    ("run", "{}", "--random", "--input", "indices=[7]"),
    ("run", "{}", "--random", "--size", nasty("m") + "=2"),
    ("run", "{}", "--random", "--dim", nasty("m") + "=2"),
    ("run", "{}", "--random", "--precision", NASTY),
    ("run", "{}", "--random", "--target", NASTY),
    ("run", "{}", "--random", "--off", NASTY),
    ("run", "{}", "--threads", NASTY),
    (NASTY, "{}"),
    ("run", nasty("none")),
    ("run", "{}", "--random", "--save-output", nasty("none/out.npz")),
    ("show", "{}", "--after", NASTY),
    ("show", "{}", "--kernel", NASTY),
    ("why", "{}", NASTY),
    ("bench", "{}", "--vs", NASTY),
]


@pytest.mark.parametrize("words", WRONG, ids=range(len(WRONG)))
def test_what_commands_say_is_wrong(words: tuple[str, ...], model: str) -> None:
    check(invoke(*(model if word == "{}" else word for word in words)), 2, 3)


def test_the_display_of_long_work_takes_no_name_for_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("tilewright.report.progress.DELAY", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with progress(nasty("compiling [bold]model[/nonsense]")) as step:
        step(nasty("kernel"))
        until = time.monotonic() + 30
        while "[bold]model[/nonsense]" not in screen.getvalue() and time.monotonic() < until:
            time.sleep(0.05)
    shown = screen.getvalue()
    assert "[bold]model[/nonsense]" in shown
    assert "\x1b]0;" not in shown and "\x07" not in shown and "\u202e" not in shown and "\x9b" not in shown


def test_settings(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWRIGHT_NUM_THREADS", "TILEWRIGHT_MEMORY_LIMIT", "TILEWRIGHT_STORE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, NASTY)
            check(invoke("run", model, "--random"), 0, 2)
            check(invoke("doctor", "--no-calibrate"), 1)


def test_models_that_are_wrong(model: str) -> None:
    sound = onnx.load(model)

    def spoil(change: object) -> None:
        made = onnx.ModelProto()
        made.CopyFrom(sound)
        change(made)  # type: ignore[operator]
        check(invoke("run", save(made), "--random"), 2)

    spoil(lambda m: setattr(m.graph.node[0], "op_type", NASTY))
    spoil(lambda m: setattr(m.graph.node[0], "domain", NASTY))
    spoil(lambda m: m.graph.node[0].attribute.append(helper.make_attribute(nasty("attribute"), NASTY)))
    spoil(lambda m: m.graph.node[1].input.append(nasty("missing")))
    spoil(lambda m: m.graph.node[1].input.__setitem__(0, nasty("missing")))
    spoil(lambda m: m.graph.node[1].output.__setitem__(0, nasty("t")))
    spoil(lambda m: m.graph.output[0].CopyFrom(helper.make_tensor_value_info(nasty("y"), TensorProto.INT64, [1, 2])))
    spoil(lambda m: m.graph.initializer[0].dims.append(5))
    spoil(lambda m: setattr(m.opset_import[0], "version", 10**6))
    for location in (NASTY, "../" + NASTY):
        made = onnx.load(model)
        made.graph.initializer[0].data_location = TensorProto.EXTERNAL
        made.graph.initializer[0].ClearField("raw_data")
        entry = made.graph.initializer[0].external_data.add()
        entry.key, entry.value = "location", location
        check(invoke("run", save(made), "--random"), 2)
        entry.key = NASTY
        check(invoke("run", save(made), "--random"), 2)


def test_errors_of_calls(model: str) -> None:
    """A program that is embedded prints errors as they are."""
    exe = tw.compile(model)
    x = np.ones((2, 3), np.float32)
    for call in (
        lambda: exe(x),
        lambda: exe(x.astype(np.float64), [0]),
        lambda: exe(x[:, :2], [0]),
        lambda: exe(x, [5]),
        lambda: exe(object(), [0]),
        lambda: exe(x, [0], **{nasty("z"): x}),
        lambda: exe.run({nasty("z"): x}),
        lambda: exe(x, [0], out={nasty("z"): x}),
        lambda: tw.compile(model, dims={NASTY: 1}),
        lambda: tw.compile(model, dims=NASTY),  # type: ignore[arg-type]
        lambda: tw.parse(NASTY),
        lambda: tw.load(NASTY),
        lambda: exe.save(os.path.join("none", NASTY)),
    ):
        with pytest.raises((tw.UserError, tw.RuntimeFault)) as refused:
            call()
        check(str(refused.value))
