"""`tilewright doctor`: this machine, the installation, the store and the settings, and what is wrong with them."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import llvmlite.binding as llvm
import typer

from tilewright import __version__
from tilewright.cli import options
from tilewright.cli.fit import say
from tilewright.cli.peers import find_version
from tilewright.cli.tables import counted, json_text, size, table
from tilewright.report import settings
from tilewright.report.errors import UserError
from tilewright.report.printable import printable
from tilewright.runtime.machine import measured
from tilewright.store import Json, Store, StoreWarning
from tilewright.target import Target, native
from tilewright.target.show import describe

PACKAGES = ("numpy", "llvmlite", "ml_dtypes", "onnx", "onnx-ir", "scipy", "typer", "rich")
OPTIONAL = ("onnxruntime", "openvino", "torch", "jax")


def doctor(
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--no-calibrate", help="Measure what this machine does unless the store has it (0.4 s)."
        ),
    ] = True,
    again: Annotated[bool, typer.Option("--again", help="Measure it even if the store has it.")] = False,
    as_json: options.Json = False,
) -> int:
    """Print what is known of this machine and installation.

    Ends with exit code 1 when something is wrong; the problems are listed at the end.

    \b
    Examples:
      tilewright doctor
      tilewright doctor --again
      tilewright doctor --no-calibrate --json
    """
    problems: list[str] = []
    target = _find_target(calibrate, again, problems)
    store = _look_at_store(problems)
    variables = _read_settings(problems)
    if as_json:
        print(json_text(_record(target, store, variables, problems)))
    else:
        say(_report(target, store, variables, problems))
    return 1 if problems else 0


def _find_target(calibrate: bool, again: bool, problems: list[str]) -> Target | None:
    try:
        target = native()
    except UserError as error:
        problems.append(str(error))
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)  # told with the store
            return measured(target, again=again) if calibrate else target
    except UserError as error:
        problems.append(str(error))
        return target


def _look_at_store(problems: list[str]) -> dict[str, Json]:
    """Where the store is and what it holds."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", StoreWarning)
        store = Store.default()
        entries = store.entries()
    problems.extend(str(warning.message) for warning in told)
    return {
        "path": None if store.path is None else str(store.path),
        "entries": len(entries),
        "bytes": sum(entry.bytes for entry in entries),
        "limit_bytes": store.limit_bytes,
    }


def _read_settings(problems: list[str]) -> list[tuple[str, str, str, str]]:
    """Name, value as set, form and meaning of each variable; wrong values and unknown names are problems."""
    rows = []
    for setting in settings.SETTINGS:
        try:
            setting.read()
        except UserError as error:
            problems.append(str(error))
        rows.append((setting.name, os.environ.get(setting.name, ""), setting.form, setting.meaning))
    problems.extend(str(error) for error in settings.unknown())
    problems[:] = dict.fromkeys(problems)
    return rows


def _versions(names: Sequence[str]) -> dict[str, str | None]:
    return {name: find_version(name) for name in names}


def _report(
    target: Target | None, store: dict[str, Json], variables: Sequence[tuple[str, ...]], problems: Sequence[str]
) -> str:
    """The sections for people."""
    parts = [f"tilewright {__version__}, Python {platform.python_version()}, {platform.platform()}"]
    if target is not None:
        parts.append(describe(target))
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    versions = [(name, found or "not installed") for name, found in _versions((*PACKAGES, *OPTIONAL)).items()]
    versions.insert(2, ("LLVM", llvm_version))
    parts.append(table(("package", "version"), versions))
    parts.append(_describe_store(store))
    heads = ("variable", "value", "form", "meaning")
    rows = [(name, value or "(unset)", form, meaning) for name, value, form, meaning in variables]
    parts.append(table(heads, rows, spare=("form",), below="meaning", whole=frozenset(heads[:1])))
    parts.append(
        "\n\n".join(
            ["nothing is wrong"]
            if not problems
            else [counted(len(problems), "problem"), *(printable(p, lines=True) for p in problems)]
        )
    )
    return "\n\n".join(parts)


def _describe_store(store: dict[str, Any]) -> str:
    if store["path"] is None:
        return "store       off: nothing is kept"
    held = f"{store['entries']} {'entry' if store['entries'] == 1 else 'entries'}, {size(store['bytes'])}"
    return f"store       {printable(store['path'])}\n            {held} of at most {size(store['limit_bytes'])}"


def _record(
    target: Target | None, store: dict[str, Json], variables: Sequence[tuple[str, ...]], problems: Sequence[str]
) -> dict[str, Json]:
    """The report as JSON says it."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "target": None if target is None else _target_record(target),
        "machine": None if target is None else target.rates,
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "packages": dict(_versions(PACKAGES)),
        "optional_packages": dict(_versions(OPTIONAL)),
        "store": store,
        "settings": {name: value or None for name, value, _, _ in variables},
        "problems": list(problems),
    }


def _target_record(target: Target) -> dict[str, Json]:
    return {
        "name": target.name,
        "triple": target.triple,
        "cpu": target.cpu,
        "tune": target.tune,
        "features": sorted(target.features),
        "vector_bits": target.vector_bits,
        "vector_registers": target.vector_registers,
        "cores": target.cores,
        "threads": target.threads,
        "caches": [asdict(cache) for cache in target.caches],
        "family": target.family,
        "origins": target.origins.record(),
    }
