"""Fine-tune one MinBert on one or several tasks.

    minbert finetune [RECIPE] [--flag value ...]
    accelerate launch -m minbert_cli.finetune [RECIPE] [--flag value ...]

RECIPE is a YAML file or the name of a packaged recipe, such as glue/cola; the default is the
quickstart. Flags are the fields of `FinetuneArguments` and of `TrainingArguments`, whose defaults
suit the device; they override the recipe.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase, set_seed

from datasets_scripts import TaskRows, load_tasks, train_wordpiece
from minbert_cli.arguments import FinetuneArguments
from minbert_cli.checkpoints import (
    choose_length,
    describe_pretrained,
    fit_together,
    load_config,
    load_pretrained,
    load_tokenizer,
    new_config,
)
from minbert_cli.data_notes import describe_data, describe_prompts
from minbert_cli.recipe_tasks import (
    RecipeTask,
    check_recipe,
    choose_for_finetuning,
    choose_heads,
    prepare_weights,
)
from minbert_cli.recipes import RECIPES
from minbert_cli.run import Given, Run, open_run, report, share
from modeling_minbert import MinBertConfig, MinBertForMultiTask
from modeling_minbert.losses import WEIGHTS
from trainers import RunFacts, Task

if TYPE_CHECKING:  # only recipes that need them load what reads a corpus or teaches
    from minbert_cli.teachers import Teaching
    from minbert_cli.text_tasks import LoadedText, RecipeText

QUICKSTART = RECIPES / "quickstart.yaml"


def finetune(given: Given = (), *, is_command: bool = False, is_dry: bool = False) -> Run:
    """Fine-tune by a recipe: read it, load rows and model, train, evaluate, and write the results.

    Args:
        given: A command line, ``[recipe.yaml] [--flag value ...]``, or the recipe itself.
        is_command: Whether errors of the user end the process with one line; else they are raised.
        is_dry: Whether to stop before the training, and to write nothing.

    Returns:
        The run, with the trainer and its model.

    Raises:
        ValueError: If a key or a value is wrong, or as for the data; the message names it. Nothing
            is written then.
        OSError: If a file cannot be read or written.
        TrainingDivergedError: If a loss, a gradient or a weight is NaN or infinite.
    """
    with open_run("finetune", QUICKSTART, given, is_command=is_command, is_dry=is_dry) as run:
        arguments, args = run.arguments, run.args

        # what needs no rows is checked first, since they may take long to read
        start = load_config(arguments, arguments.model_config)
        tasks, texts = check_recipe(arguments, args, start)
        teaching = find_teaching(arguments, tasks)

        set_seed(args.seed)  # new weights are drawn before the Trainer sets the seed
        with args.main_process_first(desc="load the data"):
            rows = load_tasks(task.data for task in tasks.values())

        # the heads by the recipe, the checkpoint and the rows
        pretrained = describe_pretrained(arguments.model_name_or_path, arguments.revision, start)
        tasks, choices = choose_heads(tasks, rows, pretrained, start, arguments)
        length = choose_length(arguments, start)
        heads = {name: task.describe_head(rows[name], length) for name, task in tasks.items()}
        heads |= {name: {"problem_type": text.problem_type} for name, text in texts.items()}

        tokenizer = share(args, lambda: find_tokenizer(arguments, rows, texts, run.checkpoint))
        model = load_model(arguments, heads, tokenizer)

        quoted_errors = arguments.report_examples
        if quoted_errors is None:
            quoted_errors = 0 if args.push_to_hub else 20
        with args.main_process_first(desc="encode the data"):
            parts = (tasks, rows, model.config, tokenizer, length)
            encoded, trained, notes = encode_tasks(*parts, quotes=quoted_errors > 0)
            corpora: dict[str, Any] = {}
            for name, text in texts.items():
                corpora[name] = corpus = text.load(tokenizer, args, length)
                encoded[name] = trained[name] = corpus.splits
                notes[name] = corpus.notes

        weights, defaults = choose_for_finetuning(arguments, args, model, trained)
        described: dict[str, RecipeTask | RecipeText] = {**tasks, **texts}
        for name, weight in weights.items():
            training = replace(described[name].training, loss_weight=weight)
            described[name] = replace(described[name], training=training)
        trainer_tasks = [
            Task(
                name,
                model.config.task(name).problem_type,
                trained[name]["train"],
                trained[name]["validation"],
                described[name].training,
                described[name].metrics,
                corpora[name].masking if name in corpora else None,
                in_glue=described[name].in_glue,
            )
            for name in arguments.tasks  # in this order round robin takes batches
        ]
        methods = arguments.make_methods()  # with the rate of heads that was chosen above
        if teaching:
            methods.insert(0, teaching.make_method(model.config, rows, trained, tokenizer, args))
        run.make_trainer(
            model,
            trainer_tasks,
            methods=methods,
            sampling=arguments,
            steps_per_epoch=arguments.steps_per_epoch,
            processing_class=tokenizer,
        )

        facts = describe_sources(run, described, rows, corpora, teaching, quotes=quoted_errors > 0)
        facts.notes.update(notes)
        facts.choices.extend(choices + defaults)
        run.start(encoded, facts)
        if not is_dry:
            run.train()
            report(
                run,
                rows=rows,
                tabulated=[name for name, task in tasks.items() if not task.has_official_format],
                quoted_errors=quoted_errors,
            )
            run.finish()
    return run


def find_teaching(
    arguments: FinetuneArguments, tasks: Mapping[str, RecipeTask]
) -> "Teaching | None":
    """Find the teachers of a run and of its tasks, if there are any."""
    if arguments.teacher or any(task.taught.get("teacher") for task in tasks.values()):
        from minbert_cli.teachers import Teaching

        return Teaching(arguments, tasks)
    for key in ("distillation_alpha", "distillation_temperature"):
        if getattr(arguments, key) is not None:
            raise ValueError(f"{key} has no effect without a teacher; leave it out")
    return None


def find_tokenizer(
    arguments: FinetuneArguments,
    rows: Mapping[str, TaskRows],
    texts: Mapping[str, "RecipeText"],
    checkpoint: str | None,
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint (to start or resume from), or train one on the texts."""
    if arguments.model_name_or_path is not None:
        return load_tokenizer(arguments.model_name_or_path, revision=arguments.revision)
    if checkpoint is not None:
        return load_tokenizer(checkpoint, "resume_from_checkpoint")
    size = new_config(arguments.model_config).vocab_size
    given = [text for task_rows in rows.values() for text in task_rows.texts()]
    if not texts:
        return train_wordpiece(given, size)
    from datasets_scripts import TrainingTexts

    corpora = [corpus for text in texts.values() for corpus in text.corpora.values()]
    return train_wordpiece(TrainingTexts(corpora, others=given), size)


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
            tasks=described.tasks,  # with the defaults, instead of what the checkpoint had
            dtype=torch.float32,
            revision=arguments.revision,
        )
    fit_together(model, tokenizer, path)
    prepare_weights(arguments, model)
    return model


def encode_tasks(
    tasks: Mapping[str, RecipeTask],
    rows: Mapping[str, TaskRows],
    config: MinBertConfig,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    *,
    quotes: bool,
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]], dict[str, list[str]]]:
    """Encode the rows of labeled tasks; returns also those to train on, and notes on the data.

    Rows without labels are trained on, but not evaluated. ``quotes`` says whether notes may quote.
    """
    encoded, trained, notes = {}, {}, {}
    for name, task_rows in rows.items():
        task, spec = tasks[name], config.task(name)
        encoding = spec.encoding(max_length)
        encoded[name] = task_rows.encode(tokenizer, encoding)
        train = task_rows.add_unlabeled(encoded[name]["train"], tokenizer, encoding)
        trained[name] = {**encoded[name], "train": train}
        parts = (task_rows, spec, trained[name], tokenizer, encoding)
        weights = {key: task.head[key] for key in WEIGHTS if task.head.get(key) is not None}
        notes[name] = describe_data(*parts, weights, quotes=quotes)
        if name == config.embedding_task:
            notes[name] += describe_prompts(task_rows, config.embedding.prompts)
    return encoded, trained, notes


def describe_sources(
    run: Run,
    described: "Mapping[str, RecipeTask | RecipeText]",
    rows: Mapping[str, TaskRows],
    corpora: Mapping[str, "LoadedText"],
    teaching: "Teaching | None",
    *,
    quotes: bool,
) -> RunFacts:
    """Describe what a run is made from; ``quotes`` says whether the rows may be quoted."""
    commits: dict[str, str | None] = {name: data.commit for name, data in rows.items()}
    hashes = {name: data.fingerprint for name, data in rows.items()}
    bad_rows = {
        name: [row.describe(quotes=quotes) for row in data.bad_rows] for name, data in rows.items()
    }
    if teaching:
        commits |= teaching.commits
        hashes |= teaching.fingerprints
    for name, corpus in corpora.items():
        source = corpus.source
        commits |= {f"{name}: {text}": commit for text, commit in source.commits.items()}
        hashes[name] = source.fingerprint
        bad_rows[name] = source.describe_skipped(quotes=quotes)
    return run.make_facts(
        [hub_id for task in described.values() for hub_id in task.hub_datasets],
        commits,
        data={name: task.source for name, task in described.items()},
        bad_rows=bad_rows,
        text={name: corpus.facts for name, corpus in corpora.items()},
        splits={name: data.facts for name, data in rows.items()},
        fingerprints=hashes,
    )


def main(argv: Sequence[str]) -> None:
    """Fine-tune, evaluate, predict, save and, if requested, push."""
    finetune(argv, is_command=True)


if __name__ == "__main__":
    # the command; not imported above, since it knows all programs
    importlib.import_module("minbert_cli.__main__").main(["finetune", *sys.argv[1:]])
