"""Numbers written by hand in the floors that plan: module-level names in capitals whose value holds a number.

    python tools/count_constants.py [--json]

A name counts where a module assigns to it at its top level (annotated or not, alone or in a tuple), its letters are all
capitals, with an underscore before it or not, and an integer or a float is written anywhere in the value. It prints the
names by folder and file, how many there are, and how many lines the floors have that are held to a length.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "tilewright"
COUNTED = ("analysis", "plan", "lower", "schedule")
"""The folders whose constants are counted."""
MEASURED = ("plan", "schedule")
"""The folders whose lines are counted, together."""
CAPITALS = re.compile(r"_*[A-Z][A-Z0-9_]*")
VALUE_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Constant:
    """A named number: the folder and the file (within the package) that have it, its line, its name and its value."""

    folder: str
    file: str
    line: int
    name: str
    value: str


def find_constants(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, name, value) of each named number of a module's text."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        if any(_is_number(node) for node in ast.walk(value)):
            for name, own in (pair for target in targets for pair in _names(target, value)):
                if CAPITALS.fullmatch(name):
                    yield statement.lineno, name, ast.unparse(own)


def _names(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that a target binds, each with its part of the value, or all of it where it has no part of its own."""
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            own = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts) else None
            for n, part in enumerate(parts):
                yield from _names(part, value if own is None else own[n])
        case ast.Starred(value=part):
            yield from _names(part, value)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def count_constants(package: Path = PACKAGE) -> list[Constant]:
    """The named numbers of all modules of the counted folders, by folder and file."""
    found: list[Constant] = []
    for folder in COUNTED:
        for path in sorted((package / folder).rglob("*.py")):
            file = path.relative_to(package).as_posix()
            text = path.read_text(encoding="utf-8")
            found += [Constant(folder, file, line, name, value) for line, name, value in find_constants(text)]
    return found


def count_lines(package: Path = PACKAGE) -> int:
    """The lines of the folders that are held to a length."""
    paths = [path for folder in MEASURED for path in (package / folder).rglob("*.py")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def main() -> None:
    """Prints the constants and the counts."""
    parser = argparse.ArgumentParser(description="numbers written by hand in the floors that plan")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    found, lines = count_constants(), count_lines()
    counts = {folder: sum(one.folder == folder for one in found) for folder in COUNTED}
    if parser.parse_args().json:
        rows = [asdict(one) for one in found]
        print(json.dumps({"total": len(found), "folders": counts, "lines": lines, "constants": rows}, indent=2))
        return
    width = max((len(one.name) for one in found), default=0)
    for file in dict.fromkeys(one.file for one in found):
        print(file)
        for one in found:
            if one.file == file:
                value = one.value if len(one.value) <= VALUE_WIDTH else f"{one.value[: VALUE_WIDTH - 1]}…"
                print(f"  {one.line:5}  {one.name:{width}}  {value}")
    print("\n" + ", ".join(f"{folder}/ {count}" for folder, count in counts.items()) + f": {len(found)} named numbers")
    print(f"{' and '.join(f'{folder}/' for folder in MEASURED)}: {lines} lines")


if __name__ == "__main__":
    main()
