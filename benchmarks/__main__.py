"""All benchmarks, or those that are named: `python -m benchmarks [overhead compile_time models] [--quick] [--json]`."""

from __future__ import annotations

import argparse
from importlib import import_module

from benchmarks.report import show

NAMES = ("overhead", "compile_time", "models")


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="what calls, compiling and models cost")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer samples, for a first look")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}")
    modules = [import_module(f"benchmarks.{name}") for name in options.names or NAMES]
    reports = []
    for module in modules:
        reports.append(module.measure(options.quick))
        if not options.json:
            show(reports[-1:], as_json=False)
    if options.json:
        show(reports, as_json=True)


if __name__ == "__main__":
    main()
