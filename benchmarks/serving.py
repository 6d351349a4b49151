"""Servers under load: requests per second and latencies, with one text a request.

    python -m benchmarks.serving --data_dir <folder> \
        --server minbert openai:NAME "minbert serve <folder> --port {port}" \
        --server fastapi fastapi "uvicorn benchmarks.fastapi_server:app --port {port}"

A round starts one server after the other, compares vectors with those of the first, and lets all
clients call: each sends its next text as soon as the last answer is there. Then requests arrive at
random times, at half of the rate just measured. Clients and server share the processors. A URL in
place of a command is a server that runs already.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import selectors
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from .machine import Snapshot, describe_machine, find_instruction_sets
from .report import Spread, format_table
from .workloads import FILES, read_labelled

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
PENDING = 200  # requests under way at once when they arrive at random; more wait
CHECKED = 64  # texts whose vectors are compared
PATIENCE = 180  # seconds that a server may take to start
CURVE = (1, 4, 16)  # clients of further loads, for the picture
TRIES = 3  # of a block during which something else ran
SPREADS = ("requests/s", "p50, ms", "p99, ms", "steady requests/s", "steady p50", "steady p99")
MEDIANS = ("errors", "MiB", "start, s")
KINDS: dict[str, tuple[str, str, tuple[Any, ...]]] = {  # path, key of the text, way to the vector
    "openai": ("/v1/embeddings", "input", ("data", 0, "embedding")),
    "tei-embed": ("/embed", "inputs", (0,)),
    "tei-predict": ("/predict", "inputs", ()),
    "fastapi": ("/embed", "text", ()),
}


class Server(NamedTuple):
    """A server: its name in the table, ``kind`` or ``kind:model``, and the command or URL."""

    name: str
    kind: str
    command: str

    def make_requests(self, texts: Sequence[str]) -> list[bytes]:
        """Return HTTP requests, one for each text."""
        kind, _, model = self.kind.partition(":")
        path, key, _ = KINDS[kind]
        more = {"model": model} if model else {}
        bodies = [json.dumps({key: text, **more}).encode() for text in texts]
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]

    def read_vector(self, answer: bytes) -> Any:
        """Return the vector of an answer (of classes, their scores), with length 1."""
        found = json.loads(answer)
        for step in KINDS[self.kind.partition(":")[0]][2]:
            found = found[step]
        vector = np.array([cell["score"] if isinstance(cell, dict) else cell for cell in found])
        return vector / np.linalg.norm(vector)


class Connections:
    """Connections to a server, which are kept for further requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def call(self, request: bytes) -> bytes:
        """Send a request and return the body of the answer.

        Raises:
            OSError: If there is no answer, or one without status 200.
        """
        while self.free and self.free[-1][0].at_eof():
            self.free.pop()[1].close()
        streams = self.free.pop() if self.free else None
        reader, writer = streams or await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            body = await reader.readexactly(int(length[1]) if length else 0)
        except (OSError, EOFError) as error:
            writer.close()
            raise ConnectionError("no answer") from error
        self.free.append((reader, writer))
        if b" 200 " not in head[:16]:
            raise ConnectionError(f"{head!r}: {body[:300]!r}")
        return body

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self.free:
            writer.close()


async def call_at_once(port: int, requests: Sequence[bytes]) -> list[bytes]:
    """Return the answers to requests that are sent all at once."""
    async with asyncio.timeout(60):
        with contextlib.closing(Connections(port)) as connections:
            return list(await asyncio.gather(*map(connections.call, requests)))


async def load(
    port: int, requests: Sequence[bytes], seconds: float, clients: int, rate: float | None = None
) -> tuple[float, list[float], int]:
    """Let clients call a server, each without a pause, or together at a rate and random times.

    Returns:
        Answers per second within the time; the milliseconds of each, from the moment that its
        request was due, even if no client was free; and the number of errors.
    """
    draw, waiting, start = random.Random(0), itertools.cycle(requests), time.perf_counter()
    gaps = (draw.expovariate(rate) for _ in itertools.count()) if rate else None
    arrivals = itertools.accumulate(gaps, initial=start) if gaps else None
    times: list[float] = []
    errors = late = 0

    async def call_in_turn() -> None:
        nonlocal errors, late
        while (due := next(arrivals) if arrivals else time.perf_counter()) < start + seconds:
            await asyncio.sleep(due - time.perf_counter())
            try:
                await connections.call(next(waiting))
                times.append(1000 * (time.perf_counter() - due))
                late += time.perf_counter() > start + seconds
            except OSError:
                errors += 1

    with contextlib.closing(Connections(port)) as connections:
        await asyncio.gather(*(call_in_turn() for _ in range(clients)))
    return (len(times) - late) / seconds, times, errors


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a loop that wakes up at the microsecond, not at the next millisecond."""
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)


@contextlib.contextmanager
def start(server: Server) -> Iterator[tuple[int, int]]:
    """Start a server, and stop it at the end; yields its port and its group of processes."""
    if server.command.startswith("http"):
        yield int(server.command.rstrip("/").rpartition(":")[2]), 0
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command, begin = shlex.split(server.command.replace("{port}", str(port))), time.monotonic()
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as process,  # noqa: S603
    ):
        try:
            while True:
                with contextlib.suppress(OSError):
                    run(call_at_once(port, server.make_requests(["a short text"])))
                    break
                if process.poll() is not None or time.monotonic() - begin > PATIENCE:
                    log.seek(0)
                    raise RuntimeError(f"{server.name}: {log.read()[-2000:].decode()}")
                time.sleep(0.1)
            yield port, process.pid
        finally:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, sign)
                    process.wait(20)


def read_memory(group: int) -> float:
    """Return the memory of a group of processes, in MiB; of what they share, each has its part."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def measure(server: Server, texts: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """Start a server, measure it, and stop it."""
    requests, before = server.make_requests(texts), Snapshot.take()
    with start(server) as (port, group):
        ready = time.perf_counter() - before.wall
        answers = run(call_at_once(port, requests[:CHECKED]))
        run(load(port, requests, args.warmup, args.clients))
        rate, times, errors = run(load(port, requests, args.seconds, args.clients))
        steady = args.rate or rate / 2
        _, later, more = run(load(port, requests, args.seconds, PENDING, steady))
        memory, curve = read_memory(group), []
        for clients in CURVE:
            few, each, _ = run(load(port, requests, args.seconds / 2, clients))
            curve.append((few, median(each)))
    (p50, p99), (steady_p50, steady_p99) = (np.percentile(x, (50, 99)) for x in (times, later))
    return {
        "server": server.name, "requests/s": rate, "p50, ms": p50, "p99, ms": p99,
        "steady requests/s": steady, "steady p50": steady_p50, "steady p99": steady_p99,
        "errors": errors + more, "MiB": memory, "start, s": ready,
        "curve": [*curve, (rate, p50)],
        "vectors": list(map(server.read_vector, answers)), **before.until(Snapshot.take()),
    }  # fmt: skip


def read_texts(data_dir: Path, count: int) -> list[str]:
    """Draw as many sentences of SST as questions of Quora, in a mixed order."""
    draw, texts = random.Random(0), []
    for task in ("sst", "quora"):
        found = [row[0] for _, row in read_labelled(data_dir, *FILES[task])]
        texts += draw.sample(found, count // 2)
    return draw.sample(texts, len(texts))


def tabulate(blocks: Sequence[dict[str, Any]]) -> str:
    """Format medians, minima and maxima of the rounds, and ratios to the first server."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for block in blocks:
        by_name.setdefault(block["server"], []).append(block)
    first, lines = by_name[blocks[0]["server"]], []
    for name, own in by_name.items():
        pairs = list(zip(own, first, strict=True))
        cosines = [np.dot(*rows) for rows in zip(*(x["vectors"] for x in pairs[0]), strict=True)]
        ratio = Spread.of([one["requests/s"] / other["requests/s"] for one, other in pairs])
        cells = {"server": name, "/ first": str(ratio), "least cosine": f"{min(cosines):.4f}"}
        cells |= {key: str(Spread.of([block[key] for block in own])) for key in SPREADS}
        lines.append(cells | {key: f"{median(x[key] for x in own):,.0f}" for key in MEDIANS})
    return format_table([*lines[0]], [[*line.values()] for line in lines])


def draw(file: Path, blocks: Sequence[dict[str, Any]]) -> None:
    """Draw the latency of each server by its throughput, a point for each number of clients."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(block["server"] for block in blocks):
        curves = np.array([block["curve"] for block in blocks if block["server"] == name])
        style = "-" if name.startswith("minbert") else "--"
        axes.plot(*np.median(curves, axis=0).T, f"{style}o", label=name)
    counts = ", ".join(map(str, CURVE))
    axes.set(xlabel="requests per second", ylabel="median latency, ms", yscale="log")
    axes.set_title(f"One text per request; points: {counts} and all clients", fontsize=10)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(file, dpi=150)


def main() -> None:
    """Measure all servers in turn, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--server", nargs=3, action="append", metavar=("NAME", "KIND", "COMMAND"), required=True)
    add("--data_dir", type=Path, required=True, help="folder with texts of SST and Quora")
    add("--texts", type=int, default=4000)
    add("--clients", type=int, default=32)
    add("--seconds", type=float, default=10.0, help="of each load")
    add("--warmup", type=float, default=3.0, help="seconds")
    add("--rounds", type=int, default=3)
    add("--rate", type=float, help="at random times, for all; default: half of what each does")
    add("--plot", type=Path, help="picture of latency by throughput")
    add("--max_foreign", type=float, default=0.15, help="processors others may use in a block")
    args = parser.parse_args()
    texts, blocks = read_texts(args.data_dir, args.texts), []
    for number in range(args.rounds):
        for words in args.server[:: -1 if number % 2 else 1]:
            for _ in range(TRIES):
                block = measure(Server(*words), texts, args)
                if block["foreign"] <= args.max_foreign:
                    break
            blocks.append(block)
            print({key: value for key, value in block.items() if key != "vectors"}, flush=True)
    print(describe_machine(), ", ".join(find_instruction_sets()))
    print(tabulate(blocks))
    if args.plot:
        draw(args.plot, blocks)


if __name__ == "__main__":
    main()
