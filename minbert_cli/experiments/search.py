"""Points of a search over fields of a recipe: a grid, or draws from distributions."""

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Significant digits of a draw, so that it can be copied from a table.
DIGITS = 4
MAX_POINTS = 10_000

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
    if (count := math.prod(map(len, grid.values()))) > MAX_POINTS:
        raise ValueError(f"{where}: grid has {count:,} points; expected at most {MAX_POINTS:,}")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


@dataclass(frozen=True, kw_only=True)
class RandomSearch:
    """Random search: ``{choice: [...]}``, ``{uniform: [low, high]}`` or ``{loguniform: ...}``."""

    draws: int = 0  # number of points
    seed: int = 0
    fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.draws <= MAX_POINTS:
            raise ValueError(f"draws={self.draws}; expected an integer from 1 to {MAX_POINTS:,}")
        if not self.fields:
            raise ValueError(
                "fields is empty; expected as in {learning_rate: {loguniform: [1e-5, 1e-3]}}"
            )
        for name, distribution in self.fields.items():
            _check_distribution(name, distribution)

    def points(self, where: str) -> list[Point]:
        """Draw distinct points; ``where`` is the prefix of the error if there are too few."""
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
            f"{where}: draws={self.draws}, but only {len(points)} distinct points were found; "
            "reduce draws, or use a grid"
        )


def _check_distribution(name: str, distribution: Any) -> None:
    kinds = list(distribution) if isinstance(distribution, dict) else []
    if kinds not in (["choice"], ["uniform"], ["loguniform"]):
        raise ValueError(
            f"fields: {name}={distribution!r}; expected {{choice: [a, b]}}, {{uniform: [low, "
            "high]} or {loguniform: [low, high]}"
        )
    ((kind, values),) = distribution.items()
    given = values if isinstance(values, list) else []
    if kind == "choice":
        if not given:
            raise ValueError(f"fields: {name}: choice={values!r}; expected a list of values")
        return
    are_numbers = [type(value) in (int, float) for value in given] == [True, True]
    lowest, above = (0.0, " above 0") if kind == "loguniform" else (-math.inf, "")
    if not are_numbers or not lowest < given[0] < given[1] < math.inf:
        raise ValueError(
            f"fields: {name}: {kind}={values!r}; expected [low, high]: two numbers{above}, the "
            "lower one first"
        )


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
