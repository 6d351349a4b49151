"""Ratios from blocks."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from .records import Log, Race, Record, Settings, valid_rounds

MINBERT = "minbert"


class Spread(NamedTuple):
    """Median, minimum and maximum over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarize values."""
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Row(NamedTuple):
    """minBERT against one peer in one race.

    Args:
        race: The race.
        ours: minBERT, or a compiled one.
        peer: The peer.
        reason: Why there is no ratio; None if there is one.
        ratio: minBERT's items per second over the peer's.
        rate: Items per second of the peer.
        ms: Milliseconds per step of the peer.
        memory: minBERT's peak memory over the peer's: whole process, and added by training.
        peak: Peak memory of the peer in MiB: whole process, and added by training.
        rounds: Rounds that count.
    """

    race: Race
    ours: str
    peer: str
    reason: str | None
    ratio: Spread | None = None
    rate: float = 0.0
    ms: float = 0.0
    memory: tuple[float, float] = (0.0, 0.0)
    peak: tuple[float, float] = (0.0, 0.0)
    rounds: int = 0


def summarize(log: Log, races: Sequence[Race], settings: Settings) -> list[Row]:
    """Compute the ratios of all races: minBERT to all, compiled ones to peers of others."""
    return [
        summarize_pair(log, race, ours, peer, settings)
        for race in races
        for ours in race.peers
        for peer in race.peers
        if ours == MINBERT or (ours.startswith("minbert+") and not peer.startswith(MINBERT))
    ]


def summarize_pair(log: Log, race: Race, own: str, peer: str, settings: Settings) -> Row:
    """Compare two peers of a race.

    Args:
        log: The blocks.
        race: The race.
        own: The peer whose ratio it is.
        peer: The other peer.
        settings: Which rounds count.
    """
    rounds = list(valid_rounds(log, race, settings))
    reason = find_reason(log, race, (peer, own), rounds)
    if reason is not None:
        return Row(race, own, peer, reason, rounds=len(rounds))
    ours = [found[own] for found in rounds]
    theirs = [found[peer] for found in rounds]
    ratios = [rate_of(a) / rate_of(b) for a, b in zip(ours, theirs, strict=True)]
    kinds = ("peak_mib", "step_mib")
    peak = [max(block[kind] for block in theirs) for kind in kinds]
    our_peak = [max(block[kind] for block in ours) for kind in kinds]
    memory = [a / max(b, 1e-9) for a, b in zip(our_peak, peak, strict=True)]
    return Row(
        race,
        own,
        peer,
        None,
        Spread.of(ratios),
        median(map(rate_of, theirs)),
        median(ms for block in theirs for ms in block["ms"]),
        (memory[0], memory[1]),
        (peak[0], peak[1]),
        len(rounds),
    )


def rate_of(block: Record) -> float:
    """Return the items per second of a block."""
    return block["items"] / block["seconds"]


def find_reason(
    log: Log, race: Race, names: Sequence[str], rounds: Sequence[Mapping[str, Record]]
) -> str | None:
    """Return why a ratio is void: a failed gate, an error, or no quiet round."""
    for name in dict.fromkeys(names):
        gates = log.find(
            kind="gate",
            workload=race.workload,
            size=race.size,
            peer=name.removesuffix("-again"),
        )
        if not gates:
            return f"{name}: no gate"
        if problem := gates[-1].get("error") or gates[-1].get("reason"):
            return f"{name}: {problem}"
        errors = [found[name]["error"] for found in rounds if "error" in found[name]]
        if errors:
            return f"{name}: {errors[0]}"
    return None if rounds else "no round without other load"
