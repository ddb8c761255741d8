"""The version of the package, for records of what made a file."""

from __future__ import annotations

VERSION = "0.1.0"
