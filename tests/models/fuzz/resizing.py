"""Recipes of Resize and of grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.drawing import Draw
from fuzz.products import calm, image
from fuzz.recipes import recipe

COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize")


@recipe(2)
def resize(d: Draw) -> None:
    n = d.pick((1, 2, 2))
    x = d.new([t for t in d.types("Resize") if t != "bool"], image(d, n, d.pick((1, 3))), style=calm(d))
    shape = d.values[x].shape
    mode = d.pick(("nearest", "linear", "cubic"))
    attributes: dict[str, Any] = {"mode": mode, **d.some(coordinate_transformation_mode=d.pick(COORDINATES))}
    if mode == "nearest":
        attributes |= d.some(nearest_mode=d.pick(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")))
    if mode == "cubic":
        attributes |= d.some(cubic_coeff_a=d.pick((-0.75, -0.5)), exclude_outside=d.pick((0, 1)))
    if d.opset >= 18 and mode != "nearest":
        attributes |= d.some(antialias=d.pick((0, 1)))
    crop = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if crop:
        starts = [0.0, 0.0] + [d.pick((0.0, 0.2)) for _ in range(n)]
        roi = d.give(np.array(starts + [1.0, 1.0] + [d.pick((1.0, 0.8, 1.3)) for _ in range(n)], np.float32), 1.0)
        attributes |= d.some(extrapolation_value=d.pick((0.0, 10.0)))
    else:
        roi = ""
    if d.maybe():
        factors = np.array([1, 1, *[d.pick((0.5, 0.6, 1.0, 1.5, 2.0, 3.0)) for _ in range(n)]], np.float32)
        d.node("Resize", [x, roi, d.give(factors, 0.8, False)], attributes)
    else:
        sizes = [*shape[:2], *[d.pick((1, 2, 3, 5, 7)) for _ in range(n)]]
        d.node("Resize", [x, roi, "", d.integers(sizes, constant=0.8)], attributes)


@recipe()
def grid_sample(d: Draw) -> None:
    x = d.new(
        [t for t in d.types("GridSample") if t in ("float32", "float64")], image(d, 2, d.pick((1, 3))), style=calm(d)
    )
    batch = d.values[x].shape[0]
    grid = d.numbers.uniform(-1.2, 1.2, [batch, d.pick((1, 3)), d.pick((1, 2, 5)), 2])
    modes = ("bilinear", "nearest", "bicubic") if d.opset < 20 else ("linear", "nearest", "cubic")
    attributes = d.some(
        mode=d.pick(modes), padding_mode=d.pick(("zeros", "border", "reflection")), align_corners=d.pick((0, 1))
    )
    d.node("GridSample", [x, d.give(grid.astype(d.values[x].dtype), 0.35, False)], attributes)
