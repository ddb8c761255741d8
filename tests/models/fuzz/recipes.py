"""The list of recipes that models are drawn by."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.drawing import Draw

Recipe = Callable[[Draw], None]
RECIPES: list[Recipe] = []


def recipe(often: int = 1) -> Callable[[Recipe], Recipe]:
    """Adds a function to the list, so many times."""

    def add(function: Recipe) -> Recipe:
        RECIPES.extend([function] * often)
        return function

    return add
