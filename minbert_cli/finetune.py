"""Fine-tune one MinBert on one or several tasks.

    minbert finetune [RECIPE] [--flag value ...]
    accelerate launch -m minbert_cli.finetune [RECIPE] [--flag value ...]

RECIPE is a YAML file or the name of a packaged recipe, such as glue/cola; the default is the
quickstart. Flags are the fields of `FinetuneArguments` and of `TrainingArguments`, whose defaults
suit the device; they override the recipe.
"""

import sys
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, TrainingArguments

from datasets_scripts import ChainedTexts, LoadedTask, corpus_texts, load_task, train_wordpiece
from minbert_cli.checkpoints import fit_together, load_tokenizer, new_config, share
from minbert_cli.recipe_tasks import (
    RecipeTask,
    RecipeText,
    encode_task,
    find_glue_files,
    parse_tasks,
)
from minbert_cli.resources import RECIPES
from minbert_cli.texts import Text, load_text
from minbert_cli.training_run import (
    check_start,
    data_seed,
    describe_start,
    hub_errors,
    report_training,
    run_program,
)
from modeling_minbert import MinBertConfig, MinBertForMultiTask
from trainers import (
    FinetuneArguments,
    GlueFile,
    MultiTaskTrainer,
    Program,
    RunFacts,
    Task,
    add_lora,
    load_pretrained,
    missing_files,
    write_submission,
)

QUICKSTART = RECIPES / "quickstart.yaml"


@dataclass(frozen=True)
class RecipeData:
    """Tasks of a recipe, and the rows of those with labels."""

    tasks: dict[str, RecipeTask]
    texts: dict[str, RecipeText]
    loaded: dict[str, LoadedTask]

    @property
    def all_tasks(self) -> dict[str, RecipeTask | RecipeText]:
        """Tasks with labels, then those without."""
        return {**self.tasks, **self.texts}

    def describe_heads(self, max_length: int) -> dict[str, dict[str, Any]]:
        """Describe the head of every task, as the configuration of the model takes it."""
        heads = {
            name: task.describe_head(self.loaded[name], max_length)
            for name, task in self.tasks.items()
        }
        return heads | {
            name: {"problem_type": text.problem_type} for name, text in self.texts.items()
        }


@dataclass(frozen=True)
class Run:
    """A run that is ready to be trained."""

    trainer: MultiTaskTrainer
    encoded: dict[str, dict[str, Any]]  # rows by task and split
    facts: RunFacts
    arguments: FinetuneArguments
    texts: dict[str, Dataset]  # validation rows of the tasks with labels, before they were encoded
    glue_files: dict[tuple[str, str], GlueFile]  # by task and split

    def rows_to_evaluate(self) -> dict[str, dict[str, Any]]:
        """Select the held-out rows and, if asked for, as many training rows of each task."""
        selected = {}
        for task, splits in self.encoded.items():
            rows = {split: found for split, found in splits.items() if split != "train"}
            if self.arguments.evaluate_train:
                # they show overfitting
                problem = self.trainer.problems[task]
                rows["train"] = problem.choose_rows(splits["train"], len(splits["validation"]))
            selected[task] = rows
        return selected


def find_tokenizer(
    arguments: FinetuneArguments, data: RecipeData, checkpoint: str | None
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint (to start or resume from), or train one on the texts."""
    if arguments.model_name_or_path is not None:
        return load_tokenizer(arguments.model_name_or_path)
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
        )
    length = arguments.max_length
    lengths = [described.task(name).encoding_options(length)["max_length"] for name in heads]
    fit_together(model, tokenizer, path, max(length, *lengths))
    if arguments.freeze_encoder:
        freeze_encoder(model)
    if arguments.lora is not None:
        add_lora(model, arguments.lora, trained=("heads.", "cls.", "bert.pooler."))
    return model


def freeze_encoder(model: MinBertForMultiTask) -> None:
    """Freeze everything but the heads, which must have weights to train."""
    model.bert.requires_grad_(requires_grad=False)
    for name, head in model.heads.items():
        if not list(head.parameters()):
            raise ValueError(
                f"task {name!r}: freeze_encoder trains only the heads, and a cosine head has no "
                "weights; use head: concat"
            )


def prepare_run(
    arguments: FinetuneArguments, args: TrainingArguments, argv: list[str], checkpoint: str | None
) -> Run:
    """Load everything a run needs, without writing to its folder."""
    tasks, text_tasks = parse_tasks(arguments)
    callbacks = arguments.make_callbacks(args)
    check_start(arguments, args)
    with args.main_process_first(desc="load the data"):
        loaded = {name: load_task(task.data) for name, task in tasks.items()}
    data = RecipeData(tasks, text_tasks, loaded)
    tokenizer = share(args, lambda: find_tokenizer(arguments, data, checkpoint))
    model = load_model(arguments, data.describe_heads(arguments.max_length), tokenizer)
    with args.main_process_first(desc="encode the data"):
        encoded: dict[str, dict[str, Any]] = {
            name: encode_task(arguments, task, model.config.task(name), tokenizer)
            for name, task in loaded.items()
        }
        options: dict[str, Any] = {"max_length": arguments.max_length, "seed": data_seed(args)}
        texts = {
            name: load_text(text.corpora, text.arguments, tokenizer, text.problem_type, **options)
            for name, text in text_tasks.items()
        }
    encoded |= {name: text.splits for name, text in texts.items()}
    options = {"processing_class": tokenizer, "callbacks": callbacks}
    trainer = make_trainer(arguments, args, model, data, encoded, texts, **options)
    facts = describe_run(arguments, args, argv, data, texts)
    validation = {name: task.splits["validation"] for name, task in loaded.items()}
    glue_files = find_glue_files(tasks, loaded)
    return Run(trainer, encoded, facts, arguments, validation, glue_files)


def make_trainer(
    arguments: FinetuneArguments,
    args: TrainingArguments,
    model: MinBertForMultiTask,
    data: RecipeData,
    encoded: dict[str, dict[str, Any]],
    texts: dict[str, Text],
    **options: Any,
) -> MultiTaskTrainer:
    """Create the trainer; the order of the recipe's tasks is that of the round robin."""
    tasks = [
        Task(
            name,
            model.config.task(name).problem_type,
            encoded[name]["train"],
            encoded[name]["validation"],
            data.all_tasks[name].training,
            data.all_tasks[name].metrics,
            texts[name].masking if name in texts else None,
            in_glue=data.all_tasks[name].in_glue,
        )
        for name in arguments.tasks
    ]
    with hub_errors(args):
        return MultiTaskTrainer(
            model,
            args,
            tasks,
            methods=arguments.make_methods(),
            sampling=arguments.make_sampling(),
            steps_per_epoch=arguments.parse_steps_per_epoch(),
            max_tokens_per_batch=arguments.max_tokens_per_batch,
            **options,
        )


def describe_run(
    arguments: FinetuneArguments,
    args: TrainingArguments,
    argv: list[str],
    data: RecipeData,
    texts: dict[str, Text],
) -> RunFacts:
    """Describe the data and the start of a run."""
    hub_datasets = list(chain(*(task.hub_datasets for task in data.all_tasks.values())))
    quotes = arguments.count_examples(args) > 0  # the results may be published
    skipped = {
        name: [row.describe(quotes=quotes) for row in task.bad_rows]
        for name, task in data.loaded.items()
    }
    return RunFacts(
        **describe_start(PROGRAM, arguments, argv, hub_datasets),
        data={name: task.source for name, task in data.all_tasks.items()},
        bad_rows=skipped | {name: text.problems for name, text in texts.items()},
        text={name: text.facts for name, text in texts.items()},
        splits={name: task.facts for name, task in data.loaded.items()},
        fingerprints={name: task.fingerprint for name, task in data.loaded.items()}
        | {name: text.fingerprint for name, text in texts.items()},
    )


def report(run: Run) -> None:
    """Evaluate the trained model, report the results, and write the files for the GLUE server."""
    quoted = run.arguments.count_examples(run.trainer.args)
    outputs = report_training(
        run.trainer, run.facts, run.encoded, run.rows_to_evaluate(), run.texts, quoted
    )
    if outputs is None:
        return
    output_dir = str(run.trainer.args.output_dir)
    archive = write_submission(output_dir, run.glue_files, run.encoded, outputs)
    if archive is not None:
        missing = ", ".join(missing_files(archive))
        print(f"\nGLUE server: {archive}" + (f"; it also needs {missing}" if missing else ""))


PROGRAM = Program("minbert finetune", FinetuneArguments, QUICKSTART, prepare_run, report)


def main(argv: list[str] | None = None) -> None:
    """Fine-tune, evaluate, predict, save and, if asked for, push."""
    run_program(PROGRAM, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    main()
