"""Models that are called with several inputs, by one test or by several: compiled once."""

from __future__ import annotations

from functools import lru_cache

from onnx import ModelProto

import tilewright as tw
from tilewright.report import settings


def compiled(model: ModelProto) -> tw.Executable:
    """The executable of a model, the same one for the same bytes."""
    return _compiled(model.SerializeToString(deterministic=True), settings.CHECK.read())


@lru_cache(maxsize=32)
def _compiled(model: bytes, checked: bool) -> tw.Executable:
    return tw.compile(model)
