"""Kernels without a template: loop nest by loop nest."""

from __future__ import annotations
