"""`python -m tilewright.target [TARGET]`: the machine model as a table, measured where this machine can run it."""

from __future__ import annotations

import sys

from ..report.errors import UserError
from .calibrate import measured
from .show import describe
from .target import Target


def main(words: list[str]) -> int:
    """Print the target that `words` write (native if none); the exit code."""
    try:
        print(describe(measured(Target.parse(" ".join(words) or "native"))))
    except UserError as fault:
        print(fault, file=sys.stderr)
        return fault.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
