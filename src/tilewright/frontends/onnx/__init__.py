"""The ONNX front end: files and in-memory models, checked and read without copying their weights."""

from __future__ import annotations
