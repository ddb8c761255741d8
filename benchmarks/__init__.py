"""What calls, compiling and models cost: `python -m benchmarks`, or one of the modules alone.

Every figure is printed as the best and the median of many samples. On a machine that does other work at the same time
the best is the one to compare: what disturbs a sample only ever makes it slower.
"""

from __future__ import annotations
