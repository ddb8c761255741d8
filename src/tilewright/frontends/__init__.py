"""Front ends: each turns programs of one outside world into a Module."""

from __future__ import annotations
