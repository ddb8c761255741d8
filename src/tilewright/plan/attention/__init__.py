"""Attentions: two products with a softmax between them, in one kernel."""

from __future__ import annotations
