"""The benchmarks that are named, or all but the long ones:

    python -m benchmarks [overhead compile_time models contractions] [--quick] [--json]

Each is a module of this package that can be run alone, too.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from benchmarks.report import show

NAMES = ("overhead", "fork_join", "compile_time", "models")
LONG = ("contractions",)
"""Those that take minutes, and run only when they are named."""


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="what calls, compiling and models cost")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)} (default: these); {', '.join(LONG)}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer samples, for a first look")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - {*NAMES, *LONG})
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}")
    modules = [import_module(f"benchmarks.{name}") for name in options.names or NAMES]
    reports = []
    for module in modules:
        found = module.measure(options.quick)
        found = found if isinstance(found, list) else [found]
        reports += found
        if not options.json:
            show(found, as_json=False)
    if options.json:
        show(reports, as_json=True)


if __name__ == "__main__":
    main()
