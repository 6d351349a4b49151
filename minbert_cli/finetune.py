"""Fine-tune one MinBert on one or several tasks.

    minbert finetune [RECIPE] [--flag value ...]
    accelerate launch -m minbert_cli.finetune [RECIPE] [--flag value ...]

RECIPE is a YAML file or the name of a packaged recipe, such as glue/cola; the default is the
quickstart. Flags are the fields of `FinetuneArguments` and of `TrainingArguments`, whose defaults
suit the device; they override the recipe.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed

from datasets_scripts import ChainedTexts, TaskRows, corpus_texts, train_wordpiece
from minbert_cli.arguments import (
    DeviceTrainingArguments,
    FinetuneArguments,
    ProgramTrainingArguments,
)
from minbert_cli.checkpoints import (
    at_revision,
    choose_length,
    describe_pretrained,
    fit_together,
    load_config,
    load_tokenizer,
    new_config,
)
from minbert_cli.launch import Given, Program, share
from minbert_cli.resources import RECIPES, find_recipe
from minbert_cli.shell.program_help import show_help
from minbert_cli.training.data_notes import (
    describe_answers,
    describe_data,
    describe_seen,
    describe_vocabulary,
    describe_words,
)
from minbert_cli.training.defaults import choose_for_finetuning
from minbert_cli.training.recipe_tasks import (
    RecipeTask,
    RecipeText,
    check_recipe,
    choose_heads,
    find_glue_files,
    find_tables,
    keep_calibrated,
    prepare_weights,
)
from minbert_cli.training.run import (
    Run,
    describe_start,
    make_trainer,
    report,
    run_program,
)
from minbert_cli.training.shared_tasks import load_tasks
from minbert_cli.training.teachers import Teaching, find_taught, find_teaching
from minbert_cli.training.texts import Text, load_text
from modeling_minbert import MinBertConfig, MinBertForMultiTask
from modeling_minbert.tokens import TokenClassificationTask
from trainers import Choice, MultiTaskTrainer, RunFacts, Task, load_pretrained

QUICKSTART = RECIPES / "quickstart.yaml"


@dataclass(frozen=True)
class RecipeData:
    """Tasks of a recipe, and the rows of its labeled tasks."""

    tasks: dict[str, RecipeTask]
    texts: dict[str, RecipeText]
    loaded: dict[str, TaskRows]

    @property
    def all_tasks(self) -> dict[str, RecipeTask | RecipeText]:
        """All tasks, labeled ones first."""
        return {**self.tasks, **self.texts}

    @property
    def shared(self) -> dict[str, int]:
        """Count the training rows that tasks share, by the first of them."""
        counts: dict[str, Any] = {
            name: rows.facts["train"].get("shared_rows") for name, rows in self.loaded.items()
        }
        return {name: count for name, count in counts.items() if count is not None}

    def describe_heads(self, max_length: int) -> dict[str, dict[str, Any]]:
        """Describe the head of every task for the configuration of the model."""
        heads = {
            name: task.describe_head(self.loaded[name], max_length)
            for name, task in self.tasks.items()
        }
        return heads | {
            name: {"problem_type": text.problem_type} for name, text in self.texts.items()
        }


def find_tokenizer(
    arguments: FinetuneArguments, data: RecipeData, checkpoint: str | None
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint (to start or resume from), or train one on the texts."""
    if arguments.model_name_or_path is not None:
        return load_tokenizer(arguments.model_name_or_path, revision=arguments.revision)
    if checkpoint is not None:
        return load_tokenizer(checkpoint, "resume_from_checkpoint")
    texts = [text for task in data.loaded.values() for text in task.texts()]
    corpora = [corpus for text in data.texts.values() for corpus in text.corpora.values()]
    parts = (texts, corpus_texts(corpora)) if corpora else (texts,)
    return train_wordpiece(ChainedTexts(parts), new_config(arguments.model_config).vocab_size)


def load_model(
    arguments: FinetuneArguments, heads: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> MinBertForMultiTask:
    """Load the encoder of a checkpoint or create a new one, with a head for every task."""
    path = arguments.model_name_or_path
    described = MinBertConfig(tasks=heads)
    reads_pooler = any(described.task(name).uses_pooler for name in heads)
    # a frozen pooler must have been trained
    keep_pooler = arguments.freeze_encoder and reads_pooler
    if path is None:
        config = new_config(arguments.model_config, vocab_size=len(tokenizer), tasks=heads)
        model = MinBertForMultiTask(config)
    else:
        model = load_pretrained(
            MinBertForMultiTask,
            path,
            replaceable=("heads.", "cls.") if keep_pooler else ("heads.", "cls.", "bert.pooler."),
            tasks=heads,
            dtype=torch.float32,
            **at_revision(arguments.revision),
        )
    fit_together(model, tokenizer, path)
    prepare_weights(arguments, model)
    return model


def prepare_run(
    arguments: FinetuneArguments,
    args: ProgramTrainingArguments,
    given: Given,
    checkpoint: str | None,
) -> Run:
    """Load everything a run needs, without writing to its folder."""
    start = load_config(arguments, arguments.model_config)
    tasks, text_tasks = check_recipe(arguments, args, start)
    teaching = find_teaching(arguments, {name: task.teachers for name, task in tasks.items()})
    teaching.check_tasks(tasks)
    set_seed(args.seed)  # new weights are drawn before the Trainer sets the seed
    data, head_choices = load_data(arguments, args, tasks, text_tasks, start)
    tokenizer = share(args, lambda: find_tokenizer(arguments, data, checkpoint))
    length = choose_length(arguments, start)
    model = load_model(arguments, data.describe_heads(length), tokenizer)
    lessons = teaching.find_lessons(model.config)
    with args.main_process_first(desc="encode the data"):
        encoded, notes = encode_rows(data, model, tokenizer, length)
        texts = load_texts(text_tasks, tokenizer, args, length)
    encoded |= {name: text.splits for name, text in texts.items()}
    with args.main_process_first(desc="encode the rows without labels"):
        trained = add_unlabeled(data, encoded, model, tokenizer, length)
    taught = find_taught(lessons, data.loaded, trained, tokenizer, model.config, args)
    methods = arguments.make_methods()
    if taught:
        methods.insert(0, arguments.make_distillation(taught))
    weights, choices = choose_for_finetuning(arguments, args, model, trained, data.shared)
    trainer = make_trainer(
        arguments,
        args,
        model,
        make_tasks(arguments, model, data, trained, texts, weights),
        methods=methods,
        sampling=arguments.make_sampling(),
        steps_per_epoch=arguments.parse_steps_per_epoch(),
        processing_class=tokenizer,
        callbacks=arguments.make_callbacks(args),
    )
    choices = head_choices + choices
    facts = describe_run(arguments, args, given, data, texts, notes, choices, teaching)
    return make_run(arguments, args, trainer, data, encoded, facts)


def make_run(
    arguments: FinetuneArguments,
    args: TrainingArguments,
    trainer: MultiTaskTrainer,
    data: RecipeData,
    encoded: dict[str, dict[str, Any]],
    facts: RunFacts,
) -> Run:
    """Describe what a run trains, predicts and writes."""
    validation = {name: task.splits["validation"] for name, task in data.loaded.items()}
    return Run(
        trainer,
        encoded,
        facts,
        arguments.evaluate_train,
        validation,
        find_tables(data.tasks, data.loaded),
        arguments.count_examples(args),
        find_glue_files(data.tasks, data.loaded),
    )


def load_data(
    arguments: FinetuneArguments,
    args: TrainingArguments,
    tasks: dict[str, RecipeTask],
    texts: dict[str, RecipeText],
    start: MinBertConfig,
) -> tuple[RecipeData, list[Choice]]:
    """Load the rows of labeled tasks, and choose the heads that the recipe leaves open."""
    with args.main_process_first(desc="load the data"):
        loaded = load_tasks(tasks)
    pretrained = describe_pretrained(arguments.model_name_or_path, arguments.revision, start)
    tasks, choices = choose_heads(tasks, loaded, pretrained)
    tasks, more = keep_calibrated(tasks, start)
    return RecipeData(tasks, texts, loaded), choices + more


def encode_rows(
    data: RecipeData,
    model: MinBertForMultiTask,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """Encode the rows of labeled tasks; returns also notes on their data."""
    encoded, notes = {}, {}
    for name, rows in data.loaded.items():
        task, described = data.tasks[name], model.config.task(name)
        options = described.encoding_options(max_length)
        # before the rows are encoded, which sets the truncation of the tokenizer
        repeats = task.training.oversample is not None
        notes[name] = describe_data(
            rows, task.data, task.head, tokenizer, options, is_oversampled=repeats
        )
        notes[name] += describe_vocabulary(rows.measured_texts(), tokenizer)
        if isinstance(described, TokenClassificationTask):
            notes[name] += describe_words(rows, described.words)
        encoded[name] = rows.encode(tokenizer, **options)
        notes[name] += describe_seen(rows, encoded[name])
        if described.answers_questions:
            notes[name] += describe_answers(encoded[name]["train"], described)
    return encoded, notes


def add_unlabeled(
    data: RecipeData,
    encoded: Mapping[str, Mapping[str, Any]],
    model: MinBertForMultiTask,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> dict[str, dict[str, Any]]:
    """Append the rows without labels to the encoded training rows of their tasks."""
    trained = {name: dict(splits) for name, splits in encoded.items()}
    for name, rows in data.loaded.items():
        options = model.config.task(name).encoding_options(max_length)
        trained[name]["train"] = rows.add_unlabeled(trained[name]["train"], tokenizer, **options)
    return trained


def load_texts(
    tasks: Mapping[str, RecipeText],
    tokenizer: PreTrainedTokenizerBase,
    args: TrainingArguments,
    max_length: int,
) -> dict[str, Text]:
    """Load the texts of tasks that learn without labels."""
    return {
        name: load_text(
            task.corpora, task.arguments, tokenizer, task.problem_type, args, max_length=max_length
        )
        for name, task in tasks.items()
    }


def make_tasks(
    arguments: FinetuneArguments,
    model: MinBertForMultiTask,
    data: RecipeData,
    encoded: dict[str, dict[str, Any]],
    texts: dict[str, Text],
    weights: Mapping[str, float],
) -> list[Task]:
    """Describe the tasks to the trainer in the order of the recipe, which round robin follows."""
    settings = {name: task.training for name, task in data.all_tasks.items()}
    for name, weight in weights.items():
        settings[name] = replace(settings[name], loss_weight=weight)
    return [
        Task(
            name,
            model.config.task(name).problem_type,
            encoded[name]["train"],
            encoded[name]["validation"],
            settings[name],
            data.all_tasks[name].metrics,
            texts[name].masking if name in texts else None,
            in_glue=data.all_tasks[name].in_glue,
        )
        for name in arguments.tasks
    ]


def describe_run(
    arguments: FinetuneArguments,
    args: TrainingArguments,
    given: Given,
    data: RecipeData,
    texts: dict[str, Text],
    notes: dict[str, list[str]],
    choices: list[Choice],
    teaching: Teaching,
) -> RunFacts:
    """Describe the data and the start of a run."""
    hub_datasets = list(chain(*(task.hub_datasets for task in data.all_tasks.values())))
    commits = list_commits(data, texts) | teaching.commits
    quotes = arguments.count_examples(args) > 0  # the results may be published
    return RunFacts(
        **describe_start(PROGRAM, arguments, given, hub_datasets, args.hub_token, commits),
        data={name: task.source for name, task in data.all_tasks.items()},
        bad_rows=describe_invalid(data, texts, quotes=quotes),
        text={name: text.facts for name, text in texts.items()},
        splits={name: task.facts for name, task in data.loaded.items()},
        notes=notes | {name: text.notes for name, text in texts.items()},
        choices=choices,
        fingerprints={name: task.fingerprint for name, task in data.loaded.items()}
        | {name: text.fingerprint for name, text in texts.items()}
        | teaching.fingerprints,
    )


def describe_invalid(
    data: RecipeData, texts: dict[str, Text], *, quotes: bool
) -> dict[str, list[str]]:
    """Describe the rows and documents that were skipped, by task."""
    skipped = {
        name: [row.describe(quotes=quotes) for row in task.bad_rows]
        for name, task in data.loaded.items()
    }
    return skipped | {name: text.problems for name, text in texts.items()}


def list_commits(data: RecipeData, texts: dict[str, Text]) -> dict[str, str | None]:
    """List the commits of data on the Hub, by task and corpus; None for local rows."""
    commits = {name: task.commit for name, task in data.loaded.items()}
    return commits | {
        f"{name}: {corpus}": commit
        for name, text in texts.items()
        for corpus, commit in text.commits.items()
    }


PROGRAM = Program(
    "minbert finetune",
    FinetuneArguments,
    QUICKSTART,
    prepare_run,
    report,
    DeviceTrainingArguments,
)


def finetune(recipe: Mapping[str, Any] | str | os.PathLike[str]) -> MultiTaskTrainer:
    """Fine-tune from Python, as the command does: the same checks, files and weights.

    Args:
        recipe: The keys of a recipe and their values, such as ``{"tasks": {...}, "output_dir":
            "runs/mine"}``, or the path or the name of a recipe.

    Returns:
        The trainer after training: ``trainer.model.predict("task", texts)`` uses the final weights.

    Raises:
        ValueError: If a key or a value is wrong, or as for the data; the message names it. Nothing
            is written then.
        OSError: If a file cannot be read or written.
        TrainingDivergedError: If a loss, a gradient or a weight is NaN or infinite.
    """
    named = None if isinstance(recipe, Mapping) else find_recipe(os.fspath(recipe))
    given: Any = recipe if named is None else [str(named)]
    trainer = PROGRAM.run(given).trainer
    model: Any = trainer.model
    model.tokenizer = trainer.processing_class  # for `predict`, also of a new model
    return trainer


def main(argv: list[str] | None = None) -> None:
    """Fine-tune, evaluate, predict, save and, if requested, push."""
    argv = sys.argv[1:] if argv is None else argv
    if not show_help("finetune", argv):
        run_program(PROGRAM, argv)


if __name__ == "__main__":
    main()
