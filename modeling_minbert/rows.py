# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Rows in, predictions out, without torch: what models share with the runtime of ONNX files."""

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from numbers import Integral
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, Unpack, get_args

from .names import unknown
from .texts import HEAD_SHARES, WINDOWS, Encoded, Encoding, Fields, Row, default_overlap, tokenize

# Rows that are tokenized and sorted together: enough for batches of one length, little memory.
# Texts that are split may have many windows each.
WINDOW, DOCUMENTS = 16_384, 512
# Default tokens of a batch: what fits the caches of a CPU.
CPU_TOKENS = 1_024
# The files of an export to ONNX, beside its tokenizer.json, and their version.
ONNX_FILE, ONNX_SETTINGS, ONNX_VERSION = "model.onnx", "minbert.json", 4
Pooling = Literal["cls", "pooler", "mean", "max"]
# What rows of `predict` are.
RowKind = Literal["single texts", "pairs"]
ONE: dict[RowKind, str] = {"single texts": "a single text", "pairs": "a pair"}
Vectors = TypeVar("Vectors")  # tensors or arrays
# The tokens of rows, and what predicts them.
Group = tuple[list[Any], list[Any]]
warn_once = cache(logging.getLogger(__name__).warning)  # of equal messages the first one


class Batching(TypedDict, total=False):
    """Keyword arguments of all methods that predict or embed: how rows are computed.

    Args:
        max_tokens_per_batch: Tokens that are computed together; None for a default of the device.
        show_progress: Whether to show a progress bar; None shows it for long lists.
        precision: In which to compute: `float32`, `bfloat16`, `int8` or `auto`, as in
            `set_precision`; None for that of the model.
    """

    max_tokens_per_batch: int | None
    show_progress: bool | None
    precision: str | None


def check_batching(name: str, batching: Fields) -> int | None:
    """Return the maximum tokens of a batch, and refuse options that are none; `name` has them."""
    for option in batching:
        if option not in Batching.__annotations__:
            raise TypeError(
                f"{name}: unknown option {option!r}; how rows are computed is set by "
                f"{', '.join(Batching.__annotations__)}"
            )
    tokens: int | None = batching.get("max_tokens_per_batch")
    check_count("max_tokens_per_batch", tokens)
    return tokens


def check_container(rows: object, task: str) -> None:
    """Refuse what is no list of rows, and containers that would yield the names of columns."""
    if isinstance(rows, str):
        raise TypeError(f"{task}: pass a list of sentences, not one string")
    if isinstance(rows, bytes | Set) or getattr(rows, "ndim", 1) == 0:
        raise TypeError(f"{task}: pass a list of rows, not {type(rows).__name__}")
    if not isinstance(rows, Iterable):
        raise TypeError(f"{task}: pass a list of rows, not {rows!r}")
    if isinstance(rows, Mapping) or hasattr(rows, "columns") or hasattr(rows, "column_names"):
        raise ValueError(
            f"{task}: a {type(rows).__name__} has columns, which are no rows: pass one of them, as "
            'in data["text"], or of several list(zip(data["first"], data["second"]))'
        )


def check_rows(sentences: Iterable[Any], task: str, wanted: int, first: int = 0) -> Iterator[Row]:
    """Make each row, the first of number `first`, a tuple of `wanted` sentences of a task."""
    for index, given in enumerate(map(read_row, sentences), first):
        row: Row = tuple(given) if isinstance(given, tuple | list) else (given,)
        if len(row) != wanted or not all(isinstance(text, str) for text in row):
            count = "a sentence" if wanted == 1 else "a pair of sentences"
            raise ValueError(f"{task}: row {index} must be {count}, got {given!r}")
        check_unicode(row, index, task)
        yield row


def read_row(row: Any) -> Any:
    """Return a row of an array with several columns as a list."""
    return row.tolist() if getattr(row, "ndim", 0) else row


def check_count(name: str, count: Any) -> None:
    """Refuse what is no number of 1 or more, nor None."""
    is_number = isinstance(count, Integral) and not isinstance(count, bool)
    if count is not None and not (is_number and count >= 1):
        raise ValueError(f"{name}={count!r} must be 1 or more")


def check_unicode(texts: Iterable[str], index: int, task: str) -> None:
    """Reject halves of surrogate pairs, which tokenizers refuse without naming the row."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{task}: row {index} is not valid Unicode ({error.reason})") from None


def find_kind(row: object) -> RowKind:
    """Return of what kind a row is; a list of words looks like a pair."""
    return "single texts" if isinstance(row, str) else "pairs"


def split_batches(rows: Sequence[Encoded], max_tokens: int, *, packed: bool) -> Iterator[list[int]]:
    """Split rows into batches of at most `max_tokens`, counting padding unless `packed`."""
    # The longest first, so that too large a batch fails early.
    batch: list[int] = []
    tokens = sequences = longest = 0
    for index in sorted(range(len(rows)), key=lambda index: -rows[index].tokens):
        lengths = [len(ids) for ids in rows[index].input_ids]
        size = tokens + sum(lengths)
        if not packed:
            size = (sequences + len(lengths)) * max(longest, *lengths)
        if batch and size > max_tokens:
            yield batch
            batch, tokens, sequences, longest = [], 0, 0, 0
        batch.append(index)
        tokens, sequences = tokens + sum(lengths), sequences + len(lengths)
        longest = max(longest, *lengths)
    if batch:
        yield batch


def group_by_tokens(predictors: Sequence[Any], rows: Sequence[object], first: int) -> list[Group]:
    """Group the tasks for which all rows, of which one has the number `first`, have equal tokens.

    Predictors with an equal `group` tokenize the rows once; only those with `shares_pass` are in
    one group.
    """
    known: dict[Hashable, list[Any]] = {}
    groups: list[Group] = []
    for predictor in predictors:
        if predictor.group not in known:
            known[predictor.group] = predictor.encode(rows, first)
        encoded = known[predictor.group]
        for tokens, members in groups:
            if predictor.shares_pass and members[0].shares_pass and tokens == encoded:
                members.append(predictor)
                break
        else:
            groups.append((encoded, [predictor]))
    return groups


@dataclass
class Job:
    """Rows of a call as tokens.

    Attributes:
        encoded: The tokens of its sequences or windows.
        members: What predicts them, or makes their vectors.
        has_vectors: Whether these are wanted.
    """

    encoded: list[Any]
    members: list[Any]
    has_vectors: bool = False

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return sum(row.tokens for row in self.encoded)

    def describe(self) -> Any:
        """Return predictions by task, or vectors, once all rows have been computed."""
        if self.has_vectors:
            return self.members[0].describe()
        return {member.name: member.describe() for member in self.members}


class TextReader:
    """Tokenizes rows of `num_texts` texts for a task; `prompt` is written before each."""

    # training rows have no spaces at the ends of their texts
    strips: bool = True

    def __init__(
        self, model: Any, name: str, encoding: Encoding, num_texts: int = 1, prompt: str = ""
    ) -> None:
        self.model, self.name, self.encoding = model, name, encoding
        self.num_texts, self.prompt = num_texts, prompt
        self.has_windows = encoding.truncation == WINDOWS
        self.size = DOCUMENTS if self.has_windows else WINDOW
        self.texts: list[list[Encoded]] = []  # the windows of each text

    def encode(self, rows: Sequence[object], first: int) -> list[Encoded]:
        """Tokenize rows, of which the first one has the number `first`: one each, or by window."""
        checked = list(check_rows(rows, self.name, self.num_texts, first))
        if self.strips:
            checked = [tuple(map(str.strip, row)) for row in checked]
        if self.prompt:
            checked = [tuple(self.prompt + text for text in row) for row in checked]
        if not self.has_windows:
            return tokenize(self.model.tokenizer, checked, self.encoding)
        texts = [text for row in checked for text in row]
        from .pieces import split_documents

        self.texts = split_documents(self.encoding, self.model.tokenizer, texts)
        return [window for windows in self.texts for window in windows]


def describe_labels(
    names: Sequence[str], scores: Sequence[float], decision: Any, top_k: int | None
) -> Any:
    """Describe the label that is decided, or a list: the `top_k` best, or all that are decided."""
    if top_k is None and isinstance(decision, int):
        return {"label": names[decision], "score": scores[decision]}
    ranks = sorted(range(len(names)), key=lambda at: -scores[at])
    if top_k is None:
        ranks = [at for at in ranks if decision[at]]
    return [{"label": names[at], "score": scores[at]} for at in ranks[:top_k]]


def describe_texts(task: Any, found: Fields, top_k: int | None) -> list[Any]:
    """Describe rows by their `scores`, or by `probabilities` and `decisions`, (n, K)."""
    if "scores" in found:
        names = getattr(task, "targets", None) or ()
        described: list[Any] = [
            {"scores": dict(zip(names, row, strict=True))} if len(names) > 1 else {"score": row[0]}
            for row in found["scores"]
        ]
        return described if top_k is None else [[row] for row in described]
    rows = zip(found["probabilities"], found["decisions"], strict=True)
    if task.problem_type != "multi_output_classification":
        return [describe_labels(task.labels, *row, top_k) for row in rows]
    described = []
    for probabilities, decisions in rows:
        values = iter(probabilities)
        labels = {
            output: describe_labels(names, list(islice(values, len(names))), decision, top_k)
            for output, names, decision in zip(task.outputs, task.classes, decisions, strict=True)
        }
        described.append({"labels": labels})
    return described


class MinBertPredicting:
    """Mixin of models with tasks: their predictions."""

    heads: Any  # by the name of their task
    _head: Any  # returns the head of a task that predicts
    _predictor: Any  # returns what predicts a task
    _compute_rows: Any  # computes rows some at a time, of which predictors then describe theirs

    def predict(
        self,
        task: str,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        top_k: int | None = None,
        **batching: Unpack[Batching],
    ) -> list[Any]:
        """Predict a task for sentences or pairs of sentences.

        Args:
            task: Name of the task.
            sentences: Sentences, or pairs (first, second) for a pair task and a contrastive one.
                For a token_classification texts of any length, or lists of words; for a
                question_answering pairs of a question and a text. An array or a column of a frame
                or dataset is as good as a list.
            top_k: Maximum number of labels or answers per row, most probable first; None for the
                predicted one. Not for a token_classification.
            **batching: See `Batching`.

        Returns:
            One dictionary per row, in the order given, or with `top_k` a list of them: `label` and
            `score` (its probability), or only `score`: within the range of the task for a
            similarity, the cosine for a contrastive task, in the units of the data for a
            regression, where several targets have `scores` by name. A multi_output_classification
            has `labels`: label and score of each output by name. For a token_classification
            `words`, `tags`, `scores`, and `entities` with `label`, `text`, `start`, `end` and
            `score` if the tags mark any. For a question `answer`, empty for none, its `score`, and
            `start` and `end` in characters of the text.

        Raises:
            TypeError: If `sentences` is one string.
            ValueError: If there is no such task, it is of pre-training, a row has the wrong number
                of sentences, or `top_k` is below 1.
        """
        return list(self.predict_stream(task, sentences, top_k=top_k, **batching))

    def predict_stream(
        self,
        task: str,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        *,
        top_k: int | None = None,
        **batching: Unpack[Batching],
    ) -> Iterator[Any]:
        """Predict a task for more rows than fit into memory; see `predict` for the arguments.

        `sentences` may be any iterable; some thousand rows are read ahead.

        Yields:
            The prediction of each row, in the order given.
        """
        self._head(task)  # refuses unknown tasks
        check_container(sentences, task)
        return (found for (found,) in self._predict_rows([task], sentences, top_k, batching))

    def predict_all(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        tasks: Sequence[str] | None = None,
        *,
        top_k: int | None = None,
        **batching: Unpack[Batching],
    ) -> dict[str, list[Any]]:
        """Predict several tasks for the same sentences or pairs, in one pass where possible.

        The predictions are those of `predict`, but the encoder runs once for all tasks whose rows
        have the same tokens, as those that no task truncates, and that read the same states: the
        first ones, for a `pooling` of `cls` and `pooler`, or all, for `mean`, `max` and tags, of
        one `pooling_layer`.

        Args:
            sentences: Sentences, or pairs (first, second).
            tasks: Names of the tasks; None for all that take such rows.
            top_k: As in `predict`, for all tasks.
            **batching: See `Batching`.

        Returns:
            What `predict` returns, by task, in the order of `tasks` or sorted by name.

        Raises:
            TypeError: If `sentences` or `tasks` is one string.
            ValueError: If there is no such task, none or not every one takes such rows, or as in
                `predict`.
        """
        check_container(sentences, "predict_all")
        given: Any = sentences
        rows = given if isinstance(given, Sequence) else list(given)
        names = self.choose_tasks(rows, tasks)
        predicted = list(self.predict_all_stream(rows, tasks, top_k=top_k, **batching))
        return {name: [row[name] for row in predicted] for name in names}

    def predict_all_stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        tasks: Sequence[str] | None = None,
        *,
        top_k: int | None = None,
        **batching: Unpack[Batching],
    ) -> Iterator[dict[str, Any]]:
        """Predict several tasks for more rows than fit into memory; see `predict_all`.

        `sentences` may be any iterable; its first row is read at once, and some thousand rows are
        read ahead.

        Yields:
            The predictions of each row by task, in the order given.
        """
        check_container(sentences, "predict_all")
        known: Any = sentences
        rows: Any = sentences
        if not isinstance(sentences, Sequence):
            source = iter(sentences)
            known = list(islice(source, 1))
            rows = chain(known, source)
        names = self.choose_tasks(known, tasks)
        predicted = self._predict_rows(names, rows, top_k, batching)
        return (dict(zip(names, row, strict=True)) for row in predicted)

    def _predict_rows(
        self, tasks: Sequence[str], rows: Iterable[object], top_k: int | None, batching: Batching
    ) -> Iterator[tuple[Any, ...]]:
        """Return what several tasks predict for each row."""
        predictors = [self._predictor(name, top_k) for name in tasks]
        computed = self._compute_rows(predictors, rows, batching)
        windows = (zip(*(x.describe() for x in predictors), strict=True) for _ in computed)
        return (row for window in windows for row in window)

    def choose_tasks(
        self, sentences: Sequence[object], tasks: Sequence[str] | None = None
    ) -> list[str]:
        """Return the tasks that `predict_all` predicts, judged by the first row.

        Args:
            sentences: Rows as in `predict_all`; if there are none, every task takes them.
            tasks: Names of tasks, to check that they take such rows; None for all that do.

        Errors are those of `predict_all`.
        """
        for given in (sentences, tasks):
            if isinstance(given, str):
                raise TypeError(
                    f"pass a list of sentences and a list of tasks, not {given!r} alone"
                )
        if tasks is not None and not len(tasks):
            raise ValueError("tasks is empty: name at least one task, or leave it out")
        # a wrapper of peft has the methods of the heads, but is no iterable
        names = list(dict(self.heads.items())) if tasks is None else tasks
        specs = {name: self._head(name).task for name in names}
        if not len(sentences):
            return list(specs)
        kind = find_kind(sentences[0])
        fitting = [
            name
            for name, task in specs.items()
            # a sequence may also contain the words of a text, if a caller names the task
            if task.row_kind == kind or (tasks and kind == "pairs" and task.is_token_level)
        ]
        if (fitting and tasks is None) or len(fitting) == len(specs) > 0:
            return fitting
        others = [f"{x} takes {specs[x].row_kind}" for x in specs if x not in fitting]
        raise ValueError(f"row 0 is {ONE[kind]}, but {', '.join(others) or 'there are no tasks'}")

    def list_tasks(self) -> dict[str, dict[str, Any]]:
        """Return the tasks that predict by name, each with `problem_type`, `rows` and `labels`."""
        tasks = {name: head.task for name, head in self.heads.items()}
        return {
            name: {"problem_type": task.problem_type, "rows": task.row_kind}
            | {"labels": getattr(task, "labels", None)}
            for name, task in tasks.items()
        }

    def start(
        self, tasks: Sequence[str], rows: Sequence[object], top_k: int | None = None
    ) -> list[Job]:
        """Check and tokenize rows for `predict_all`; each job describes some of the tasks.

        Raises:
            ValueError: As `predict_all`, or if there are no rows.
        """
        check_container(rows, "predict_all")
        if not rows:
            raise ValueError("there are no rows to start; give at least one")
        names = self.choose_tasks(rows, tasks)
        predictors = [self._predictor(name, top_k) for name in names]
        return [Job(*group) for group in group_by_tokens(predictors, rows, 0)]


# Vectors

# Similarities that are negated distances, and the order of their norm.
DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}


def check_bytes(dtype: object) -> None:
    """Refuse vectors of 8-bit integers."""
    if str(dtype).removeprefix("torch.") in ("uint8", "int8"):
        raise ValueError(
            "vectors are 8-bit integers, which may be packed bits: unpack these, or convert "
            "numbers to float32"
        )


def find_prompt(prompts: Mapping[str, str] | None, name: str | None) -> str:
    """Return a prompt; that of `query` and `document` may be empty, and so is that of None."""
    known = {"query": "", "document": "", **(prompts or {})}
    if name is not None and name not in known:
        raise ValueError(unknown("prompt_name", name, known))
    return "" if name is None else known[name]


class VectorPlan(NamedTuple):
    """How texts become sequences, and these vectors."""

    encoding: Encoding
    pooling: str | None  # of the states of a sequence
    num_layers: int

    @property
    def output(self) -> str:
        """The name of such vectors in an ONNX file."""
        return f"vectors.{self.pooling}.{self.num_layers}"


class EmbeddingPlan(NamedTuple):
    """How a vector is made of a sentence."""

    vectors: VectorPlan
    normalize: bool
    prompt: str  # written before every sentence
    truncate_dim: int | None  # components that are kept; None for all
    rescale: bool  # whether what is kept is scaled to length 1
    strips: bool  # whether spaces at the ends of texts are left out, as in training

    def finish(self, values: Any, scale: Callable[[Any], Any]) -> Any:
        """Normalize and cut vectors, (N, D); `scale` gives them length 1."""
        values = scale(values) if self.normalize else values
        values = values[:, : self.truncate_dim]
        return scale(values) if self.rescale else values


class MinBertVectors(Generic[Vectors]):
    """Mixin of models that embed sentences: how their vectors are made."""

    config: Any
    name_or_path: str
    tokenizer: Any
    base_model: Any
    # Whether a folder of sentence-transformers might say how, which could not be read.
    _guesses_pooling = False
    # The first weights of a pooler that the checkpoint does not have.
    new_pooler: Any = None
    _embedder: Any  # returns what makes vectors by a plan
    _compute_rows: Any  # as that of `MinBertPredicting`
    _join: Any  # joins vectors, which have a size if there are none

    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        task: str | None = None,
        pooling: str | None = None,
        truncation: str | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
        **batching: Unpack[Batching],
    ) -> Vectors:
        """Embed sentences.

        Without `task` and `pooling`, the vectors are those of the first task of separate texts
        (`config.embedding_task`); without such a task those of the folder of sentence-transformers
        that the checkpoint started from, with its default prompt and size; else the mean. What
        `config.sentence_embedding` or sentence-transformers says later wins.

        Args:
            sentences: The sentences, or one: a list, an array, a column of a frame or a dataset, or
                any iterable.
            task: Name of a task, to use its pooling, layer and truncation; vectors of a contrastive
                task have length 1.
            pooling: `cls`, `pooler`, `mean` or `max`, instead of both.
            truncation: What remains of a sentence that is too long, as in `PooledTask`; `windows`
                share 64 tokens each. None for that of the task, or `head`.
            normalize: Whether to scale the vectors to length 1, after `truncate_dim`; None for the
                checkpoint's choice, which comes before it.
            prompt: Text before every sentence; wins over `prompt_name`.
            prompt_name: Name of one of `config.embedding.prompts`; None for that of the checkpoint.
            truncate_dim: How many components of each vector to keep; None as the checkpoint says.
            **batching: See `Batching`.

        Returns:
            Float32 vectors on the CPU, (number of sentences, D), in the order given; of one
            sentence its vector, (D,).

        Raises:
            TypeError: If an option is unknown.
            ValueError: If there is no such task, pooling or prompt, the checkpoint's own vectors
                need what minBERT does not have, a row is not a sentence, or a size is below 1.
        """
        plan = self._plan(task, pooling, truncation, normalize, prompt, prompt_name, truncate_dim)
        is_one = isinstance(sentences, str)
        if not is_one:
            check_container(sentences, "encode")
        texts, embedder = [sentences] if is_one else list(sentences), self._embedder(plan)
        computed = self._compute_rows([embedder], texts, batching)
        size = min(self.config.hidden_size, plan.truncate_dim or self.config.hidden_size)
        found: Any = self._join([embedder.describe() for _ in computed], size)
        return found[0] if is_one else found

    def encode_query(self, sentences: str | Iterable[str], **options: Any) -> Vectors:
        """Embed the queries of a search: `encode` with the prompt of the name `query`.

        As in sentence-transformers it takes the place of the default prompt, also if it is empty.
        With `task`, there is no prompt.
        """
        return self.encode(sentences, **self._name_prompt("query", options))

    def encode_document(self, sentences: str | Iterable[str], **options: Any) -> Vectors:
        """Embed the texts that a search looks through, as `encode_query`, prompt `document`."""
        return self.encode(sentences, **self._name_prompt("document", options))

    def _name_prompt(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Choose a prompt, unless the options do."""
        if any(options.get(key) is not None for key in ("prompt", "prompt_name", "task")):
            return options
        prompts = self.config.embedding.prompts or {}
        others = [key for key in ("passage", "corpus") if name == "document" and key in prompts]
        if others and name not in prompts:
            message = "encode_document writes no prompt, as sentence-transformers: the checkpoint "
            message += f"has none of the name 'document'; prompt_name={others[0]!r} uses that one"
            warn_once(message)
        return {**options, "prompt_name": name}

    def list_tasks(self) -> dict[str, dict[str, Any]]:
        """Return the tasks that predict: none, but those of a `MinBertForMultiTask`."""
        return {}

    def start_vectors(self, texts: Sequence[str], **options: Any) -> list[Job]:
        """Check and tokenize texts for `encode` with its options; the only job has vectors."""
        check_container(texts, "encode")
        if not texts:
            raise ValueError("there are no texts to start; give at least one")
        embedder = self._embedder(self._plan(**options))
        return [Job(embedder.encode(texts, 0), [embedder], has_vectors=True)]

    @property
    def similarity_fn_name(self) -> str:
        """How `similarity` compares: `config.embedding.similarity`."""
        return str(self.config.embedding.similarity)

    def _plan(
        self,
        task: str | None = None,
        pooling: str | None = None,
        truncation: str | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
    ) -> EmbeddingPlan:
        """Decide how vectors are made."""
        config, own = self.config, self.config.embedding
        if task is not None and (pooling is not None or truncation is not None):
            raise ValueError(
                f"task {task!r} determines how its vectors are pooled, and what remains of long "
                "texts: leave pooling and truncation out"
            )
        self._check_sizes(truncation, truncate_dim)
        default, kept = own.default_prompt_name, own.truncate_dim
        if task is not None:  # trained without these
            default = kept = None
        elif pooling is None:
            task = config.vectors_task
        vectors, is_unit = self._find_vectors(task, pooling, own)
        if truncation not in (None, vectors.encoding.truncation):
            length = vectors.encoding.max_length
            overlap = default_overlap(length) if truncation == WINDOWS else None
            encoding = Encoding(length, truncation=truncation, window_overlap=overlap)
            vectors = vectors._replace(encoding=encoding)
        if prompt is None:
            prompt = find_prompt(own.prompts, default if prompt_name is None else prompt_name)
        if prompt and not own.pools_prompt and task is None:
            raise ValueError(
                f"{self.name_or_path}: its vectors leave out the tokens of a prompt "
                "(include_prompt), which minBERT does not do: use sentence-transformers, or pass "
                'prompt=""'
            )
        normalize, rescale = normalize is None and is_unit, bool(normalize)
        size, strips = truncate_dim or kept, task is not None
        return EmbeddingPlan(vectors, normalize, prompt, size, rescale, strips)

    def _check_sizes(self, truncation: str | None, truncate_dim: int | None) -> None:
        """Refuse what a text or a vector cannot be cut to."""
        check_count("encode: truncate_dim", truncate_dim)
        size = self.config.hidden_size
        if truncate_dim is not None and truncate_dim > size:
            raise ValueError(
                f"encode: truncate_dim={truncate_dim}, but vectors have {size} numbers"
            )
        if truncation not in (None, *HEAD_SHARES, WINDOWS):
            raise ValueError(unknown("truncation", truncation, (*HEAD_SHARES, WINDOWS)))
        if truncation == "head" and self.tokenizer.truncation_side == "left":
            raise ValueError(
                "truncation='head': the tokenizer keeps the end of a text "
                "(truncation_side='left'); leave truncation out, or set its side to 'right'"
            )

    def _find_vectors(
        self, task: str | None, pooling: str | None, own: Any
    ) -> tuple[VectorPlan, bool]:
        """Return how vectors are pooled, and whether they have length 1; `own` are the default."""
        config = self.config
        if task is not None:
            spec = config.task(task)
            if spec.is_pretraining or spec.is_token_level:
                raise ValueError(f"task {task!r} is {spec.kind}, which has no vectors")
            stored: dict[str, Any] = config.sentence_embedding or {}
            vectors = spec.plan_vectors(config)
            is_unit = spec.normalizes_vectors or bool(stored.get("normalize"))
        elif pooling is None and own.missing:
            raise ValueError(
                f"{self.name_or_path}: its vectors need {', '.join(own.missing)}, which minBERT "
                "does not have: use sentence-transformers, or set pooling for vectors without that"
            )
        elif pooling not in (None, *get_args(Pooling)):
            raise ValueError(unknown("pooling", pooling, get_args(Pooling)))
        else:
            if pooling is None and config.sentence_embedding is None and self._guesses_pooling:
                warn_once(
                    f"{self.name_or_path}: its modules.json, which may say how vectors are made, "
                    f"is not in the cache: encode takes {own.pooling!r}; set pooling, or load the "
                    "model online once"
                )
            length = own.max_length or self.tokenizer.model_max_length
            encoding = Encoding(min(config.longest_sequence, length))
            vectors = VectorPlan(encoding, pooling or own.pooling, config.num_hidden_layers)
            is_unit = own.normalize
        if vectors.pooling == "pooler":
            self._check_pooler()
        return vectors, is_unit

    def _check_pooler(self) -> None:
        pooler, new = self.base_model.pooler, getattr(self.base_model, "new_pooler", None)
        if pooler is None:
            raise ValueError("pooling='pooler', but this model was made without a pooler")
        if new is None or hasattr(pooler.dense, "base_layer"):  # of an adapter, which is trained
            return
        now = pooler.dense.weight.detach().flatten()[: len(new)].cpu()
        if len(now) and now.equal(new.cpu().to(now.dtype)):  # training would have changed them
            raise ValueError(
                f"pooling='pooler', but {self.name_or_path} has no pooler, and a new one gives "
                "random vectors: use another pooling, or train it first"
            )
