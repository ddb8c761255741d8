"""LLVM IR text of legalised loops, object code of that, one linked image."""

from __future__ import annotations
