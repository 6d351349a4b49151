"""Fine-tune one MinBert on several tasks.

    accelerate launch finetune.py [recipe.yaml] [--flag value ...]

Without arguments it is the quickstart. Flags are the fields of `FinetuneArguments` and of
`TrainingArguments`, whose defaults suit the device; they win over the recipe.
"""

import sys
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainingArguments, set_seed

from datasets_scripts import LoadedTask, TaskData, encode_rows, load_task, train_wordpiece
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertTask
from trainers import (
    FastTrainingArguments,
    FinetuneArguments,
    MultiTaskTrainer,
    RunFacts,
    TaskTraining,
    asks_to_resume,
    check_output_dir,
    deal_keys,
    describe_command,
    describe_recipe,
    describe_settings,
    evaluate_run,
    find_checkpoint,
    finish_run,
    load_pretrained,
    named_errors,
    parse_recipe,
    readable_errors,
    sole_writer,
    speak_once,
    split_argv,
    start_run,
    use_all_cores,
    write_card,
    write_results,
)

HERE = Path(__file__).parent
QUICKSTART = HERE / "recipes" / "quickstart.yaml"


@dataclass(frozen=True)
class RecipeTask:
    """A task of the recipe, dealt to those who read its keys: data, head and training."""

    data: TaskData
    head: dict[str, Any]
    training: TaskTraining

    @classmethod
    def from_recipe(cls, name: str, keys: Any, data_dir: str | None) -> "RecipeTask":
        """Check the keys of a task.

        Raises:
            ValueError: If a key is unknown or a value is refused.
        """
        kinds = (TaskData, MinBertTask, TaskTraining)
        data, head, training = deal_keys(f"task {name!r}", keys, kinds)
        try:
            task_training = TaskTraining(**training)
        except ValueError as error:
            raise ValueError(f"task {name!r}: {error}") from None
        # What data and head both have to know comes from the data.
        own = {key: value for key, value in head.items() if key not in data}
        return cls(TaskData.from_recipe(name, data, data_dir), own, task_training)

    @property
    def source(self) -> str:
        """Name of the data."""
        return self.data.hub_id or self.data.dataset or Path(str(self.data.train_file)).name

    def describe_head(self, rows: LoadedTask) -> dict[str, Any]:
        """Complete the head by what the rows say."""
        is_pair = "sentence2" in rows.splits["train"].column_names
        found = {"labels": rows.labels, "score_range": rows.score_range}
        return {
            "pair_encoding": "joint" if is_pair else None,
            **self.head,
            "problem_type": rows.problem_type,
            **{key: list(values) for key, values in found.items() if values is not None},
        }


@dataclass(frozen=True)
class Run:
    """What a run is made of.

    Args:
        trainer: The trainer, with model and tokenizer.
        encoded: By task and split, the encoded rows.
        facts: What one must know to repeat it.
    """

    trainer: MultiTaskTrainer
    encoded: dict[str, dict[str, Dataset]]
    facts: RunFacts


def load_tokenizer(
    arguments: FinetuneArguments, tasks: Mapping[str, LoadedTask]
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of the checkpoint, or train one on the training texts of a new model.

    Raises:
        ValueError: If the checkpoint has none.
    """
    path = arguments.model_name_or_path
    if path is None:
        train = [task.splits["train"] for task in tasks.values()]
        columns = [rows[name] for rows in train for name in rows.column_names if "sentence" in name]
        texts = (text for column in columns for text in column)
        return train_wordpiece(texts, new_config(arguments).vocab_size)
    tokenizer = load_pretrained(AutoTokenizer, path)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what AutoTokenizer makes of no files
        raise ValueError(
            f"model_name_or_path={path!r} has no tokenizer; add its tokenizer.json or vocab.txt"
        )
    # Checkpoints of sentence-transformers bake both into tokenizer.json.
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_padding()
        tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def new_config(arguments: FinetuneArguments, **more: Any) -> MinBertConfig:
    """Make the configuration of a new model.

    Raises:
        ValueError: If a field is unknown or a value is refused.
    """
    sizes = {**(arguments.model_config or {}), **more}
    known = {entry.name for entry in fields(MinBertConfig)}
    if unknown := sorted(set(sizes) - known):
        raise ValueError(f"model_config: unknown keys {unknown}; known: {sorted(known)}")
    return MinBertConfig(**sizes)


def load_model(
    arguments: FinetuneArguments, heads: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> MinBertForMultiTask:
    """Load the encoder of a checkpoint, or make a new one, with a head for every task.

    Raises:
        ValueError: If sizes, checkpoint and tokenizer do not fit together.
    """
    path = arguments.model_name_or_path
    described = MinBertConfig(tasks=heads)
    reads_pooler = any(described.task(name).pooling == "pooler" for name in heads)
    # a frozen pooler has to be one that was trained
    keep_pooler = arguments.mode == "frozen" and reads_pooler
    if path is None:
        model = MinBertForMultiTask(new_config(arguments, vocab_size=len(tokenizer), tasks=heads))
    else:
        model = load_pretrained(
            MinBertForMultiTask,
            path,
            replaceable=("heads.",) if keep_pooler else ("heads.", "bert.pooler."),
            tasks=heads,
            dtype=torch.float32,
        )
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"model_name_or_path={path!r}: the tokenizer has {len(tokenizer)} tokens, but the "
            f"model only {model.config.vocab_size}; take the tokenizer of this model"
        )
    if not 8 <= arguments.max_length <= model.config.max_position_embeddings:
        raise ValueError(
            f"max_length={arguments.max_length} must be from 8 to the "
            f"{model.config.max_position_embeddings} positions of the model"
        )
    if arguments.mode == "frozen":
        freeze_encoder(model)
    return model


def freeze_encoder(model: MinBertForMultiTask) -> None:
    """Leave only the heads to be trained.

    Raises:
        ValueError: If a head has no weights.
    """
    model.bert.requires_grad_(requires_grad=False)
    for name, head in model.heads.items():
        if not list(head.parameters()):
            raise ValueError(
                f"task {name!r}: mode='frozen' trains heads only, and a cosine head has no "
                "weights; use head: concat"
            )


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


def prepare_run(
    arguments: FinetuneArguments, training_arguments: TrainingArguments, argv: list[str]
) -> Run:
    """Load everything that a run needs; nothing is written."""
    recipe_path, _ = split_argv(argv, QUICKSTART)
    recipe = {
        name: RecipeTask.from_recipe(name, keys, arguments.data_dir)
        for name, keys in arguments.tasks.items()
    }
    callbacks = arguments.make_callbacks(training_arguments)
    if arguments.model_name_or_path is not None:
        load_pretrained(MinBertConfig, arguments.model_name_or_path)  # a wrong one fails at once
    set_seed(training_arguments.seed)  # new heads are drawn before the Trainer sets it
    with training_arguments.main_process_first(desc="load the data"):
        tasks = {name: load_task(task.data) for name, task in recipe.items()}
    tokenizer = load_tokenizer(arguments, tasks)
    heads = {name: task.describe_head(tasks[name]) for name, task in recipe.items()}
    model = load_model(arguments, heads, tokenizer)
    with training_arguments.main_process_first(desc="encode the data"):
        encoded = {
            name: encode(arguments, task, model.config.task(name), tokenizer)
            for name, task in tasks.items()
        }
    advice = "check the network, log in with `hf auth login`, or train without it"
    pushing = training_arguments.push_to_hub
    with named_errors("push_to_hub", advice) if pushing else nullcontext():
        trainer = MultiTaskTrainer(
            model,
            training_arguments,
            problem_types={name: task.problem_type for name, task in tasks.items()},
            train_dataset={name: splits["train"] for name, splits in encoded.items()},
            eval_dataset={name: splits["validation"] for name, splits in encoded.items()},
            task_training={name: task.training for name, task in recipe.items()},
            stop=arguments.parse_stop(),
            max_tokens_per_batch=arguments.max_tokens_per_batch,
            exponential_lr_gamma=arguments.exponential_lr_gamma,
            processing_class=tokenizer,
            callbacks=callbacks,
        )
    facts = RunFacts(
        command=describe_command(argv),
        recipe=describe_recipe(str(recipe_path)),
        model_name_or_path=arguments.model_name_or_path,
        data={name: task.source for name, task in recipe.items()},
        bad_rows={name: [str(row) for row in task.bad_rows] for name, task in tasks.items()},
    )
    return Run(trainer, encoded, facts)


def report(run: Run) -> None:
    """Evaluate the trained model, print the table, and write results and model card."""
    results, predictions = evaluate_run(run.trainer, run.encoded)
    if not run.trainer.is_world_process_zero():
        return
    write_results(run.trainer, run.encoded, results, predictions, run.facts)
    write_card(HERE / "model_card.md", run.trainer, run.encoded, results, run.facts)
    for split, found in results.items():
        print(f"\n{split}\n{found.table(run.trainer.problem_types)}")


def train(run: Run, checkpoint: str | None) -> None:
    """Train, and leave in the folder what the run found."""
    args = run.trainer.args
    run.trainer.train(resume_from_checkpoint=checkpoint)
    run.trainer.save_model(args.output_dir, _internal_call=True)
    report(run)
    if run.trainer.is_world_process_zero():
        finish_run(str(args.output_dir))
    if args.push_to_hub:
        advice = (
            f"the run is whole; push it with `hf upload {args.hub_model_id or 'OWNER/NAME'} "
            f"{args.output_dir} --exclude 'checkpoint-*'`"
        )
        with readable_errors("finetune.py"), named_errors("push_to_hub", advice):
            run.trainer.push_to_hub()


def main(argv: list[str] | None = None) -> None:
    """Fine-tune, evaluate, predict, save and, if asked for, push."""
    argv = sys.argv[1:] if argv is None else argv
    with ExitStack() as stack:
        with readable_errors("finetune.py"):
            arguments, training_arguments = parse_recipe(
                (FinetuneArguments, FastTrainingArguments), argv, default_recipe=QUICKSTART
            )
            speak_once(training_arguments)
            use_all_cores(training_arguments)
            output_dir = training_arguments.output_dir
            asked = training_arguments.resume_from_checkpoint
            resume = asks_to_resume(asked)
            settings = describe_settings(training_arguments, asdict(arguments))
            check_output_dir(
                output_dir, settings, resume=resume, overwrite=arguments.overwrite_output_dir
            )
            checkpoint = find_checkpoint(output_dir, asked, training_arguments.world_size)
            run = prepare_run(arguments, training_arguments, argv)
            if run.trainer.is_world_process_zero():
                stack.enter_context(sole_writer(output_dir))
                start_run(output_dir, settings, resume=resume)
                print(run.trainer.describe_training())
        train(run, checkpoint)


if __name__ == "__main__":
    main()
