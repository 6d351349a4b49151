"""Calls of many clients, joined to batches: one thread tokenizes while another one computes."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

logger = logging.getLogger(__name__)

# Most rows of a call that are taken at once, so that a long call does not hold up short ones.
SHARE = 16
# Seconds for which rows gather before they are tokenized while the model is busy.
GATHER = 0.004


class Key(NamedTuple):
    """What is computed; rows of calls with equal keys are tokenized and described together."""

    tasks: tuple[str, ...] | None  # None for vectors
    options: tuple[tuple[str, Any], ...] = ()  # of `start`, or of `start_vectors`


class Result(NamedTuple):
    """What a call gets: predictions by task, or vectors, (n, D)."""

    values: Any
    tokens: int  # those of its rows; of windows and choices none


class BusyError(Exception):
    """Too many rows wait."""


class NamedJob(NamedTuple):
    """A job of ONNX Runtime for one task."""

    name: str
    job: Any

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return int(self.job.tokens)

    @property
    def encoded(self) -> list[Any]:
        """The tokens of its rows."""
        return list(self.job.units)

    def describe(self) -> dict[str, list[Any]] | Any:
        """Return predictions by task, or vectors."""
        found = self.job.describe()
        return {self.name: found} if self.name else found


class JoinedOnnx:
    """A `MinBertOnnx` with the methods of `MinBertJoined`; its batches have equal rows once."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.list_tasks, self.choose_tasks = model.list_tasks, model.choose_tasks

    def start(self, tasks: Sequence[str], rows: Sequence[Any], top_k: int | None) -> list[Any]:
        """Tokenize rows for `predict_all`."""
        names = self.choose_tasks(rows, tasks)
        return [NamedJob(name, self.model.start(name, rows, top_k)) for name in names]

    def start_vectors(self, texts: Sequence[str], **options: Any) -> list[Any]:
        """Tokenize texts for `encode`."""
        return [NamedJob("", self.model.start_vectors(texts, **options))]

    def compute(self, jobs: Sequence[NamedJob], max_tokens: int | None = None) -> None:
        """Compute all rows of jobs."""
        self.model.compute([each.job for each in jobs], max_tokens)


@dataclass(eq=False)
class Call:
    """The rows of a client."""

    key: Key
    rows: Sequence[Any]
    future: "asyncio.Future[Result]"
    taken: int = 0  # rows that are tokenized
    results: list[Result] = field(default_factory=list)
    done: int = 0  # rows with a result


Parts = list[tuple[Call, int]]  # calls, each with a number of its rows


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
        batches: Number of batches that were computed.
        computed_rows: Number of their rows.
        computed_tokens: Number of their tokens.
    """

    def __init__(self, model: Any, max_tokens: int, max_wait: float, max_rows: int) -> None:
        """Start the threads.

        Args:
            model: With `start`, `start_vectors` and `compute`, as `MinBertJoined`.
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
        self.batches = self.computed_rows = self.computed_tokens = 0
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
            count = min(SHARE, len(call.rows) - call.taken)
            rows += count
            taken.setdefault(call.key, []).append((call, count))
            if call.taken + count < len(call.rows):
                self.waiting.append(call)
        return taken.values()

    def _start(self, parts: Parts) -> list[Bundle]:
        """Tokenize rows together; if one is bad, those of each call."""
        rows = [row for call, count in parts for row in call.rows[call.taken : call.taken + count]]
        try:
            jobs = self._start_rows(parts[0][0].key, rows)
        except Exception as error:
            if len(parts) > 1:
                return [bundle for part in parts for bundle in self._start([part])]
            ((call, _),) = parts
            failure = error
            if call.taken:
                try:  # all rows, so that the message has the right number
                    self._start_rows(call.key, call.rows)
                except Exception as whole:
                    failure = whole
            _answer([(call, failure)])
            return []
        for call, count in parts:
            call.taken += count
        return [Bundle(parts, jobs)]

    def _start_rows(self, key: Key, rows: Sequence[Any]) -> list[Any]:
        options = dict(key.options)
        if key.tasks is None:
            return self.model.start_vectors(rows, **options)
        return self.model.start(key.tasks, rows, **options)

    def _compute(self) -> None:
        while True:
            with self.changed:
                self.is_computing = False
                self.changed.wait_for(lambda: self.ready)
                self.is_computing = True
                bundles = [self.ready.popleft()]
                while self.ready and sum(each.tokens for each in bundles) < self.max_tokens:
                    bundles.append(self.ready.popleft())
                self.changed.notify_all()
            try:
                jobs = [job for bundle in bundles for job in bundle.jobs]
                self.model.compute(jobs, self.max_tokens)
                answers = [answer for bundle in bundles for answer in _share(bundle)]
            except Exception as error:
                logger.exception("a batch could not be computed")
                calls = [call for bundle in bundles for call, _ in bundle.parts]
                failure = RuntimeError(f"the batch could not be computed ({type(error).__name__})")
                answers = [(call, failure) for call in calls]
            self.crowd = sum(len(bundle.parts) for bundle in bundles)
            _answer(answers)
            self.batches += 1
            self.computed_rows += sum(count for bundle in bundles for _, count in bundle.parts)
            self.computed_tokens += sum(bundle.tokens for bundle in bundles)


def _share(bundle: Bundle) -> list[tuple[Call, Any]]:
    """Give every call the results of its rows; return the calls that are complete."""
    described = [job.describe() for job in bundle.jobs]
    is_predicted = isinstance(described[0], dict)
    values = (
        {name: found for each in described for name, found in each.items()}
        if is_predicted
        else None
    )
    encoded = bundle.jobs[0].encoded
    is_by_row = len(encoded) == sum(count for _, count in bundle.parts)
    complete, first = [], 0
    for call, count in bundle.parts:
        rows = slice(first, first + count)
        mine = (
            {name: found[rows] for name, found in values.items()} if values else described[0][rows]
        )
        tokens = sum(row.tokens for row in encoded[rows]) if is_by_row else 0
        call.results.append(Result(mine, tokens))
        call.done += count
        first += count
        if call.done == len(call.rows):
            complete.append((call, _join(call.results)))
    return complete


def _join(results: Sequence[Result]) -> Result:
    """Join the results of the rows of a call."""
    if len(results) == 1:
        return results[0]
    tokens = sum(result.tokens for result in results)
    parts = [result.values for result in results]
    if isinstance(parts[0], dict):
        names = parts[0]
        return Result(
            {name: [row for part in parts for row in part[name]] for name in names}, tokens
        )
    return Result(np.concatenate(parts), tokens)


def _answer(answers: Sequence[tuple[Call, Any]]) -> None:
    """Set results or exceptions of calls, in the loop that waits for them."""

    def answer() -> None:
        for call, result in answers:
            if call.future.done():  # its client is gone
                continue
            if isinstance(result, Exception):
                call.future.set_exception(result)
            else:
                call.future.set_result(result)

    if answers:
        answers[0][0].future.get_loop().call_soon_threadsafe(answer)
