"""The tasks of a recipe: where data, head and training of a problem type meet.

And what a run uses where its recipe leaves it out, chosen by the checkpoint and the rows.
"""

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from datasets_scripts import TaskData, TaskRows, check_files
from datasets_scripts.checking import check_keys, errors_of, key_types
from minbert_cli.arguments import FinetuneArguments, ProgramTrainingArguments
from minbert_cli.checkpoints import check_row_length, choose_length, list_weights
from modeling_minbert import TASKS, MinBertConfig, MinBertForMultiTask, MinBertTask, parse_task
from modeling_minbert.heads import Pretrained, Suggestion
from modeling_minbert.losses import WEIGHTS
from trainers import (
    PROBLEMS,
    Choice,
    TaskTraining,
    check_arguments,
    list_metrics,
    make_problems,
)

if TYPE_CHECKING:  # few recipes have text
    from minbert_cli.text_tasks import RecipeText

logger = logging.getLogger(__name__)


def find_head_keys(keys: Any) -> dict[str, Any]:
    """Return the keys of heads of the type of a task; of all types, if it has others.

    So a recipe loads the types of its tasks only. `complete` refuses keys of the wrong type.
    """
    kind = None
    if isinstance(keys, dict):
        kind = keys.get("problem_type")
        if kind is None and "dataset" in keys:
            from datasets_scripts import DATASETS  # not where all rows are of the user's own files

            kind = getattr(DATASETS.get(str(keys["dataset"])), "problem_type", None)
    others = {"teacher", *key_types(TaskData), *key_types(TaskTraining)}
    known: dict[str, Any] = {}
    for name in sorted(TASKS, key=lambda name: name != kind):
        task = TASKS[name]
        known |= dict.fromkeys(task.fields_of("recipe", "data"), Any)
        if name == kind and keys.keys() <= known.keys() | others:
            break
    return known


@dataclass(frozen=True)
class RecipeTask:
    """A labeled task of a recipe, its keys split among data, head and training."""

    data: TaskData
    head: dict[str, Any]
    training: TaskTraining
    taught: dict[str, Any] = field(default_factory=dict)  # the key teacher, if the task has it

    @classmethod
    def from_recipe(cls, name: str, keys: Any, data_dir: str | None) -> "RecipeTask":
        """Check the keys of a task."""
        parts = (TaskData, find_head_keys(keys), TaskTraining, {"teacher": Any})
        data, head, training, taught = check_keys(f"task {name!r}", keys, *parts)
        with errors_of(f"task {name!r}"):
            task_training = TaskTraining(**training)
        # keys that data and head share come from the data
        own = {key: value for key, value in head.items() if key not in data}
        task_data = TaskData.from_recipe(name, data, data_dir)
        kind = str(task_data.problem_type)
        PROBLEMS[kind](name, metrics=task_data.metrics or ())  # checks them
        return cls(task_data, own, task_training, taught)

    def with_calibration(self) -> "RecipeTask":
        """Return the task with `calibrate: true`, if it has probabilities and does not choose."""
        known = TASKS[str(self.data.problem_type)].fields_of("recipe")
        if "calibrate" not in known or "calibrate" in self.head:
            return self
        placeholder = self.describe_placeholder() | {"calibrate": False}
        if not parse_task(self.data.name, placeholder).is_likelihood:
            return self
        return replace(self, head={**self.head, "calibrate": True})

    @property
    def source(self) -> str:
        """Names of the data."""
        name = self.data.hub_id or self.data.dataset or Path(str(self.data.train_file)).name
        unlabeled = self.data.unlabeled_file
        return name if unlabeled is None else f"{name} + {Path(unlabeled).name}"

    @property
    def hub_datasets(self) -> list[str | None]:
        """Hub name of the data or of a copy, or their folder; None for files."""
        copied = self.data.built_in
        return [self.data.hub_id or (copied.hub_id if copied else None)]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Headline metrics; empty for the default of the problem type."""
        return self.data.metrics or ()

    @property
    def in_glue(self) -> bool:
        """Whether the task counts in the GLUE score."""
        row = self.data.built_in
        return row is not None and row.is_of_glue and not self.training.auxiliary

    @property
    def has_official_format(self) -> bool:
        """Whether predictions are written in the format of the dataset."""
        row = self.data.built_in
        return row is not None and row.is_of_course

    def describe_placeholder(self, max_length: int = 384) -> dict[str, Any]:
        """Describe the head before the rows are read, with a placeholder for their facts."""
        head = self.head
        if self.data.labels is None:  # to which weights are given
            head = {key: value for key, value in head.items() if key not in WEIGHTS}
        return replace(self, head=head).describe_head(TaskRows.placeholder(self.data), max_length)

    def describe_head(self, rows: TaskRows, max_length: int = 384) -> dict[str, Any]:
        """Describe the head, with the fields that follow from the rows."""
        with errors_of(f"task {rows.name!r}"):
            facts = {**rows.head_facts(), "max_length": max_length}
            facts["data_keys"] = self.data.reading_keys
            return dict(TASKS[rows.problem_type].complete(self.head, facts))


def learns_from_text(keys: Any) -> bool:
    """Return whether a task of a recipe learns from running text, without labels."""
    kind = keys.get("problem_type") if isinstance(keys, dict) else None
    return isinstance(kind, str) and kind in TASKS and TASKS[kind].is_pretraining


def choose_heads(
    tasks: Mapping[str, RecipeTask],
    loaded: Mapping[str, TaskRows],
    pretrained: Pretrained,
    start: MinBertConfig,
    arguments: FinetuneArguments,
) -> tuple[dict[str, RecipeTask], list[Choice]]:
    """Choose the fields of heads that a recipe leaves out; return the completed tasks, too."""
    if lost := [name for name in start.tasks or {} if name not in arguments.tasks]:
        logger.warning(
            "%s has the tasks %s, which this recipe does not name: the new model will not have "
            "them; to keep a task, name it, too, with its data",
            *(arguments.model_name_or_path, ", ".join(lost)),
        )
    complete, choices, calibrated = {}, [], []
    for name, task in tasks.items():
        num_rows: Any = loaded[name].facts["train"]["rows"]
        suggested = TASKS[str(task.data.problem_type)].suggest(task.head, pretrained, num_rows)
        before = start.task(name) if name in (start.tasks or {}) else None
        values = {key: made.value for key, made in suggested.items()}
        filled = replace(task, head={**values, **task.head})
        if before is not None and before.problem_type == task.data.problem_type:
            plain = filled.describe_head(loaded[name], choose_length(arguments, start))
            suggested |= keep_head(before, plain, task.head, start, arguments.max_length)
            warn_of_threshold(name, before)
        elif start.sentence_embedding is not None and arguments.max_length is None:
            suggested |= keep_length(filled, start)
        choices += [Choice(f"tasks.{name}.{key}", *made) for key, made in suggested.items()]
        values = {key: made.value for key, made in suggested.items()}
        complete[name] = chosen = replace(task, head={**task.head, **values})
        if getattr(before, "temperature", None) is not None:
            complete[name] = chosen.with_calibration()
        if complete[name] is not chosen:
            reason = "the checkpoint has a temperature for it"
            calibrated.append(Choice(f"tasks.{name}.calibrate", value=True, reason=reason))
    return complete, choices + calibrated


def warn_of_threshold(name: str, before: MinBertTask) -> None:
    """Warn that training does not keep a threshold on probabilities that was chosen by hand."""
    chosen = getattr(before, "thresholds", None)
    if chosen and not PROBLEMS[before.problem_type].fits_held_out:
        logger.warning(
            "task %r: the checkpoint decides at the probability %g, which was chosen by hand; "
            "after this training it is 0.5 again",
            *(name, *chosen),
        )


def keep_length(task: RecipeTask, start: MinBertConfig) -> dict[str, Suggestion]:
    """Suggest that a new task of vectors reads as much as those of a sentence encoder."""
    default = getattr(TASKS[str(task.data.problem_type)], "default_pair_encoding", None)
    if task.head.get("pair_encoding", default) != "separate" or "max_length" in task.head:
        return {}
    positions = start.longest_sequence
    length = min(start.embedding.max_length or positions, positions)
    return {"max_length": Suggestion(length, "as the checkpoint's sentence vectors")}


def keep_head(
    before: MinBertTask,
    plain: dict[str, Any],
    given: dict[str, Any],
    start: MinBertConfig,
    max_length: int | None,
) -> dict[str, Suggestion]:
    """Suggest what a trained head is, reads and decides, where a recipe does not say it.

    ``plain`` are the fields that the task would have otherwise, ``given`` those of the recipe, and
    ``max_length`` is that of the run, if it has one. Another head begins anew, but reads as much.
    """
    from modeling_minbert.families import keep  # a new model does not need this module

    known, task = asdict(before), parse_task("task", plain)
    new = asdict(task)
    if before.num_texts != task.num_texts:  # refused later, with the reason
        return {}
    chosen = {key: given[key] for key in given if key in known}
    if max_length is not None:
        chosen.setdefault("max_length", max_length)
    layout = {*before.fields_of("meaning")} & {*before.fields_of("recipe")}
    trained: Any = before
    kept: dict[str, Any] = {"max_length": trained.reading(start).max_length}
    if all(chosen.get(key, known[key]) == known[key] for key in layout):
        names = before.fields_of("reading", "decision", "loss")
        loss = {"loss": new["loss"]} if "loss" in new else {}
        complete = {**keep(known | kept, {**kept, **chosen, **loss})}
        kept |= {key: complete[key] for key in names if key in complete}
        kept |= {key: known[key] for key in layout}
    if known.get("threshold_fitted"):  # it is fitted again
        kept.pop("threshold", None)
    # words of tags are found by the rule that fits the new rows
    by_recipe = {*before.fields_of("recipe")} - {"words", *chosen}
    suggested = {
        key: Suggestion(value, "as the checkpoint's head of this task")
        for key, value in kept.items()
        if key in by_recipe and value is not None and (key == "pooling" or value != new[key])
    }
    for key, what in (("loss", "the default"), ("words", "fits the training rows")):
        if key not in chosen and known.get(key) != new.get(key):
            suggested[key] = Suggestion(new[key], f"{what}; the checkpoint had {known[key]}")
    return suggested


def parse_tasks(
    arguments: FinetuneArguments,
) -> tuple[dict[str, RecipeTask], dict[str, "RecipeText"]]:
    """Check the keys of all tasks; return labeled tasks, and tasks that learn from text."""
    tasks: dict[str, RecipeTask] = {}
    texts: dict[str, Any] = {}
    for name, keys in arguments.tasks.items():
        if learns_from_text(keys):
            from .text_tasks import RecipeText

            texts[name] = RecipeText.from_recipe(name, keys, arguments.data_dir)
        else:
            tasks[name] = RecipeTask.from_recipe(name, keys, arguments.data_dir)
    if not tasks:
        raise ValueError(
            f"tasks: {', '.join(texts)} learn from text alone; add a task with labels, or use "
            "minbert pretrain"
        )
    has_files = [task.data.built_in and task.data.built_in.files for task in tasks.values()]
    if arguments.data_dir is not None and not texts and not any(has_files):
        logger.warning(
            "data_dir=%r has no effect, since it is for the built-in datasets: give a task with "
            "files of its own a data_dir",
            arguments.data_dir,
        )
    if arguments.calibrate:
        tasks = {name: task.with_calibration() for name, task in tasks.items()}
        if not any(task.head.get("calibrate") for task in tasks.values()):
            raise ValueError(
                "calibrate: no task predicts probabilities, as classification, "
                "multi_label_classification, token_classification, and paraphrase with loss bce "
                "do; leave it out"
            )
    return tasks, texts


def check_recipe(
    arguments: FinetuneArguments, args: ProgramTrainingArguments, start: MinBertConfig | None
) -> tuple[dict[str, RecipeTask], dict[str, "RecipeText"]]:
    """Check all that does not depend on rows; return labeled tasks, and tasks that learn from text.

    Rows may take long to read, so an error that needs none of them comes first. What decides which
    weights are the best is set in ``args``. ``start`` is the configuration of the encoder; None if
    it is not known yet.
    """
    tasks, texts = parse_tasks(arguments)
    for task in tasks.values():
        check_files(task.data)
    length = choose_length(arguments, start)
    if start is not None:  # tasks get this length, and would be blamed for it
        check_row_length(start, length, has_pairs=False)

    # heads and problems of tasks whose rows have not been read
    heads = {name: task.describe_placeholder(length) for name, task in tasks.items()}
    heads |= {name: {"problem_type": text.problem_type} for name, text in texts.items()}
    completed = MinBertConfig(tasks=heads).tasks
    config = MinBertConfig.from_dict((start or MinBertConfig()).to_dict(), tasks=completed)
    specs = {name: config.task(name) for name in arguments.tasks}
    kinds = {name: spec.problem_type for name, spec in specs.items()}
    problems = make_problems(kinds, specs, {name: task.metrics for name, task in tasks.items()})
    _check_unlabeled(arguments, tasks, specs)
    glue = [name for name, task in tasks.items() if task.in_glue]
    auxiliary = [name for name, keys in arguments.tasks.items() if keys.get("auxiliary")]
    args.keep_last_without(list_metrics(problems, glue, auxiliary))
    check_arguments(args, problems, glue, auxiliary=auxiliary)
    arguments.make_callbacks(args)
    methods = arguments.make_methods()
    if start is not None:
        with torch.device("meta"):  # without memory for weights
            model = MinBertForMultiTask(config)
        prepare_weights(arguments, model)
        for method in methods:
            method.prepare(model, args)
    return tasks, texts


def _check_unlabeled(
    arguments: FinetuneArguments, tasks: Mapping[str, RecipeTask], specs: Mapping[str, MinBertTask]
) -> None:
    """Check that tasks can learn from their rows without labels."""
    for name, task in tasks.items():
        if task.data.unlabeled_file is None:
            continue
        where = f"task {name!r}: unlabeled_file"
        if not task.taught.get("teacher", arguments.teacher):
            raise ValueError(
                f"{where} needs a teacher, to supply the missing labels; give a teacher, or remove "
                "unlabeled_file"
            )
        if arguments.distillation_alpha == 0:
            raise ValueError(
                f"{where} has no effect with distillation_alpha=0; remove it, or give another alpha"
            )
        if getattr(getattr(specs[name], "loss_function", None), "compares_rows", False):
            raise ValueError(
                f"{where} does not go with a loss that compares the labels of a batch, of which "
                "some rows would have none; choose another loss, or remove unlabeled_file"
            )


def prepare_weights(arguments: FinetuneArguments, model: MinBertForMultiTask) -> None:
    """Check that the rows fit into a model, and choose the weights to train."""
    length = choose_length(arguments, model.config)
    described = {name: model.config.task(name) for name in arguments.tasks}
    has_pairs = any(task.num_texts == 2 and not task.is_separate for task in described.values())
    check_row_length(model.config, length, has_pairs=has_pairs)
    for name, task in described.items():
        with errors_of(f"task {name!r}"):
            own = task.encoding(length).max_length
            check_row_length(model.config, own, has_pairs=has_pairs)
    if arguments.freeze_encoder:
        model.bert.requires_grad_(requires_grad=False)
        for name, head in model.heads.items():
            if not list(head.parameters()):
                raise ValueError(
                    f"task {name!r}: freeze_encoder trains only the heads, and a cosine head has "
                    "no weights; use head: concat"
                )
    if arguments.lora is not None:
        from trainers import add_lora

        # peft computes some initial values from weights, which a model on `meta` does not have
        values = {"init_lora_weights": False} if model.device.type == "meta" else {}
        add_lora(model, arguments.lora | values, trained=("heads.", "cls.", "bert.pooler."))


# What a recipe leaves out

# Learning rate times the width of the model: of BERT-base 5e-5, as in Devlin et al. 2019, appendix
# A.3, and 2e-4 from new weights. The best rate of Adam goes with 1 / width (Yang et al. 2022).
PRETRAINED_RATE, NEW_RATE = 5e-5 * 768, 2e-4 * 768
# New heads learn slowly at the rate of the encoder, and disturb it meanwhile (Kumar et al. 2022).
HEAD_RATE_FACTOR = 100
LOW_RATE_FACTOR = 10  # a rate that is so much lower is one for an encoder
ROWS_TO_SEE = 30_000  # of the largest task
FEWEST_EPOCHS, MOST_EPOCHS = 3, 10
# The most rows of the largest task, and the rows of its batches.
BATCH_SIZES = ((500, 8), (4_000, 16), (math.inf, 32))
LONG, LONG_BATCH_SIZE = 256, 16  # tokens of rows, and the most rows of a batch of longer ones
WINDOW = 512  # tokens of the longest row that is one sequence
FEWEST_EVALUATIONS, MOST_EVALUATIONS = 2, 10
EVALUATION_SHARE = 0.1  # of the time of training
EVALUATION_COST = 1 / 3  # of a row, compared with that of a training row: the forward pass
# Rows that all evaluations together may have in any case: with few training rows the best weights
# come early, and are missed by two evaluations (benchmarks/DEFAULTS.md).
CHEAP_EVALUATION_ROWS = 10_000
# With fewer validation rows of a task, the best of several evaluations is mostly chance.
FEWEST_ROWS_TO_COMPARE = 20


class RunSize(NamedTuple):
    """Sizes that the arguments of a run depend on."""

    width: int  # of the hidden states
    is_new: bool  # whether the weights of the encoder are new
    rows: int  # of training, of the task that an epoch goes by
    tasks: int
    evaluation_rows: int  # of all tasks
    max_length: int  # of a row, in tokens
    has_new_heads: bool = True  # whether weights of a head are new
    is_frozen: bool = False  # whether the encoder is not trained


def choose_for_finetuning(
    arguments: FinetuneArguments,
    args: ProgramTrainingArguments,
    model: MinBertForMultiTask,
    trained: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, float], list[Choice]]:
    """Choose and set what the recipe of a fine-tuning leaves out, by the encoded rows.

    Returns:
        The chosen loss weights by task, which the model does not keep, and all choices.
    """
    config, tasks = model.config, arguments.tasks
    counts = [len(splits["train"]) for splits in trained.values()]
    lengths = [choose_length(arguments, config)]
    for name, splits in trained.items():
        spec: Any = config.task(name)
        # rows of several windows are as long as all of them, and others as their task reads
        if spec.has_windows or (getattr(spec, "max_length", None) or 0) > lengths[0]:
            lengths.append(max(splits["train"]["length"]))
    size = RunSize(
        width=config.hidden_size,
        is_new=arguments.model_name_or_path is None,
        # a number of steps stands for about one pass over the largest task
        rows=(min if arguments.steps_per_epoch == "shortest" else max)(counts),
        tasks=len(counts),
        evaluation_rows=sum(len(splits["validation"]) for splits in trained.values()),
        max_length=max(lengths),
        has_new_heads=has_new_heads(model, arguments),
        is_frozen=arguments.freeze_encoder,
    )
    choices = choose_arguments(args, size) + choose_head_rate(arguments, args, size)
    weights = {}
    for name, keys in tasks.items():
        spec = config.task(name)
        # such a task has no head to learn what others disturb
        is_weak = getattr(spec, "head", None) == "cosine" and spec.loss == "mse"
        if is_weak and len(tasks) > 1 and keys.get("loss_weight") is None:
            weights[name] = 3.0
    reason = "its gradient is small beside those of other tasks"
    choices += [Choice(f"tasks.{name}.loss_weight", weights[name], reason) for name in weights]
    return weights, choices + choose_kept_weights(arguments, args, trained)


def choose_arguments(args: ProgramTrainingArguments, size: RunSize) -> list[Choice]:
    """Choose and set the training arguments that the recipe leaves out."""
    kind, product = ("new", NEW_RATE) if size.is_new else ("pretrained", PRETRAINED_RATE)
    rate, why = float(f"{product / size.width:.1e}"), f"{kind} weights of width {size.width}"
    if size.is_frozen and size.has_new_heads and not size.is_new:
        rate *= HEAD_RATE_FACTOR
        why = f"{HEAD_RATE_FACTOR} times that of an encoder, for new heads alone"
        given = args.learning_rate or 0
        if "learning_rate" not in args.undecided and 0 < given < rate / LOW_RATE_FACTOR:
            message = (
                "learning_rate %g is low for new heads on a frozen encoder, which it trains "
                "slowly; without it, freeze_encoder chooses %g"
            )
            logger.warning(message, given, rate)
    count = next(count for most, count in BATCH_SIZES if size.rows <= most)
    reason = rows = f"{size.rows:,} training rows"
    most = max(1, LONG_BATCH_SIZE * WINDOW // max(size.max_length, WINDOW))
    if size.max_length > LONG and count > most:
        count, reason = most, f"rows of up to {size.max_length:,} tokens"
    epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, round(ROWS_TO_SEE / size.rows)))
    choices = [
        Choice("learning_rate", rate, why),
        Choice("per_device_train_batch_size", count, reason),
        Choice("num_train_epochs", float(epochs), rows),
    ]
    chosen = [choice for choice in choices if choice.key in args.undecided]
    args.decide({choice.key: choice.value for choice in chosen})
    if "eval_steps" not in args.undecided:
        return chosen

    # the steps between evaluations, as a share of all steps
    batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    passes = (args.num_train_epochs or 0) * size.rows * size.tasks
    trained = args.max_steps * batch if args.max_steps > 0 else passes
    affordable = max(EVALUATION_SHARE * trained / EVALUATION_COST, CHEAP_EVALUATION_ROWS)
    count = math.floor(affordable / max(1, size.evaluation_rows))
    count = min(MOST_EVALUATIONS, max(FEWEST_EVALUATIONS, count))
    # rounded up: after rounding down, the last evaluation but one comes a few steps before the end
    share = math.ceil(1e4 / count) / 1e4
    args.decide(dict.fromkeys({"eval_steps", "save_steps"} & args.undecided, share))
    reason = f"{count} evaluations of {size.evaluation_rows:,} rows"
    return [*chosen, Choice("eval_steps", share, reason)]


def choose_head_rate(
    arguments: FinetuneArguments, args: ProgramTrainingArguments, size: RunSize
) -> list[Choice]:
    """Choose and set the learning rate of new heads on a pretrained encoder.

    A recipe with a learning rate means it for all weights. Sharded training and adapters have one
    rate, too, and so have heads on a frozen encoder, which `choose_arguments` knows.
    """
    flags = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    is_sharded = bool(args.fsdp) or args.deepspeed is not None
    is_sharded |= any(os.environ.get(flag, "false").lower() in ("1", "true") for flag in flags)
    has_one_rate = arguments.freeze_encoder or arguments.lora is not None or is_sharded
    is_given = arguments.head_learning_rate is not None or "learning_rate" not in args.undecided
    rate = HEAD_RATE_FACTOR * float(args.learning_rate or 0)
    if is_given or has_one_rate or size.is_new or not size.has_new_heads or not rate:
        return []
    arguments.head_learning_rate = rate
    reason = f"{HEAD_RATE_FACTOR} times that of the encoder, for new heads"
    return [Choice("head_learning_rate", rate, reason)]


def has_new_heads(model: MinBertForMultiTask, arguments: FinetuneArguments) -> bool:
    """Return whether the checkpoint of a run, if there is one, lacks weights of a head."""
    path = arguments.model_name_or_path
    saved = () if path is None else list_weights(path, arguments.revision)
    return any(f"heads.{name}" not in saved for name, _ in model.heads.named_parameters())


def choose_kept_weights(
    arguments: FinetuneArguments,
    args: ProgramTrainingArguments,
    encoded: Mapping[str, Mapping[str, Any]],
) -> list[Choice]:
    """Keep the last weights if a task has too few validation rows to say which are best.

    A recipe that chooses the weights itself, or stops early by a metric, is left alone.
    """
    counts = {
        count_rows(encoded[name]["validation"]): name
        for name, keys in arguments.tasks.items()
        if not learns_from_text(keys) and not keys.get("auxiliary")
    }
    fewest = min(counts, default=FEWEST_ROWS_TO_COMPARE)
    is_given = not args.chooses_best or arguments.early_stopping_patience is not None
    if is_given or not args.load_best_model_at_end or fewest >= FEWEST_ROWS_TO_COMPARE:
        return []
    args.keep_last()
    reason = f"{fewest} validation rows of {counts[fewest]} cannot say which weights are best"
    return [Choice("load_best_model_at_end", False, reason)]


def count_rows(encoded: Any) -> int:
    """Count encoded rows; those of tags and questions may be several windows each."""
    has_windows = not {"sentence", "passage"}.isdisjoint(getattr(encoded, "column_names", ()))
    return len({*encoded["id"]}) if has_windows else len(encoded)


def choose_loss_as_best(args: ProgramTrainingArguments, name: str) -> list[Choice]:
    """Keep the weights with the lowest loss of this name, unless the recipe chooses the weights."""
    if not args.chooses_best or not args.load_best_model_at_end:
        return []
    args.metric_for_best_model, args.greater_is_better = name, False
    return [Choice("metric_for_best_model", name, "the loss falls before the accuracy rises")]
