"""The transforms around Winograd's and Strassen's products."""

from __future__ import annotations
