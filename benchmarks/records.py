"""Settings of a measurement, and its finished blocks."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Args:
        folder: The workloads.
        results: JSON lines; finished blocks are appended.
        rounds: Blocks of every peer that count.
        seconds: Length of a block of the slowest usual peer.
        threads: Threads of torch.
        max_foreign: Processors used by others, above which a round is void.
        max_steal: Processors taken by the host, above which a round is void.
        gate_rows: Rows of each batch in the gate.
        sentences: Sentences that one call encodes.
        warmup: Steps of a block before the clock starts.
        gate_steps: Optimizer steps of the gate.
        isolated: Whether every block has a process of its own, which the report says.
        cycle: Blocks have whole rounds of so many batches and all begin with the first, so that
            what is compiled for their shapes fits; None for other batches in every round.
    """

    folder: Path
    results: Path
    rounds: int = 5
    seconds: float = 5.0
    threads: int = 1
    max_foreign: float = 0.15
    max_steal: float = 0.02
    gate_rows: int = 4
    sentences: int = 2000
    warmup: int = 2
    gate_steps: int = 20
    isolated: bool = True
    cycle: int | None = None


@dataclass(frozen=True)
class Race:
    """Peers on one workload with one size of model."""

    workload: str
    size: str
    peers: tuple[str, ...]

    @property
    def yardstick(self) -> str:
        """The peer whose speed determines the steps of a block."""
        return "trainer" if "trainer" in self.peers else self.peers[-1]


@dataclass
class Log:
    """The finished blocks, in memory and on disk."""

    file: Path
    records: list[Record] = field(default_factory=list)

    @classmethod
    def open(cls, file: Path, *, resume: bool) -> "Log":
        """Open a file of records; without ``resume`` start a new one and keep the old one."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if not resume and file.exists():
            file.replace(file.with_suffix(".old.jsonl"))
        lines = file.read_text().splitlines() if file.exists() else []
        return cls(file, [json.loads(line) for line in lines if line])

    def add(self, record: Record) -> None:
        """Append a record."""
        self.records.append(record)
        with self.file.open("a") as stream:
            stream.write(json.dumps(record) + "\n")

    def find(self, **fields: Any) -> list[Record]:
        """Return the records with these fields."""
        return [
            record
            for record in self.records
            if all(record.get(name) == value for name, value in fields.items())
        ]


def valid_rounds(log: Log, race: Race, settings: Settings) -> Iterator[dict[str, Record]]:
    """Return, by peer, the complete rounds in which nothing else ran."""
    blocks = log.find(kind="block", workload=race.workload, size=race.size)
    for number in sorted({block["round"] for block in blocks}):
        found = {block["peer"]: block for block in blocks if block["round"] == number}
        quiet = all(
            block["foreign"] <= settings.max_foreign and block["steal"] <= settings.max_steal
            for block in found.values()
        )
        if quiet and set(race.peers) <= set(found):
            yield found
