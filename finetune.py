"""Fine-tune one MinBert on several tasks.

    accelerate launch finetune.py [recipe.yaml] [--flag value ...]

Without arguments it is the quickstart. Flags are the fields of `FinetuneArguments` and of
`TrainingArguments`; they win over the recipe.
"""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from safetensors import SafetensorError
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainingArguments, set_seed

from datasets_scripts import LoadedTask, TaskData, encode_rows, load_task, train_wordpiece
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertTask
from trainers import (
    AggregateEarlyStopping,
    MultiTaskTrainer,
    TaskTraining,
    check_output_dir,
    evaluate_run,
    find_checkpoint,
    finish_run,
    parse_recipe,
    readable_errors,
    start_run,
    write_model_card,
    write_results,
)

HERE = Path(__file__).parent
QUICKSTART = HERE / "recipes" / "quickstart.yaml"


@dataclass
class FinetuneArguments:
    """What a recipe says beside `TrainingArguments`."""

    tasks: dict[str, Any] = field(metadata={"help": "Task name to its keys; see the README."})
    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A bert or minbert checkpoint; none for a new model."}
    )
    model_config: dict[str, Any] | None = field(
        default=None, metadata={"help": "Fields of MinBertConfig for a new model."}
    )
    data_dir: str | None = field(
        default=None, metadata={"help": "Folder with the official files of the built-in datasets."}
    )
    max_length: int = field(default=128, metadata={"help": "Tokens of a sequence at most."})
    mode: Literal["finetune", "frozen"] = field(
        default="finetune", metadata={"help": "Train all weights, or only the heads."}
    )
    stop: str = field(
        default="longest",
        metadata={"help": "When an epoch ends: shortest, longest, or a number of steps."},
    )
    exponential_lr_gamma: float | None = field(
        default=None, metadata={"help": "Factor on the learning rate after every epoch."}
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Evaluations without a better metric before stopping."}
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Whether the folder may lose another run."}
    )


def split_task(
    name: str, keys: Any, data_dir: str | None
) -> tuple[TaskData, dict[str, Any], TaskTraining]:
    """Deal the keys of a task in a recipe to data, head and training.

    Raises:
        ValueError: If a key is unknown or a value is refused.
    """
    data_keys, head_keys, training_keys = (
        {entry.name for entry in fields(kind)} for kind in (TaskData, MinBertTask, TaskTraining)
    )
    known = (data_keys | head_keys | training_keys) - {"name"}
    unknown = sorted(set(keys) - known) if isinstance(keys, Mapping) else [keys]
    if unknown:
        raise ValueError(
            f"task {name!r}: unknown keys {unknown}; known: {', '.join(sorted(known))}"
        )
    data = TaskData.from_recipe(
        name, {key: keys[key] for key in keys if key in data_keys}, data_dir
    )
    head = {key: keys[key] for key in keys if key in head_keys - data_keys}
    try:
        training = TaskTraining(**{key: keys[key] for key in keys if key in training_keys})
    except ValueError as error:
        raise ValueError(f"task {name!r}: {error}") from None
    return data, head, training


def describe_head(head: dict[str, Any], task: LoadedTask) -> dict[str, Any]:
    """Complete the head of a task by what its data says."""
    is_pair = "sentence2" in task.splits["train"].column_names
    described = {"pair_encoding": "joint" if is_pair else None, **head}
    described["problem_type"] = task.problem_type
    if task.labels is not None:
        described["labels"] = list(task.labels)
    if task.score_range is not None:
        described["score_range"] = list(task.score_range)
    return described


def load_tokenizer(
    arguments: FinetuneArguments, tasks: Mapping[str, LoadedTask]
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of the checkpoint, or train one on the training texts of a new model."""
    if arguments.model_name_or_path is None:
        train = [task.splits["train"] for task in tasks.values()]
        columns = [rows[name] for rows in train for name in rows.column_names if "sentence" in name]
        vocab_size = (arguments.model_config or {}).get("vocab_size", MinBertConfig.vocab_size)
        return train_wordpiece((text for column in columns for text in column), vocab_size)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model_name_or_path)
    # Checkpoints of sentence-transformers bake both into tokenizer.json.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def load_checkpoint(path: str, heads: dict[str, Any]) -> MinBertForMultiTask:
    """Load a checkpoint; only heads and the pooler may be new.

    Raises:
        ValueError: If its weights are damaged, of another size, or not those of an encoder.
    """
    try:
        loaded: Any = MinBertForMultiTask.from_pretrained(
            path, tasks=heads, dtype=torch.float32, output_loading_info=True
        )
    except (RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: the weights cannot be loaded ({reason})") from None
    model, info = loaded
    replaceable = ("heads.", "bert.pooler.")
    if lost := [key for key in info["missing_keys"] if not key.startswith(replaceable)]:
        raise ValueError(f"{path} has no weights for {len(lost)} tensors, such as {min(lost)}")
    return model


def load_model(
    arguments: FinetuneArguments, heads: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> MinBertForMultiTask:
    """Load the encoder of a checkpoint, or make a new one, with a head for every task.

    Raises:
        ValueError: If sizes, checkpoint and tokenizer do not fit together.
    """
    path = arguments.model_name_or_path
    if path is not None and arguments.model_config:
        raise ValueError("model_config is for a new model; leave it or model_name_or_path out")
    if path is None:
        sizes = {**(arguments.model_config or {}), "vocab_size": len(tokenizer)}
        known = {entry.name for entry in fields(MinBertConfig)}
        if unknown := sorted(set(sizes) - known):
            raise ValueError(
                f"model_config: unknown keys {unknown}; known: {', '.join(sorted(known))}"
            )
        model = MinBertForMultiTask(MinBertConfig(**sizes, tasks=heads))
    else:
        model = load_checkpoint(path, heads)
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"{path}: the tokenizer has {len(tokenizer)} tokens, but the model only "
            f"{model.config.vocab_size}"
        )
    if not 8 <= arguments.max_length <= model.config.max_position_embeddings:
        raise ValueError(
            f"max_length={arguments.max_length} must be from 8 to the "
            f"{model.config.max_position_embeddings} positions of the model"
        )
    if arguments.mode == "frozen":
        model.bert.requires_grad_(requires_grad=False)
    return model


def encode(
    arguments: FinetuneArguments, task: LoadedTask, head: MinBertTask, tokenizer: Any
) -> dict[str, Dataset]:
    """Encode all splits of a task."""
    return {
        split: encode_rows(
            rows,
            tokenizer,
            problem_type=task.problem_type,
            pair_encoding=head.pair_encoding,
            max_length=arguments.max_length,
        )
        for split, rows in task.splits.items()
    }


def parse_stop(stop: str) -> Any:
    """Read a stop policy; the sampler checks it."""
    return int(stop) if stop.isdigit() else stop


def make_trainer(
    arguments: FinetuneArguments, training_arguments: TrainingArguments
) -> tuple[MultiTaskTrainer, dict[str, LoadedTask], dict[str, dict[str, Dataset]]]:
    """Load everything that a run needs.

    Returns:
        The trainer; the loaded tasks; by task and split, the encoded rows.
    """
    split = {
        name: split_task(name, keys, arguments.data_dir) for name, keys in arguments.tasks.items()
    }
    set_seed(training_arguments.seed)  # new heads are drawn before the Trainer sets it
    with training_arguments.main_process_first(desc="load the data"):
        tasks = {name: load_task(data) for name, (data, _, _) in split.items()}
    tokenizer = load_tokenizer(arguments, tasks)
    heads = {name: describe_head(head, tasks[name]) for name, (_, head, _) in split.items()}
    model = load_model(arguments, heads, tokenizer)
    with training_arguments.main_process_first(desc="encode the data"):
        encoded = {
            name: encode(arguments, task, model.config.task(name), tokenizer)
            for name, task in tasks.items()
        }
    patience = arguments.early_stopping_patience
    trainer = MultiTaskTrainer(
        model,
        training_arguments,
        problem_types={name: task.problem_type for name, task in tasks.items()},
        train_dataset={name: splits["train"] for name, splits in encoded.items()},
        eval_dataset={name: splits["validation"] for name, splits in encoded.items()},
        task_training={name: training for name, (_, _, training) in split.items()},
        stop=parse_stop(arguments.stop),
        exponential_lr_gamma=arguments.exponential_lr_gamma,
        processing_class=tokenizer,
        callbacks=None if patience is None else [AggregateEarlyStopping(patience)],
    )
    return trainer, tasks, encoded


def report(
    trainer: MultiTaskTrainer,
    tasks: Mapping[str, LoadedTask],
    encoded: Mapping[str, Mapping[str, Dataset]],
    about: dict[str, Any],
) -> None:
    """Evaluate the trained model, print the table, and write results and model card."""
    results, predictions = evaluate_run(trainer, encoded)
    if not trainer.is_world_process_zero():
        return
    folder = Path(str(trainer.args.output_dir))
    about |= {
        "seed": trainer.args.seed,
        "epochs": trainer.state.epoch,
        "steps": trainer.state.global_step,
        "bad_rows": {name: [str(row) for row in task.bad_rows] for name, task in tasks.items()},
        "versions": {name: version(name) for name in ("torch", "transformers", "accelerate")},
    }
    ids = {(name, split): list(tasks[name].splits[split]["id"]) for name, split in predictions}
    write_results(folder, results, predictions, ids, trainer=trainer, about=about)
    for split, found in results.items():
        print(f"\n{split}\n{found.table(trainer.problem_types)}")
    validation = results["validation"]
    write_model_card(
        HERE / "model_card.md",
        folder / "README.md",
        model_name=folder.resolve().name,
        metrics={f"eval_{name}": value for name, value in validation.metrics.items()},
        problem_types=trainer.problem_types,
        dataset_names={name: about["data"][name] for name in tasks},
        card_data={
            "library_name": "transformers",
            "language": "en",
            "license": "apache-2.0",
            "base_model": about["model_name_or_path"],
            "tags": ["minbert", "multi-task"],
        },
        template_values={
            **about,
            "results": "\n\n".join(
                f"{split}:\n\n{found.table(trainer.problem_types)}"
                for split, found in results.items()
            ),
            "tasks": about.pop("heads"),
            "rows": {
                name: {split: len(rows) for split, rows in task.splits.items()}
                for name, task in tasks.items()
            },
        },
    )


def main(argv: list[str] | None = None) -> None:
    """Fine-tune, evaluate, predict, save and, if asked for, push."""
    argv = sys.argv[1:] if argv is None else argv
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    with readable_errors("finetune.py"):
        arguments, training_arguments = parse_recipe(
            (FinetuneArguments, TrainingArguments), argv, default_recipe=QUICKSTART
        )
        output_dir = training_arguments.output_dir
        resume = (training_arguments.resume_from_checkpoint or "false").lower() != "false"
        settings = json.loads(
            json.dumps({**training_arguments.to_dict(), **asdict(arguments)}, default=str)
        )
        checkpoint = find_checkpoint(
            output_dir, training_arguments.resume_from_checkpoint, training_arguments.world_size
        )
        is_main = training_arguments.process_index == 0
        if is_main:
            check_output_dir(
                output_dir, settings, resume=resume, overwrite=arguments.overwrite_output_dir
            )
        trainer, tasks, encoded = make_trainer(arguments, training_arguments)
        if is_main:
            start_run(output_dir, settings, resume=resume)
            print(trainer.describe_training())
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(output_dir, _internal_call=True)
    about = {
        "command": " ".join(["accelerate launch finetune.py", *argv]),
        "heads": trainer.accelerator.unwrap_model(trainer.model).config.tasks,
        "model_name_or_path": arguments.model_name_or_path,
        "data": {name: describe_source(keys) for name, keys in arguments.tasks.items()},
    }
    report(trainer, tasks, encoded, about)
    if training_arguments.push_to_hub:
        with readable_errors("finetune.py"):
            trainer.push_to_hub()
    if is_main:
        finish_run(output_dir)


def describe_source(keys: Mapping[str, Any]) -> str:
    """Name the data of a task."""
    return str(keys.get("dataset") or keys.get("hub_id") or Path(keys["train_file"]).name)


if __name__ == "__main__":
    main()
