"""One line for every contender, and the value of every target."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.records import Log, Race, Record, Settings, valid_rounds
from benchmarks.summary import Row, Spread, summarize_pair
from benchmarks.targets import verdict

from .contenders import AGAIN, CONTENDERS
from .targets import Goal


class Line(NamedTuple):
    """What was measured of a contender, and how it compares with another.

    Args:
        name: The contender.
        row: Rate, ratio of rates, and memory; or the reason why there is none.
        p50: Median milliseconds of one sentence; None where it was not measured.
        p99: The 99th percentile of them.
        single: Ratio of both p50.
        share: Of the rate of the same matrix products.
        quality: Spearman's correlation or accuracy, in percent.
        loss: Quality lost, in percent of that of the other.
    """

    name: str
    row: Row
    p50: float | None = None
    p99: float | None = None
    single: Spread | None = None
    share: Spread | None = None
    quality: float | None = None
    loss: float | None = None

    def get(self, value: str) -> Spread | float | None:
        """Return a value by the name that a target has for it."""
        if value == "ratio":
            return self.row.ratio
        if value == "memory":
            return self.row.memory[0] or None
        found: Spread | float | None = getattr(self, value)
        return found


def find_reference(race: Race) -> str:
    """Return the contender that all of a race are compared with: the Trainer, or the first."""
    return race.peers[0] if race.workload in CONTENDERS else "trainer"


def summarize_race(log: Log, race: Race, settings: Settings) -> list[Line]:
    """Compare all contenders with the reference of their race."""
    return [compare(log, race, name, find_reference(race), settings) for name in race.peers]


def compare(log: Log, race: Race, name: str, other: str, settings: Settings) -> Line:
    """Compare a contender with another of its race.

    Args:
        log: The blocks.
        race: The race.
        name: The contender.
        other: The other one.
        settings: Which rounds count.
    """
    row = summarize_pair(log, race, name, other, settings)
    if row.reason is not None:
        return Line(name, row)
    # the rate and the memory of the other are those of a pair the other way round
    own_row = summarize_pair(log, race, other, name, settings)
    row = row._replace(rate=own_row.rate, ms=own_row.ms, peak=own_row.peak)
    rounds = list(valid_rounds(log, race, settings))
    own, theirs = ([found[peer] for found in rounds] for peer in (name, other))
    line = Line(name, row, share=_find_share(own))
    if "p50" in own[0] and "p50" in theirs[0]:
        ratios = [a["p50"] / b["p50"] for a, b in zip(own, theirs, strict=True)]
        p50, p99 = (median(block[key] for block in own) for key in ("p50", "p99"))
        line = line._replace(p50=p50, p99=p99, single=Spread.of(ratios))
    quality, best = (find_quality(log, race, peer) for peer in (name, other))
    loss = None if quality is None or not best else 100 * (best - quality) / best
    return line._replace(quality=quality, loss=loss)


def _find_share(blocks: Sequence[Record]) -> Spread | None:
    if not all("products" in block for block in blocks):
        return None
    return Spread.of([block["flops"] / block["products"] for block in blocks])


def find_quality(log: Log, race: Race, name: str) -> float | None:
    """Return the quality of a contender, in percent; of a trainer, that after an epoch."""
    if race.workload in CONTENDERS:
        found = log.find(kind="gate", workload=race.workload, peer=name.removesuffix(AGAIN))
    else:
        precision = race.workload.split(" ")[1]
        found = log.find(kind="epoch", peer=f"{name} {precision}", error=None)
    quality: float | None = found[-1].get("quality") if found else None
    return quality


class Score(NamedTuple):
    """The value of a target.

    Args:
        goal: The target.
        shown: The value, or why there is none.
        level: What it reaches; empty if there is none.
    """

    goal: Goal
    shown: str
    level: str


def score(
    goals: Sequence[Goal], log: Log, races: Sequence[Race], settings: Settings
) -> list[Score]:
    """Return the values of all targets that the races have contenders for."""
    by_name = {race.workload: race for race in races}
    scores = []
    for goal in goals:
        race = by_name.get(goal.workload)
        if race is None or not {goal.own, goal.other or goal.own} <= set(race.peers):
            continue
        line = compare(log, race, goal.own, goal.other or goal.own, settings)
        value = line.get(goal.value)
        if value is None:
            scores.append(Score(goal, line.row.reason or "not measured", ""))
            continue
        middle = value.median if isinstance(value, Spread) else value
        shown = str(value) if isinstance(value, Spread) else f"{value:.2f}"
        scores.append(Score(goal, shown, verdict(middle, goal.target)))
    return scores
