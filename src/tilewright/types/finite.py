"""Arrays of which a program says that they are finite: they hold no infinity and no NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.report.errors import UserError


def is_finite(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array holds neither an infinity nor a NaN."""
    return bool(np.isfinite(array).all())


def require_finite(array: np.ndarray[Any, Any], name: str) -> None:
    """A UserError where an array for the parameter `name`, which its function calls finite, is not."""
    if is_finite(array):
        return
    place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
    raise UserError(
        f"parameter {name} is not finite",
        why=f"{array[place]} is at {list(place)}, and the function leaves out products that are zero of finite numbers",
        fix=f"pass numbers without infinities and NaN, or declare {name} without finite",
    )
