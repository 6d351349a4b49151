"""Description of the machine, and its load from other processes."""

import contextlib
import os
import platform
import resource
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "accelerate", "datasets", "sentence-transformers", "numpy")
# instruction sets that matter for matrix products, as Linux names them
INSTRUCTIONS = (
    "avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16",
    "amx_int8", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
STEAL = 7  # column of the cpu line of /proc/stat
IDLE = (3, 4)  # idle and waiting for input


@dataclass(frozen=True)
class Snapshot:
    """Processor times of the machine, and of this process and its children.

    Args:
        wall: Wall clock, in seconds.
        busy: Busy time of all processors, in seconds.
        steal: Time taken by other guests of the host, in seconds.
        own: Time of this process and of finished children, in seconds.
        load: Load average of the last minute.
    """

    wall: float
    busy: float
    steal: float
    own: float
    load: float

    @classmethod
    def take(cls) -> "Snapshot":
        """Read the clocks; without /proc, other processes count as idle."""
        own = sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        stat = Path("/proc/stat")
        busy, steal = own, 0.0
        if stat.exists():
            ticks = [int(value) for value in stat.read_text().split("\n", 1)[0].split()[1:9]]
            second = os.sysconf("SC_CLK_TCK")
            steal = ticks[STEAL] / second
            busy = (sum(ticks) - sum(ticks[column] for column in IDLE)) / second - steal
        return cls(time.perf_counter(), busy, steal, own, os.getloadavg()[0])

    def until(self, later: "Snapshot") -> dict[str, float]:
        """Return the processors that others used and stole until a later snapshot."""
        wall = later.wall - self.wall
        foreign = (later.busy - self.busy) - (later.own - self.own)
        return {
            "foreign": max(0.0, foreign / wall),
            "steal": (later.steal - self.steal) / wall,
            "load_before": self.load,
            "load_after": later.load,
        }


def read_memory() -> dict[str, float]:
    """Return the current and the peak memory of this process, in MiB."""
    status = Path("/proc/self/status")
    if not status.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"now": peak, "peak": peak}
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    # ru_maxrss includes the process that started this one
    return {
        "now": int(fields["VmRSS"].split()[0]) / 1024,
        "peak": int(fields["VmHWM"].split()[0]) / 1024,
    }


class Memory:
    """Memory use of this process since the start of a measurement."""

    def __init__(self) -> None:
        self.before = read_memory()
        with contextlib.suppress(OSError):  # resets the peak where supported
            Path("/proc/self/clear_refs").write_text("5")

    def used(self) -> dict[str, float]:
        """Return the peak, and the increase since the start, in MiB."""
        peak = read_memory()["peak"]
        return {"peak_mib": max(peak, self.before["peak"]), "added_mib": peak - self.before["now"]}


def count_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_instruction_sets() -> list[str]:
    """Return those of ``INSTRUCTIONS`` that the processor has; none without /proc."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    return [name for name in INSTRUCTIONS if name in flags]


def describe_machine() -> dict[str, Any]:
    """Describe processor, system and versions."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {"cpu": cpu, "cores": count_cores(), "system": platform.platform(), "versions": versions}
