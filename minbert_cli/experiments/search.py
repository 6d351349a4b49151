"""Points of a search over fields of a recipe: a grid, or draws from distributions."""

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# A draw is rounded to as many significant digits, so that it can be repeated from a table.
DIGITS = 4

Point = dict[str, Any]


def grid_points(where: str, grid: Mapping[str, Any]) -> list[Point]:
    """List the points of a grid; the last field varies fastest.

    Args:
        where: Begins the message of an error.
        grid: Field to the list of its values.

    Returns:
        Field to value, once for every combination.

    Raises:
        ValueError: If there is no field, or a field has no list of different values.
    """
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
    """Draws from distributions.

    The value of a field is a function of (seed, attempt, field), so that more draws or more fields
    leave the others as they are.

    Args:
        draws: Number of points.
        seed: Of the draws.
        fields: Field to one of ``{choice: [a, b, ...]}``, ``{uniform: [low, high]}`` and
            ``{loguniform: [low, high]}``, of whose values the logarithm is uniform.

    Raises:
        ValueError: If there is no draw or no field, or a distribution is none.
    """

    draws: int = 0
    seed: int = 0
    fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"draws={self.draws}; expected a whole number >= 1")
        if not self.fields:
            raise ValueError(
                "fields is empty; expected as in {learning_rate: {loguniform: [1e-5, 1e-3]}}"
            )
        for name, distribution in self.fields.items():
            _check_distribution(name, distribution)

    def points(self) -> list[Point]:
        """Draw the points; one that was drawn before is drawn again.

        Returns:
            Field to value, once for every draw.

        Raises:
            ValueError: If there are fewer different points than draws.
        """
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
            f"draws={self.draws}, but only {len(points)} different points were found; ask for "
            "fewer, or use a grid"
        )


def _check_distribution(name: str, distribution: Any) -> None:
    kind: Any = None
    values: Any = None
    if isinstance(distribution, dict) and len(distribution) == 1:
        ((kind, values),) = distribution.items()
    if kind not in ("choice", "uniform", "loguniform"):
        raise ValueError(
            f"fields: {name}={distribution!r}; expected {{choice: [a, b]}}, {{uniform: [low, "
            "high]} or {loguniform: [low, high]}"
        )
    if kind == "choice":
        if not isinstance(values, list) or not values:
            raise ValueError(f"fields: {name}: choice={values!r}; expected a list of values")
        return
    lowest = 0.0 if kind == "loguniform" else -math.inf
    numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
    if not numbers or len(values) != 2 or not lowest < values[0] < values[1] < math.inf:
        above = " above 0" if kind == "loguniform" else ""
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
