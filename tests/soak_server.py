"""Load a server for long with all that comes: python -m tests.soak_server CHECKPOINT SECONDS.

Clients ask every task and for vectors, with right and bad requests; some read slowly, some go away.
Every answer is compared with that of the model alone; the memory of the server is printed. At the
end SIGTERM comes under load: each request that was accepted must be answered.
"""

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from minbert_cli.checkpoints import load_encoder
from tests.minbert_cli.test_serving import Client

FILMS = ("the sea", "two dogs", "a war", "my home")
VIEWS = ("bored me", "I will see again", "is too long " * 9, "nobody needs")
TEXTS = [f"a film about {film} that {view}" for film in FILMS for view in VIEWS]
BAD = [
    b"{",
    {"inputs": 3},
    {"inputs": []},
    {"inputs": "a", "truncate": False},
    {"inputs": "x" * 9_000_000},
]
TOLERANCE = 1e-4


def make_rows(kind, draw):
    """Draw rows of a kind."""
    count = draw.choice([1, 1, 1, 2, 8, 100])
    if kind == "pairs":
        return [[draw.choice(TEXTS), draw.choice(TEXTS)] for _ in range(count)]
    return draw.choices(TEXTS, k=count)


def find_expected(model):
    """Return a function that returns the answer of the model alone, from memory after the first."""
    known, lock = {}, threading.Lock()

    def expect(task, row):
        key = json.dumps([task, row])
        with lock:
            if key not in known:
                known[key] = (
                    model.predict(task, [row])[0]
                    if task
                    else model.encode([row], normalize=True)[0].numpy()
                )
            return known[key]

    return expect


def is_same(found, expected):
    """Compare an answer for a row."""
    if isinstance(expected, np.ndarray):
        return np.abs(np.array(found) - expected).max() < TOLERANCE
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_same, found, expected))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            is_same(found[x], expected[x]) for x in found
        )
    is_near = isinstance(expected, float) and abs(found - expected) < TOLERANCE
    return is_near or found == expected


def measure_memory(process):
    """Return the proportional memory of a server and its workers, in MiB."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    total = 0
    for number in [str(process), *children]:
        rollup = Path(f"/proc/{number}/smaps_rollup").read_text()
        total += int(
            next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
        )
    return total / 1024


class Soak:
    """Clients of all kinds, and what happened to them."""

    def __init__(self, port, model, tasks):
        self.port, self.expect, self.tasks = port, find_expected(model), tasks
        self.counts, self.is_ending = Counter(), threading.Event()

    def ask(self, number):
        """Ask until the end."""
        draw, client = random.Random(number), Client(self.port)
        while not self.is_ending.is_set():
            way = draw.choices(["right", "bad", "slow", "gone"], [90, 6, 2, 2])[0]
            try:
                client = getattr(self, way)(draw, client) or client
                self.counts[way] += 1
            except OSError as error:
                if not self.is_ending.is_set():
                    self.counts[f"{way}: {type(error).__name__}"] += 1
                client = Client(self.port)

    def right(self, draw, client):
        """Ask for vectors or predictions, and compare them."""
        task = draw.choice([None, *self.tasks])
        rows = make_rows(self.tasks.get(task), draw)
        if task is None:
            status, _, found = client.ask("/embed", {"inputs": rows})
        else:
            status, _, found = client.ask("/predict_all", {"rows": rows, "tasks": [task]})
        if status == 429:
            self.counts["429"] += 1
            return
        if status != 200:
            self.counts[f"status {status}"] += 1
            return
        answers = found if task is None else found["predictions"][task]
        same = len(answers) == len(rows) and all(
            is_same(answer, self.expect(task, row))
            for answer, row in zip(answers, rows, strict=True)
        )
        self.counts["rows"] += len(rows)
        self.counts["wrong"] += not same

    def bad(self, draw, client):
        """Send a mistake."""
        status, _, _ = client.ask("/embed", draw.choice(BAD))
        self.counts["unexpected"] += not 400 <= status < 425
        return Client(self.port) if status == 413 else None

    def slow(self, draw, _):
        """Send a request byte by byte."""
        body = json.dumps({"inputs": draw.choice(TEXTS)}).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(
                f"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            )
            for start in range(0, len(body), 5):
                connection.sendall(body[start : start + 5])
                time.sleep(0.05)
            self.counts["unexpected"] += b" 200 " not in connection.recv(20)

    def gone(self, draw, _):
        """Ask and go away."""
        gone = Client(self.port)
        gone.connection.request("POST", "/embed", json.dumps({"inputs": draw.choices(TEXTS, k=50)}))
        time.sleep(draw.random() / 5)
        gone.connection.close()


def main():
    """Run a server and its clients."""
    checkpoint, seconds, *flags = sys.argv[1:]
    model = load_encoder(checkpoint, None)
    tasks = {name: model.config.task(name).row_kind for name in model.config.tasks or {}}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "minbert_cli", "serve", checkpoint, "--port", str(port)]
    process = subprocess.Popen([*command, "--precision", "float32", *flags])
    while True:
        try:
            Client(port).ask("/health")
            break
        except OSError:
            time.sleep(0.1)
    soak = Soak(port, model, tasks)
    threads = [threading.Thread(target=soak.ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    start = time.monotonic()
    while time.monotonic() - start < float(seconds):
        time.sleep(min(30, float(seconds) / 4))
        memory, counts = measure_memory(process.pid), dict(soak.counts)
        print(f"{time.monotonic() - start:.0f} s, {memory:.0f} MiB, {counts}", flush=True)  # noqa: T201
    rows = TEXTS * 50
    last: list[int] = []
    final = [
        threading.Thread(
            target=lambda: last.append(Client(port).ask("/embed", {"inputs": rows})[0])
        )
        for _ in range(4)
    ]
    for thread in final:
        thread.start()
    time.sleep(0.5)
    soak.is_ending.set()
    process.send_signal(signal.SIGTERM)
    for thread in [*threads, *final]:
        thread.join()
    print(f"after SIGTERM: {last} of {len(rows)} rows each; status {process.wait(60)}")  # noqa: T201


if __name__ == "__main__":
    main()
