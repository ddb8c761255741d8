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
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.runtime.machine import measured
from tilewright.target import Target, native
from tilewright.target.families import estimate_core, estimate_peaks, generic_family


def add_machine(parser: argparse.ArgumentParser) -> None:
    """The option of those that plan for a machine."""
    parser.add_argument("--rates", type=Path, metavar="FILE", help="rates of the machine put in by hand, as JSON")
    parser.add_argument("--unknown", action="store_true", help="what is measured, on top of estimates of no processor")


def chosen_machine(asked: argparse.Namespace) -> Target:
    """The machine that the options say; without any, what a compilation takes."""
    target = measured(as_unknown(native()) if asked.unknown else native())
    return target if asked.rates is None else with_rates(target, json.loads(asked.rates.read_text(encoding="utf-8")))


def as_unknown(target: Target) -> Target:
    """The machine with the estimates of a processor that is known by its vectors alone: all else is measured."""
    family = generic_family(target.architecture, target.vector_bits)
    core = estimate_core(family, target.features, target.vector_bits)
    peaks = estimate_peaks(family, core, target.vector_bits, len(target.caches), target.cores)
    return replace(target, family=family, core=core, peaks=peaks)


def with_rates(target: Target, rates: Mapping[str, Any]) -> Target:
    """The machine with other rates. SystemExit for a rate that it has not."""
    try:
        return target.with_rates(rates)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"rates put in by hand: {error}") from None
