"""The ONNX front end: files and in-memory models, checked and read without copying their weights.

`read(model)` gives the Module; importing this package registers the handlers of all operators.
"""

from __future__ import annotations

from tilewright.frontends.onnx import operators as operators
from tilewright.frontends.onnx.file import ModelFile, open_model
from tilewright.frontends.onnx.importer import read
from tilewright.frontends.onnx.names import value_names

__all__ = ["ModelFile", "open_model", "read", "value_names"]
