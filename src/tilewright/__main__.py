"""`python -m tilewright`: the command line, where the `tilewright` script is not on the path."""

from __future__ import annotations

from tilewright.cli.entry import main

if __name__ == "__main__":
    main()
