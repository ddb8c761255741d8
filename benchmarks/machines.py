"""The machine that a benchmark plans for: this one as it was measured, or with some rates put in by hand.

A file of rates is JSON as `tilewright doctor --json` prints them, of which any may be missing:

    {"core": {"dots": {"x86.avx512bf16.dot_bf16": 2.0}}, "peaks": {"memory_gbs": 14.0}}

So the plans of another family of processors can be looked at on this one: what is timed is this machine, running what
would be chosen for the other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.runtime.machine import measured
from tilewright.target import Target, native


def add_machine(parser: argparse.ArgumentParser) -> None:
    """The option of those that plan for a machine."""
    parser.add_argument("--rates", type=Path, metavar="FILE", help="rates of the machine put in by hand, as JSON")


def chosen_machine(asked: argparse.Namespace) -> Target:
    """The machine that the options say; without any, what a compilation takes."""
    target = measured(native())
    return target if asked.rates is None else with_rates(target, json.loads(asked.rates.read_text(encoding="utf-8")))


def with_rates(target: Target, rates: Mapping[str, Any]) -> Target:
    """The machine with other rates. SystemExit for a rate that it has not."""
    try:
        return target.with_rates(rates)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"rates put in by hand: {error}") from None
