"""What was compiled before is found without the compiler, and only where it is the same."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from cli_models import save_affine
from tilewright.artifact import stored as stored_module
from tilewright.artifact.stored import Stored
from tilewright.core.switches import Switches
from tilewright.runtime.bundle import Source
from tilewright.store import Store

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    return Store.default()


def run(program: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_start_loads_no_part_of_the_compiler(tmp_path: Path) -> None:
    exe = tw.compile(save_affine(tmp_path))
    assert not exe.cached
    program = (
        "import sys, numpy as np, tilewright as tw\n"
        "exe = tw.compile('affine.onnx')\n"
        "exe(np.ones((2, 3), np.float32), np.ones(3, np.float32))\n"
        "parts = ('compiler', 'lower', 'plan', 'schedule', 'analysis', 'ops', 'graph', 'loops', 'frontends')\n"
        "found = [p for p in parts if 'tilewright.' + p in sys.modules]\n"
        "print(exe.cached, found, [p for p in ('onnx', 'llvmlite', 'ml_dtypes') if p in sys.modules])\n"
        "print(len(exe.kernels), exe.show('simplify')[:5])"
    )
    assert run(program, tmp_path) == "True [] []\n1 graph\n"


def test_a_second_run_from_a_shell_loads_no_part_that_compiles(tmp_path: Path) -> None:
    tw.compile(save_affine(tmp_path))
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "scale.npy", np.ones(3, np.float32))
    program = (
        "import sys\n"
        "from tilewright.cli.entry import main\n"
        "sys.argv = 'tilewright run affine.onnx --input x=@x.npy --input scale=@scale.npy --json'.split()\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "parts = ('compiler', 'lower', 'plan', 'schedule', 'analysis.rounding', 'frontends')\n"
        "print([p for p in parts if 'tilewright.' + p in sys.modules], 'onnx' in sys.modules)\n"
    )
    assert run(program, tmp_path).endswith("[] False\n")


def test_a_changed_file_is_compiled_again(tmp_path: Path) -> None:
    path = save_affine(tmp_path)
    tw.compile(path)
    content = path.read_bytes()
    one, two = np.float32(1).tobytes(), np.float32(2).tobytes()
    assert content.count(one) == 1
    before = path.stat()
    path.write_bytes(content.replace(one, two))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    exe = tw.compile(path)
    assert not exe.cached and exe(np.zeros((1, 3), np.float32), np.zeros(3, np.float32))[0].tolist() == [[2.0] * 3]


def test_a_model_in_a_cache_of_downloads_is_found_again(tmp_path: Path) -> None:
    """Model and data are links to files elsewhere, and the folder of the links is one, too."""
    snapshot, blobs = tmp_path / "snapshots" / "1f3c", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, snapshot / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    for name in ("model.onnx", "model.onnx_data"):
        (snapshot / name).rename(blobs / f"blob of {name}")
        (snapshot / name).symlink_to(f"../../blobs/blob of {name}")
    (tmp_path / "main").symlink_to("snapshots/1f3c")
    x = np.ones((1, 64), np.float32)
    for path in (snapshot / "model.onnx", tmp_path / "main" / "model.onnx"):
        for cached in (path.parent.name == "main", True):
            exe = tw.compile(path)
            assert exe.cached == cached
            assert exe(x)[0].tolist() == [[64.0] * 64]
    (blobs / "blob of model.onnx_data").write_bytes(np.full((64, 64), 2, np.float32).tobytes())
    exe = tw.compile(tmp_path / "main" / "model.onnx")
    assert not exe.cached
    assert exe(x)[0].tolist() == [[128.0] * 64]


def test_a_content_is_hashed_once_while_a_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = save_affine(tmp_path), tw.Target.parse("native")
    first = Stored.of_file(path, target, Switches(), {})
    entries = len(Store.default().entries())
    assert entries == 0, "a file that was written just now may be written again unseen"
    monkeypatch.setattr(stored_module, "_SETTLED_NS", 0)
    time.sleep(0.01)
    assert Stored.of_file(path, target, Switches(), {}).sha256 == first.sha256
    assert len(Store.default().entries()) == entries + 1

    def never(source: object) -> str:
        raise AssertionError("the file was read again")

    monkeypatch.setattr("tilewright.runtime.bundle.Source.digest", never)
    assert Stored.of_file(path, target, Switches(), {}).sha256 == first.sha256
    os.utime(path)
    with pytest.raises(AssertionError, match="read again"):
        Stored.of_file(path, target, Switches(), {})


def test_without_a_store_a_model_is_hashed_when_somebody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    path, hashed, digest = save_affine(tmp_path), list[Source](), Source.digest

    def noted(source: Source) -> str:
        hashed.append(source)
        return digest(source)

    monkeypatch.setattr("tilewright.runtime.bundle.Source.digest", noted)
    program = tw.compile(path).program
    assert not hashed
    assert program.provenance["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert dict(program.provenance).keys() == {"tilewright", "llvm", "model", "sha256"} and len(hashed) == 1


@pytest.mark.parametrize(
    "options", [{"level": 1}, {"off": ["merge"]}, {"off": "merge"}, {"precision": "bf16"}, {"dims": {"n": 2}}]
)
def test_other_options_are_other_entries(tmp_path: Path, options: dict[str, object]) -> None:
    path = save_affine(tmp_path)
    tw.compile(path)
    assert not tw.compile(path, **options).cached and tw.compile(path, **options).cached


def test_wrong_options_are_refused_whatever_the_store_holds(tmp_path: Path) -> None:
    path = save_affine(tmp_path)
    tw.compile(path)
    for options in ({"level": 9}, {"off": ["nothing"]}, {"precision": "f8"}, {"dims": {"q": 1}}):
        with pytest.raises(tw.UserError):
            tw.compile(path, **options)  # type: ignore[arg-type]
