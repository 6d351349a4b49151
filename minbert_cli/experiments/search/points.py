"""Points of a search over fields of a recipe: a grid, or draws from distributions."""

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# Significant digits of a value, so that it can be copied from a table.
DIGITS = 4
MAX_POINTS = 10_000

Point = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Search:
    """The key ``search`` of a row.

    Args:
        fields: Values to try, by field of the recipe or ``pretrain.<field>``: a list or ``{choice:
            [...]}``, ``{uniform: [low, high]}`` or ``{loguniform: [low, high]}``.
        method: ``grid`` for all combinations, ``random`` for independent draws, or ``tpe`` for
            values chosen after the results of earlier trials (Bergstra et al. 2011, section 4).
        trials: Number of trials; not for a grid, whose fields determine it.
        seed: Seed of ``random`` and ``tpe``.
        prune: Whether to stop a trial whose best evaluation so far is below the median of the
            earlier trials at the same evaluation; five trials are never stopped.
        objective: What an evaluation must have, such as ``mean`` or ``sst_accuracy``.
        direction: Whether a higher objective is better (``maximize``) or a lower one.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    method: Literal["grid", "random", "tpe"] = "grid"
    trials: int | None = None
    seed: int = 0
    prune: bool = False
    objective: str = "mean"
    direction: Literal["maximize", "minimize"] = "maximize"

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("fields is empty; expected as in {learning_rate: [1e-5, 3e-5]}")
        for name, distribution in self.fields.items():
            _check_distribution(name, distribution)
        if self.method == "grid":
            self._check_grid()
        elif self.trials is None or not 1 <= self.trials <= MAX_POINTS:
            raise ValueError(f"trials={self.trials}; expected an integer from 1 to {MAX_POINTS:,}")
        elif self.trials > self.combinations:
            raise ValueError(
                f"trials={self.trials}, but only {self.combinations:.0f} of them can differ; "
                "reduce trials, or use a grid"
            )

    def _check_grid(self) -> None:
        """Check that all combinations of the fields can be tried."""
        if self.trials is not None:
            raise ValueError(
                f"trials={self.trials}, but a grid tries all combinations; leave it out, or use "
                "method: random or tpe"
            )
        if ranges := [name for name, kind in self.kinds.items() if kind[0] != "choice"]:
            raise ValueError(
                f"fields: {ranges[0]}={self.fields[ranges[0]]!r} is a range, but a grid needs "
                "lists of values; use method: random or tpe"
            )
        if (count := self.combinations) > MAX_POINTS:
            raise ValueError(f"grid has {count:,.0f} points; expected at most {MAX_POINTS:,}")

    @property
    def kinds(self) -> dict[str, tuple[str, list[Any]]]:
        """Kind and values of each field: ``("choice", [1, 2])``, ``("uniform", [low, high])``."""
        return {name: _split(distribution) for name, distribution in self.fields.items()}

    @property
    def combinations(self) -> float:
        """Number of different points; infinite with a range."""
        sizes = [len(own) if kind == "choice" else math.inf for kind, own in self.kinds.values()]
        return math.prod(sizes)

    @property
    def uses_study(self) -> bool:
        """Whether trials depend on earlier ones."""
        return self.prune or self.method == "tpe"

    def points(self, count: int | None = None) -> list[Point]:
        """List the points of a grid, the last field varying fastest, or distinct random draws.

        Args:
            count: Number of draws; None for ``trials``.

        Raises:
            ValueError: If there are too few distinct points.
        """
        if self.method != "grid":
            return self._draw_points(self.trials or 0 if count is None else count)
        values = (values for _, values in self.kinds.values())
        return [dict(zip(self.fields, each, strict=True)) for each in itertools.product(*values)]

    def _draw_points(self, count: int) -> list[Point]:
        """Draw distinct points."""
        points: list[Point] = []
        for attempt in range(100 * count):
            # a generator for each value, so that more draws or fields do not change the others
            point = {
                name: _draw(random.Random(f"{self.seed} {attempt} {name}"), *kind)
                for name, kind in self.kinds.items()
            }
            if point not in points:
                points.append(point)
            if len(points) == count:
                break
        if len(points) < count:
            raise ValueError(
                f"trials={count}, but only {len(points)} distinct points were found; reduce "
                "trials, or use a grid"
            )
        return points

    def extremes(self) -> list[Point]:
        """List points that together have every choice and both ends of every range."""
        most = max(len(values) for _, values in self.kinds.values())
        return [
            {name: values[number % len(values)] for name, (_, values) in self.kinds.items()}
            for number in range(most)
        ]


def round_value(value: float, low: float, high: float) -> float:
    """Round a value to few digits, within its range."""
    return min(max(float(f"{value:.{DIGITS}g}"), low), high)


def _split(distribution: Any) -> tuple[str, list[Any]]:
    if isinstance(distribution, list):
        return "choice", distribution
    ((kind, values),) = distribution.items()
    return kind, values


def _check_distribution(name: str, distribution: Any) -> None:
    """Check the values to try of a field."""
    kinds = list(distribution) if isinstance(distribution, Mapping) else []
    if not isinstance(distribution, list) and kinds not in (
        ["choice"],
        ["uniform"],
        ["loguniform"],
    ):
        raise ValueError(
            f"fields: {name}={distribution!r}; expected a list of values, {{uniform: [low, high]}} "
            "or {loguniform: [low, high]}"
        )
    kind, values = _split(distribution)
    if kind == "choice":
        _check_choices(name, values)
    else:
        _check_range(name, kind, values)


def _check_choices(name: str, values: Any) -> None:
    """Check that values are a list of different ones."""
    if type(values) is not list or not values:
        raise ValueError(
            f"fields: {name}={values!r}; expected a list of values, as in [1e-5, 3e-5]"
        )
    if twice := [value for place, value in enumerate(values) if value in values[:place]]:
        raise ValueError(f"fields: {name} has {twice[0]!r} twice; give each value once")


def _check_range(name: str, kind: str, values: Any) -> None:
    """Check that values are the ends of a range that can be drawn from."""
    given: list[Any] = values if type(values) is list else []
    are_numbers = [type(value) in (int, float) for value in given] == [True, True]
    lowest, above = (0.0, " above 0") if kind == "loguniform" else (-math.inf, "")
    if not are_numbers or not lowest < given[0] < given[1] < math.inf:
        raise ValueError(
            f"fields: {name}: {kind}={values!r}; expected [low, high]: two numbers{above}, the "
            "lower one first"
        )


def _draw(generator: random.Random, kind: str, values: list[Any]) -> Any:
    if kind == "choice":
        return generator.choice(values)
    low, high = map(float, values)
    if kind == "uniform":
        value = generator.uniform(low, high)
    else:
        value = math.exp(generator.uniform(math.log(low), math.log(high)))
    return round_value(value, low, high)
