"""The version of the package, for whoever writes down what something was made with."""

from __future__ import annotations

VERSION = "0.1.0"
