"""`MinBertOnnx`: the predictions and vectors of a model in ONNX Runtime.

Shapes: N sequences of L tokens, M texts, D size of a vector.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .tokenizing import FastTokenizer

if TYPE_CHECKING:
    from modeling_minbert import names, rows, spans, texts
else:
    from .shared import names, rows, spans, texts

Array = NDArray[Any]
EXPORT = "minbert export <checkpoint> --format onnx --output_dir <folder>"


class Unit(NamedTuple):
    """Sequences that are computed in one batch: those of a text, or of two separate ones."""

    input_ids: list[list[int]]
    token_type_ids: list[list[int]]
    counts: list[int]  # sequences of each text

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return sum(map(len, self.input_ids))


class Job:
    """Rows of a task, or texts that become vectors.

    Args:
        reader: What tokenizes the rows.
        given: The rows.
        outputs: Names of the outputs of the graph that are needed.
        finish: Makes the predictions, or the vectors, of a computed job.
        first: Number of the first row, for messages.

    Attributes:
        tokens: Number of tokens.
        results: The outputs of each unit by name; an output of token scores is longer than these.
    """

    def __init__(
        self,
        reader: Any,
        given: Sequence[object],
        outputs: Sequence[str],
        finish: Callable[["Job"], Any],
        first: int = 0,
    ) -> None:
        self.reader, self.outputs, self.finish = reader, outputs, finish
        encoded = reader.encode(given, first) if len(given) else []
        self.units = [Unit(*row, [1] * len(row.input_ids)) for row in encoded]
        if encoded and getattr(reader, "joins_windows", False):
            self.units = list(join_windows(reader.texts, reader.num_texts))
        self.tokens = sum(unit.tokens for unit in self.units)
        self.results: list[dict[str, Array]] = [{} for _ in self.units]

    @property
    def reads_texts(self) -> bool:
        """Whether the outputs have a row for each text, not for each sequence."""
        return not self.outputs[0].startswith("vectors.") and isinstance(
            self.reader, rows.TextReader
        )

    def collect(self, kind: str) -> Array:
        """Return the output of a kind, such as `scores`, of all units."""
        (name,) = (name for name in self.outputs if name.endswith(f".{kind}"))
        return np.stack([result[name] for result in self.results])

    def describe(self) -> Any:
        """Return the predictions of the rows, a list, or the vectors of the texts, (n, D)."""
        return self.finish(self)


def join_windows(windows: Sequence[Sequence[Any]], num_texts: int) -> Iterator[Unit]:
    """Join the windows of the texts of each row: their mean goes into a head."""
    for start in range(0, len(windows), num_texts):
        chosen = windows[start : start + num_texts]
        ids, types = ([x[at][0] for text in chosen for x in text] for at in (0, 1))
        yield Unit(ids, types, list(map(len, chosen)))


def weigh(counts: Sequence[int], tokens: Sequence[int]) -> Array:
    """Return the weights of sequences in the vector of each text, by their tokens, (M, N)."""
    owners = np.repeat(np.arange(len(counts)), counts)
    sizes = np.asarray(tokens, np.float32)
    mix = np.zeros((len(counts), len(sizes)), np.float32)
    mix[owners, np.arange(len(sizes))] = sizes / np.bincount(owners, sizes)[owners]
    return mix


def scale(vectors: Array) -> Array:
    """Scale vectors to length 1."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)


class _Task(SimpleNamespace):
    """A task, as `minbert.json` describes it."""

    is_pretraining = False

    def plan_vectors(self, config: Any) -> "rows.VectorPlan":
        """Return how the vectors of its texts are made."""
        del config
        return rows.VectorPlan(texts.Encoding(**self.encoding), *self.vectors)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file that cannot be read, whatever library says so."""
    try:
        yield
    except Exception as error:
        reason = "no such file" if not path.is_file() else f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} cannot be read ({reason}); export again: {EXPORT}") from error


class MinBertOnnx(rows.MinBertPredicting, rows.MinBertVectors[Array]):
    """A model that `minbert export --format onnx` has written, without torch.

    It predicts and embeds as the model that it was exported from, with the same arguments; only
    `precision` is that of the file, and there is no progress bar. A server can compute the rows of
    several requests together: `start`, which any number of threads may call, `compute` in one of
    them, and `describe` of each job.

    Args:
        folder: The folder.

    Raises:
        ValueError: If a file is missing or damaged, or from another version of minBERT.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.name_or_path = os.fspath(folder)
        path = Path(folder)
        with naming(path / rows.ONNX_SETTINGS):
            settings = json.loads((path / rows.ONNX_SETTINGS).read_text(encoding="utf-8"))
            if settings["version"] != rows.ONNX_VERSION:
                raise ValueError(
                    f"version {settings['version']}, but this minBERT reads {rows.ONNX_VERSION}"
                )
            self.config: Any = SimpleNamespace(**settings["config"], task=self._find_task)
            self.config.embedding = SimpleNamespace(**self.config.embedding)
            described = {**settings["tasks"], **settings["hidden_tasks"]}
            self._tasks = {name: _Task(**fields) for name, fields in described.items()}
            self._names = list(settings["tasks"])
        with naming(path / "tokenizer.json"):
            tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
            self.tokenizer: Any = FastTokenizer(tokenizer, settings["tokenizer"])
        with naming(path / rows.ONNX_FILE):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))  # as torch
            self.session = onnxruntime.InferenceSession(
                path / rows.ONNX_FILE,
                options,
                providers=["CPUExecutionProvider"],
                # which takes a fifth longer than the two operations that it joins
                disabled_optimizers=["SkipLayerNormFusion"],
            )
            self._inputs = [entry.name for entry in self.session.get_inputs()]
            outputs = [entry.name for entry in self.session.get_outputs()]
            self._outputs = {
                name: [key for key in outputs if key.rpartition(".")[0] == name]
                for name in self._names
            }
            if not all(self._outputs.values()) or "mix" not in self._inputs:
                raise ValueError(f"its tasks are not those of {rows.ONNX_SETTINGS}")

    def list_tasks(self) -> dict[str, dict[str, Any]]:
        """Return type, kind of rows and labels, or None, of the tasks by name."""
        return {
            name: {
                "problem_type": self._tasks[name].problem_type,
                "rows": self._tasks[name].row_kind,
                "labels": getattr(self._tasks[name], "labels", None),
            }
            for name in self._names
        }

    def start(self, task: str, given: Sequence[object], top_k: int | None = None) -> Job:
        """Check and tokenize rows, as for `predict`.

        Raises:
            ValueError: If a row is none of the task.
        """
        rows.check_container(given, task)
        return self._prepare(task, top_k)(list(given), 0)

    def start_vectors(self, sentences: Iterable[str], **options: Any) -> Job:
        """Check and tokenize texts, as for `encode`, whose options these are."""
        rows.check_container(sentences, "encode")
        return self._start_vectors(list(sentences), self._plan(**options))

    def compute(self, jobs: Sequence[Job], max_tokens: int | None = None) -> None:
        """Compute jobs of any tasks together, equal sequences once.

        Args:
            jobs: The jobs; afterwards `describe` of each returns its predictions.
            max_tokens: Tokens of a batch at most, paddings included; None for 1,024.
        """
        places: dict[Any, list[tuple[Job, int]]] = {}
        for job in jobs:
            for number, unit in enumerate(job.units):
                key = (tuple(unit.counts), *map(tuple, unit.input_ids + unit.token_type_ids))
                places.setdefault(key, []).append((job, number))
        waiting = list(places.values())
        units: list[Any] = [job.units[number] for ((job, number), *_) in waiting]
        for batch in rows.split_batches(units, max_tokens or rows.CPU_TOKENS, packed=False):
            self._run([units[at] for at in batch], [waiting[at] for at in batch])

    def _run(self, units: Sequence[Unit], waiting: Sequence[Sequence[tuple[Job, int]]]) -> None:
        """Compute a batch, and give the jobs that wait for a unit its outputs."""
        sequences = [ids for unit in units for ids in unit.input_ids]
        types = [kinds for unit in units for kinds in unit.token_type_ids]
        lengths = list(map(len, sequences))
        ids = np.full((len(sequences), max(lengths)), self.config.pad_token_id, np.int64)
        mask, kinds = np.zeros_like(ids), np.zeros_like(ids)
        for number, length in enumerate(lengths):
            ids[number, :length], kinds[number, :length] = sequences[number], types[number]
            mask[number, :length] = 1
        mix = weigh([count for unit in units for count in unit.counts], lengths)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds, "mix": mix}
        wanted = list(dict.fromkeys(x for each in waiting for job, _ in each for x in job.outputs))
        given = {name: inputs[name] for name in self._inputs}
        found = dict(zip(wanted, self.session.run(wanted, given), strict=True))
        text = sequence = 0
        for unit, each in zip(units, waiting, strict=True):
            for job, number in each:
                row = text if job.reads_texts else sequence
                job.results[number] = {name: found[name][row] for name in job.outputs}
            text, sequence = text + len(unit.counts), sequence + len(unit.input_ids)

    # Tasks

    def _find_task(self, name: str) -> _Task:
        if name not in self._tasks:
            raise ValueError(names.unknown("task", name, self._names))
        return self._tasks[name]

    def _list_tasks(self) -> list[str]:
        return self._names

    def _describe(self, task: str) -> Any:
        if task not in self._names:
            raise ValueError(names.unknown("task", task, self._names))
        return self._tasks[task]

    def _predict_rows(
        self,
        tasks: Sequence[str],
        given: Iterable[Any],
        top_k: int | None,
        batching: "rows.Batching",
    ) -> Iterator[tuple[Any, ...]]:
        starts = [self._prepare(name, top_k) for name in tasks]
        max_tokens = check_options(tasks[0] if tasks else "predict_all", batching)

        def run() -> Iterator[tuple[Any, ...]]:
            first, source = 0, iter(given)
            while window := list(islice(source, rows.DOCUMENTS)):
                jobs = [start(window, first) for start in starts]
                self.compute(jobs, max_tokens)
                yield from zip(*(job.describe() for job in jobs), strict=True)
                first += len(window)

        return run()

    def _prepare(self, name: str, top_k: int | None) -> Callable[[Sequence[Any], int], Job]:
        """Return what starts jobs of a task: from rows, and the number of the first one."""
        task = self._describe(name)
        encoding = texts.Encoding(**task.encoding)

        def start(given: Sequence[Any], first: int) -> Job:
            reader: Any
            finish: Any
            match task.problem_type:
                case "token_classification":
                    reader, finish = spans.TagReader(self, name, task, task.longest, top_k), tag
                case "question_answering":
                    reader, finish = spans.QuestionReader(self, name, task, encoding), answer
                case "multiple_choice":
                    reader, finish = spans.ChoiceReader(self, name, encoding), choose
                case _:
                    reader, finish = rows.TextReader(self, name, encoding, task.num_texts), label
                    reader.joins_windows = reader.has_windows
            outputs = self._outputs[name]
            return Job(reader, given, outputs, lambda job: finish(job, task, top_k), first)

        if task.problem_type == "token_classification":
            start((), 0)  # refuses top_k
        else:
            rows.check_top_k(top_k)
        return start

    # Vectors

    @property
    def _has_pooler(self) -> bool:
        return bool(self.config.has_pooler)

    def _start_vectors(
        self, sentences: Sequence[str], plan: "rows.EmbeddingPlan", first: int = 0
    ) -> Job:
        encoding, pooling, layers = plan.vectors
        reader = rows.TextReader(self, "encode", encoding, prompt=plan.prompt)
        is_last = layers == self.config.num_hidden_layers
        output = f"vectors.{pooling}" + ("" if is_last else f".{layers}")

        def finish(job: Job) -> Array:
            if not job.units:
                return np.zeros((0, self.config.hidden_size), np.float32)[:, : plan.truncate_dim]
            values = np.stack([result[output] for result in job.results])
            if reader.has_windows:
                counts = [len(windows) for windows in reader.texts]
                values = weigh(counts, [unit.tokens for unit in job.units]) @ values
            values = (scale(values) if plan.normalize else values)[:, : plan.truncate_dim]
            return scale(values) if plan.rescale else values

        return Job(reader, sentences, [output], finish, first)

    def _embed(
        self, given: Sequence[str], plan: "rows.EmbeddingPlan", batching: "rows.Batching"
    ) -> Array:
        max_tokens = check_options("encode", batching)
        found = []
        for first in range(0, max(1, len(given)), rows.DOCUMENTS):
            job = self._start_vectors(given[first : first + rows.DOCUMENTS], plan, first)
            self.compute([job], max_tokens)
            found.append(job.describe())
        return np.concatenate(found)

    def similarity(self, first: Any, second: Any) -> Array:
        """Compare all vectors of (N, D) with all of (M, D): (N, M), in float32.

        Raises:
            ValueError: If they are integers of 8 bits, which may be packed bits.
        """
        left, right = (np.atleast_2d(np.asarray(each)) for each in (first, second))
        for each in (left, right):
            rows.check_bytes(each.dtype)
        left, right = (x if x.dtype == np.float64 else x.astype(np.float32) for x in (left, right))
        order = rows.DISTANCES.get(self.similarity_fn_name)
        if order is not None:
            return np.stack([-np.linalg.norm(right - row, ord=order, axis=1) for row in left])
        is_cosine = self.similarity_fn_name == "cosine"
        return scale(left) @ scale(right).T if is_cosine else left @ right.T


def check_options(name: str, batching: "rows.Batching") -> int | None:
    """Return the maximum tokens of a batch, and refuse a precision."""
    max_tokens = rows.check_batching(name, batching)
    precision = batching.get("precision")
    if precision is not None:
        raise ValueError(
            f"precision={precision!r}: an ONNX file has one precision, leave it out; for another "
            f"one, export another folder: {EXPORT}, for int8 with --precision int8"
        )
    return max_tokens


# Predictions of the rows of a job


def label(job: Job, task: _Task, top_k: int | None) -> list[Any]:
    """Describe rows by labels or numbers."""
    if not job.units:
        return []
    if job.outputs[0].endswith(".scores"):
        return rows.describe_numbers(getattr(task, "targets", None), job.collect("scores"), top_k)
    probabilities, decisions = job.collect("probabilities"), job.collect("decisions")
    if task.problem_type == "multi_label_classification":
        is_shown = decisions > 0 if top_k is None else np.ones_like(decisions) > 0
        ranks = rank(probabilities)
        return rows.describe_label_sets(task.labels, ranks, probabilities, is_shown, top_k)
    if task.problem_type == "multi_output_classification":
        ends = np.cumsum([len(names) for names in task.classes])
        parts = np.split(probabilities, ends[:-1], axis=1)
        columns = [
            rows.describe_labels(names, rank(part), part, top_k)
            for names, part in zip(task.classes, parts, strict=True)
        ]
        return rows.describe_outputs(task.outputs, columns)
    ranks = decisions[:, None] if top_k is None else rank(probabilities)
    return rows.describe_labels(task.labels, ranks, probabilities, top_k)


def rank(probabilities: Array) -> Array:
    """Return the order of columns by their values, the highest first."""
    return np.argsort(-probabilities, axis=1, kind="stable")


def tag(job: Job, task: _Task, top_k: int | None) -> list[Any]:
    """Describe rows by the tags of their words."""
    del task, top_k
    reader, results = job.reader, []
    for part, found in zip(reader.parts, job.results, strict=True):
        tags, scores = (
            next(values for name, values in found.items() if name.endswith(kind))[part.places]
            for kind in (".tags", ".scores")
        )
        results.append(list(zip(tags.tolist(), scores.tolist(), strict=True)))
    return list(reader.describe_tags(results))


def answer(job: Job, task: _Task, top_k: int | None) -> list[Any]:
    """Describe rows by the answers to their question."""
    del task
    scores = job.collect("answers").tolist() if job.units else []
    return list(job.reader.describe_answers(scores, top_k))


def choose(job: Job, task: _Task, top_k: int | None) -> list[Any]:
    """Describe rows by their choices, whose probabilities depend on those of the same row."""
    if not job.units:
        return []
    logits = job.collect("scores")[:, 0].astype(np.float64) / (task.temperature or 1)
    ends = np.cumsum([len(question.choices) for question in job.reader.questions])
    exponentials = [np.exp(part - part.max()) for part in np.split(logits, ends[:-1])]
    probabilities = [(part / part.sum()).tolist() for part in exponentials]
    return list(job.reader.describe_choices(probabilities, top_k))


__all__ = ["Job", "MinBertOnnx"]
