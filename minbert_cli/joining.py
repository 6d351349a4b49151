"""Calls of many clients, joined to batches: one thread tokenizes while another one computes."""

import asyncio
import ctypes
import itertools
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

logger = logging.getLogger(__name__)

SHARE = 16  # most rows of a call at once, so that a long call does not hold up short ones
# Batches after which memory that glibc keeps in pieces goes back to the system: it would grow for
# hours, since requests of all sizes are allocated in several threads.
TRIM = 500
GATHER = 0.004  # seconds for which rows gather before they are tokenized while the model is busy
VECTORS = ""  # among the names of tasks


class Key(NamedTuple):
    """What is computed; rows of calls with equal keys are tokenized and described together."""

    tasks: tuple[str, ...] | None  # None for vectors
    options: tuple[tuple[str, Any], ...] = ()  # of `start`, or of `start_vectors`


class Result(NamedTuple):
    """What a call gets for each of its rows, by task: predictions, or as `VECTORS` vectors."""

    values: dict[str, list[Any]]
    tokens: int  # those of its rows; 0 if its task splits them, as tags


class BusyError(Exception):
    """Too many rows wait."""


@dataclass(eq=False)
class Call:
    """The rows of a client."""

    key: Key
    rows: Sequence[Any]
    future: "asyncio.Future[Result]"
    taken: int = 0  # rows that are tokenized
    results: list[Result] = field(default_factory=list)  # of its first rows
    done: int = 0  # rows with a result


class Part(NamedTuple):
    """Some rows of a call."""

    call: Call
    first: int
    size: int

    @property
    def rows(self) -> Sequence[Any]:
        """The rows."""
        return self.call.rows[self.first : self.first + self.size]


Parts = list[Part]
Answers = Sequence[tuple[Part, Result | Exception]]


class Bundle(NamedTuple):
    """Rows of several calls as tokens."""

    parts: Parts
    jobs: list[Any]

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return sum(job.tokens for job in self.jobs)


class Batcher:
    """Computes the rows of many clients in joined batches.

    Attributes:
        rows: Number of rows that wait or are computed.
        counts: Batches that were computed since these were set to 0, and their tokens.
    """

    def __init__(self, model: Any, max_tokens: int, max_wait: float, max_rows: int) -> None:
        """Start the threads.

        Args:
            model: A model, or a `MinBertOnnx`.
            max_tokens: Tokens that are computed together.
            max_wait: Seconds that an idle model waits for the clients of the last batch.
            max_rows: Rows that may wait.
        """
        self.model, self.max_tokens, self.max_wait = model, max_tokens, max_wait
        self.max_rows = max_rows
        self.full = max(SHARE, max_tokens // SHARE)  # rows of a bundle
        self.waiting: deque[Call] = deque()
        self.ready: deque[Bundle] = deque()
        self.changed = threading.Condition()
        self.is_computing = False
        self.crowd = 0  # calls in the last batch
        self.rows = 0
        self.counts = (0, 0)
        for work in (self._tokenize, self._compute):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    async def run(self, key: Key, rows: Sequence[Any]) -> Result:
        """Compute the rows of a call, at least one.

        Raises:
            BusyError: If too many rows wait.
            ValueError: If there is no such task or option, or a row is bad.
        """
        call = Call(key, rows, asyncio.get_running_loop().create_future())
        with self.changed:
            if self.rows and self.rows + len(rows) > self.max_rows:
                raise BusyError(f"{self.rows} rows wait already")
            self.rows += len(rows)
            self.waiting.append(call)
            self.changed.notify_all()
        try:
            return await call.future
        finally:
            with self.changed:
                self.rows -= len(rows)

    def _tokenize(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting and self._has_room())
                # a single client does not wait for others
                pause = GATHER if self.is_computing else self.max_wait if self.crowd > 1 else 0
                self.changed.wait_for(self._is_enough, pause)
                taken = self._take()
            bundles = [bundle for parts in taken for bundle in self._start(parts)]
            with self.changed:
                self.ready.extend(bundles)
                self.changed.notify_all()

    def _has_room(self) -> bool:
        return sum(bundle.tokens for bundle in self.ready) < 2 * self.max_tokens

    def _is_enough(self) -> bool:
        """Return whether a batch is full, or all clients of the last one are there again."""
        if not self.is_computing and len(self.waiting) >= self.crowd:
            return True
        return sum(len(call.rows) - call.taken for call in self.waiting) >= self.full

    def _take(self) -> Iterable[Parts]:
        """Take rows of the waiting calls in turn, by key; calls that have ended are left out."""
        taken: dict[Key, Parts] = {}
        rows = 0
        for _ in range(len(self.waiting)):
            if rows >= self.full:
                break
            call = self.waiting.popleft()
            if call.future.done():
                continue
            part = Part(call, call.taken, min(SHARE, len(call.rows) - call.taken))
            rows += part.size
            taken.setdefault(call.key, []).append(part)
            call.taken += part.size
            if call.taken < len(call.rows):
                self.waiting.append(call)
        return taken.values()

    def _start(self, parts: Parts) -> list[Bundle]:
        """Tokenize rows together; if one is bad, those of each call."""
        try:
            jobs = self._start_rows(parts[0].call.key, [row for part in parts for row in part.rows])
        except Exception as error:  # whatever it is, its caller gets it, and the thread goes on
            if len(parts) > 1:
                return [bundle for part in parts for bundle in self._start([part])]
            (part,) = parts
            failure = error
            if part.first:
                try:  # all rows, so that the message has the right number
                    self._start_rows(part.call.key, part.call.rows)
                except Exception as whole:
                    failure = whole
            _answer([(part, failure)])
            return []
        return [Bundle(parts, jobs)]

    def _start_rows(self, key: Key, rows: Sequence[Any]) -> list[Any]:
        options = dict(key.options)
        if key.tasks is None:
            return self.model.start_vectors(rows, **options)
        return self.model.start(key.tasks, rows, **options)

    def _compute(self) -> None:
        is_glibc = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")
        for number in itertools.count(1):
            if is_glibc and number % TRIM == 0:
                ctypes.CDLL(None).malloc_trim(0)
            with self.changed:
                self.changed.wait_for(lambda: self.ready)
                self.is_computing = True
                bundles = [self.ready.popleft()]
                size = bundles[0].tokens
                while self.ready and size < self.max_tokens:
                    bundles.append(self.ready.popleft())
                    size += bundles[-1].tokens
                self.changed.notify_all()
            answers = self._compute_bundles(bundles)
            with self.changed:
                self.is_computing = False
                self.crowd = len({id(part.call) for part, _ in answers})
                batches, tokens = self.counts
                self.counts = batches + 1, tokens + size
            _answer(answers)

    def _compute_bundles(self, bundles: Sequence[Bundle]) -> Answers:
        """Compute bundles together; return what each of their parts gets."""
        try:
            self.model.compute([job for bundle in bundles for job in bundle.jobs], self.max_tokens)
            return [answer for bundle in bundles for answer in _share(bundle)]
        except Exception as error:
            logger.exception("a batch could not be computed")
            failure = RuntimeError(f"the batch could not be computed ({type(error).__name__})")
            return [(part, failure) for bundle in bundles for part in bundle.parts]


def _share(bundle: Bundle) -> Iterator[tuple[Part, Result]]:
    """Yield the results of the rows of every call."""
    values: dict[str, list[Any]] = {}
    for job in bundle.jobs:
        found = job.describe()
        values |= {VECTORS: list(np.asarray(found))} if job.has_vectors else found
    sizes = [unit.tokens for unit in bundle.jobs[0].encoded]
    member: Any = bundle.jobs[0].members[0]
    reader = getattr(member, "reader", member)  # that of an ONNX export has one
    if getattr(reader, "has_windows", False):  # those of all texts of a row
        texts = [sum(window.tokens for window in windows) for windows in reader.texts]
        count = reader.num_texts
        sizes = [sum(texts[at : at + count]) for at in range(0, len(texts), count)]
    is_by_row = len(sizes) == sum(part.size for part in bundle.parts)
    first = 0
    for part in bundle.parts:
        rows = slice(first, first + part.size)
        tokens = sum(sizes[rows]) if is_by_row else 0
        yield part, Result({name: each[rows] for name, each in values.items()}, tokens)
        first += part.size


def _answer(answers: Answers) -> None:
    """Give calls results or an exception, in the loop that waits for them."""

    def answer() -> None:
        for part, result in answers:
            call = part.call
            if call.future.done():  # its client is gone, or another row was bad
                continue
            if isinstance(result, Exception):
                call.future.set_exception(result)
                continue
            call.results.append(result)  # in the order of the rows, as all threads keep it
            call.done += part.size
            if call.done == len(call.rows):
                values = {
                    name: [row for each in call.results for row in each.values[name]]
                    for name in result.values
                }
                call.future.set_result(Result(values, sum(each.tokens for each in call.results)))

    if answers:
        answers[0][0].call.future.get_loop().call_soon_threadsafe(answer)
