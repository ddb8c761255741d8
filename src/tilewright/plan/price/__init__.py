"""What things cost on a target. In: shapes and a target. Out: cycles and seconds."""

from __future__ import annotations
