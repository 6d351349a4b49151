"""A task: its type, its rows, its metrics, and how it is trained."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import datasets

from trainers.data.masking import Masking
from trainers.data.rows import TextSource
from trainers.data.task_dataset import Rows
from trainers.options import MAX_ROWS, is_positive
from trainers.problems import PROBLEMS, ProblemType, make_problems
from trainers.problems.problem import Problem


@dataclass(frozen=True, kw_only=True)
class TaskTraining:
    """Batch size, loss weight and role of one task.

    Args:
        batch_size: Rows per device and step; None takes the default of the run.
        max_tokens_per_batch: Token budget per process and step, instead of a number of rows; both
            sentences of a pair count, padding does not.
        loss_weight: Factor on the loss of this task in the gradient. The logs have ``loss_<task>``
            without it, ``loss`` and ``train_loss`` with it.
        auxiliary: Whether the task only helps the others: it is trained and evaluated, but does not
            count in aggregates over tasks.
        regularize: Whether ``r_drop`` and ``smart`` apply to this task; without them its steps are
            plain and cost accordingly.

    Raises:
        ValueError: If a value has the wrong type or is out of range, or both sizes are given.
    """

    batch_size: int | None = None
    max_tokens_per_batch: int | None = None
    loss_weight: float = 1.0
    auxiliary: bool = False
    regularize: bool = True

    def __post_init__(self) -> None:
        for name, unit in (("batch_size", "rows"), ("max_tokens_per_batch", "tokens")):
            _check_size(name, getattr(self, name), unit)
        if (self.batch_size or 0) > MAX_ROWS:
            raise ValueError(f"batch_size={self.batch_size}; expected at most {MAX_ROWS:,} rows")
        if self.batch_size is not None and self.max_tokens_per_batch is not None:
            raise ValueError(
                f"batch_size={self.batch_size} and max_tokens_per_batch="
                f"{self.max_tokens_per_batch}; give one of them"
            )
        for name in ("auxiliary", "regularize"):
            flag: Any = getattr(self, name)
            if flag is not True and flag is not False:
                raise ValueError(f"{name}={flag!r}; expected true or false")
        if not is_positive(self.loss_weight):
            raise ValueError(
                f"loss_weight={self.loss_weight!r}; expected a number > 0 (to train without a "
                "task, remove it from the recipe)"
            )


@dataclass(frozen=True)
class Task:
    """A task of a ``MultiTaskTrainer``; see ``from_dataset`` for rows that you tokenized yourself.

    Rows are a ``datasets.Dataset`` with the columns ``input_ids`` and ``token_type_ids`` (lists of
    numbers; for separate sentences a list of such lists), ``labels``, and if they are to be sorted
    by length ``length``. Other columns are ignored. Which labels there are depends on the type:

    - ``classification``: the number of the class; ``paraphrase``: 0 or 1; ``similarity``: a score;
      ``multi_label_classification``: a list of 0.0 or 1.0 for each label.
    - ``token_classification``: a number for every token, -100 for none; and ``sentence`` if several
      rows are windows of one sentence.
    - ``question_answering``: the positions of the first and last token of the answer.
    - ``contrastive``: none. The loss compares the rows of each process.
    - ``masked_lm``, ``next_sentence``, ``pretraining``: none. The rows are a ``TextSource``, or for
      masked tokens encoded rows of single sequences without a format.

    Args:
        name: Name of the task, as in ``config.tasks`` of the model, in logs and in metrics.
        problem_type: Key of ``PROBLEMS``, such as ``classification``.
        train: Training rows; None if the trainer only evaluates.
        evaluation: Rows of ``MultiTaskTrainer.evaluate``, and of evaluations during training.
        training: Batch size, loss weight and so on, where they differ from those of the run.
        metrics: Headline metrics, the first of which counts in means over tasks; empty for the
            default of the problem type.
        masking: Chooses the tokens to predict; for ``masked_lm`` and ``pretraining``.
        in_glue: Whether the task counts in the GLUE score.

    Raises:
        ValueError: If the problem type or a metric is unknown, or the masking is missing.
    """

    name: str
    problem_type: ProblemType
    train: Rows | None = None
    evaluation: Rows | None = None
    training: TaskTraining = field(default_factory=TaskTraining)
    metrics: Sequence[str] = ()
    masking: Masking | None = None
    in_glue: bool = False

    def __post_init__(self) -> None:
        self.make_problem()
        if PROBLEMS[self.problem_type].is_masked and self.masking is None:
            raise ValueError(
                f"task {self.name!r} of problem_type {self.problem_type!r} predicts masked tokens: "
                "give masking=Masking.from_tokenizer(tokenizer)"
            )

    @classmethod
    def from_dataset(
        cls,
        name: str,
        problem_type: ProblemType,
        train: datasets.Dataset | Sequence[Any] | Any | None = None,
        validation: datasets.Dataset | Sequence[Any] | Any | None = None,
        *,
        metrics: Sequence[str] = (),
        masking: Masking | None = None,
        **training: Any,
    ) -> "Task":
        """Build a task from rows that a tokenizer has encoded.

        Args:
            name: Name of the task.
            problem_type: Its type.
            train: Training rows, as ``dataset.map(lambda row: tokenizer(row["text"]))`` returns
                them, a list of such rows, or a torch dataset of them that has a length. A column
                ``label`` is used as ``labels``; without ``token_type_ids`` they are 0.
            validation: Rows to evaluate.
            metrics: Headline metrics.
            masking: Chooses the tokens to predict.
            **training: Fields of ``TaskTraining``, such as ``batch_size=16``.

        Raises:
            TypeError: If rows have no length, or are a mapping of splits.
            ValueError: If a column is missing, or a value is refused; see ``Task``.
        """
        train = _use_label(f"the training set of task {name!r}", train)
        validation = _use_label(f"the validation set of task {name!r}", validation)
        settings = TaskTraining(**training)
        return cls(name, problem_type, train, validation, settings, metrics, masking)

    def make_problem(self, head: Mapping[str, Any] | None = None) -> Problem[Any]:
        """Create the problem: metrics and everything else that depends on the type.

        Args:
            head: Description of the head, ``config.tasks[name]``; None takes the defaults.

        Raises:
            ValueError: If the head is of another problem type, or as for the class.
        """
        kind = (head or {}).get("problem_type", self.problem_type)
        if kind != self.problem_type:
            raise ValueError(
                f"task {self.name!r}: problem_type={self.problem_type!r}, but the model has a head "
                f"for {kind!r} in config.tasks[{self.name!r}]; give both the same problem type"
            )
        heads = {} if head is None else {self.name: head}
        types, metrics = {self.name: self.problem_type}, {self.name: self.metrics}
        return make_problems(types, heads, metrics)[self.name]


def find_rows(tasks: Iterable[Task], split: str = "train") -> dict[str, Rows]:
    """Return the rows of all tasks that have any, ``train`` or ``evaluation``, by name."""
    rows = {task.name: getattr(task, split) for task in tasks}
    return {name: own for name, own in rows.items() if own is not None}


def _use_label(where: str, rows: Any) -> Any:
    """Check the columns of encoded rows, and call a column ``label`` ``labels``."""
    if rows is None or isinstance(rows, TextSource):
        return rows
    rows = _to_dataset(where, rows)
    if "input_ids" not in rows.column_names:
        raise ValueError(
            f"{where} has no column 'input_ids', but {', '.join(rows.column_names)}; encode its "
            "texts with the tokenizer of the model first"
        )
    if "token_type_ids" not in rows.column_names:
        zeros = [_zeros(ids) for ids in rows.with_format(None)["input_ids"]]
        rows = rows.add_column("token_type_ids", zeros)
    only_label = "label" in rows.column_names and "labels" not in rows.column_names
    return rows.rename_column("label", "labels") if only_label else rows


def _to_dataset(where: str, rows: Any) -> datasets.Dataset:
    """Make a dataset of a list of rows or of a torch dataset with a length."""
    if isinstance(rows, datasets.Dataset):
        return rows
    if isinstance(rows, Mapping):
        raise TypeError(
            f"{where} is a {type(rows).__name__} of {', '.join(map(str, rows))}; give one of them"
        )
    if not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
        raise TypeError(
            f"{where} is a {type(rows).__name__}, whose length is not known, but the order of "
            "tasks depends on it; give a datasets.Dataset, a list of rows, or a torch dataset with "
            "a length"
        )
    listed = (dict(rows[index]) for index in range(len(rows)))
    return datasets.Dataset.from_list(
        [{name: _to_list(value) for name, value in row.items()} for row in listed]
    )


def _to_list(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _zeros(ids: Any) -> Any:
    """Return the segment ids of single sequences: 0 for every token."""
    return [_zeros(part) for part in ids] if isinstance(ids, list) else 0


def _check_size(name: str, size: Any, unit: str) -> None:
    """Check a number of rows or tokens from a recipe."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise ValueError(
            f"{name}={size!r}; expected a whole number of {unit} >= 1, or null for the default of "
            "the run"
        )
