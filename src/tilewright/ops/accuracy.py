"""How far off results may be where a program is computed in another way than it is written: the package's policy, the
same for every machine. Errors are relative to the sum of |w| times the largest |x|.

They are here and not with the decisions of plan/rewrite/, for they are part of what operators promise: a rewrite may
choose what is fast, but not what is right.
"""

from __future__ import annotations

from typing import Final

PRODUCT_ERROR: Final = 1e-4
"""The largest error that a product may have by fewer multiplications (strassen.py)."""

WINDOW_ERROR: Final = 1e-3
"""The largest error that a convolution in f32 may have by fewer multiplications (winograd.py)."""

ROUNDED_GROWTH: Final = 8.0
"""The most that a convolution by fewer multiplications may amplify the errors of rounded factors, compared
with a direct one."""
