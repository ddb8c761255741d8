"""Its place puts this folder on the import path: tests of every kind share `strategies`."""

from __future__ import annotations

from hypothesis import settings

# `pytest --hypothesis-profile=long` (make long) draws many more programs in the differential tests: see LONG there.
settings.register_profile("long", settings())
