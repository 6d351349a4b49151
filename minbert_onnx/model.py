"""`MinBertOnnx`: the predictions and vectors of a model in ONNX Runtime.

Shapes: N sequences of L tokens, M texts, D size of a vector.
"""

import json
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

if TYPE_CHECKING:
    from modeling_minbert import names, rows, spans, texts
else:
    from .shared import names, rows, spans, texts

Array = NDArray[Any]
EXPORT = "minbert export <checkpoint> --format onnx --output_dir <folder>"
# Names of the columns, and of the same attribute of tokenizers.
COLUMNS = {
    "input_ids": "ids",
    "token_type_ids": "type_ids",
    "special_tokens_mask": "special_tokens_mask",
    "offset_mapping": "offsets",
}


class Encodings(dict[str, Any]):
    """The tokens of rows: a column by its name, a row by its number."""

    def __init__(self, found: Sequence[Encoding]) -> None:
        super().__init__(
            {name: [getattr(row, key) for row in found] for name, key in COLUMNS.items()}
        )
        self.rows = found

    def __getitem__(self, key: Any) -> Any:
        return self.rows[key] if isinstance(key, int) else super().__getitem__(key)

    def word_ids(self, row: int) -> list[int | None]:
        """Return the word of each token of a row."""
        return self.rows[row].word_ids


class FastTokenizer:
    """Reads texts as a fast tokenizer of transformers, with what `texts` and `pieces` use of it.

    Args:
        tokenizer: The tokenizer.
        settings: What is not in its file: `unk_token_id`, `truncation_side`, `model_max_length` and
            `split_special_tokens`.
    """

    is_fast = True

    def __init__(self, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self.unk_token_id: int | None = settings["unk_token_id"]
        self.truncation_side: str = settings["truncation_side"]
        self.model_max_length: int = settings["model_max_length"]
        tokenizer.encode_special_tokens = settings["split_special_tokens"]

    def __call__(
        self,
        *given: Any,
        truncation: str | bool = False,
        max_length: int | None = None,
        add_special_tokens: bool = True,
        is_split_into_words: bool = False,
        return_special_tokens_mask: bool = False,
        **_: Any,
    ) -> Any:
        """Tokenize one text or a pair, or a list of rows in one or two columns."""
        if max_length is not None and truncation:
            side, way = self.truncation_side, str(truncation)
            self._tokenizer.enable_truncation(max_length, strategy=way, direction=side)
        is_one = isinstance(given[0], str)
        columns = [[text] for text in given] if is_one else given
        batch = list(zip(*columns, strict=True)) if len(columns) > 1 else columns[0]
        found = Encodings(
            self._tokenizer.encode_batch(
                batch, is_pretokenized=is_split_into_words, add_special_tokens=add_special_tokens
            )
        )
        if not return_special_tokens_mask:
            del found["special_tokens_mask"]
        return {name: values[0] for name, values in found.items()} if is_one else found


class Unit(NamedTuple):
    """Sequences that are computed in one batch: those of a text, or of two separate ones."""

    input_ids: list[list[int]]
    token_type_ids: list[list[int]]
    counts: list[int]  # sequences of each text

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return sum(map(len, self.input_ids))


class Predictor:
    """Predicts a task, or makes vectors of texts.

    Its methods are called in this order for some rows at a time: `encode`, and `describe` when
    `MinBertOnnx.compute` has added their results.

    Args:
        model: The model.
        name: Name of the task.
        top_k: As in `predict`.
        plan: How vectors are made of texts; None for a task.

    Attributes:
        group: What `encode` depends on: predictors with equal ones tokenize rows once.
        shares_pass: Whether equal tokens are computed once for it and others: they always are.
        results: The outputs of each unit by kind, such as `scores`.
    """

    shares_pass = True

    def __init__(
        self,
        model: Any,
        name: str,
        top_k: int | None = None,
        plan: "rows.EmbeddingPlan | None" = None,
    ) -> None:
        self.name, self.top_k, self.plan = name, top_k, plan
        self.group: Hashable = name
        if plan is not None:
            self.outputs = [plan.vectors.output]
            self.reader = rows.TextReader(model, name, plan.vectors.encoding, prompt=plan.prompt)
            self.reader.strips = plan.strips
        else:
            self.task = model._head(name).task
            self.outputs = model.outputs[name]
            self.reader = self._open(model, name)
        # an output has a row for each text, or for each sequence
        self.has_texts = plan is None and isinstance(self.reader, rows.TextReader)
        self.results: dict[int, dict[str, Array]] = {}

    def _open(self, model: Any, name: str) -> Any:
        """Return what reads the rows of a task."""
        task, encoding = self.task, texts.Encoding(**self.task.encoding)
        if task.problem_type == "token_classification":
            return spans.TagReader(model, name, task, encoding, self.top_k)
        rows.check_count("top_k", self.top_k)
        if task.problem_type == "question_answering":
            return spans.QuestionReader(model, name, task, encoding)
        self.group = (task.num_texts, encoding)
        return rows.TextReader(model, name, encoding, task.num_texts)

    def encode(self, given: Sequence[object], first: int) -> list[Unit]:
        """Tokenize rows, of which the first one has the number `first`."""
        encoded = self.reader.encode(given, first)
        if self.has_texts and self.reader.has_windows:
            return list(self._join_windows())
        return [Unit(*row, [1] * len(row.input_ids)) for row in encoded]

    def _join_windows(self) -> Iterator[Unit]:
        """Join the windows of each row, whose mean goes into a head."""
        count = self.reader.num_texts
        for start in range(0, len(self.reader.texts), count):
            chosen = self.reader.texts[start : start + count]
            ids, types = ([x[at][0] for text in chosen for x in text] for at in (0, 1))
            yield Unit(ids, types, list(map(len, chosen)))

    def describe(self) -> Any:
        """Return the predictions of the rows, a list, or the vectors of the texts, (n, D)."""
        reader, top_k = self.reader, self.top_k
        if isinstance(reader, spans.TagReader):
            for number, part in enumerate(reader.parts):
                found = self.results[number]
                tags, scores = (found[kind][part.places].tolist() for kind in ("tags", "scores"))
                reader.results[number] = list(zip(tags, scores, strict=True))
            return reader.describe()
        units = [self.results[number] for number in sorted(self.results)]
        found = {kind: np.stack([unit[kind] for unit in units]) for kind in units[0]}
        self.results = {}
        if self.plan is not None:
            (vectors,) = found.values()
            if reader.has_windows:
                counts = [len(windows) for windows in reader.texts]
                sizes = [window.tokens for windows in reader.texts for window in windows]
                vectors = weigh(counts, sizes) @ vectors
            return self.plan.finish(vectors, scale)
        if isinstance(reader, spans.QuestionReader):
            return reader.describe_answers(found["answers"].tolist(), top_k)
        values = {kind: array.tolist() for kind, array in found.items()}
        return rows.describe_texts(self.task, values, top_k)


def weigh(counts: Sequence[int], tokens: Sequence[int]) -> Array:
    """Return the weights of sequences in the vector of each text, by their tokens, (M, N)."""
    owners = np.repeat(np.arange(len(counts)), counts)
    mix = np.zeros((len(counts), len(tokens)), np.float32)
    mix[owners, np.arange(len(tokens))] = tokens / np.bincount(owners, tokens)[owners]
    return mix


def scale(vectors: Array) -> Array:
    """Scale vectors to length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


class _Task(SimpleNamespace):
    """A task, as `minbert.json` describes it."""

    is_pretraining = False

    def plan_vectors(self, config: object) -> "rows.VectorPlan":
        """Return how the vectors of its texts are made."""
        del config
        return rows.VectorPlan(texts.Encoding(**self.encoding), *self.vectors)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file that cannot be read, whatever library says so."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if path.is_file() else "no such file"
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
        self.name_or_path, path = os.fspath(folder), Path(folder)
        with naming(path / rows.ONNX_SETTINGS):
            settings = json.loads((path / rows.ONNX_SETTINGS).read_text(encoding="utf-8"))
            if settings["version"] != rows.ONNX_VERSION:
                raise ValueError(
                    f"version {settings['version']}, but this minBERT reads {rows.ONNX_VERSION}"
                )
            self.config: Any = SimpleNamespace(**settings["config"], task=self._find_task)
            self.config.embedding = SimpleNamespace(**self.config.embedding)
            self.base_model = SimpleNamespace(pooler=self.config.has_pooler or None)
            self._tasks = {name: _Task(**fields) for name, fields in settings["tasks"].items()}
        with naming(path / "tokenizer.json"):
            tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
            self.tokenizer: Any = FastTokenizer(tokenizer, settings["tokenizer"])
        with naming(path / rows.ONNX_FILE):
            options = onnxruntime.SessionOptions()
            threads = os.environ.get("OMP_NUM_THREADS", "")  # as torch
            options.intra_op_num_threads = int(threads) if threads.isdigit() else 0
            self.session = onnxruntime.InferenceSession(
                path / rows.ONNX_FILE,
                options,
                providers=["CPUExecutionProvider"],
                # which takes a fifth longer than the two operations that it joins
                disabled_optimizers=["SkipLayerNormFusion"],
            )
            self.outputs: dict[str, list[str]] = {}  # those of each task
            for name, _, kind in (x.name.rpartition(".") for x in self.session.get_outputs()):
                if "." not in name:  # no vectors
                    self.outputs.setdefault(name, []).append(f"{name}.{kind}")
            self.heads = {name: SimpleNamespace(task=self._tasks[name]) for name in self.outputs}

    def compute(self, jobs: Sequence[rows.Job], max_tokens: int | None = None) -> None:
        """Compute jobs of any tasks together, equal sequences once.

        Args:
            jobs: The jobs; afterwards `describe` of each returns its predictions.
            max_tokens: Tokens of a batch at most, paddings included; None for 1,024.
        """
        places: dict[Hashable, list[tuple[rows.Job, int]]] = {}
        for job in jobs:
            for number, unit in enumerate(job.encoded):
                key = (tuple(unit.counts), *map(tuple, unit.input_ids + unit.token_type_ids))
                places.setdefault(key, []).append((job, number))
        waiting = list(places.values())
        units: list[Any] = [job.encoded[number] for ((job, number), *_) in waiting]
        for batch in rows.split_batches(units, max_tokens or rows.CPU_TOKENS, packed=False):
            self._run([units[at] for at in batch], [waiting[at] for at in batch])

    def _pad(self, units: Sequence[Unit]) -> dict[str, Array]:
        """Return the inputs of the graph for the sequences of units."""
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
        return {entry.name: inputs[entry.name] for entry in self.session.get_inputs()}

    def _run(
        self, units: Sequence[Unit], waiting: Sequence[Sequence[tuple[rows.Job, int]]]
    ) -> None:
        """Compute a batch, and give the jobs that wait for a unit its outputs."""
        members = [member for each in waiting for job, _ in each for member in job.members]
        wanted = list(dict.fromkeys(name for member in members for name in member.outputs))
        found = dict(zip(wanted, self.session.run(wanted, self._pad(units)), strict=True))
        text = sequence = 0
        for unit, each in zip(units, waiting, strict=True):
            for job, number in each:
                for member in job.members:
                    row = text if member.has_texts else sequence
                    values = {x.rpartition(".")[2]: found[x][row] for x in member.outputs}
                    member.results[number] = values
            text, sequence = text + len(unit.counts), sequence + len(unit.input_ids)

    def _find_task(self, name: str) -> _Task:
        if name not in self._tasks:
            raise ValueError(names.unknown("task", name, self.heads))
        return self._tasks[name]

    def _head(self, name: str) -> Any:
        if name not in self.heads:
            raise ValueError(names.unknown("task", name, self.heads))
        return self.heads[name]

    def _predictor(self, name: str, top_k: int | None) -> Predictor:
        return Predictor(self, name, top_k)

    def _embedder(self, plan: "rows.EmbeddingPlan") -> Predictor:
        return Predictor(self, "encode", plan=plan)

    def _join(self, vectors: Sequence[Array], size: int) -> Array:
        return np.concatenate([np.empty((0, size), np.float32), *vectors])

    def _compute_rows(
        self, predictors: Sequence[Predictor], given: Iterable[object], batching: "rows.Batching"
    ) -> Iterator[None]:
        """Compute some rows at a time, which the predictors can then describe."""
        name = predictors[0].name if predictors else "predict_all"
        max_tokens = rows.check_batching(name, batching)
        if (precision := batching.get("precision")) is not None:
            raise ValueError(
                f"precision={precision!r}: an ONNX file has one precision, leave it out; for "
                f"another one, export another folder: {EXPORT}, for int8 with --precision int8"
            )

        def run() -> Iterator[None]:
            first, source = 0, iter(given)
            while window := list(islice(source, rows.DOCUMENTS)):
                groups = rows.group_by_tokens(predictors, window, first)
                self.compute([rows.Job(*group) for group in groups], max_tokens)
                yield
                first += len(window)

        return run()

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
            distances = [np.linalg.norm(right - row, ord=order, axis=1) for row in left]
            dtype = np.result_type(left, right)
            return -np.asarray(distances, dtype).reshape(len(left), len(right))
        is_cosine = self.similarity_fn_name == "cosine"
        return scale(left) @ scale(right).T if is_cosine else left @ right.T
