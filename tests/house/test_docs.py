"""What the documents say is so: their code runs and prints what they show, and what they name exists.

The ```python blocks of a page run in order in one namespace, in the repository's root. A ```text block straight after
one is what it prints, where `…` stands for anything. `make snapshots` rewrites those that differ.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tilewright.compiler.pipeline import pipeline
from tilewright.target import native

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
READMES = [*sorted((ROOT / "examples").rglob("README.md")), *sorted((ROOT / "src").rglob("README.md"))]
RUNNABLE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
FILE = re.compile(r"[\w./-]+\.(?:py|md|onnx|toml|txt|npz|json)")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, its text, and the number of lines before its text."""

    language: str
    text: str
    above: int


def fences(page: str) -> list[Fence]:
    """The fenced blocks of a page."""
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [Fence(m[1], m[2], page.count("\n", 0, m.start(2))) for m in found]


def prose(page: str) -> str:
    """A page without its fenced and indented blocks."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^    .*$", "", page, flags=re.MULTILINE)


def runs(page: str) -> Iterator[tuple[Fence, Fence | None]]:
    """Each Python block, with the block of what it prints where one follows at once."""
    blocks = fences(page)
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "python":
            end = block.above + block.text.count("\n")
            shown = after is not None and after.language == "text" and after.above - end <= 3
            yield block, after if shown else None


def run(block: Fence, name: str, namespace: dict[str, object]) -> str:
    """What a block prints."""
    printed = io.StringIO()
    code = compile("\n" * block.above + block.text, name, "exec", dont_inherit=True)
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def plain(text: str) -> str:
    """Text without blanks at the ends of its lines, or empty lines at its own."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def agrees(shown: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in plain(shown).split("…"))
    return re.fullmatch(pattern, plain(printed), re.DOTALL) is not None


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda p: p.name)
def test_code_runs_and_prints_what_is_shown(
    page: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = page.read_text(encoding="utf-8")
    tunes = "autotune(" in text
    if "import torch\n" in text:
        pytest.importorskip("torch")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path if tunes else store))
    monkeypatch.setenv("TILEWRIGHT_TUNED", str(int(tunes)))
    namespace: dict[str, object] = {"__name__": "docs"}
    stale: list[tuple[Fence, str]] = []
    for block, shown in runs(text):
        printed = run(block, str(page), namespace)
        if shown is not None and not agrees(shown.text, printed):
            stale.append((shown, printed))
    if stale and request.config.getoption("update_snapshots", default=False):
        rewrite(page, stale)
    elif stale:
        shown, printed = stale[0]
        assert plain(printed) == plain(shown.text), f"{page.name}, line {shown.above}"
        pytest.fail(f"{page.name}, line {shown.above} differs")


def rewrite(page: Path, stale: list[tuple[Fence, str]]) -> None:
    """Puts what was printed in the place of what was shown."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for shown, printed in sorted(stale, key=lambda s: -s[0].above):
        lines[shown.above : shown.above + shown.text.count("\n")] = plain(printed).splitlines()
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@cache
def names_of_files() -> set[str]:
    kept = [p for part in ("src", "tests", "docs", "tools", "examples", "benchmarks") for p in (ROOT / part).rglob("*")]
    return {p.name for p in (*kept, *ROOT.iterdir())}


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    words = re.findall(r"`([^`\n]+)`", prose(page.read_text(encoding="utf-8")))
    named = [part for word in words for part in word.split() if FILE.fullmatch(part)]
    bases = (ROOT, ROOT / "src" / "tilewright", page.parent)
    missing = [n for n in named if not any((b / n).exists() for b in bases)]
    missing = [n for n in missing if "/" in n or (n not in names_of_files() and not n.startswith(("model", "x.")))]
    assert missing == []


def shell_lines(page: Path) -> list[str]:
    blocks = [b for b in fences(page.read_text(encoding="utf-8")) if b.language == "sh"]
    return [line.split("#")[0].strip() for b in blocks for line in b.text.splitlines() if line.strip()]


@cache
def help_of(command: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "tilewright", command, "--help"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_options_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in shell_lines(page):
        words = line.split()
        if words[0] == "make":
            assert words[1] in targets, line
        if "tilewright" in words and not line.startswith("pip"):
            command, *rest = words[words.index("tilewright") + 1 :]
            for option in (word for word in rest if word.startswith("--")):
                assert option in help_of(command), line
        for word in words:
            if word.startswith(("examples/", "tools/", "docs/", "tests/")):
                assert (ROOT / word).exists(), line


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda p: p.name)
def test_what_no_package_brings_is_said_to_be_in_a_checkout(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block, _ in runs(text):
        if re.search(r"^\s*(from|import) (benchmarks|tests|tools)\b", block.text, re.MULTILINE):
            before = " ".join("\n".join(text.splitlines()[: block.above]).split())
            assert "checkout of the repository" in before, f"{page.name}, line {block.above}"


def test_the_pipeline_of_the_architecture_page_is_the_compilers() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.split("## The pipeline")[1].split("\n## ")[0]
    shown = re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)
    assert shown == [step.name for step in pipeline(native())]


def test_the_floors_of_the_architecture_page_are_the_contracts() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.split("## Floors")[1].split("\n## ")[0]
    shown = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", section, re.MULTILINE)
    contract = re.findall(r'^    "\(?tilewright\.(\w+)\)?",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    built = [name for name in contract if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()]
    assert shown == list(reversed([name for name in built if name != "__main__"]))


SOURCE = ROOT / "src" / "tilewright"


def test_the_page_of_onnx_operators_is_current() -> None:
    spec = spec_from_file_location("list_onnx_operators", ROOT / "tools" / "list_onnx_operators.py")
    assert spec is not None and spec.loader is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = tool.PAGE.read_text(encoding="utf-8")
    assert text == tool.page(tool.cases_of(text)), "run python tools/list_onnx_operators.py --write"
