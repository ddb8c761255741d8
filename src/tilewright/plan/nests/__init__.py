"""Kernels without a template: loop nest by loop nest."""
