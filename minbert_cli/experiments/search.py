"""Points of a search over fields of a recipe: a grid, or draws from distributions."""

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Significant digits of a draw, so that it can be copied from a table.
DIGITS = 4

Point = dict[str, Any]


def grid_points(where: str, grid: Mapping[str, Any]) -> list[Point]:
    """Return the points of a grid; the last field varies fastest."""
    if not grid:
        raise ValueError(f"{where}: grid is empty; expected as in {{learning_rate: [1e-5, 3e-5]}}")
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ValueError(
                f"{where}: grid: {name}={values!r}; expected a list of values, as in [1e-5, 3e-5]"
            )
        if twice := [value for place, value in enumerate(values) if value in values[:place]]:
            raise ValueError(f"{where}: grid: {name} has {twice[0]!r} twice; give each value once")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


@dataclass(frozen=True, kw_only=True)
class RandomSearch:
    """Random search: ``{choice: [...]}``, ``{uniform: [low, high]}`` or ``{loguniform: ...}``."""

    draws: int = 0  # number of points
    seed: int = 0
    fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"draws={self.draws}; expected an integer >= 1")
        if not self.fields:
            raise ValueError(
                "fields is empty; expected as in {learning_rate: {loguniform: [1e-5, 1e-3]}}"
            )
        for name, distribution in self.fields.items():
            _check_distribution(name, distribution)

    def points(self) -> list[Point]:
        """Draw distinct points."""
        # a generator for each value, so that more draws or fields do not change the others
        points: list[Point] = []
        for attempt in range(100 * self.draws):
            point = {
                name: _draw(random.Random(f"{self.seed} {attempt} {name}"), distribution)
                for name, distribution in self.fields.items()
            }
            if point not in points:
                points.append(point)
            if len(points) == self.draws:
                return points
        raise ValueError(
            f"draws={self.draws}, but only {len(points)} distinct points were found; "
            "reduce draws, or use a grid"
        )


def _check_distribution(name: str, distribution: Any) -> None:
    kind, values = _split_distribution(distribution)
    if kind == "choice":
        if not isinstance(values, list) or not values:
            raise ValueError(f"fields: {name}: choice={values!r}; expected a list of values")
    elif kind in ("uniform", "loguniform"):
        lowest = 0.0 if kind == "loguniform" else -math.inf
        if not _is_interval(values) or not lowest < values[0] < values[1] < math.inf:
            above = " above 0" if kind == "loguniform" else ""
            raise ValueError(
                f"fields: {name}: {kind}={values!r}; expected [low, high]: two numbers{above}, the "
                "lower one first"
            )
    else:
        raise ValueError(
            f"fields: {name}={distribution!r}; expected {{choice: [a, b]}}, {{uniform: [low, "
            "high]} or {loguniform: [low, high]}"
        )


def _split_distribution(distribution: Any) -> tuple[Any, Any]:
    """Return the only key and value of a mapping; None for anything else."""
    if isinstance(distribution, dict) and len(distribution) == 1:
        return next(iter(distribution.items()))
    return None, None


def _is_interval(values: Any) -> bool:
    """Return whether a value is a list of two numbers."""
    if not isinstance(values, list) or len(values) != 2:
        return False
    return all(type(value) in (int, float) for value in values)


def _draw(generator: random.Random, distribution: Mapping[str, Any]) -> Any:
    ((kind, values),) = distribution.items()
    if kind == "choice":
        return generator.choice(values)
    low, high = map(float, values)
    if kind == "uniform":
        value = generator.uniform(low, high)
    else:
        value = math.exp(generator.uniform(math.log(low), math.log(high)))
    return min(max(float(f"{value:.{DIGITS}g}"), low), high)
