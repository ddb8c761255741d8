"""Its place puts this folder on the import path: tests of every kind share `strategies`."""

from __future__ import annotations
