"""Its place puts this folder on the import path: tests of every kind share `strategies`."""

from __future__ import annotations

import pytest
from hypothesis import settings

# `pytest --hypothesis-profile=long` (make long) draws many more programs in the differential tests: see LONG there.
settings.register_profile("long", settings())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stress-seconds", dest="stress_seconds", default=5, help="how long threads call at once")
