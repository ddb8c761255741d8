"""Arguments of the wrong kind: each is a UserError that says what came and what is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from cli_models import save_affine

GRAPH = "graph main[n](x: f32[n]) -> y:\n  y: f32[n] = relu(x)"
LOOPS = "func copy(a: f32[8], b: f32[8]):\n  for i in 0..8:\n    b[i] = a[i]\n"
X = np.ones(4, np.float32)

OPTIONS: dict[str, list[Any]] = {
    "dims": ["n=1", 5, [("n", 1)], ["n"], {1: 2}, {"n": "1"}, {"n": 1.5}],
    "level": ["3", None, 2.0, True],
    "off": [5, [5], None, b"winograd"],
    "precision": [16, None, b"bf16", ["f32"]],
    "target": [5, None, b"native", ["native"]],
    "threads": ["2", 2.0, True],
}


@pytest.fixture(scope="module")
def exe() -> tw.Executable:
    return tw.compile(tw.parse(GRAPH))


@pytest.mark.parametrize(("name", "value"), [(name, v) for name, values in OPTIONS.items() for v in values])
def test_options_of_compile(name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    for model in (tw.parse(GRAPH), save_affine(tmp_path)):
        with pytest.raises(tw.UserError) as refused:
            tw.compile(model, **{name: value})
        assert refused.value.why and refused.value.fix


def test_a_text_where_a_mapping_is_expected_is_told_of() -> None:
    with pytest.raises(tw.UserError) as refused:
        tw.compile(tw.parse(GRAPH), dims="n=1")  # type: ignore[arg-type]
    assert str(refused.value) == (
        "cannot use 'n=1' as dims\nwhy:  a str came, and dims is a mapping from names of dimensions to their sizes\n"
        'fix:  write dims={"n": 1}'
    )


CALLS: dict[str, Callable[[tw.Executable], object]] = {
    "run": lambda exe: exe.run([X]),  # type: ignore[arg-type]
    "call": lambda exe: exe(object()),
    "out": lambda exe: exe(X, out="y"),
    "run out": lambda exe: exe.run({"x": X}, out=5),  # type: ignore[arg-type]
    "profile feeds": lambda exe: exe.profile([X]),  # type: ignore[arg-type]
    "profile text": lambda exe: exe.profile({"x": X}, seconds="1"),  # type: ignore[arg-type]
    "profile before": lambda exe: exe.profile({"x": X}, seconds=-1),
    "profile no number": lambda exe: exe.profile({"x": X}, seconds=float("nan")),
    "profile for ever": lambda exe: exe.profile({"x": X}, seconds=float("inf")),
    "save": lambda exe: exe.save(5),  # type: ignore[arg-type]
    "save bytes": lambda exe: exe.save(b"x.tw"),  # type: ignore[arg-type]
    "tw.save": lambda exe: tw.save(None, exe),  # type: ignore[arg-type]
    "tw.save nothing": lambda exe: tw.save("x.tw", 5),  # type: ignore[arg-type]
    "load": lambda exe: tw.load(5),  # type: ignore[arg-type]
    "arena": lambda exe: exe.arena("n=1"),  # type: ignore[arg-type]
    "arena size": lambda exe: exe.arena({"n": "1"}),  # type: ignore[dict-item]
    "arena other": lambda exe: exe.arena(other="1"),  # type: ignore[arg-type]
    "arena below": lambda exe: exe.arena({"n": -1}),
    "show": lambda exe: exe.show(after=5),  # type: ignore[arg-type]
    "kernel": lambda exe: exe.show(kernel=2.5),  # type: ignore[arg-type]
    "parse": lambda exe: tw.parse(None),  # type: ignore[arg-type]
    "build": lambda exe: tw.build(tw.parse(LOOPS), target=5),  # type: ignore[arg-type]
    "evaluate": lambda exe: tw.evaluate(5, {}),  # type: ignore[arg-type]
    "evaluate feeds": lambda exe: tw.evaluate(tw.Module({"main": tw.parse(GRAPH)}, {}, "main"), 5),  # type: ignore
    "why": lambda exe: tw.why(5, "x"),  # type: ignore[arg-type]
    "why name": lambda exe: tw.why(exe, 5),  # type: ignore[arg-type]
    "page": lambda exe: tw.page(5),  # type: ignore[arg-type]
    "page seconds": lambda exe: tw.page(exe, {"x": X}, seconds="1"),  # type: ignore[arg-type]
    "compile": lambda exe: tw.compile(5),  # type: ignore[arg-type]
    "compile loops": lambda exe: tw.compile(tw.parse(LOOPS)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", CALLS)
def test_what_is_called_with_something_else(case: str, exe: tw.Executable) -> None:
    with pytest.raises(tw.UserError):
        CALLS[case](exe)
