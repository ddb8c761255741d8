"""What the workers of tests/meaning/test_processes.py run."""

from __future__ import annotations

import gc
import os
import time


def double(task: bytes) -> bytes:
    return task + task


def refuse(task: bytes) -> bytes:
    raise ValueError(task)


def die(task: bytes) -> bytes:
    os._exit(1)


def sleep(task: bytes) -> bytes:
    time.sleep(60)
    return task


def say(task: bytes) -> bytes:
    print("what a task prints is no answer")
    return task + str(os.getpid()).encode()


def collector(task: bytes) -> bytes:
    return f"{gc.get_threshold()[0]} {gc.get_freeze_count()}".encode()
