"""Schedules found by measuring: candidates are the choices of the templates, made and run in other processes."""
