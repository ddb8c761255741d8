"""Forks, Ctrl-C, faults and refusals: what comes after them is as if they had not been."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from cli_models import save_product, save_rows
from tilewright.compiler import pipeline
from tilewright.report.errors import RuntimeFault
from tilewright.runtime.frame import Frame
from tilewright.store import Store
from tilewright.store import store as store_module

WIDTH = 96
X = np.linspace(-1, 1, WIDTH, dtype=np.float32).reshape(1, WIDTH)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    return Store.default()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("stored", [False, True])
def test_a_forked_child_calls_what_its_parent_compiled(stored: bool, tmp_path: Path) -> None:
    model = save_product(tmp_path, WIDTH)
    exe = tw.compile(model, threads=2)
    right = exe(X)[0]
    if stored:
        exe = tw.compile(model, threads=2)
    for _ in range(2):
        child = os.fork()
        if not child:
            same = False
            try:
                same = all(np.array_equal(exe(X)[0], right) for _ in range(3))
                same = same and np.array_equal(tw.compile(model, threads=2)(X)[0], right)
            finally:
                os._exit(0 if same else 1)
        assert np.array_equal(exe(X)[0], right)
        assert os.waitpid(child, 0)[1] == 0


def interrupting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a Ctrl-C that comes when it has just ended."""

    def interrupted(*arguments: Any, **named: Any) -> Any:
        made = function(*arguments, **named)
        signal.raise_signal(signal.SIGINT)
        return made

    return interrupted


POINTS = {
    "in a pass": (pipeline, "bufferize"),
    "while an entry is written": (store_module, "write_framed"),
    "after old entries made room": (store_module.Store, "_evict"),
}


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize(("place", "name"), POINTS.values(), ids=POINTS)
def test_a_compilation_that_is_interrupted_leaves_nothing_behind(
    place: object, name: str, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_product(tmp_path, WIDTH)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, interrupting(getattr(place, name)))
        with pytest.raises(KeyboardInterrupt):
            tw.compile(model)
    assert not store.verify().damaged
    assert [path for path in (tmp_path / "store").glob("*") if path.suffix != ".entry"] == []
    exe = tw.compile(model)
    assert not exe.cached and tw.compile(model).cached
    assert np.array_equal(exe(X)[0], tw.compile(model)(X)[0])


def test_a_call_that_is_interrupted_ends_whole_and_the_next_is_right() -> None:
    """A timer's signals come at any point of a call; native code runs to its end, and then the exception is raised."""
    exe = tw.compile(tw.parse(f"graph main(x: f32[{WIDTH}, {WIDTH}]) -> y:\n  y: f32[{WIDTH}, {WIDTH}] = exp(x)\n"))
    x = np.linspace(-1, 1, WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH)
    right, interrupts = exe(x)[0], 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for n in range(40):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + n * 1e-5)
                while True:
                    assert np.array_equal(exe(x)[0], right)
            except KeyboardInterrupt:
                interrupts += 1
                assert np.array_equal(exe(x)[0], right)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts == 40


def test_a_fault_leaves_the_next_call_right(tmp_path: Path) -> None:
    exe = tw.compile(save_rows(tmp_path), threads=2)
    good, bad = np.array([1, 0, 1]), np.array([0, 2, 1])
    for _ in range(3):
        assert exe(good)[0].tolist() == [[3, 4], [1, 2], [3, 4]]
        with pytest.raises(RuntimeFault):
            exe(bad)
        with pytest.raises(tw.UserError):
            exe(good.astype(np.float32))
    assert exe(good[:1])[0].tolist() == [[3, 4]]


def test_a_refused_call_takes_no_memory_and_the_next_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "graph main[n](x: f32[n]) -> z:\n  y: f32[n] = exp(x)\n  z: f32[n] = exp(y)\n"
    exe = tw.compile(tw.parse(text), level=0)  # y lies in the arena
    small, large = np.zeros(100, np.float32), np.zeros(100_000, np.float32)
    for _ in range(2):
        monkeypatch.setenv("TILEWRIGHT_MEMORY_LIMIT", "64K")
        with pytest.raises(RuntimeFault, match="more memory than it may take"):
            exe(large)
        assert np.allclose(exe(small)[0], np.e)
        monkeypatch.delenv("TILEWRIGHT_MEMORY_LIMIT")
    assert np.allclose(exe(large)[0], np.e)


# Inputs

BASE = np.arange(24, dtype=np.float32)
VIEWS = {
    "transposed": BASE.reshape(6, 4).T,
    "in Fortran's order": np.asfortranarray(BASE.reshape(4, 6)),
    "backwards": BASE.reshape(4, 6)[::-1, ::-1],
    "every other": np.repeat(BASE, 2).reshape(4, 12)[:, ::2],
    "a window": np.pad(BASE.reshape(4, 6), 2)[2:-2, 2:-2],
    "repeated": np.broadcast_to(BASE[:6], (4, 6)),
    "unaligned": np.frombuffer(b"x" + BASE.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 6),
}
PLAIN = {
    "a part": np.arange(48, dtype=np.float32).reshape(8, 6)[2:6],
    "of another shape": BASE.reshape(2, 12).reshape(4, 6),
    "read-only": np.frombuffer(BASE.tobytes(), np.float32).reshape(4, 6),
}


@pytest.fixture(scope="module")
def product() -> tw.Executable:
    return tw.compile(tw.parse('graph main(x: f32[4, 6]) -> y:\n  y: f32[4, 4] = contract(x, x, spec="ik,jk->ij")\n'))


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_inputs_of_any_stride_are_taken(view: np.ndarray[Any, Any], product: tw.Executable) -> None:
    before = view.copy()
    assert np.array_equal(product(view)[0], before @ before.T)
    assert np.array_equal(view, before)


@pytest.mark.parametrize("view", PLAIN.values(), ids=PLAIN)
def test_rows_that_follow_one_another_are_not_copied(
    view: np.ndarray[Any, Any], product: tw.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []

    def enter(frame: Frame, symbols: tuple[int, ...], original: Callable[..., None] = product._enter) -> None:
        passed.append(frame.pointers[0])
        original(frame, symbols)

    monkeypatch.setattr(product, "_enter", enter)
    assert np.array_equal(product(view)[0], view @ view.T)
    assert passed == [view.ctypes.data]


@pytest.mark.parametrize("moment", ["before native code", "after native code"])
def test_a_call_within_a_call_leaves_both_right(
    moment: str, product: tw.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may call the program that it interrupts, on the same thread."""
    x, inner, enter = np.arange(24, dtype=np.float32).reshape(4, 6), [], product._enter

    def interrupted(frame: Frame, symbols: tuple[int, ...]) -> None:
        if moment == "after native code":
            enter(frame, symbols)
        monkeypatch.setattr(product, "_enter", enter)
        inner.append(product(2 * x)[0])
        if moment == "before native code":
            enter(frame, symbols)

    monkeypatch.setattr(product, "_enter", interrupted)
    for factor in (1, 3):
        assert np.array_equal(product(factor * x)[0], factor**2 * x @ x.T)
    assert np.array_equal(inner[0], 4 * x @ x.T)


def test_a_call_that_ends_before_native_code_costs_no_later_one_its_memory(product: tw.Executable) -> None:
    x = np.ones((4, 6), np.float32)
    product(x)
    product._threads.take()
    product(x)
    kept = product._threads.frame
    product(x)
    assert product._threads.frame is kept and not kept.taken
