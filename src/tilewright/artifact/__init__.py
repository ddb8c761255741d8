"""Compiled programs as bytes: object code, interface, checks and constants in one container."""
