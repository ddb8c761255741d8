"""Runs model files that were made wrong (file_mutations.py) in processes of their own: an error, or a right run.

    python tests/models/file_runs.py --count 5000 --first 0        every defect, with the number that draws it again
    python tests/models/file_runs.py --show 17                     one case: what was done to what, and what came of it
    python tests/models/file_runs.py --keep 17 DIRECTORY           its files
    python tests/models/file_runs.py --corpus bomb               files of the corpus (file_corpus.py) of such a name
    python tests/models/file_runs.py --corpus --large            all of them, and those that take seconds each

A case is right when reading, compiling or running ends in an error for users (`UserError`, `RuntimeFault`), or when its
results are those of the graph's evaluator. Half of the programs check every access (TILEWRIGHT_CHECK). A crash, a hang,
another exception, more memory than a case may take, a module that breaks the laws of graphs, or another result is a
defect.

    refused     the file is refused              fault      the program stops at a value
    same        a case before had this program   result     it runs, and its results are right
    large       it, or the evaluator, computes for longer than a case may take, by the count of operations or of nodes
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import isolated
import numpy as np
from file_corpus import CORPUS, LARGE
from file_mutations import Case, draw
from file_seeds import Seed, installed_seeds, own_seeds

from tilewright.api.compile import compile
from tilewright.api.programs import compile_model  # noqa: F401  loads the compiler before processes are forked
from tilewright.expr.evaluate import evaluate as evaluate_size
from tilewright.expr.nodes import Const
from tilewright.frontends.onnx.importer import read
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.symbolic import Scan, bodies_of
from tilewright.graph.verify import verify
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.report.errors import RuntimeFault, TilewrightError, UserError
from tilewright.runtime.executable import Executable

Array = np.ndarray[Any, Any]

MOST_OPERATIONS = 3e8
"""Of one call: checked programs take a nanosecond or more for each."""

MOST_NODES = 1e5
"""That the evaluator runs, steps of loops counted: each takes a tenth of a millisecond."""

MOST_ELEMENTS = 1 << 20
"""Of one input."""

CASE = isolated.Limits(processor=60)
"""Three times what the largest seed takes to compile with checks: Inception v1, on a shared core of Zen 3."""

TRAP_SECONDS, TRAP_BYTES = 30.0, 2 << 30
"""What a file of the corpus may take, of a processor and of memory."""


class Files:
    """The cases by number, for these seeds. `known` are the programs that were right already: two thirds of those that
    can be read are the programs of seeds, whose changes no program depends on."""

    def __init__(self, seeds: Sequence[Seed], own: int) -> None:
        self.seeds, self.own = seeds, own
        self.known: set[bytes] = set()

    def case(self, number: int) -> Case:
        return draw(number, self.seeds, self.own)

    def learn(self, seeds: Sequence[Seed]) -> None:
        """Knows the programs of these seeds, which are right."""
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    self.known.add(_digest(read(written(seed, Path(folder)), warn=False)))
                except UserError:
                    continue

    def run(self, number: int) -> tuple[str, str]:
        """(what came of a case, what there is to say)."""
        case = self.case(number)
        os.environ["TILEWRIGHT_CHECK"] = str(int(case.checked))
        with tempfile.TemporaryDirectory() as folder:
            try:
                return self._run(case, written(case, Path(folder)))
            except UserError as error:
                return "refused", str(error)
            except RuntimeFault as error:
                return "fault", str(error)
            except Exception:
                return "defect", f"{case.name}: {', '.join(case.done)}\n{traceback.format_exc()}"

    def _run(self, case: Case, path: Path) -> tuple[str, str]:
        module = read(path, warn=False)
        digest = _digest(module)
        if digest in self.known:
            return "same", ""
        invalid = fault_of(module)
        if invalid:
            return "defect", f"{case.name}: {', '.join(case.done)}\n{invalid}"
        exe = compile(path if case.level == 3 else module, level=case.level)
        feeds = feeds_of(exe, case.level)
        if feeds is None or operations(exe, feeds) > MOST_OPERATIONS:
            return "large", ""
        found = exe.run(feeds)
        if nodes_run(module) > MOST_NODES:
            return "large", ""
        wrong = compared(module, feeds, found)
        if wrong:
            return "defect", f"{case.name}: {', '.join(case.done)}\n{wrong}"
        self.known.add(digest)
        return "result", digest.hex()

    def outcomes(self, numbers: Sequence[int], processes: int) -> Iterator[isolated.Outcome]:
        """What came of these cases. The process for the next ones knows what was right in those before it."""
        for number, kind, text in isolated.outcomes(self.run, numbers, processes, CASE):
            if kind == "result":
                self.known.add(bytes.fromhex(text))
            yield number, kind, text


def written(case: Case | Seed, folder: Path) -> Path:
    """The model's file in a folder, the others beside it."""
    for name, body in case.files.items():
        (folder / name).write_bytes(body)
    path = folder / "model.onnx"
    path.write_bytes(case.data)
    return path


def fault_of(module: Module) -> str:
    """The law that a module breaks, as the importer made it."""
    try:
        verify(module)
    except UserError as error:
        return f"the importer made this module: {error}"
    return ""


def _digest(module: Module) -> bytes:
    """What a module is: its text and its constants."""
    state = hashlib.sha256(str(module).encode(errors="surrogatepass"))
    for name, constant in module.constants.items():
        state.update(f"{name} {constant.dtype} {constant.shape}".encode(errors="surrogatepass"))
        state.update(constant.tobytes())
    return state.digest()


def feeds_of(exe: Executable, salt: int) -> dict[str, Array] | None:
    """Arrays for the inputs; None where they are too large."""
    rng = np.random.default_rng(salt)
    symbols = {s: max(2 + n % 2, s.least or 0) for n, s in enumerate(exe.interface.symbols)}
    feeds: dict[str, Array] = {}
    for port in exe.inputs:
        shape = [int(evaluate_size(d, symbols)) for d in port.shape]
        if min(shape, default=0) < 0 or math.prod(shape) > MOST_ELEMENTS or max(symbols.values(), default=0) > 1 << 20:
            return None
        if port.dtype.is_float:
            feeds[port.name] = rng.uniform(-2, 2, shape).astype(port.dtype.numpy)
        else:
            feeds[port.name] = np.asarray(rng.integers(0, 2, shape)).astype(port.dtype.numpy)
    return feeds


def operations(exe: Executable, feeds: dict[str, Array]) -> float:
    """The operations of a call that are known before it."""
    symbols = {s: max(2 + n % 2, s.least or 0) for n, s in enumerate(exe.interface.symbols)}
    known = [e for site in exe.program.sites for e in (site.flops, site.bytes) if e is not None]
    return float(sum(e.value if isinstance(e, Const) else evaluate_size(e, symbols) for e in known))


def nodes_run(module: Module) -> float:
    """The nodes that the graph's evaluator runs, as far as they are known before: loops by a condition count once."""
    runs: dict[str, float] = {}
    waiting = [module.entry]
    while waiting:
        nodes = _graph(module, waiting[-1]).nodes
        bodies = {body for node in nodes for body in bodies_of(node.attrs)} - runs.keys()
        if bodies:
            waiting += bodies
            continue
        runs[waiting.pop()] = sum(1 + _steps(n.attrs) * sum(runs[b] for b in bodies_of(n.attrs)) for n in nodes)
    return runs[module.entry]


def _graph(module: Module, name: str) -> GraphFunction:
    function = module.functions[name]
    assert isinstance(function, GraphFunction)
    return function


def _steps(attrs: object) -> float:
    return float(attrs.steps.value) if isinstance(attrs, Scan) and isinstance(attrs.steps, Const) else 1.0


def evaluated(module: Module, feeds: dict[str, Array]) -> dict[str, Array]:
    """What the graph's evaluator makes. Programs leave out operators that fail where nothing reads what they give."""
    try:
        return evaluate(module, feeds)
    except RuntimeFault:
        return evaluate(eliminate_dead(module), feeds)


def compared(module: Module, feeds: dict[str, Array], found: dict[str, Array]) -> str:
    """What is wrong with the results, beside what the graph's evaluator makes; nothing where that has no room."""
    try:
        expected = evaluated(module, feeds)
    except MemoryError:
        return ""
    except TilewrightError as error:
        return f"the program runs, and the evaluator stops: {error}"
    for name, wanted in expected.items():
        got = found[name]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            return f"{name} is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        if not _are_moderate(module, expected):
            continue
        bound = 1e-3 * max(1.0, float(np.abs(wanted.astype(np.float64)).max(initial=0)))
        if not np.allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=1e-3, atol=bound):
            return f"{name} is {got.reshape(-1)[:8]}, not {wanted.reshape(-1)[:8]}"
    return ""


def _are_moderate(module: Module, results: dict[str, Array]) -> bool:
    """Whether all numbers are so small that the order of sums does not decide between a number and an infinity."""
    arrays = [a for a in (*module.constants.values(), *results.values()) if a.dtype.kind in "fV" and a.size]
    return all(bool((np.abs(a.astype(np.float64)) < 1e4).all()) for a in arrays)


def all_files() -> Files:
    own = own_seeds()
    return Files([*own, *installed_seeds()], len(own))


def run_trap(name: str) -> tuple[str, str]:
    """What came of a file of the corpus; one that ends in what it may not is a defect."""
    trap = {**CORPUS, **LARGE}[name]()
    with tempfile.TemporaryDirectory() as folder:
        try:
            exe = compile(trap.write(Path(folder)))
            feeds = feeds_of(exe, 0)
            kind, text = ("large", "") if feeds is None else ("result", str(exe.run(feeds | trap.feeds).keys()))
        except UserError as error:
            kind, text = "refused", str(error)
        except RuntimeFault as error:
            kind, text = "fault", str(error)
        except Exception:
            return "defect", traceback.format_exc()
    return (kind, text) if kind in trap.ends else ("defect", f"it is a {kind}, not {trap.ends}: {text}")


def show(files: Files, number: int) -> None:
    """Prints a case and what came of it, in a process of its own."""
    from onnx import ModelProto, printer

    case = files.case(number)
    try:
        print(printer.to_text(ModelProto.FromString(case.data))[:5000])
    except Exception as error:
        print(f"{len(case.data)} bytes: {type(error).__name__}")
    print(case.name, *case.done, f"level {case.level}", "checked" if case.checked else "", sep=", ", flush=True)
    for _, kind, text in isolated.outcomes(files.run, [number], limits=CASE):
        print(kind, text, sep="\n")


def run_corpus(names: Sequence[str], processes: int) -> int:
    """Prints what came of each of these files."""
    defects = 0
    limits = isolated.Limits(TRAP_SECONDS, 20 * TRAP_SECONDS, TRAP_BYTES)
    for number, kind, text in isolated.outcomes(lambda n: run_trap(names[n]), range(len(names)), processes, limits):
        defects += kind == "defect"
        print(names[number], kind, text[-2000:] if kind == "defect" else text.split("\n")[0], sep="\t", flush=True)
    return int(defects > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int)
    parser.add_argument("--keep", nargs=2, metavar=("NUMBER", "DIRECTORY"))
    parser.add_argument("--corpus", nargs="?", const="")
    parser.add_argument("--large", action="store_true")
    chosen = parser.parse_args()
    isolated.prepare()
    os.environ["TILEWRIGHT_NUM_THREADS"] = "1"
    np.seterr(all="ignore")
    if chosen.corpus is not None:
        names = [*CORPUS, *(LARGE if chosen.large else ())]
        return run_corpus([name for name in names if chosen.corpus in name], chosen.processes)
    files = all_files()
    if chosen.keep:
        print(written(files.case(int(chosen.keep[0])), Path(chosen.keep[1])))
        return 0
    if chosen.show is not None:
        show(files, chosen.show)
        return 0
    files.learn(files.seeds[: files.own])
    numbers = range(chosen.first, chosen.first + chosen.count)
    counts = isolated.report(files.outcomes(numbers, chosen.processes), chosen.count)
    print(isolated.describe(counts))
    return 1 if counts.get("defect") else 0


if __name__ == "__main__":
    sys.exit(main())
