"""Executables that are shown, copied, pickled and sent to other processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
IMAGES = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)
KERNEL = """
func scale[n](a: f32[n], b: f32[n]):
  for i in 0..n:
    block scale(vi = i):
      b[vi] = a[vi] * 2.0
"""


@pytest.fixture(scope="module")
def exe() -> tw.Executable:
    return tw.compile(MODEL, threads=1)


def _bits(exe: tw.Executable) -> bytes:
    return exe(IMAGES)[0].tobytes()


def test_an_executable_says_what_it_is(exe: tw.Executable, tmp_path: Path) -> None:
    arrays = "(image: f32[n, 1, 8, 8]) -> (probability: f32[n, 10])"
    assert repr(exe) == f"<tilewright.Executable of digits.onnx: {arrays}, native, up to 1 thread>"
    exe.save(tmp_path / "saved.tw")
    loaded = tw.load(tmp_path / "saved.tw", threads=2)
    assert repr(loaded) == f"<tilewright.Executable of saved.tw: {arrays}, native, up to 2 threads>"


def test_what_came_from_no_file_names_none() -> None:
    named = ", ".join(f"{'x' * 80}{n}: f32[2]" for n in range(6))
    made = tw.compile(tw.parse(f"graph main({named}) -> y:\n  y: f32[2] = neg({'x' * 80}5)"), threads=1)
    assert repr(made).startswith("<tilewright.Executable: (xxx") and len(repr(made)) < 400
    assert "… 2 more) -> (y: f32[2]), native" in repr(made)
    kernel = tw.build(tw.parse(KERNEL), threads=1)
    assert repr(kernel) == "<tilewright.Kernel: (a: f32[n], b: f32[n]), native, up to 1 thread>"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_computes_the_same(exe: tw.Executable, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(exe, protocol))
    assert _bits(again) == _bits(exe)
    assert (again.threads, again.denormals, again.cached) == (1, exe.denormals, True)
    with pytest.raises(tw.UserError, match="there is nothing to look into"):
        _ = again.kernels


def test_weights_go_beside_a_pickle_in_a_buffer(exe: tw.Executable) -> None:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(exe, 5, buffer_callback=buffers.append)
    weights = sum(array.nbytes for array in exe.program.constants)
    assert len(head) < 1000 and sum(len(b.raw()) for b in buffers) > weights
    shifted = [memoryview(b"\0" + bytes(b.raw()))[1:] for b in buffers]
    for given in (buffers, shifted):
        assert _bits(pickle.loads(head, buffers=given)) == _bits(exe)


def test_a_pickle_keeps_what_was_set(exe: tw.Executable) -> None:
    changed = copy.copy(exe)
    changed.denormals = "keep"
    assert pickle.loads(pickle.dumps(changed)).denormals == "keep"
    assert exe.denormals == "flush"


def test_one_altered_bit_of_a_pickle_is_found(exe: tw.Executable) -> None:
    data = bytearray(pickle.dumps(exe))
    data[len(data) // 2] ^= 1
    with pytest.raises(tw.UserError, match="the checksum differs"):
        pickle.loads(bytes(data))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_shares_constants_and_stages(exe: tw.Executable, duplicate: object) -> None:
    again = duplicate(exe)  # type: ignore[operator]
    assert again is not exe and again.program is exe.program
    assert _bits(again) == _bits(exe) and again.kernels == exe.kernels


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda kernel: pickle.loads(pickle.dumps(kernel))])
def test_a_kernel_that_was_copied_still_knows_what_it_writes(duplicate: object) -> None:
    kernel = duplicate(tw.build(tw.parse(KERNEL)))  # type: ignore[operator]
    a, b = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    kernel(a, b)
    assert b.tolist() == [0, 2, 4]
    with pytest.raises(tw.UserError, match="share memory"):
        kernel(a, a)


def test_workers_run_what_they_are_sent(exe: tw.Executable) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(_bits, exe).result(timeout=120) == _bits(exe)
