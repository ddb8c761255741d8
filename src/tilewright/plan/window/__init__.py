"""Windows of each channel: depthwise convolutions and pools."""

from __future__ import annotations
