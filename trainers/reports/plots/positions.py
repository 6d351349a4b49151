"""Positions of lines, points and ticks of plots, as wide as a phone to be readable there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite, sqrt
from typing import Any

WIDTH, HEIGHT = 360.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 14.0, 10.0, 38.0
# A series with more points than this is drawn without marks.
MOST_MARKS = 40
HELD_OUT_LOSS = "held-out loss"
LOSS_STYLES = {"training": "train", "held out": "dev"}
# An axis of scores is not magnified further, so that a hundredth stays small.
LEAST_SPAN = 0.2

Pairs = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Scale:
    """A linear map of values to units of the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Place a value."""
        part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)


@dataclass(frozen=True)
class Mark:
    """A point of a series, with a bar of ``low`` to ``high`` if these are given; in units."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A line."""

    name: str
    style: str  # color, dashes and mark in the style sheet
    line: str  # points in units, as ``polyline`` takes them
    marks: list[Mark]  # none if they would overlap
    summary: str = ""


@dataclass(frozen=True)
class Best:
    """The best point of a series."""

    name: str
    step: int
    value: float
    x: float  # in units, as ``y``
    y: float


@dataclass(frozen=True)
class Plot:
    """Axes and what is drawn between them, in units."""

    x_label: str
    y_label: str
    x_ticks: list[tuple[float, str]]  # place and text
    y_ticks: list[tuple[float, str]]
    series: list[Series]
    diagonal: tuple[float, float, float, float] | None = None  # ends of the line x = y
    rule: float | None = None  # x of a vertical line
    points: list[tuple[float, float]] | None = None  # of a scatter
    best: Best | None = None


@dataclass(frozen=True)
class Intervals:
    """Differences with their intervals, each on a line of its own."""

    zero: float  # x of no difference
    marks: list[Mark | None]


def plot_curves(
    series: Sequence[dict[str, Any]], kept: int | None, *, lower_is_better: bool = True
) -> Plot | None:
    """Plot (step, value) ``points`` of named series, some with a ``style``; None if none is finite.

    The step ``kept`` is marked, and so is the best evaluation of the first held-out series.
    """
    finite = {one["name"]: [p for p in one["points"] if isfinite(p[1])] for one in series}
    points = list(chain(*finite.values()))
    if not points:
        return None
    steps, values = zip(*points, strict=True)
    x = _axis([0, *steps, kept or 0], LEFT, WIDTH - RIGHT, tight=True, integer=True)
    y = _axis(values, HEIGHT - BOTTOM, TOP)
    drawn = []
    for number, one in enumerate(series):
        name = one["name"]
        style = one.get("style") or LOSS_STYLES.get(name, f"series{number}")
        marks = [Mark(x[0](step), y[0](value)) for step, value in finite[name]]
        shown = marks if len(marks) <= MOST_MARKS else []
        drawn.append(Series(name, style, _join(marks), shown, _summarize(name, finite[name])))
    rule = None if kept is None else x[0](kept)
    best = _find_best(finite, x[0], y[0], lower_is_better=lower_is_better)
    return Plot("optimizer steps", "", x[1], y[1], drawn, rule=rule, best=best)


def _find_best(
    series: Mapping[str, Pairs], x: Scale, y: Scale, *, lower_is_better: bool
) -> Best | None:
    """Find the best of several evaluations of the first series that has any."""
    choose = min if lower_is_better else max
    for name, points in series.items():
        if name != "training" and len(points) > 1:
            step, value = choose(points, key=lambda point: point[1])
            shown = HELD_OUT_LOSS if name == "held out" else name
            return Best(shown, int(step), value, x(step), y(value))
    return None


def plot_calibration(bins: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]] = ()) -> Plot:
    """Plot the accuracy of each bin over its mean confidence, with the standard error.

    The bins ``before`` are those of the same rows without a temperature.
    """
    x, y = _axis([0, 1], LEFT, WIDTH - RIGHT), _axis([0, 1], HEIGHT - BOTTOM, TOP)
    name = "accuracy, with its standard error"
    parts = {("without temperature", "train"): before, ("calibrated", "dev"): bins}
    drawn = []
    for (title, style), found in parts.items() if before else [((name, "dev"), bins)]:
        marks = []
        for part in found:
            value = part["accuracy"]
            error = sqrt(value * (1 - value) / part["rows"])
            ends = y[0](max(0, value - error)), y[0](min(1, value + error))
            marks.append(Mark(x[0](part["confidence"]), y[0](value), *ends))
        drawn.append(Series(title, style, _join(marks), marks))
    diagonal = (x[0](0), y[0](0), x[0](1), y[0](1))
    return Plot("mean confidence of a bin", "accuracy", x[1], y[1], drawn, diagonal)


def plot_scatter(pairs: Pairs, score_range: Sequence[float]) -> Plot:
    """Plot predictions over labels, both in the same range."""
    x = _axis(score_range, LEFT, WIDTH - RIGHT, tight=True)
    y = _axis(score_range, HEIGHT - BOTTOM, TOP, tight=True)
    low, high = score_range
    diagonal = (x[0](low), y[0](low), x[0](high), y[0](high))
    points = [(x[0](label), y[0](prediction)) for label, prediction in pairs]
    return Plot("label", "prediction", x[1], y[1], [], diagonal, points=points)


def place_strip(values: dict[str, tuple[float, float | None]]) -> dict[str, Any]:
    """Place values with their standard errors, by style, on one line of a drawing 300 wide.

    The axis has the part of -1 to 1 that they need, and at least ``LEAST_SPAN`` of it.
    """
    finite = {style: found for style, found in values.items() if isfinite(found[0])}
    ends = [value + sign * (error or 0) for value, error in finite.values() for sign in (-1, 1)]
    low, high = min(ends, default=0.0), min(1.0, max(ends, default=1.0))
    low = min(low, high - LEAST_SPAN)
    scale, ticks = _axis([low, high], 10.0, 290.0)
    marks = {
        style: Mark(
            scale(value), 0, scale(value - (error or 0)), scale(min(1, value + (error or 0)))
        )
        for style, (value, error) in finite.items()
    }
    return {"ticks": ticks, "marks": marks}


def place_intervals(ends: Sequence[tuple[float, float, float] | None]) -> Intervals:
    """Place intervals, each (low, value, high) or None, on one symmetric axis 200 wide."""
    most = max((abs(end) for found in ends if found for end in found), default=0.0) or 1.0
    scale = Scale(-most, most, 8.0, 192.0)
    marks = [found and Mark(scale(found[1]), 0, scale(found[0]), scale(found[2])) for found in ends]
    return Intervals(scale(0.0), marks)


def _axis(
    values: Sequence[float], start: float, end: float, *, tight: bool = False, integer: bool = False
) -> tuple[Scale, list[tuple[float, str]]]:
    """Choose round ticks: around the values, or if the axis is tight only between them."""
    # a run that only trains saves the memory of this import
    from matplotlib.ticker import MaxNLocator

    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.5, high + 0.5
    ticks = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10], integer=integer).tick_values(low, high)
    # avoid ticks such as 0.30000000000000004
    known = [float(f"{tick:.10g}") for tick in ticks]
    scale = Scale(low, high, start, end) if tight else Scale(known[0], known[-1], start, end)
    known = [tick for tick in known if scale.low <= tick <= scale.high]
    return scale, [(scale(tick), f"{tick:,.6g}") for tick in known]


def _join(marks: Sequence[Mark]) -> str:
    return " ".join(f"{mark.x:g},{mark.y:g}" for mark in marks)


def _summarize(name: str, points: Pairs) -> str:
    """Describe the course of a series for screen readers."""
    if not points:
        return f"{name}: no finite value"
    (first, start), (last, end) = points[0], points[-1]
    values = [value for _, value in points]
    return (
        f"{name}: {start:.4g} at step {first:,}, {end:.4g} at step {last:,}, "
        f"between {min(values):.4g} and {max(values):.4g}"
    )
