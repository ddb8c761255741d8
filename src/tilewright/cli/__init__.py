"""The command line: `tilewright run`, `bench`, `show` and `doctor`; a file for each command, with its options.

Promises: what a command is asked for goes to stdout, everything else to stderr; tables on a terminal and in a pipe are
the same text, except for colours; with `--json` stdout is one JSON object and nothing else. The exit code is 0, 1 when
a check that was asked for fails, 130 after Ctrl-C, 141 when the reader of the output went away, and otherwise the
`exit_code` of the error, which is printed without a traceback.
"""

from __future__ import annotations

from tilewright.cli.entry import main

__all__ = ["main"]
