"""A task: its type, its rows, its metrics, and how it is trained."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from datasets_scripts.checking import check_fields, number, whole_number
from modeling_minbert import TASKS, MinBertTask
from modeling_minbert.heads import ProblemType
from trainers.data.rows import Rows, read_rows
from trainers.problems import PROBLEMS, make_problems
from trainers.problems.base import AnyProblem

if TYPE_CHECKING:
    from trainers.data.masking import Masking

MAX_ROWS = 100_000  # of a batch, whose order of rows is kept in memory
Weight = Annotated[
    float,
    number("a number > 0 (to train without a task, remove it from the recipe)", lambda x: x > 0),
]


@dataclass(frozen=True, kw_only=True)
class TaskTraining:
    """Batch size, loss weight and role of one task.

    Args:
        batch_size: Rows per device and step; None takes the default of the run.
        loss_weight: Factor on the loss of this task, and so on its gradient; ``max_grad_norm`` is
            the limit of the gradient before this factor. In a run of a single task it does nothing,
            since Adam divides by the size of the gradients. The logs have ``loss_<task>`` without
            it, ``loss`` and ``train_loss`` with it.
        auxiliary: Whether the task only helps the others: it is trained and evaluated, but does not
            count in aggregates over tasks.
        regularize: Whether ``r_drop`` applies to this task; without it its steps are plain and cost
            accordingly.

    Raises:
        ValueError: If a value has the wrong type or is out of range.
    """

    batch_size: Annotated[int, whole_number(1, MAX_ROWS)] | None = None
    loss_weight: Weight = 1.0
    auxiliary: bool = False
    regularize: bool = True

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Task:
    """A task of a ``MultiTaskTrainer``.

    Rows are a ``datasets.Dataset``, as ``dataset.map(lambda row: tokenizer(row["text"]))`` returns
    it, a list of such rows, or a torch dataset. They have ``input_ids`` (a list of numbers; for
    separate sentences a list of such lists), ``labels`` or ``label``, and if they are to be sorted
    by length ``length``. Without ``token_type_ids`` these are 0. If texts are split into windows,
    these are lists of all windows of a row, and ``num_windows`` lists how many each text has. There
    is no padding. Other columns are ignored. Which labels there are depends on the type:

    - ``classification``: the number of the class; ``paraphrase``: 0 or 1;
      ``similarity``: a score; ``multi_label_classification``: a list of 0.0 or 1.0 for each label;
      ``regression``: a float, or a list of them for several targets, -100 for none. Their ``mean``
      and ``std`` over the training rows belong into the description of the task in
      ``config.tasks``.
    - ``token_classification``: a number for every token, -100 for none; and ``sentence`` if several
      rows are windows of one sentence.
    - ``question_answering``: the positions of the first and last token of the answer.
    - ``contrastive``: none. The loss compares the rows of each process.
    - ``masked_lm``, ``next_sentence``, ``pretraining``: none. The rows are a ``TextSource``, or for
      masked tokens encoded rows of single sequences without a format.

    A label of -100 is missing: it counts in no loss and no metric.

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
        TypeError: If rows or training are of another kind.
        ValueError: If the problem type or a metric is unknown, the masking or a column is missing,
            or a value is refused.
    """

    name: str
    problem_type: ProblemType
    train: Any = None  # of any kind that is named above; then `Rows`, or None
    evaluation: Any = None
    training: TaskTraining = field(default_factory=TaskTraining)
    metrics: Sequence[str] = ()
    masking: "Masking | None" = None
    in_glue: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.training, TaskTraining):
            raise TypeError(
                f"task {self.name!r}: training={self.training!r}; give a TaskTraining, such as "
                "TaskTraining(batch_size=8)"
            )
        self.make_problem()
        for split, title in (("train", "training"), ("evaluation", "validation")):
            rows = self.read_rows(title, getattr(self, split))
            object.__setattr__(self, split, rows)  # the class is frozen
        if TASKS[self.problem_type].predicts_masked_tokens and self.masking is None:
            raise ValueError(
                f"task {self.name!r} of problem_type {self.problem_type!r} predicts masked tokens: "
                "give masking=Masking.from_tokenizer(tokenizer)"
            )

    def read_rows(self, title: str, rows: Any) -> Any:
        """Convert rows of any kind, or None, to those of this task; the title is for errors."""
        of_tokens = PROBLEMS[self.problem_type].predicts_tokens
        return read_rows(f"the {title} set of task {self.name!r}", rows, of_tokens=of_tokens)

    def make_problem(self, spec: MinBertTask | None = None) -> AnyProblem:
        """Create the problem: metrics and everything else that depends on the type.

        ``spec`` is its description in the model; one of another problem type raises ValueError.
        """
        if spec is not None and spec.problem_type != self.problem_type:
            raise ValueError(
                f"task {self.name!r}: problem_type={self.problem_type!r}, but the model has a head "
                f"for {spec.problem_type!r} in config.tasks[{self.name!r}]; give both the same "
                "problem type"
            )
        name = self.name
        return make_problems({name: self.problem_type}, {name: spec}, {name: self.metrics})[name]


def find_rows(tasks: Iterable[Task], split: str = "train") -> dict[str, Rows]:
    """Return the rows of all tasks that have any, ``train`` or ``evaluation``, by name."""
    return {task.name: getattr(task, split) for task in tasks if getattr(task, split) is not None}
