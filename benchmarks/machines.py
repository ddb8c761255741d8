"""The machine that a benchmark plans for: this one, with rates that were measured, or with some put in by hand.

A file of rates is a JSON object with some of the fields of `Target.record()`, and whatever fields those have:

    {"peaks": {"fma_gflops": 120.0, "memory_gbs": 20.0}}

What it does not name stays as it is. So the plans of another family of processors can be looked at on this one: what is
timed is this machine, running what would be chosen for the other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.target import Target, calibrated, native, recalled


def add_machine(parser: argparse.ArgumentParser) -> None:
    """The options of those that plan for a machine."""
    parser.add_argument("--calibrate", action="store_true", help="measure this machine before, if nobody has")
    parser.add_argument("--rates", type=Path, metavar="FILE", help="fields of the machine put in by hand, as JSON")


def chosen_machine(asked: argparse.Namespace) -> Target:
    """The machine that the options say; without any, what a compilation takes."""
    target = (calibrated if asked.calibrate else recalled)(native())
    if asked.rates is None:
        return target
    return with_rates(target, json.loads(asked.rates.read_text(encoding="utf-8")))


def with_rates(target: Target, rates: Mapping[str, Any]) -> Target:
    """The machine with other rates. SystemExit for a field that it has not."""
    return Target.from_record(_merged(target.record(), rates, ""))


def _merged(record: Mapping[str, Any], rates: Mapping[str, Any], path: str) -> dict[str, Any]:
    merged = dict(record)
    for name, value in rates.items():
        if name not in record:
            raise SystemExit(f"a target has no field {path}{name}; there are {', '.join(sorted(record))}")
        inner = record[name]
        merged[name] = _merged(inner, value, f"{path}{name}.") if isinstance(inner, Mapping) else value
    return merged
