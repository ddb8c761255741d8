"""Threads of Python's that are lent to compiled code, as OpenMP lends its own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Member = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Lender:
    """Threads of Python's as OpenMP lends its own: `brings` says how many come of those that are asked for; each does
    something `also` when it has taken part."""

    def __init__(self, brings: Callable[[int], int], also: Callable[[int], None] = lambda _: None) -> None:
        self.asked: list[int] = []
        self.numbers: list[int] = []
        self._own = threading.local()
        self._others = ThreadPoolExecutor(2)
        both = threading.Barrier(2)
        list(self._others.map(lambda _: both.wait(), range(2)))  # they do not begin in a call, whose state they had
        self._brings, self._also = brings, also
        parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        self._parallel, self._number = parallel(self._run), ctypes.CFUNCTYPE(ctypes.c_int)(self._ask)
        functions = [ctypes.cast(f, ctypes.c_void_p).value for f in (self._parallel, self._number)]
        self._functions = (ctypes.c_void_p * 2)(*functions)
        self.record = (ctypes.c_void_p * 2)(None, ctypes.addressof(self._functions))

    def _run(self, member: int, state: int, threads: int, flags: int) -> None:
        self.asked.append(threads)
        others = [self._others.submit(self._join, member, state, n) for n in range(1, self._brings(threads))]
        self._join(member, state, 0)
        for other in others:
            other.result()

    def _join(self, member: int, state: int, number: int) -> None:
        self._own.number = number
        self.numbers.append(number)
        Member(member)(state)
        self._also(number)

    def _ask(self) -> int:
        return int(self._own.number)
