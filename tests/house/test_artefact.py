"""Files of compiled programs: what is loaded computes the same; what is not whole or does not suit is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from cli_models import invoke, save_affine
from tilewright.runtime.bundle import Bundle
from tilewright.runtime.file import open_bundle
from tilewright.store import Damaged
from tilewright.store.checksum import PAGE, Checksum, PendingChecksum, checksum
from tilewright.target.host import current_host

ROOT = Path(__file__).parents[2]
WEIGHTS = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
MODULE = """
graph main[n](x: f32[n, 64]) -> y:
  w: f32[64, 32] = constant(name=@w)
  h: f32[n, 32] = contract(x, w, spec="ik,kj->ij")
  y: f32[n, 32] = exp(h)
"""
X = np.random.default_rng(1).normal(size=(5, 64)).astype(np.float32)


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))


def compiled(target: str = "native") -> tw.Executable:
    graph = tw.parse(MODULE)
    assert isinstance(graph, tw.GraphFunction)
    return tw.compile(tw.Module({"main": graph}, {"w": WEIGHTS}, "main"), target=target)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "model.tw"
    compiled().save(path)
    return path.read_bytes()


# --- the checksum -------------------------------------------------------------------------------------------------


def test_a_checksum_does_not_depend_on_how_bytes_are_cut() -> None:
    data = np.random.default_rng(2).bytes(3 * PAGE + 77)
    cuts = random.Random(0)
    for _ in range(20):
        total, at = Checksum(), 0
        while at < len(data):
            step = cuts.choice([1, 7, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
            total.update(memoryview(data)[at : at + step])
            at += step
        assert total.digest() == checksum(data)


def test_a_checksum_is_the_same_where_two_threads_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(5).bytes(301 * PAGE + 5)
    alone = checksum(data)
    monkeypatch.setattr("tilewright.store.checksum._SHARED", 2)
    monkeypatch.setattr("tilewright.store.checksum._LEAST", 1)
    for _ in range(20):
        begun = threading.active_count()
        pending = PendingChecksum(data)
        assert pending.digest() == checksum(data) == alone and threading.active_count() == begun
    altered = bytearray(data)
    altered[-PAGE] ^= 1
    assert checksum(bytes(altered)) != alone


def test_a_checksum_tells_lengths_places_and_bits() -> None:
    data = bytearray(np.random.default_rng(3).bytes(2 * PAGE))
    seen = {checksum(bytes(n)) for n in (0, 1, 8, PAGE - 1, PAGE, PAGE + 1)}
    assert len(seen) == 6, "zeros at the end count"
    swapped = data[PAGE:] + data[:PAGE]
    within = data[8:16] + data[:8] + data[16:]
    assert len({checksum(bytes(d)) for d in (data, swapped, within)}) == 3
    for bit in range(0, 16 * PAGE, 997):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        assert checksum(bytes(altered)) != checksum(bytes(data))


# --- round trips --------------------------------------------------------------------------------------------------


def test_a_loaded_program_computes_the_same(tmp_path: Path) -> None:
    exe = compiled()
    exe.save(tmp_path / "model.tw")
    loaded = tw.load(tmp_path / "model.tw", threads=1)
    assert [str(p) for p in loaded.inputs] == [str(p) for p in exe.inputs]
    assert [str(p) for p in loaded.outputs] == [str(p) for p in exe.outputs]
    np.testing.assert_array_equal(loaded(X)[0], exe(X)[0])
    np.testing.assert_array_equal(loaded(X[:2])[0], exe(X[:2])[0])
    assert loaded.threads == 1 and loaded.cached
    assert loaded.program.provenance["tilewright"] == tw.__version__


def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path: Path, sound: bytes) -> None:
    (tmp_path / "a.tw").write_bytes(sound)
    tw.load(tmp_path / "a.tw").save(tmp_path / "b.tw")
    assert (tmp_path / "b.tw").read_bytes() == sound


def test_weights_are_mapped_and_not_copied(tmp_path: Path, sound: bytes) -> None:
    (tmp_path / "a.tw").write_bytes(sound)
    for array in tw.load(tmp_path / "a.tw").program.constants:
        assert not array.flags.owndata and not array.flags.writeable and array.ctypes.data % 64 == 0


def test_loading_needs_no_part_of_the_compiler(tmp_path: Path, sound: bytes) -> None:
    (tmp_path / "a.tw").write_bytes(sound)
    program = (
        "import sys, numpy as np, tilewright as tw\n"
        "(y,) = tw.load('a.tw')(np.ones((2, 64), np.float32))\n"
        "parts = ('api', 'compiler', 'lower', 'plan', 'schedule', 'analysis', 'ops', 'graph', 'loops', 'frontends')\n"
        "print(y.shape, [p for p in parts if 'tilewright.' + p in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "(2, 32) []\n", run.stderr


def test_a_file_holds_programs_for_several_targets_and_shared_weights_once(tmp_path: Path) -> None:
    exes = [compiled(name) for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4")]
    tw.save(tmp_path / "model.tw", *exes)
    bundle = open_bundle(tmp_path / "model.tw")
    assert [target.name for target in bundle.targets] == ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    runnable = [e for e in exes if e.program.target.is_runnable_on(tw.target.host.current_host())]
    loaded = tw.load(tmp_path / "model.tw")
    assert loaded.program.target == runnable[-1].program.target
    np.testing.assert_array_equal(loaded(X)[0], runnable[-1](X)[0])
    alone = [len(b"".join(bytes(p) for p in e.program.code)) for e in exes]
    same = tmp_path / "same.tw"
    tw.save(same, exes[1], exes[1])
    assert same.stat().st_size < sum(alone) + 1.5 * WEIGHTS.nbytes * 2


# --- what is refused ----------------------------------------------------------------------------------------------


def test_damaged_files_are_refused(tmp_path: Path, sound: bytes) -> None:
    path, choose = tmp_path / "model.tw", random.Random(4)
    for _ in range(1000):
        altered = bytearray(sound)
        match choose.randrange(4):
            case 0:
                altered[choose.randrange(len(altered))] ^= 1 << choose.randrange(8)
            case 1:
                del altered[choose.randrange(len(altered)) :]
            case 2:
                a, b, n = (choose.randrange(len(altered)) for _ in range(3))
                n = min(n, len(altered) - max(a, b))
                altered[a : a + n], altered[b : b + n] = altered[b : b + n], altered[a : a + n]
            case _:
                altered += bytes(choose.randrange(1, 100))
        if altered != sound:
            path.write_bytes(altered)
            with pytest.raises(Damaged, match="cannot load"):
                tw.load(path)


def test_a_manifest_of_anything_is_refused(sound: bytes) -> None:
    """A container whose checksum is right and whose contents are not: every field of every row in turn."""
    bundle = Bundle(memoryview(sound)[128:])
    assert bundle.program(0).interface.inputs
    text = sound[128 + 32 : sound.index(b"\0\0\0\0", 160)]
    top = json.loads(text[: text.rindex(b"}") + 1])
    refused = 0
    for wrong in (None, -1, "text", [], {}, [None], 10**30):
        for change in _changes(top["manifest"], wrong):
            try:
                made = Bundle(tw.store.pack(change, _blobs(sound)))
                if made.abi == bundle.abi:
                    made.program(0)
            except Damaged:
                refused += 1
    assert refused > 200, "names may be changed, and little else"


def _blobs(sound: bytes) -> dict[str, memoryview]:
    return tw.store.unpack(memoryview(sound)[128:])[1]


def _changes(value: object, wrong: object) -> list[dict[str, object]]:
    """The manifest with one of its parts replaced by something else."""
    found: list[dict[str, object]] = []

    def walk(part: object, put: object) -> None:
        rows = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, inner in rows:

            def replace(x: object, key: object = key, put: object = put, part: object = part) -> object:
                copy = dict(part) if isinstance(part, dict) else list(part)  # type: ignore[call-overload]
                copy[key] = x  # type: ignore[index]
                return put(copy)  # type: ignore[operator]

            found.append(replace(wrong))  # type: ignore[arg-type]
            walk(inner, replace)

    walk(value, lambda x: x)
    return found


def test_code_for_another_machine_is_refused_with_what_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tw.Target.parse("x86-64-v4")
    host = dataclasses.replace(current_host(), triple=plain.triple, features=plain.features)
    monkeypatch.setattr("tilewright.runtime.file.current_host", lambda: host)
    tw.save(tmp_path / "model.tw", compiled("aarch64"), compiled("x86-64-v4 +amx-tile"))
    with pytest.raises(tw.UserError) as refused:
        tw.load(tmp_path / "model.tw")
    text = str(refused.value)
    assert (
        "the code for aarch64 needs the architecture aarch64; the code for x86-64-v4 +amx-tile needs amx-tile" in text
    )
    assert text.startswith(f"cannot run {tmp_path / 'model.tw'} on this machine\nwhy:  ")


def test_a_file_of_another_calling_convention_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.runtime.bundle.VERSION", 10**6)
    compiled().save(tmp_path / "model.tw")
    monkeypatch.undo()
    with pytest.raises(tw.UserError, match="made for version 1000000 of the runtime's calling convention"):
        tw.load(tmp_path / "model.tw")


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.tw"
    path.write_bytes(b"what was there")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    exe = compiled()
    monkeypatch.setattr("tilewright.runtime.file.write_framed", full)
    with pytest.raises(tw.UserError, match=r"cannot write .*\nwhy:  No space left on device"):
        exe.save(path)
    assert path.read_bytes() == b"what was there" and os.listdir(tmp_path) == ["model.tw"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    exe = compiled()
    for place, why in ((tmp_path, "it is a directory"), (tmp_path / "no" / "model.tw", "there is no directory")):
        with pytest.raises(tw.UserError, match=why):
            exe.save(place)
    with pytest.raises(tw.UserError, match="there is nothing to save"):
        tw.save(tmp_path / "model.tw")


def test_programs_that_are_called_differently_go_into_files_of_their_own(tmp_path: Path) -> None:
    other = tw.compile(tw.parse("graph main(x: f32[2]) -> y:\n  y: f32[2] = exp(x)\n"))
    with pytest.raises(tw.UserError, match="different interfaces"):
        tw.save(tmp_path / "model.tw", compiled(), other)
    assert not os.listdir(tmp_path)


def test_looking_into_what_was_loaded_says_why_there_is_nothing(tmp_path: Path) -> None:
    compiled().save(tmp_path / "model.tw")
    loaded = tw.load(tmp_path / "model.tw")
    for look in (loaded.show, lambda: loaded.plan, lambda: loaded.kernels):
        with pytest.raises(tw.UserError, match="there is nothing to look into"):
            look()


def test_kernels_are_not_saved(tmp_path: Path) -> None:
    kernel = tw.build(tw.parse("func f(a: f32[4]):\n  for i in 0..4:\n    block f(v = i):\n      a[v] = 1.0\n"))
    with pytest.raises(tw.UserError, match="a kernel is not saved to a file"):
        kernel.save(tmp_path / "kernel.tw")


# --- the commands -------------------------------------------------------------------------------------------------


def test_compile_writes_what_run_takes(tmp_path: Path) -> None:
    model = save_affine(tmp_path)
    outcome = invoke("compile", str(model), "--target", "x86-64-v2", "--target", "native", "--json")
    assert outcome.code == 0
    record = json.loads(outcome.out)
    assert record["targets"] == ["x86-64-v2", "native"] and record["output"] == str(model.with_suffix(".tw"))
    assert record["bytes"] == model.with_suffix(".tw").stat().st_size
    told = invoke("run", str(model), "--random", "--json"), invoke("run", record["output"], "--random", "--json")
    assert [o.code for o in told] == [0, 0]
    first, second = (json.loads(o.out)["outputs"] for o in told)
    assert first == second


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("run", "FILE", "--random", "--compare"), "--compare does not go with a compiled file"),
        (("run", "FILE", "--random", "-O", "1"), "-O does not go with a compiled file"),
        (("run", "FILE", "--random", "--off", "plan"), "--off does not go with a compiled file"),
        (("show", "FILE"), "there is nothing to look into"),
        (("compile", "FILE"), "the model is compiled already"),
    ],
)
def test_what_does_not_go_with_a_compiled_file(tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    compiled().save(tmp_path / "model.tw")
    outcome = invoke(*(str(tmp_path / "model.tw") if word == "FILE" else word for word in words))
    assert outcome.code == 2 and outcome.err.splitlines()[0] == what


def test_compile_refuses_a_place_before_it_compiles(tmp_path: Path) -> None:
    place = tmp_path / "no" / "x.tw"
    outcome = invoke("compile", str(tmp_path / "no.onnx"), "-o", str(place))
    assert outcome.code == 2 and outcome.err.startswith(f"cannot write {place}\nat:   --output {place}\n")
