"""What a run uses where its recipe leaves it out, chosen by the checkpoint and the rows."""

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from minbert_cli.arguments import FinetuneArguments, ProgramTrainingArguments
from minbert_cli.checkpoints import choose_length, list_weights
from minbert_cli.recipe_tasks import learns_from_text
from modeling_minbert import MinBertForMultiTask
from trainers import Choice

# Learning rate times the width of the model: of BERT-base 5e-5, as in Devlin et al. 2019, appendix
# A.3, and 2e-4 from new weights. The best rate of Adam goes with 1 / width (Yang et al. 2022).
PRETRAINED_RATE, NEW_RATE = 5e-5 * 768, 2e-4 * 768
# New heads learn slowly at the rate of the encoder, and disturb it meanwhile (Kumar et al. 2022).
HEAD_RATE_FACTOR = 100
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
    encoded: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, float], list[Choice]]:
    """Choose and set what the recipe of a fine-tuning leaves out, by the encoded rows.

    Returns:
        The chosen loss weights by task, which the model does not keep, and all choices.
    """
    config, tasks = model.config, arguments.tasks
    counts = [len(splits["train"]) for splits in encoded.values()]
    lengths = [choose_length(arguments, config)]
    for name, splits in encoded.items():
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
        evaluation_rows=sum(len(splits["validation"]) for splits in encoded.values()),
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
    return weights, choices + choose_kept_weights(arguments, args, encoded)


def choose_arguments(args: ProgramTrainingArguments, size: RunSize) -> list[Choice]:
    """Choose and set the training arguments that the recipe leaves out."""
    kind, product = ("new", NEW_RATE) if size.is_new else ("pretrained", PRETRAINED_RATE)
    rate, why = float(f"{product / size.width:.1e}"), f"{kind} weights of width {size.width}"
    if size.is_frozen and size.has_new_heads and not size.is_new:
        rate *= HEAD_RATE_FACTOR
        why = f"{HEAD_RATE_FACTOR} times that of an encoder, for new heads alone"
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
